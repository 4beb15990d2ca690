//! Checks values against a schema. The messages are those of the real API server.

use std::fmt;

use serde_json::{Number, Value};

use super::{Checks, ListType, Schema, Type, checks::Bound};
use crate::value::{Place, compare, compare_numbers, integer, same, type_name};

/// The class of a violation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum FieldReason {
    /// The JSON type or format is wrong.
    Type,
    /// The field is missing.
    Required,
    /// The value is not one of the allowed ones.
    NotSupported,
    /// The value violates a limit.
    Invalid,
    /// The item is in the list more than once.
    Duplicate,
    /// There are too many items.
    TooMany,
    /// The string is too long.
    TooLong,
}

impl FieldReason {
    /// The `reason` of a cause in the details of a `Status`.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Type => "FieldValueTypeInvalid",
            Self::Required => "FieldValueRequired",
            Self::NotSupported => "FieldValueNotSupported",
            Self::Invalid => "FieldValueInvalid",
            Self::Duplicate => "FieldValueDuplicate",
            Self::TooMany => "FieldValueTooMany",
            Self::TooLong => "FieldValueTooLong",
        }
    }
}

/// One violation. Displays as `path: message`, like the message of the API server's `Status`. `message` alone is that
/// of a cause in its details.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub struct FieldError {
    /// The field, such as `spec.placement.x[0].y`; empty for the whole object.
    pub path: String,
    /// The class of the violation.
    pub reason: FieldReason,
    /// The problem, such as `Required value`.
    pub message: String,
}

impl fmt::Display for FieldError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = if self.path.is_empty() { "<nil>" } else { &self.path };
        write!(f, "{path}: {}", self.message)
    }
}

/// All violations of the schema, in the order of the object's fields. CEL rules are not evaluated: see
/// [`super::rules`].
#[must_use]
pub fn validate(value: &Value, schema: &Schema) -> Vec<FieldError> {
    let mut errors = Vec::new();
    walk(value, None, schema, &Place::ROOT, &mut errors);
    errors
}

/// The violations in the fields that an update of `old` to `value` changes. A changed list is checked as a whole, with the
/// items that the update leaves as they are.
#[must_use]
pub fn validate_update(value: &Value, old: &Value, schema: &Schema) -> Vec<FieldError> {
    let mut errors = Vec::new();
    walk(value, Some(old), schema, &Place::ROOT, &mut errors);
    errors
}

struct At<'a> {
    path: &'a Place<'a>,
    errors: &'a mut Vec<FieldError>,
}

impl At<'_> {
    fn add(&mut self, reason: FieldReason, message: String) {
        self.errors.push(FieldError { path: self.path.to_string(), reason, message });
    }

    fn invalid(&mut self, value: &Value, why: &str) {
        let message = format!("Invalid value: {}: {} in body {why}", shown(value), self.path);
        self.add(FieldReason::Invalid, message);
    }
}

fn walk(
    value: &Value,
    old: Option<&Value>,
    schema: &Schema,
    path: &Place<'_>,
    errors: &mut Vec<FieldError>,
) {
    if old == Some(value) {
        return;
    }
    let node = schema.node();
    if value.is_null() && node.nullable {
        return;
    }
    let mut at = At { path, errors };
    if let Some(expected) = wrong_type(value, node.kind) {
        let found = type_name(value);
        let message = format!(
            "Invalid value: \"{found}\": {path} in body must be of type {expected}: \"{found}\""
        );
        at.add(FieldReason::Type, message);
        return;
    }
    if let Some(checks) = &node.checks {
        check(value, checks, &mut at);
    }
    match value {
        Value::Object(_) if schema.is_open() => {}
        Value::Object(fields) => {
            for (name, v) in fields {
                if let Some(field) = schema.field(name) {
                    let old = old.and_then(|old| old.get(name));
                    walk(v, old, field.schema, &Place::Field(path, name), errors);
                }
            }
        }
        Value::Array(items) => {
            check_unique(items, &node.list, path, errors);
            let schema = schema.items_or_untyped();
            for (i, item) in items.iter().enumerate() {
                walk(item, None, schema, &Place::Item(path, i), errors);
            }
        }
        _ => {}
    }
}

