//! Traces of decisions, sent to a collector in the OpenTelemetry protocol (OTLP over HTTP, as JSON).
//!
//! The id of a trace is the id of the decision, so whoever knows one knows the other, and controllers and agents
//! sample the same decisions without talking about it. Ids of spans are computed from the trace and the span's place,
//! so a new leader and an agent name the parent that another process reported.
//!
//! Recording a span never waits: a bounded queue takes it, or it is dropped and counted. A [`Tracer`] that is off
//! does nothing.

mod exporter;
mod id;
mod otlp;
mod span;

pub use exporter::{Collector, CollectorError, Exporter, Tracer, start};
pub use id::{InvalidRatio, Ratio, SpanId, TraceContext, TraceId};
pub use span::{Kind, Span, Value};
