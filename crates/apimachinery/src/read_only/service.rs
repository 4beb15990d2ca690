//! A server of read-only kinds only: an extension API server behind kube-apiserver's aggregator.

use std::convert::Infallible;
use std::sync::Arc;
use std::task::{Context, Poll};

use futures::future::BoxFuture;
use http::request::Parts;
use http::{Method, Request, Response};

use super::{Clock, Read, ReadOnlyKind, VirtualResource};
use crate::ApiError;
use crate::discovery::{Definitions, Documents, Version};
use crate::gate::{Attributes, Gate};
use crate::identity::Identity;
use crate::kind::{ServedKind, ServedKinds};
use crate::raw::{RawApi, RequestBody, request_body};
use crate::request::{Closing, ObjectPath, Query, Target, accept};
use crate::response::{Body, refusal};

/// The server as a tower service. Cheap to clone; clones share everything.
#[derive(Clone)]
pub struct ReadOnlyApi {
    shared: Arc<Shared>,
}

struct Shared {
    kinds: ServedKinds<ReadOnlyKind>,
    documents: Documents,
    raw: Vec<Arc<dyn RawApi>>,
    gate: Arc<dyn Gate>,
    clock: Clock,
}

impl ReadOnlyApi {
    /// Serves these resources to users that the gate admits.
    pub fn new(
        resources: impl IntoIterator<Item = Arc<dyn VirtualResource>>,
        gate: Arc<dyn Gate>,
        clock: Clock,
    ) -> Self {
        Self::with_raw(resources, Vec::new(), gate, clock)
    }

    /// The same, and APIs whose requests are passed on.
    pub fn with_raw(
        resources: impl IntoIterator<Item = Arc<dyn VirtualResource>>,
        raw: Vec<Arc<dyn RawApi>>,
        gate: Arc<dyn Gate>,
        clock: Clock,
    ) -> Self {
        let kinds = resources.into_iter().map(|resource| Arc::new(ReadOnlyKind::new(resource)));
        let kinds = ServedKinds::new(kinds, 1);
        let documents = Documents::new(Version::default(), Definitions::OwnKinds);
        raw.iter().for_each(|api| documents.list_raw(api.names()));
        Self { shared: Arc::new(Shared { kinds, documents, raw, gate, clock }) }
    }
}

impl<B> tower::Service<Request<B>> for ReadOnlyApi
where
    B: http_body::Body + Send + 'static,
    B::Data: Send,
    B::Error: Into<tower::BoxError>,
{
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = BoxFuture<'static, Result<Response<Body>, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let shared = self.shared.clone();
        Box::pin(async move {
            let (parts, body) = request.into_parts();
            if let Some(api) = shared.raw.iter().find(|api| api.names().serves(parts.uri.path())) {
                let answer = shared.pass_on(api, parts, request_body(body)).await;
                return Ok(answer.unwrap_or_else(|error| refusal(&error)));
            }
            // Reads have no body.
            drop(body);
            Ok(shared.answer(&parts).await.unwrap_or_else(|error| refusal(&error)))
        })
    }
}

impl Shared {
    async fn answer(&self, parts: &Parts) -> Result<Response<Body>, ApiError> {
        let target = Target::parse(parts.uri.path());
        if target != Target::Health {
            let peer = parts.extensions.get::<Identity>().filter(|peer| !peer.is_anonymous());
            let wanted = Attributes::of(&target, parts)?;
            self.gate.admit(peer, &parts.headers, &wanted).await?;
        }
        let reads = matches!(parts.method, Method::GET | Method::HEAD);
        match target {
            Target::Unknown => Err(ApiError::no_such_path()),
            Target::Object(path) => self.read(path, parts).await,
            _ if !reads => Err(ApiError::method_not_allowed()),
            document => self.documents.answer(&self.kinds, &document, &parts.headers),
        }
    }

    async fn pass_on(
        &self,
        api: &Arc<dyn RawApi>,
        parts: Parts,
        body: RequestBody,
    ) -> Result<Response<Body>, ApiError> {
        let peer = parts.extensions.get::<Identity>().filter(|peer| !peer.is_anonymous());
        let wanted = api.attributes(&parts)?;
        let caller = self.gate.admit(peer, &parts.headers, &wanted).await?;
        Ok(api.answer(caller, parts, body).await)
    }

    async fn read(&self, path: ObjectPath, parts: &Parts) -> Result<Response<Body>, ApiError> {
        let kind = self.kinds.find(&path.group, &path.version, &path.resource);
        let kind = kind.ok_or_else(ApiError::no_such_path)?;
        path.check_scope(kind.names().namespaced)?;
        let mut query = Query::parse(parts.uri.query().unwrap_or(""))?;
        query.watch |= path.watch;
        let read = Read {
            shape: accept::shape(&parts.headers)?,
            query,
            namespace: path.namespace,
            name: path.name.unwrap_or_default(),
            closing: parts.extensions.get::<Closing>().cloned().unwrap_or_default().0,
            clock: self.clock.clone(),
        };
        if path.subresource.is_some() {
            return Err(ApiError::no_such_path());
        }
        if !matches!(parts.method, Method::GET | Method::HEAD) {
            return Err(ApiError::method_not_allowed());
        }
        kind.answer(&read).await
    }
}
