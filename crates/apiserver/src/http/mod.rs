//! The HTTP layer: a tower service over any body. It reads paths, queries, headers and bodies, calls [`crate::verbs`]
//! and others, and writes answers. It does not depend on how objects are stored.

pub(crate) mod accept;
pub(crate) mod auth;
pub(crate) mod body;
mod path;
pub(crate) mod query;
mod route;

use std::{
    convert::Infallible,
    sync::Arc,
    task::{Context, Poll},
};

use bytes::Bytes;
use futures::future::BoxFuture;
use http::{HeaderValue, Request, Response, header};
use http_body_util::{BodyExt, Full, combinators::UnsyncBoxBody};
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use crate::{core::Core, error::ApiError, store::encode};

/// The body of every answer.
pub type Body = UnsyncBoxBody<Bytes, Infallible>;

/// In a request's extensions: cancelled when its listener stops.
#[derive(Clone)]
pub(crate) struct Closing(pub(crate) CancellationToken);

pub(crate) const JSON: &str = "application/json";

/// The server as a tower service. Cheap to clone; clones share everything.
#[derive(Clone)]
pub struct Service {
    core: Arc<Core>,
}

impl Service {
    pub(crate) fn new(core: Arc<Core>) -> Self {
        Service { core }
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
        let core = self.core.clone();
        Box::pin(async move {
            let (parts, body) = request.into_parts();
            let answer = route::answer(core, parts, body).await;
            Ok(answer.unwrap_or_else(|error| refusal(&error)))
        })
    }
}

/// A whole body.
pub(crate) fn full(bytes: Bytes) -> Body {
    Full::new(bytes).boxed_unsync()
}

/// An answer with a body of one content type.
pub(crate) fn respond(code: u16, content_type: &'static str, body: Bytes) -> Response<Body> {
    let mut response = Response::new(full(body));
    // Every code comes from a literal of this crate.
    *response.status_mut() =
        http::StatusCode::from_u16(code).unwrap_or(http::StatusCode::INTERNAL_SERVER_ERROR);
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
    response
}

pub(crate) fn respond_json(code: u16, body: &Value) -> Response<Body> {
    respond(code, JSON, encode(body))
}

/// The answer for an error.
pub(crate) fn refusal(error: &ApiError) -> Response<Body> {
    let mut response = respond_json(error.code, &error.status());
    if let Some(seconds) = error.retry_after() {
        response.headers_mut().insert(header::RETRY_AFTER, seconds.into());
    }
    response
}

/// Adds `Warning` headers (RFC 7234, code 299) as upstream does for deprecated or unknown fields.
pub(crate) fn warn(response: &mut Response<Body>, warnings: &[String]) {
    for text in warnings {
        let clean: String = text
            .chars()
            .filter(|c| !c.is_control())
            .flat_map(|c| matches!(c, '"' | '\\').then_some('\\').into_iter().chain([c]))
            .collect();
        if let Ok(value) = HeaderValue::from_str(&format!("299 - \"{clean}\"")) {
            response.headers_mut().append(header::WARNING, value);
        }
    }
}