/// The expected type's name, if the value has another type.
fn wrong_type(value: &Value, kind: Type) -> Option<&'static str> {
    let whole = |n: &Number| integer(n).is_some() || n.as_f64().is_some_and(|f| f.fract() == 0.0);
    let (fits, expected) = match (kind, value) {
        (Type::Any, _) => (true, ""),
        (Type::Object, v) => (v.is_object(), "object"),
        (Type::Array, v) => (v.is_array(), "array"),
        (Type::String, v) => (v.is_string(), "string"),
        (Type::Integer, Value::Number(n)) => (whole(n), "integer"),
        (Type::Integer, _) => (false, "integer"),
        (Type::Number, v) => (v.is_number(), "number"),
        (Type::Boolean, v) => (v.is_boolean(), "boolean"),
        (Type::IntOrString, Value::Number(n)) => (whole(n), "integer,string"),
        (Type::IntOrString, v) => (v.is_string(), "integer,string"),
        (Type::Quantity, v) => (v.is_string() || v.is_number(), "number,string"),
    };
    if fits { None } else { Some(expected) }
}

fn check(value: &Value, checks: &Checks, at: &mut At<'_>) {
    if !checks.allowed.is_empty() && !checks.allowed.iter().any(|a| same(a, value)) {
        let allowed: Vec<String> = checks.allowed.iter().map(quoted).collect();
        let supported = allowed.join(", ");
        let message = format!("Unsupported value: {}: supported values: {supported}", shown(value));
        at.add(FieldReason::NotSupported, message);
    }
    match value {
        Value::Number(n) => check_number(value, n, checks, at),
        Value::String(s) => check_string(value, s, checks, at),
        Value::Array(items) => check_array(value, items, checks, at),
        Value::Object(fields) => {
            let size = fields.len();
            if let Some(min) = checks.min_properties.filter(|min| size < *min) {
                at.invalid(value, &format!("should have at least {min} properties"));
            }
            if let Some(max) = checks.max_properties.filter(|max| size > *max) {
                at.add(FieldReason::TooMany, too_many(size, max));
            }
            for name in checks.required.iter().filter(|name| !fields.contains_key(*name)) {
                at.errors.push(FieldError {
                    path: Place::Field(at.path, name).to_string(),
                    reason: FieldReason::Required,
                    message: "Required value".to_owned(),
                });
            }
        }
        Value::Null | Value::Bool(_) => {}
    }
    check_format(value, checks, at);
    check_junctions(value, checks, at);
}

fn check_number(value: &Value, n: &Number, checks: &Checks, at: &mut At<'_>) {
    use std::cmp::Ordering::{Equal, Greater, Less};
    let breaks = |bound: &Bound, beyond| {
        let order = compare_numbers(n, &bound.value);
        order == beyond || (bound.exclusive && order == Equal)
    };
    if let Some(max) = checks.maximum.as_ref().filter(|max| breaks(max, Greater)) {
        let word = if max.exclusive { "less than" } else { "less than or equal to" };
        at.invalid(value, &format!("should be {word} {}", plain(&max.value)));
    }
    if let Some(min) = checks.minimum.as_ref().filter(|min| breaks(min, Less)) {
        let word = if min.exclusive { "greater than" } else { "greater than or equal to" };
        at.invalid(value, &format!("should be {word} {}", plain(&min.value)));
    }
    if let Some(factor) = checks.multiple_of.as_ref().filter(|f| !is_multiple(n, f)) {
        at.invalid(value, &format!("should be a multiple of {}", plain(factor)));
    }
}

fn is_multiple(n: &Number, factor: &Number) -> bool {
    match (integer(n), integer(factor)) {
        (Some(n), Some(factor)) => factor != 0 && n % factor == 0,
        _ => {
            let quotient = n.as_f64().unwrap_or(f64::NAN) / factor.as_f64().unwrap_or(f64::NAN);
            // Decimal factors such as 0.1 have no exact binary form; allow the error of one division.
            (quotient - quotient.round()).abs() <= quotient.abs() * f64::EPSILON
        }
    }
}

