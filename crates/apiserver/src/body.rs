//! Request bodies.

use atoll_apimachinery::ApiError;
use bytes::Bytes;
use http::HeaderMap;
use http_body_util::{BodyExt, LengthLimitError, Limited};
use serde_json::Value;

use crate::protobuf;

/// Maximum body size in bytes: kube-apiserver's own limit for writes.
const MAX_BODY: usize = 3 * 1024 * 1024;

/// Reads a whole body.
pub(crate) async fn collect<B>(body: B) -> Result<Bytes, ApiError>
where
    B: http_body::Body + Send,
    B::Data: Send,
    B::Error: Into<tower::BoxError>,
{
    match Limited::new(body, MAX_BODY).collect().await {
        Ok(collected) => Ok(collected.to_bytes()),
        Err(e) if e.is::<LengthLimitError>() => Err(ApiError::too_large(MAX_BODY)),
        Err(e) => Err(ApiError::bad_request(format!("read the request's body: {e}"))),
    }
}

/// The content type without parameters, empty when there is none.
pub(crate) fn content_type(headers: &HeaderMap) -> &str {
    headers
        .get(http::header::CONTENT_TYPE)
        .and_then(|v| v.to_str().ok())
        .and_then(|v| v.split(';').next())
        .map_or("", str::trim)
}

/// Decodes an object by its content type.
pub(crate) fn decode(headers: &HeaderMap, body: &[u8]) -> Result<Value, ApiError> {
    match content_type(headers) {
        "" | "application/json" => json(body),
        "application/yaml" | "application/x-yaml" | "text/yaml" => yaml(body),
        protobuf::MEDIA_TYPE => protobuf::decode(body).map_err(|why| {
            ApiError::bad_request(format!("the request's body is not valid protobuf: {why}"))
        }),
        _ => Err(ApiError::unsupported_media_type(
            "application/json, application/yaml, application/vnd.kubernetes.protobuf",
        )),
    }
}

pub(crate) fn json(body: &[u8]) -> Result<Value, ApiError> {
    serde_json::from_slice(body)
        .map_err(|e| ApiError::bad_request(format!("the request's body is not valid JSON: {e}")))
}

/// YAML, of which JSON is a part; most clients send JSON under the YAML type, so that is tried first.
pub(crate) fn yaml(body: &[u8]) -> Result<Value, ApiError> {
    if let Ok(value) = serde_json::from_slice(body) {
        return Ok(value);
    }
    let text = std::str::from_utf8(body)
        .map_err(|e| ApiError::bad_request(format!("the request's body is not UTF-8: {e}")))?;
    // Only `true` and `false` are booleans, as in YAML 1.2; a name may well be `y` or `on`.
    let options = serde_saphyr::options! { strict_booleans: true };
    serde_saphyr::from_str_with_options(text, options)
        .map_err(|e| ApiError::bad_request(format!("the request's body is not valid YAML: {e}")))
}
