//! Routes a request to its verb.

use std::sync::Arc;

use atoll_apimachinery::{
    ApiError,
    discovery::Documents,
    identity::Identity,
    read_only::{Read, ReadOnlyKind},
    request::{Closing, ObjectPath, Query, Target, accept},
    response::Body,
};
use bytes::Bytes;
use http::{Method, Response, request::Parts};

use super::{auth, kubelets};
use crate::{
    body,
    core::Core,
    kinds::Origin,
    verbs::{self, Call, Part, access, rbac},
};

/// Answers one request.
pub(super) async fn answer<B>(
    core: Arc<Core>,
    documents: &Documents,
    parts: Parts,
    body: B,
) -> Result<Response<Body>, ApiError>
where
    B: http_body::Body + Send,
    B::Data: Send,
    B::Error: Into<tower::BoxError>,
{
    let target = Target::parse(parts.uri.path());
    let identity = auth::identify(&core, parts.extensions.get::<Identity>(), &parts.headers)?;
    let open = matches!(target, Target::Version | Target::Health);
    if identity.is_anonymous() && !open {
        return Err(ApiError::unauthorized());
    }
    let reads = matches!(parts.method, Method::GET | Method::HEAD);
    let path = match target {
        Target::Object(path) => path,
        Target::Unknown => return Err(ApiError::no_such_path()),
        _ if !reads => return Err(ApiError::method_not_allowed()),
        document => return documents.answer(&core.kinds(), &document, &parts.headers),
    };
    let bytes = if reads { Bytes::new() } else { body::collect(body).await? };
    let call = call(core, path, identity, &parts)?;
    rbac::check(&call, &parts.method)?;
    if kubelets::concerned(&call) {
        return kubelets::answer(call, parts).await;
    }
    match &call.kind.origin {
        Origin::Virtual(kind) => read(kind, &call, &parts.method).await,
        Origin::Builtin(_) | Origin::Custom(_) => object(&call, &parts.method, &bytes).await,
    }
}

/// The parsed request for objects of a kind.
fn call(
    core: Arc<Core>,
    path: ObjectPath,
    identity: Identity,
    parts: &Parts,
) -> Result<Call, ApiError> {
    let kinds = core.kinds();
    let kind = kinds.find(&path.group, &path.version, &path.resource);
    let kind = kind.cloned().ok_or_else(ApiError::no_such_path)?;
    path.check_scope(kind.namespaced)?;
    let mut query = Query::parse(parts.uri.query().unwrap_or(""))?;
    query.watch |= path.watch;
    Ok(Call {
        shape: accept::shape(&parts.headers)?,
        core,
        kind,
        identity,
        headers: parts.headers.clone(),
        query,
        namespace: path.namespace,
        name: path.name.unwrap_or_default(),
        subresource: path.subresource,
        closing: parts.extensions.get::<Closing>().cloned().unwrap_or_default().0,
    })
}

/// Reads a kind that is stored elsewhere.
async fn read(
    kind: &Arc<ReadOnlyKind>,
    call: &Call,
    method: &Method,
) -> Result<Response<Body>, ApiError> {
    if call.subresource.is_some() {
        return Err(ApiError::no_such_path());
    }
    if !matches!(*method, Method::GET | Method::HEAD) {
        return Err(ApiError::method_not_allowed());
    }
    let read = Read {
        query: call.query.clone(),
        shape: call.shape,
        namespace: call.namespace.clone(),
        name: call.name.clone(),
        closing: call.closing.clone(),
        clock: call.core.clock.clone(),
    };
    kind.answer(&read).await
}

/// Dispatches by subresource, kind, place and method.
async fn object(call: &Call, method: &Method, bytes: &[u8]) -> Result<Response<Body>, ApiError> {
    if let Some(subresource) = &call.subresource {
        return match subresource.as_str() {
            "status" if call.kind.status => named(call, method, bytes, Part::Status).await,
            "scale" if call.kind.scale.is_some() => verbs::scale::answer(call, method, bytes).await,
            other => verbs::subresource::answer(call, other, method, bytes).await,
        };
    }
    match &call.kind.origin {
        Origin::Builtin(b) if b.review => {
            if *method != Method::POST || !call.name.is_empty() {
                return Err(ApiError::method_not_allowed());
            }
            return access::review(call, body::decode(&call.headers, bytes)?);
        }
        Origin::Builtin(_) | Origin::Custom(_) | Origin::Virtual(_) => {}
    }
    if !call.name.is_empty() {
        return named(call, method, bytes, Part::Main).await;
    }
    match *method {
        Method::GET | Method::HEAD if call.query.watch => verbs::watch::watch(call).await,
        Method::GET | Method::HEAD => verbs::read::list(call).await,
        Method::POST => verbs::create::create(call, body::decode(&call.headers, bytes)?).await,
        Method::DELETE => verbs::delete::collection(call, bytes).await,
        _ => Err(ApiError::method_not_allowed()),
    }
}

/// Requests to one object or its status.
async fn named(
    call: &Call,
    method: &Method,
    bytes: &[u8],
    part: Part,
) -> Result<Response<Body>, ApiError> {
    match *method {
        Method::GET | Method::HEAD if call.query.watch && part == Part::Main => {
            verbs::watch::watch(call).await
        }
        Method::GET | Method::HEAD => verbs::read::get(call).await,
        Method::PUT => verbs::update::update(call, body::decode(&call.headers, bytes)?, part).await,
        Method::PATCH => verbs::patch::patch(call, bytes, part).await,
        Method::DELETE if part == Part::Main => verbs::delete::delete(call, bytes).await,
        _ => Err(ApiError::method_not_allowed()),
    }
}