fn check_string(value: &Value, s: &str, checks: &Checks, at: &mut At<'_>) {
    let length = s.chars().count();
    if let Some(max) = checks.max_length.filter(|max| length > *max) {
        at.add(FieldReason::TooLong, format!("Too long: may not be more than {max} bytes"));
    }
    if let Some(min) = checks.min_length.filter(|min| length < *min) {
        at.invalid(value, &format!("should be at least {min} chars long"));
    }
    if let Some(pattern) = checks.pattern.as_ref().filter(|p| !p.0.is_match(s)) {
        at.invalid(value, &format!("should match '{pattern:?}'"));
    }
}

fn check_array(value: &Value, items: &[Value], checks: &Checks, at: &mut At<'_>) {
    let size = items.len();
    if let Some(max) = checks.max_items.filter(|max| size > *max) {
        at.add(FieldReason::TooMany, too_many(size, max));
    }
    if let Some(min) = checks.min_items.filter(|min| size < *min) {
        at.invalid(value, &format!("should have at least {min} items"));
    }
    if checks.unique_items && !repeated(&items.iter().collect::<Vec<_>>()).is_empty() {
        at.invalid(value, "shouldn't contain duplicates");
    }
}

fn check_format(value: &Value, checks: &Checks, at: &mut At<'_>) {
    if let Some(format) = checks.format.filter(|f| !f.fits(value)) {
        let (value, name) = (shown(value), format.name());
        let message =
            format!("Invalid value: {value}: {} in body must be of type {name}: {value}", at.path);
        at.add(FieldReason::Type, message);
    }
}

fn check_junctions(value: &Value, checks: &Checks, at: &mut At<'_>) {
    for schema in &checks.all_of {
        walk(value, None, schema, at.path, at.errors);
    }
    let path = at.path;
    let mut refuse = |errors: Vec<FieldError>, why: &str| {
        at.add(FieldReason::Invalid, format!("Invalid value: \"\": \"{path}\" {why}"));
        at.errors.extend(errors);
    };
    if !checks.any_of.is_empty() {
        let (fitting, nearest) = attempt(value, &checks.any_of, path);
        if fitting == 0 {
            refuse(nearest, "must validate at least one schema (anyOf)");
        }
    }
    if !checks.one_of.is_empty() {
        let (fitting, nearest) = attempt(value, &checks.one_of, path);
        let only = "must validate one and only one schema (oneOf)";
        match fitting {
            0 => refuse(nearest, &format!("{only}. Found none valid")),
            1 => {}
            n => refuse(Vec::new(), &format!("{only}. Found {n} valid alternatives")),
        }
    }
    if let Some(not) = &checks.not
        && attempt(value, std::slice::from_ref(not), path).0 == 1
    {
        refuse(Vec::new(), "must not validate the schema (not)");
    }
}

/// The number of schemas that match, and the errors of the closest one.
fn attempt(value: &Value, schemas: &[Schema], path: &Place<'_>) -> (usize, Vec<FieldError>) {
    let attempts = schemas.iter().map(|schema| {
        let mut errors = Vec::new();
        walk(value, None, schema, path, &mut errors);
        errors
    });
    let attempts: Vec<Vec<FieldError>> = attempts.collect();
    let fitting = attempts.iter().filter(|errors| errors.is_empty()).count();
    (fitting, attempts.into_iter().min_by_key(Vec::len).unwrap_or_default())
}

/// A set must not repeat an item, and a keyed list must not repeat a key.
fn check_unique(items: &[Value], list: &ListType, path: &Place<'_>, errors: &mut Vec<FieldError>) {
    let identities: Vec<Value> = match list {
        ListType::Atomic => return,
        ListType::Set => items.to_vec(),
        ListType::Map(keys) => {
            let key_of = |item: &Value| {
                let keys = keys.iter().filter_map(|k| Some((k.clone(), item.get(k)?.clone())));
                Value::Object(keys.collect())
            };
            items.iter().map(key_of).collect()
        }
    };
    for i in repeated(&identities.iter().collect::<Vec<_>>()) {
        errors.push(FieldError {
            path: Place::Item(path, i).to_string(),
            reason: FieldReason::Duplicate,
            message: format!("Duplicate value: {}", shown(&identities[i])),
        });
    }
}

