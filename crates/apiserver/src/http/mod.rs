//! The HTTP layer: a tower service over any body. It identifies users and routes requests to [`crate::verbs`] and
//! discovery.

mod auth;
mod kubelets;
mod raw;
mod route;

use std::{
    convert::Infallible,
    sync::Arc,
    task::{Context, Poll},
};

use atoll_apimachinery::{
    discovery::Documents,
    response::{Body, refusal},
};
use futures::future::BoxFuture;
use http::{Request, Response};

use crate::core::Core;

/// The server as a tower service. Cheap to clone; clones share everything.
#[derive(Clone)]
pub struct Service {
    core: Arc<Core>,
    documents: Arc<Documents>,
}

impl Service {
    pub(crate) fn new(core: Arc<Core>, documents: Arc<Documents>) -> Self {
        Service { core, documents }
    }
}

impl<B> tower::Service<Request<B>> for Service
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
        let (core, documents) = (self.core.clone(), self.documents.clone());
        Box::pin(async move {
            let (parts, body) = request.into_parts();
            if let Some(api) = raw::find(&core, parts.uri.path()) {
                let answer = raw::answer(&core, &*api, parts, raw::request_body(body)).await;
                return Ok(answer.unwrap_or_else(|error| refusal(&error)));
            }
            let answer = route::answer(core, &documents, parts, body).await;
            Ok(answer.unwrap_or_else(|error| refusal(&error)))
        })
    }
}
