//! The label and field selectors of a request. Field selectors follow apimachinery's `fields`; label selectors are those
//! of `atoll_api::selector`.

use atoll_api::selector::{Selector, SelectorError};
use serde_json::Value;

use crate::meta;

/// One field requirement: `path = value` or `path != value`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldRequirement {
    /// The field label, for example `metadata.name` or `involvedObject.kind`.
    pub field: String,
    /// The value compared with.
    pub value: String,
    /// `false` for `!=`.
    pub equal: bool,
}

/// The restrictions of a list, a watch or a deletecollection.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Selectors {
    /// All must hold.
    pub labels: Selector,
    /// All must hold.
    pub fields: Vec<FieldRequirement>,
}

/// A field that a field selector of a kind may name, and its path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SelectableField {
    /// The label in the selector.
    pub label: String,
    /// Dotted path in the object.
    pub path: String,
    /// The value for an object without the field.
    pub missing: String,
}

impl SelectableField {
    /// A field that is selected by its own path, empty if missing.
    pub fn path(path: &str) -> Self {
        SelectableField { label: path.to_owned(), path: path.to_owned(), missing: String::new() }
    }
}

impl Selectors {
    /// Whether everything matches.
    pub fn is_empty(&self) -> bool {
        self.labels.requirements().is_empty() && self.fields.is_empty()
    }

    /// Parses the two query parameters; the error is a sentence for a 400.
    pub fn parse(labels: &str, fields: &str) -> Result<Self, String> {
        let labels = labels.parse().map_err(|error: SelectorError| error.to_string())?;
        Ok(Selectors { labels, fields: parse_fields(fields)? })
    }

    /// The name in a `metadata.name=` requirement.
    pub fn only_name(&self) -> Option<&str> {
        self.only("metadata.name")
    }

    /// The value of an equality requirement on `field`.
    pub fn only(&self, field: &str) -> Option<&str> {
        self.fields.iter().find(|f| f.equal && f.field == field).map(|f| f.value.as_str())
    }

    /// Refuses field labels that are neither `metadata.name`, `metadata.namespace` nor one of `known`.
    pub fn check(&self, known: &[SelectableField]) -> Result<(), String> {
        for f in &self.fields {
            let common = matches!(f.field.as_str(), "metadata.name" | "metadata.namespace");
            if !common && known.iter().all(|k| k.label != f.field) {
                return Err(match known {
                    [] => format!(
                        "{:?} is not a known field selector: only \"metadata.name\", \"metadata.namespace\"",
                        f.field
                    ),
                    _ => format!("field label not supported: {}", f.field),
                });
            }
        }
        Ok(())
    }

    /// Whether `object` is selected. `known` are the kind's selectable fields, already checked.
    pub fn matches(&self, object: &Value, known: &[SelectableField]) -> bool {
        let labels = meta::get(object, "labels");
        let label = |key: &str| labels.and_then(|labels| labels.get(key)).and_then(Value::as_str);
        if !self.labels.matches_by(label) {
            return false;
        }
        self.fields.iter().all(|f| {
            let (path, missing) = known
                .iter()
                .find(|k| k.label == f.field)
                .map_or((f.field.as_str(), ""), |k| (k.path.as_str(), k.missing.as_str()));
            let equal = match meta::at(object, path) {
                None => missing == f.value,
                Some(Value::String(text)) => *text == f.value,
                Some(other) => {
                    let shown = other.to_string();
                    shown == f.value
                }
            };
            equal == f.equal
        })
    }
}

/// The grammar of `fields.ParseSelector`: `=`, `==` and `!=`, with backslashes before commas and equal signs in
/// values.
fn parse_fields(text: &str) -> Result<Vec<FieldRequirement>, String> {
    let mut requirements = Vec::new();
    for part in split_fields(text) {
        if part.is_empty() {
            continue;
        }
        let at = part
            .char_indices()
            .find(|(at, c)| matches!(c, '=' | '!') && !part[..*at].ends_with('\\'))
            .map(|(at, _)| at);
        let split = at.and_then(|at| {
            ["!=", "==", "="]
                .iter()
                .find_map(|op| part[at..].strip_prefix(op).map(|v| (&part[..at], *op, v)))
        });
        let Some((field, operator, value)) = split else {
            return Err(format!(
                "invalid field selector: '{part}'; can't understand '{part}': use field=value or field!=value"
            ));
        };
        requirements.push(FieldRequirement {
            field: field.trim().to_owned(),
            value: unescape(value),
            equal: operator != "!=",
        });
    }
    Ok(requirements)
}

/// Commas separate requirements unless escaped by a backslash.
fn split_fields(text: &str) -> Vec<&str> {
    let (mut parts, mut start, mut escaped) = (Vec::new(), 0, false);
    for (at, c) in text.char_indices() {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            ',' => {
                parts.push(&text[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    parts.push(&text[start..]);
    parts
}

fn unescape(text: &str) -> String {
    let (mut out, mut escaped) = (String::with_capacity(text.len()), false);
    for c in text.chars() {
        if c == '\\' && !escaped {
            escaped = true;
        } else {
            out.push(c);
            escaped = false;
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn field_selectors_know_their_kind_and_escapes() {
        let known = [
            SelectableField::path("status.phase"),
            SelectableField {
                label: "spec.unschedulable".into(),
                path: "spec.unschedulable".into(),
                missing: "false".into(),
            },
        ];
        let node = json!({"metadata": {"name": "a,b"}, "status": {"phase": "Running"}});
        let check = |text: &str| {
            let s = Selectors::parse("", text).unwrap();
            s.check(&known).map(|()| s.matches(&node, &known))
        };
        assert_eq!(check("metadata.name=a\\,b,status.phase=Running"), Ok(true));
        assert_eq!(check("spec.unschedulable=false"), Ok(true));
        assert_eq!(check("status.phase!=Running"), Ok(false));
        assert_eq!(check("spec.other=1"), Err("field label not supported: spec.other".into()));
        assert!(Selectors::parse("", "metadata.name").is_err());
    }
}
