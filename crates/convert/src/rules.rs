//! Rules for fields that differ from Atoll's field of the same name, or that Atoll does not have.

use serde_json::Value;

use crate::draft::Draft;
use crate::path::Path;
use crate::report::Class;

/// When a rule holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum When {
    /// Always: the meaning differs.
    Always,
    /// Only while Atoll's kind lacks the field. Once it has the field, the field is taken over.
    Lacking,
}

/// What to do with a field.
#[derive(Clone, Copy)]
pub(crate) enum Rule {
    /// Leave the field out.
    Leave(Class, &'static str),
    /// Take the field over and say what differs. The fields below it follow their own rules.
    Note(&'static str),
    /// Leave the field out. An empty value (`false`, `0`, no item) asks for nothing, so Atoll does the same without the
    /// field; any other value has no equivalent.
    OnlyEmpty(&'static str),
    /// Take the field over with other words for some values.
    Words(&'static [(&'static str, &'static str)], &'static str),
    /// Take a report over as far as Atoll has its fields. The others are left out.
    Report(&'static str),
    /// Leave the value out, with this class and note, if the function returns them.
    LeaveIf(fn(&Value) -> Option<(Class, &'static str)>),
    /// Compute the value. The function reports.
    Map(fn(&mut Draft, &Path, Value) -> Option<Value>),
}

/// Rules by path. Paths are relative to the prefix of the table.
pub(crate) type Table = &'static [(&'static str, When, Rule)];

/// The tables of a kind, each with its prefix.
#[derive(Clone, Copy)]
pub(crate) struct Rules<'a>(pub(crate) &'a [(&'static str, Table)]);

impl Rules<'_> {
    /// The rule for a field, given by its path without indices. `has_schema`: Atoll's kind has the field.
    pub(crate) fn find(self, path: &str, has_schema: bool) -> Option<Rule> {
        let tables = self.0.iter().filter_map(|(prefix, table)| {
            let rest = path.strip_prefix(prefix)?;
            if prefix.is_empty() {
                Some((rest, table))
            } else {
                Some((rest.strip_prefix('.')?, table))
            }
        });
        tables
            .flat_map(|(rest, table)| table.iter().filter(move |(pattern, ..)| *pattern == rest))
            .find(|(_, when, _)| *when == When::Always || !has_schema)
            .map(|(.., rule)| *rule)
    }
}

/// Whether a value asks for nothing.
pub(crate) fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Bool(on) => !on,
        Value::Number(number) => number.as_f64() == Some(0.0),
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(fields) => fields.values().all(is_empty),
    }
}
