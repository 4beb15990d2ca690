//! Label and field selectors: parsing and matching, with upstream's rules (apimachinery `labels` and `fields`).

use serde_json::Value;

use crate::meta;

/// One label requirement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LabelRequirement {
    /// `key in (a, b)`, `key = a`.
    In(String, Vec<String>),
    /// `key notin (a, b)`, `key != a`; true when the key is absent.
    NotIn(String, Vec<String>),
    /// `key`.
    Exists(String),
    /// `!key`.
    Missing(String),
    /// `key > 1`, on integers.
    Greater(String, i64),
    /// `key < 1`, on integers.
    Less(String, i64),
}

impl LabelRequirement {
    fn matches(&self, labels: Option<&Value>) -> bool {
        let value = |key: &String| labels.and_then(|l| l.get(key)).and_then(Value::as_str);
        let number = |key: &String| value(key).and_then(|v| v.parse::<i64>().ok());
        match self {
            LabelRequirement::In(key, values) => {
                value(key).is_some_and(|v| values.iter().any(|w| w == v))
            }
            LabelRequirement::NotIn(key, values) => {
                value(key).is_none_or(|v| values.iter().all(|w| w != v))
            }
            LabelRequirement::Exists(key) => value(key).is_some(),
            LabelRequirement::Missing(key) => value(key).is_none(),
            LabelRequirement::Greater(key, than) => number(key).is_some_and(|n| n > *than),
            LabelRequirement::Less(key, than) => number(key).is_some_and(|n| n < *than),
        }
    }
}

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
    pub labels: Vec<LabelRequirement>,
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
        self.labels.is_empty() && self.fields.is_empty()
    }

    /// Parses the two query parameters; the error is a sentence for a 400.
    pub fn parse(labels: &str, fields: &str) -> Result<Self, String> {
        Ok(Selectors { labels: parse_labels(labels)?, fields: parse_fields(fields)? })
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
                return Err(format!("field label not supported: {}", f.field));
            }
        }
        Ok(())
    }

    /// Whether `object` is selected. `known` are the kind's selectable fields, already checked.
    pub fn matches(&self, object: &Value, known: &[SelectableField]) -> bool {
        if !self.labels.is_empty() {
            let labels = meta::get(object, "labels");
            if !self.labels.iter().all(|r| r.matches(labels)) {
                return false;
            }
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

/// The grammar of `labels.Parse`: requirements separated by commas outside of parentheses.
fn parse_labels(text: &str) -> Result<Vec<LabelRequirement>, String> {
    let fail = |why: &str| format!("unable to parse requirement: {why} in label selector {text:?}");
    let mut requirements = Vec::new();
    for part in split_outside_parentheses(text) {
        let part = part.trim();
        if part.is_empty() {
            if text.trim().is_empty() {
                continue;
            }
            return Err(fail("an empty requirement"));
        }
        let requirement = if let Some(key) = part.strip_prefix('!') {
            LabelRequirement::Missing(label_key(key).ok_or_else(|| fail("a bad key"))?)
        } else if let Some(open) = part.find('(') {
            let values = part[open..]
                .strip_prefix('(')
                .and_then(|v| v.strip_suffix(')'))
                .ok_or_else(|| fail("a list without an end"))?;
            let values: Vec<String> = values.split(',').map(|v| v.trim().to_owned()).collect();
            if !values.iter().all(|v| is_label_value(v)) {
                return Err(fail("a bad value"));
            }
            let mut words = part[..open].split_whitespace();
            let key = words.next().and_then(label_key).ok_or_else(|| fail("a bad key"))?;
            match (words.next(), words.next()) {
                (Some("in"), None) => LabelRequirement::In(key, values),
                (Some("notin"), None) => LabelRequirement::NotIn(key, values),
                _ => return Err(fail("an operator other than in and notin before a list")),
            }
        } else if let Some(at) = part.find(['=', '!', '<', '>']) {
            let key = label_key(&part[..at]).ok_or_else(|| fail("a bad key"))?;
            let rest = &part[at..];
            let (operator, value) = ["==", "!=", "=", "<", ">"]
                .iter()
                .find_map(|op| rest.strip_prefix(op).map(|v| (*op, v.trim())))
                .ok_or_else(|| fail("an unknown operator"))?;
            if !is_label_value(value) {
                return Err(fail("a bad value"));
            }
            let number = || {
                value
                    .parse::<i64>()
                    .map_err(|_| fail("for 'Gt', 'Lt' the value must be an integer"))
            };
            match operator {
                "!=" => LabelRequirement::NotIn(key, vec![value.to_owned()]),
                "<" => LabelRequirement::Less(key, number()?),
                ">" => LabelRequirement::Greater(key, number()?),
                _ => LabelRequirement::In(key, vec![value.to_owned()]),
            }
        } else {
            LabelRequirement::Exists(label_key(part).ok_or_else(|| fail("a bad key"))?)
        };
        requirements.push(requirement);
    }
    Ok(requirements)
}

fn split_outside_parentheses(text: &str) -> Vec<&str> {
    let (mut parts, mut depth, mut start) = (Vec::new(), 0_u32, 0);
    for (at, c) in text.char_indices() {
        match c {
            '(' => depth += 1,
            ')' => depth = depth.saturating_sub(1),
            ',' if depth == 0 => {
                parts.push(&text[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    parts.push(&text[start..]);
    parts
}

/// A key, trimmed and checked.
fn label_key(text: &str) -> Option<String> {
    let key = text.trim();
    crate::kinds::names::qualified_name(key).is_ok().then(|| key.to_owned())
}

fn is_label_value(value: &str) -> bool {
    crate::kinds::names::label_value(value).is_ok()
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

    fn selects(labels: &str, object: &Value) -> bool {
        Selectors::parse(labels, "").unwrap().matches(object, &[])
    }

    #[test]
    fn label_operators_match_as_apimachinery_does() {
        let pod = json!({"metadata": {"labels": {"app": "web", "tier": "2", "a.io/x": ""}}});
        for yes in [
            "",
            "app=web",
            "app==web",
            "app!=db",
            "app in (db, web)",
            "app notin (db)",
            "app",
            "!gone",
            "gone!=x",
            "gone notin (x)",
            "tier>1",
            "tier<3",
            "app=web,tier=2",
            "a.io/x=",
            "app in (web),tier",
            " app = web ",
        ] {
            assert!(selects(yes, &pod), "{yes}");
        }
        for no in
            ["app=db", "app!=web", "app notin (web)", "!app", "gone", "tier>2", "app=web,gone"]
        {
            assert!(!selects(no, &pod), "{no}");
        }
        for bad in ["app in web", "app=web,,tier", "a b", "=x", "tier>x", "app in (a", "app=b@d"] {
            assert!(Selectors::parse(bad, "").is_err(), "{bad}");
        }
    }

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
