//! Spans as a request of the OpenTelemetry protocol, `ExportTraceServiceRequest` as JSON.

use bytes::Bytes;
use serde_json::{Value as Json, json};

use crate::span::{Kind, Span, Value};

/// Code of a failed span.
const FAILED: u8 = 2;

/// Who records spans: one process, or one agent in it.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Service {
    /// For example `atoll-controller`.
    pub(crate) name: &'static str,
    /// Which of several, for example the name of the Pod.
    pub(crate) instance: String,
}

/// A request with these spans.
pub(crate) fn request<'a>(spans: impl IntoIterator<Item = (&'a Service, &'a Span)>) -> Bytes {
    let mut groups: Vec<(&Service, Vec<Json>)> = Vec::new();
    for (service, span) in spans {
        match groups.iter_mut().find(|(known, _)| *known == service) {
            Some((_, group)) => group.push(encode(span)),
            None => groups.push((service, vec![encode(span)])),
        }
    }
    let groups = groups.into_iter().map(|(service, spans)| {
        json!({
            "resource": {"attributes": [
                attribute("service.name", &service.name.into()),
                attribute("service.version", &env!("CARGO_PKG_VERSION").into()),
                attribute("service.instance.id", &service.instance.as_str().into()),
            ]},
            "scopeSpans": [{"scope": {"name": "atoll"}, "spans": spans}],
        })
    });
    json!({"resourceSpans": groups.collect::<Vec<_>>()}).to_string().into()
}

fn encode(span: &Span) -> Json {
    let kind = match span.kind {
        Kind::Internal => 1,
        Kind::Server => 2,
        Kind::Client => 3,
    };
    let attributes = span.attributes.iter().map(|(key, value)| attribute(key, value));
    let mut encoded = json!({
        "traceId": span.trace.to_string(),
        "spanId": span.id.to_string(),
        "name": span.name,
        "kind": kind,
        // 64-bit numbers are texts in this encoding.
        "startTimeUnixNano": span.start.as_nanosecond().to_string(),
        "endTimeUnixNano": span.end.as_nanosecond().to_string(),
        "attributes": attributes.collect::<Vec<_>>(),
    });
    if let Some(parent) = span.parent {
        encoded["parentSpanId"] = parent.to_string().into();
    }
    if let Some(error) = &span.error {
        encoded["status"] = json!({"code": FAILED, "message": error});
    }
    encoded
}

fn attribute(key: &str, value: &Value) -> Json {
    let value = match value {
        Value::Text(text) => json!({"stringValue": text}),
        Value::Number(number) => json!({"intValue": number.to_string()}),
    };
    json!({"key": key, "value": value})
}

/// How many spans of an accepted request the collector did not take, and why.
pub(crate) fn rejected(answer: &[u8]) -> Option<(u64, String)> {
    let answer: Json = serde_json::from_slice(answer).ok()?;
    let partial = answer.get("partialSuccess")?;
    let number = match &partial["rejectedSpans"] {
        Json::String(text) => text.parse().ok()?,
        number => number.as_u64()?,
    };
    let why = partial["errorMessage"].as_str().unwrap_or_default();
    (number > 0).then(|| (number, why.chars().filter(|c| !c.is_control()).take(200).collect()))
}
