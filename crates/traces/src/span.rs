//! One span.

use jiff::Timestamp;

use crate::id::{SpanId, TraceId};

/// Longest text of an attribute or an error, in bytes: what comes from members is not bounded here.
const MOST_TEXT: usize = 512;

/// How a span relates to its parent and its children.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Within one process.
    Internal,
    /// Waits for another process.
    Client,
    /// Carries out what another process asked for.
    Server,
}

/// Value of an attribute.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Value {
    /// Text.
    Text(String),
    /// A number.
    Number(i64),
}

impl From<String> for Value {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}

impl From<&str> for Value {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

impl From<i64> for Value {
    fn from(number: i64) -> Self {
        Self::Number(number)
    }
}

/// A span that has ended.
#[derive(Debug, Clone, PartialEq)]
pub struct Span {
    pub(crate) trace: TraceId,
    pub(crate) id: SpanId,
    pub(crate) parent: Option<SpanId>,
    pub(crate) name: &'static str,
    pub(crate) kind: Kind,
    pub(crate) start: Timestamp,
    pub(crate) end: Timestamp,
    pub(crate) attributes: Vec<(&'static str, Value)>,
    pub(crate) error: Option<String>,
}

impl Span {
    /// A span from `start` to `end`. Names are few: what differs between traces is in attributes.
    #[must_use]
    pub fn new(
        (trace, id): (TraceId, SpanId),
        parent: Option<SpanId>,
        name: &'static str,
        (start, end): (Timestamp, Timestamp),
    ) -> Self {
        // Clocks may be set back.
        let end = end.max(start);
        let (kind, attributes) = (Kind::Internal, Vec::new());
        Self { trace, id, parent, name, kind, start, end, attributes, error: None }
    }

    /// Replaces [`Kind::Internal`].
    #[must_use]
    pub fn kind(mut self, kind: Kind) -> Self {
        self.kind = kind;
        self
    }

    /// Adds an attribute.
    #[must_use]
    pub fn with(mut self, key: &'static str, value: impl Into<Value>) -> Self {
        let mut value = value.into();
        if let Value::Text(text) = &mut value {
            cut(text);
        }
        self.attributes.push((key, value));
        self
    }

    /// Sets the end.
    #[must_use]
    pub fn until(mut self, end: Timestamp) -> Self {
        self.end = end.max(self.start);
        self
    }

    /// Marks it as failed.
    #[must_use]
    pub fn failed(mut self, why: impl Into<String>) -> Self {
        let mut why = why.into();
        cut(&mut why);
        self.error = Some(why);
        self
    }

    /// About how many bytes it takes in memory and in a request.
    pub(crate) fn size(&self) -> usize {
        /// Times, ids and names of fields in a request.
        const FIXED: usize = 320;
        const ATTRIBUTE: usize = 64;
        let text = |(key, value): &(&str, Value)| {
            key.len() + ATTRIBUTE + if let Value::Text(text) = value { text.len() } else { 8 }
        };
        let attributes: usize = self.attributes.iter().map(text).sum();
        FIXED + attributes + self.error.as_ref().map_or(0, String::len)
    }
}

fn cut(text: &mut String) {
    if text.len() > MOST_TEXT {
        text.truncate(text.floor_char_boundary(MOST_TEXT));
    }
}