/// The index of the second occurrence of every value that occurs more than once.
fn repeated(values: &[&Value]) -> Vec<usize> {
    let mut order: Vec<usize> = (0..values.len()).collect();
    order.sort_by(|a, b| compare(values[*a], values[*b]).then(a.cmp(b)));
    let mut seconds: Vec<usize> = order
        .chunk_by(|a, b| same(values[*a], values[*b]))
        .filter_map(|run| run.get(1).copied())
        .collect();
    seconds.sort_unstable();
    seconds
}

fn too_many(found: usize, max: usize) -> String {
    let items = if max == 1 { "item" } else { "items" };
    format!("Too many: {found}: must have at most {max} {items}")
}

/// A value as shown in messages: strings quoted, the rest as JSON.
fn shown(value: &Value) -> String {
    value.to_string()
}

/// Allowed values are always shown in quotes.
fn quoted(value: &Value) -> String {
    match value {
        Value::String(_) => value.to_string(),
        other => format!("\"{other}\""),
    }
}

/// A number without a needless fraction: limits are doubles in OpenAPI, so `1.0` means 1.
fn plain(n: &Number) -> String {
    match n.as_f64() {
        Some(f) if integer(n).is_none() => f.to_string(),
        _ => n.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn spec(schema: Value) -> Schema {
        let root = json!({"type": "object", "properties": {"spec": schema}});
        Schema::from_openapi(&root).unwrap()
    }

    fn errors(schema: &Schema, spec: Value) -> Vec<String> {
        validate(&json!({"spec": spec}), schema).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn messages_are_those_of_the_api_server() {
        let schema = spec(json!({
            "type": "object",
            "required": ["name", "replicas"],
            "properties": {
                "replicas": {"type": "integer", "format": "int32", "minimum": 0, "maximum": 5.0},
                "ratio": {
                    "type": "number", "minimum": 0, "exclusiveMinimum": true, "multipleOf": 0.1,
                },
                "name": {"type": "string", "minLength": 2, "maxLength": 4, "pattern": "^[a-z]+$"},
                "mode": {"type": "string", "enum": ["A", "B"]},
                "since": {"type": "string", "format": "date-time"},
                "tags": {
                    "type": "array", "minItems": 1, "maxItems": 2, "items": {"type": "string"},
                    "x-kubernetes-list-type": "set",
                },
                "port": {"x-kubernetes-int-or-string": true},
                "labels": {
                    "type": "object", "maxProperties": 1,
                    "additionalProperties": {"type": "string"},
                },
                "maybe": {"type": "string", "nullable": true},
            },
        }));
        let cases = [
            (json!({}), vec!["spec.name: Required value", "spec.replicas: Required value"]),
            (
                json!({"name": "ab", "replicas": "x"}),
                vec![
                    "spec.replicas: Invalid value: \"string\": spec.replicas in body must be of \
                     type integer: \"string\"",
                ],
            ),
            (
                json!({"name": "ab", "replicas": 6}),
                vec![
                    "spec.replicas: Invalid value: 6: spec.replicas in body should be less than or \
                     equal to 5",
                ],
            ),
            (
                json!({"name": "ab", "replicas": 1, "ratio": 0}),
                vec!["spec.ratio: Invalid value: 0: spec.ratio in body should be greater than 0"],
            ),
            (
                json!({"name": "ab", "replicas": 1, "ratio": 0.25}),
                vec![
                    "spec.ratio: Invalid value: 0.25: spec.ratio in body should be a multiple of \
                     0.1",
                ],
            ),
            (json!({"name": "ab", "replicas": 1, "ratio": 0.3}), vec![]),
            (
                json!({"name": "A", "replicas": 1}),
                vec![
                    "spec.name: Invalid value: \"A\": spec.name in body should be at least 2 chars \
                     long",
                    "spec.name: Invalid value: \"A\": spec.name in body should match '^[a-z]+$'",
                ],
            ),
            (
                json!({"name": "abcde", "replicas": 1}),
                vec!["spec.name: Too long: may not be more than 4 bytes"],
            ),
            (
                json!({"name": "ab", "replicas": 1, "mode": "X"}),
                vec!["spec.mode: Unsupported value: \"X\": supported values: \"A\", \"B\""],
            ),
            (
                json!({"name": "ab", "replicas": 1, "since": "now"}),
                vec![
                    "spec.since: Invalid value: \"now\": spec.since in body must be of type \
                     date-time: \"now\"",
                ],
            ),
            (
                json!({"name": "ab", "replicas": 1, "tags": ["a", "b", "a"]}),
                vec![
                    "spec.tags: Too many: 3: must have at most 2 items",
                    "spec.tags[2]: Duplicate value: \"a\"",
                ],
            ),
            (
                json!({"name": "ab", "replicas": 1, "tags": [], "port": 1.5}),
                vec![
                    "spec.port: Invalid value: \"number\": spec.port in body must be of type \
                     integer,string: \"number\"",
                    "spec.tags: Invalid value: []: spec.tags in body should have at least 1 items",
                ],
            ),
            (
                json!({"name": "ab", "replicas": 1, "port": "80%", "labels": {"a": 1, "b": "2"}}),
                vec![
                    "spec.labels: Too many: 2: must have at most 1 item",
                    "spec.labels.a: Invalid value: \"integer\": spec.labels.a in body must be of \
                     type string: \"integer\"",
                ],
            ),
            (json!({"name": "ab", "replicas": 3.0, "maybe": null, "unknown": 1}), vec![]),
        ];
        for (value, expected) in cases {
            assert_eq!(errors(&schema, value.clone()), expected, "{value}");
        }
    }

    #[test]
    fn keyed_lists_refuse_the_same_keys_twice() {
        let schema = spec(json!({
            "type": "array",
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["port", "protocol"],
            "items": {"type": "object", "properties": {
                "port": {"type": "integer"},
                "protocol": {"type": "string"},
            }},
        }));
        let twice = json!([
            {"port": 1, "protocol": "TCP"}, {"port": 1, "protocol": "UDP"},
            {"port": 1, "protocol": "TCP"}, {"port": 1, "protocol": "TCP"},
        ]);
        let expected = "spec[2]: Duplicate value: {\"port\":1,\"protocol\":\"TCP\"}";
        assert_eq!(errors(&schema, twice), [expected]);
    }

    #[test]
    fn junctions_say_which_of_them_failed() {
        let schema = spec(json!({
            "type": "object",
            "properties": {
                "a": {"type": "string"},
                "b": {"type": "string"},
                "c": {"type": "integer"},
            },
            "oneOf": [{"required": ["a"]}, {"required": ["b"]}],
            "not": {"required": ["c"], "properties": {"c": {"maximum": 3}}},
            "allOf": [{"properties": {"a": {"maxLength": 1}}}],
        }));
        let none = errors(&schema, json!({}));
        let expected = [
            "spec: Invalid value: \"\": \"spec\" must validate one and only one schema (oneOf). \
             Found none valid",
            "spec.a: Required value",
        ];
        assert_eq!(none, expected);
        let both = errors(&schema, json!({"a": "x", "b": "y", "c": 2}));
        let expected = [
            "spec: Invalid value: \"\": \"spec\" must validate one and only one schema (oneOf). \
             Found 2 valid alternatives",
            "spec: Invalid value: \"\": \"spec\" must not validate the schema (not)",
        ];
        assert_eq!(both, expected);
        assert_eq!(
            errors(&schema, json!({"a": "xy", "c": 4})),
            ["spec.a: Too long: may not be more than 1 bytes"]
        );
    }

    #[test]
    fn schemas_that_are_not_structural_are_refused_with_every_problem() {
        let error = Schema::from_openapi(&json!({
            "type": "object",
            "properties": {
                "a": {},
                "b": {"type": "array"},
                "c": {"type": "string", "pattern": "("},
                "d": {"type": "array", "items": {"type": "object"}, "x-kubernetes-list-type": "map"},
                "e": {"type": "strin"},
                "f": {"type": "integer", "default": "x"},
                "g": {"$ref": "#/a", "x-kubernetes-preserve-unknown-fields": true},
            },
        }))
        .unwrap_err();
        let places: Vec<&str> = error.problems.iter().map(|(path, _)| path.as_str()).collect();
        let expected = [
            "properties.a.type",
            "properties.b.items",
            "properties.c.pattern",
            "properties.d.x-kubernetes-list-map-keys",
            "properties.e.type",
            "properties.f.default",
            "properties.g.$ref",
        ];
        assert_eq!(places, expected);
    }
}
