//! Log lines as JSON objects, one a line: `time`, `level`, `target`, `message`, and the event's fields.

use std::fmt;

use serde_json::{Map, Value};
use tracing::field::{Field, Visit};
use tracing::{Event, Metadata};
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::time::{FormatTime, SystemTime};

use crate::text::visible_json;

/// Longest field in bytes: a line must fit what log collectors take (Docker splits at 16 KiB).
const LONGEST: usize = 4096;
/// Names of the line itself; fields of an event with such a name get a `_` in front.
const OWN: [&str; 3] = ["time", "level", "target"];

/// Writes an event.
pub(super) fn write(writer: &mut Writer<'_>, event: &Event<'_>) -> fmt::Result {
    let mut fields = Fields(Map::new());
    event.record(&mut fields);
    line(writer, event.metadata(), fields.0)
}

/// Writes a line with these fields.
pub(super) fn line(
    writer: &mut Writer<'_>,
    metadata: &Metadata<'_>,
    fields: Map<String, Value>,
) -> fmt::Result {
    let mut time = String::new();
    SystemTime.format_time(&mut Writer::new(&mut time))?;
    let mut line = Map::new();
    line.insert("time".to_owned(), time.into());
    line.insert("level".to_owned(), metadata.level().as_str().into());
    line.insert("target".to_owned(), metadata.target().into());
    line.extend(fields);
    writeln!(writer, "{}", visible_json(&Value::Object(line).to_string()))
}

struct Fields(Map<String, Value>);

impl Fields {
    fn put(&mut self, field: &Field, value: Value) {
        let name = match field.name() {
            name if OWN.contains(&name) => format!("_{name}"),
            name => name.to_owned(),
        };
        self.0.insert(name, value);
    }

    fn text(&mut self, field: &Field, mut text: String) {
        if text.len() > LONGEST {
            let cut = (0..=LONGEST).rev().find(|at| text.is_char_boundary(*at)).unwrap_or_default();
            text.truncate(cut);
            text.push_str("...");
        }
        self.put(field, text.into());
    }
}

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.text(field, format!("{value:?}"));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.text(field, value.to_owned());
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.put(field, value.into());
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.put(field, value.into());
    }

    fn record_f64(&mut self, field: &Field, value: f64) {
        self.put(field, value.into());
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.put(field, value.into());
    }
}
