//! Routes a request to its verb.

use std::sync::Arc;

use bytes::Bytes;
use http::{Method, Response, request::Parts};
use serde_json::json;

use super::{
    Body, Closing, accept,
    auth::{self, Identity},
    body,
    path::{self, ObjectPath, Target},
    query::Query,
    respond, respond_json,
};
use crate::{
    core::Core,
    discovery,
    error::ApiError,
    gate::{Attributes, Resource},
    kinds::{Kind, Origin},
    verbs::{self, Call, Part, access},
};

/// Answers one request.
pub(super) async fn answer<B>(
    core: Arc<Core>,
    parts: Parts,
    body: B,
) -> Result<Response<Body>, ApiError>
where
    B: http_body::Body + Send,
    B::Data: Send,
    B::Error: Into<tower::BoxError>,
{
    let target = path::parse(parts.uri.path());
    let identity = match &core.gate {
        Some(_) if target == Target::Health => Identity::anonymous(),
        Some(gate) => {
            let peer = parts.extensions.get::<Identity>().filter(|peer| !peer.is_anonymous());
            gate.admit(peer, &parts.headers, &wanted(&target, &parts)?).await?
        }
        None => {
            let listener = parts.extensions.get::<Identity>();
            let identity = auth::identify(&core, listener, &parts.headers)?;
            let open = matches!(target, Target::Version | Target::Health);
            if identity.is_anonymous() && !open {
                return Err(ApiError::unauthorized());
            }
            identity
        }
    };
    let target = match target {
        Target::Object(path) => path,
        other if parts.method != Method::GET && parts.method != Method::HEAD => {
            let known = !matches!(other, Target::Unknown);
            return Err(if known {
                ApiError::method_not_allowed()
            } else {
                ApiError::no_such_path()
            });
        }
        other => return document(&core, &other, &parts),
    };
    let bytes = match parts.method {
        Method::GET | Method::HEAD => Bytes::new(),
        _ => body::collect(body).await?,
    };
    let call = call(core, target, identity, &parts)?;
    object(&call, &parts.method, &bytes).await
}

/// The attributes of a request, by upstream's RequestInfoFactory.
fn wanted(target: &Target, parts: &Parts) -> Result<Attributes, ApiError> {
    let path = parts.uri.path().to_owned();
    let Target::Object(object) = target else {
        let verb = parts.method.as_str().to_lowercase();
        return Ok(Attributes { verb, path, resource: None });
    };
    let watches = object.watch || Query::parse(parts.uri.query().unwrap_or(""))?.watch;
    let verb = match (&parts.method, object.name.is_some()) {
        (&Method::GET | &Method::HEAD, _) if watches => "watch",
        (&Method::GET | &Method::HEAD, true) => "get",
        (&Method::GET | &Method::HEAD, false) => "list",
        (&Method::POST, _) => "create",
        (&Method::PUT, _) => "update",
        (&Method::PATCH, _) => "patch",
        (&Method::DELETE, true) => "delete",
        (&Method::DELETE, false) => "deletecollection",
        _ => return Err(ApiError::method_not_allowed()),
    };
    let resource = Resource {
        group: object.group.clone(),
        version: object.version.clone(),
        resource: object.resource.clone(),
        subresource: object.subresource.clone().unwrap_or_default(),
        namespace: object.namespace.clone().unwrap_or_default(),
        name: object.name.clone().unwrap_or_default(),
    };
    Ok(Attributes { verb: verb.to_owned(), path, resource: Some(resource) })
}

/// Answers non-resource paths.
fn document(core: &Core, target: &Target, parts: &Parts) -> Result<Response<Body>, ApiError> {
    match target {
        Target::Version => Ok(respond_json(200, &version(core))),
        Target::Health => Ok(respond(200, "text/plain; charset=utf-8", Bytes::from_static(b"ok"))),
        Target::CoreVersions => Ok(discovery::core_versions(core, &parts.headers)),
        Target::Groups => Ok(discovery::groups(core, &parts.headers)),
        Target::Group(group) => discovery::group(core, group),
        Target::Resources { group, version } => discovery::resources(core, group, version),
        Target::Swagger => discovery::swagger(core, &parts.headers),
        Target::OpenApiIndex => Ok(discovery::openapi_index(core)),
        Target::OpenApi(path) => discovery::openapi(core, path, &parts.headers),
        Target::Object(_) | Target::Unknown => Err(ApiError::no_such_path()),
    }
}

/// `/version`.
fn version(core: &Core) -> serde_json::Value {
    json!({
        "major": core.version.major.to_string(),
        "minor": core.version.minor.to_string(),
        "gitVersion": core.version.to_string(),
        "gitCommit": "",
        "gitTreeState": "clean",
        "buildDate": "1970-01-01T00:00:00Z",
        "goVersion": "none",
        "compiler": "rustc",
        "platform": format!("{}/{}", std::env::consts::OS, std::env::consts::ARCH),
    })
}

/// The parsed request for objects of a kind.
fn call(
    core: Arc<Core>,
    path: ObjectPath,
    identity: Identity,
    parts: &Parts,
) -> Result<Call, ApiError> {
    let kinds = core.kinds();
    let kind: Arc<Kind> = kinds
        .find(&path.group, &path.version, &path.resource)
        .cloned()
        .ok_or_else(ApiError::no_such_path)?;
    if path.namespace.is_some() && !kind.namespaced {
        return Err(ApiError::no_such_path());
    }
    if kind.namespaced && path.namespace.is_none() && path.name.is_some() {
        return Err(ApiError::no_such_path());
    }
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
        closing: parts.extensions.get::<Closing>().map(|c| c.0.clone()).unwrap_or_default(),
    })
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
        Origin::Virtual(..) if !matches!(*method, Method::GET | Method::HEAD) => {
            return Err(ApiError::method_not_allowed());
        }
        Origin::Builtin(_) | Origin::Custom(_) | Origin::Virtual(..) => {}
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
