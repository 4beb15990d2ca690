//! Answers.

use std::convert::Infallible;

use bytes::Bytes;
use futures::{Stream, StreamExt};
use http::{HeaderValue, Response, StatusCode, header};
use http_body::Frame;
use http_body_util::{BodyExt, Full, StreamBody, combinators::UnsyncBoxBody};
use serde_json::Value;
use tower::BoxError;

use crate::ApiError;

/// The body of every answer. Only proxied ones fail: the client then sees that its answer is incomplete.
pub type Body = UnsyncBoxBody<Bytes, BoxError>;

/// The content type of JSON.
pub const JSON: &str = "application/json";

/// JSON text of a value.
#[must_use]
pub fn encode(value: &Value) -> Bytes {
    serde_json::to_vec(value).expect("a JSON value has string keys and finite numbers").into()
}

/// An answer with a body of one content type. `code` is a valid HTTP status code.
pub fn respond(code: u16, content_type: &'static str, body: Bytes) -> Response<Body> {
    let mut response = Response::new(infallible(Full::new(body)));
    *response.status_mut() =
        StatusCode::from_u16(code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
    response
}

/// An answer in JSON.
pub fn respond_json(code: u16, body: &Value) -> Response<Body> {
    respond(code, JSON, encode(body))
}

/// The answer of a watch: one frame after the other.
pub fn respond_frames(frames: impl Stream<Item = Bytes> + Send + 'static) -> Response<Body> {
    let body = StreamBody::new(frames.map(|bytes| Ok::<_, Infallible>(Frame::data(bytes))));
    let mut response = respond(200, JSON, Bytes::new());
    *response.body_mut() = infallible(body);
    response
}

fn infallible(
    body: impl http_body::Body<Data = Bytes, Error = Infallible> + Send + 'static,
) -> Body {
    body.map_err(|never| match never {}).boxed_unsync()
}

/// The answer for an error.
pub fn refusal(error: &ApiError) -> Response<Body> {
    let mut response = respond_json(error.code, &error.status());
    if let Some(seconds) = error.retry_after() {
        response.headers_mut().insert(header::RETRY_AFTER, seconds.into());
    }
    response
}

/// Adds `Warning` headers (RFC 7234, code 299) as upstream does for deprecated or unknown fields.
pub fn warn(response: &mut Response<Body>, warnings: &[String]) {
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
