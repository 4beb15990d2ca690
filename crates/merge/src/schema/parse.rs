//! Parses a CRD's `openAPIV3Schema` into a [`Schema`] and rejects schemas that are not structural.
//!
//! The rules are those of apiextensions.k8s.io/v1: every field outside of `allOf`, `anyOf`, `oneOf` and `not` has a
//! type, references are not allowed, and list types have their required fields.

use std::{collections::BTreeMap, fmt};

use regex::Regex;
use serde_json::{Map, Number, Value};

use super::{
    Checks, ListType, Node, PatchRule, Rule, Schema, Type, Unknown,
    checks::{Bound, Pattern},
    formats::Format,
    validate::validate,
};
use crate::value::child;

/// A schema that is not structural: all problems with their path.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub struct SchemaError {
    /// Path in the schema (`properties.spec.type`) and the problem there.
    pub problems: Vec<(String, String)>,
}

impl fmt::Display for SchemaError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, (path, message)) in self.problems.iter().enumerate() {
            if i > 0 {
                f.write_str("; ")?;
            }
            write!(f, "{path}: {message}")?;
        }
        Ok(())
    }
}

/// Within `allOf` and similar keywords only checks apply: types are optional and nothing is pruned.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    Root,
    Structural,
    Junction,
}

#[derive(Default)]
struct Problems(Vec<(String, String)>);

impl Problems {
    fn add(&mut self, path: &str, field: &str, message: impl Into<String>) {
        self.0.push((child(path, field), message.into()));
    }
}

/// Keywords of JSON Schema that a structural schema may not use.
const FORBIDDEN: [&str; 7] = [
    "$ref",
    "$schema",
    "definitions",
    "dependencies",
    "deprecated",
    "patternProperties",
    "additionalItems",
];

pub(super) fn root(schema: &Value) -> Result<Schema, SchemaError> {
    let mut problems = Problems::default();
    let node = parse(schema, "", Place::Root, &mut problems);
    if problems.0.is_empty() { Ok(node.into()) } else { Err(SchemaError { problems: problems.0 }) }
}

fn parse(schema: &Value, path: &str, place: Place, problems: &mut Problems) -> Node {
    let Some(spec) = schema.as_object() else {
        problems.add(path, "", "must be an object that describes the field");
        return Node::default();
    };
    for word in FORBIDDEN {
        if spec.contains_key(word) {
            problems.add(path, word, "Forbidden: not allowed in a structural schema");
        }
    }
    let preserve = flag(spec, "x-kubernetes-preserve-unknown-fields");
    let kind = kind(spec, path, place, preserve, problems);
    let mut properties = children(spec, path, place, problems);
    if place == Place::Root || flag(spec, "x-kubernetes-embedded-resource") {
        embed_resource(&mut properties);
    }
    let mut node = Node {
        kind,
        nullable: flag(spec, "nullable"),
        unknown: unknown(spec, path, place, preserve, problems),
        items: items(spec, path, place, kind, problems),
        list: list_type(spec, path, kind, problems),
        atomic_map: map_type(spec, path, problems),
        default: spec.get("default").filter(|d| !d.is_null()).cloned(),
        properties,
        patch: PatchRule::Usual,
        checks: None,
        rules: rules(spec, path, problems),
        ..Node::default()
    };
    let checks = checks(spec, path, problems);
    if !checks.is_empty() {
        node.checks = Some(Box::new(checks));
    }
    check_default(node, path, problems)
}

/// A default must match its own schema. Otherwise every object with it would be rejected.
fn check_default(mut node: Node, path: &str, problems: &mut Problems) -> Node {
    let Some(default) = node.default.take() else { return node };
    let schema = Schema::from(node);
    for error in validate(&default, &schema) {
        problems.add(path, &child("default", &error.path), error.message);
    }
    let mut node =
        std::sync::Arc::into_inner(schema.0).expect("no other reference to the schema was made");
    node.default = Some(default);
    node
}

fn kind(
    spec: &Map<String, Value>,
    path: &str,
    place: Place,
    preserve: bool,
    problems: &mut Problems,
) -> Type {
    let named = spec.get("type").and_then(Value::as_str).unwrap_or("");
    if flag(spec, "x-kubernetes-int-or-string") {
        if !named.is_empty() {
            problems.add(path, "type", "Forbidden: must be empty with x-kubernetes-int-or-string");
        }
        return Type::IntOrString;
    }
    let kind = match named {
        "object" => Type::Object,
        "array" => Type::Array,
        "string" => Type::String,
        "integer" => Type::Integer,
        "number" => Type::Number,
        "boolean" => Type::Boolean,
        "" if place == Place::Junction || (place == Place::Structural && preserve) => Type::Any,
        "" => {
            problems.add(path, "type", "Required value: must not be empty");
            Type::Any
        }
        other => {
            let message = format!(
                "Unsupported value: \"{other}\": supported values: \"array\", \"boolean\", \
                 \"integer\", \"number\", \"object\", \"string\""
            );
            problems.add(path, "type", message);
            Type::Any
        }
    };
    if place == Place::Root && kind != Type::Object && !named.is_empty() {
        problems.add(
            path,
            "type",
            format!("Invalid value: \"{named}\": must be object at the root"),
        );
    }
    kind
}

fn children(
    spec: &Map<String, Value>,
    path: &str,
    place: Place,
    problems: &mut Problems,
) -> BTreeMap<String, Schema> {
    let Some(Value::Object(properties)) = spec.get("properties") else { return BTreeMap::new() };
    let path = child(path, "properties");
    let inner = if place == Place::Junction { Place::Junction } else { Place::Structural };
    let parse = |(name, schema): (&String, &Value)| {
        let at = child(&path, name);
        // The metadata of the object itself may be declared without properties.
        let of_root = place == Place::Root && name == "metadata";
        let inner = if of_root { Place::Junction } else { inner };
        (name.clone(), Schema::from(parse(schema, &at, inner, problems)))
    };
    properties.iter().map(parse).collect()
}

/// `apiVersion`, `kind` and `metadata` belong to every object, declared or not. The CRD's rules for `metadata.name` and
/// `generateName` are kept; it may declare no others there.
fn embed_resource(properties: &mut BTreeMap<String, Schema>) {
    for name in ["apiVersion", "kind"] {
        properties
            .entry(name.to_owned())
            .or_insert_with(|| Node { kind: Type::String, ..Node::default() }.into());
    }
    let meta = Schema::object_meta();
    let declared = properties.get("metadata").filter(|m| !m.node().properties.is_empty());
    let merged = match declared {
        None => meta,
        Some(declared) => {
            let mut fields = meta.node().properties.clone();
            for name in ["name", "generateName"] {
                if let Some(schema) = declared.node().properties.get(name) {
                    fields.insert(name.to_owned(), schema.clone());
                }
            }
            Node { kind: Type::Object, properties: fields, ..Node::default() }.into()
        }
    };
    properties.insert("metadata".to_owned(), merged);
}

fn unknown(
    spec: &Map<String, Value>,
    path: &str,
    place: Place,
    preserve: bool,
    problems: &mut Problems,
) -> Unknown {
    if spec.contains_key("additionalProperties") && spec.contains_key("properties") {
        let message = "Forbidden: additionalProperties and properties are mutual exclusive";
        problems.add(path, "additionalProperties", message);
    }
    match spec.get("additionalProperties") {
        Some(Value::Bool(true)) => Unknown::Values(Node::default().into()),
        Some(values @ Value::Object(_)) => {
            let at = child(path, "additionalProperties");
            let inner = if place == Place::Junction { place } else { Place::Structural };
            Unknown::Values(parse(values, &at, inner, problems).into())
        }
        _ if preserve => Unknown::Kept,
        _ => Unknown::Refused,
    }
}

fn items(
    spec: &Map<String, Value>,
    path: &str,
    place: Place,
    kind: Type,
    problems: &mut Problems,
) -> Option<Schema> {
    match spec.get("items") {
        Some(items @ Value::Object(_)) => {
            let inner = if place == Place::Junction { place } else { Place::Structural };
            Some(parse(items, &child(path, "items"), inner, problems).into())
        }
        Some(_) => {
            problems.add(path, "items", "Forbidden: must be a schema object, not an array");
            None
        }
        None => {
            if kind == Type::Array && place != Place::Junction {
                problems.add(path, "items", "Required value: must be specified");
            }
            None
        }
    }
}

fn list_type(
    spec: &Map<String, Value>,
    path: &str,
    kind: Type,
    problems: &mut Problems,
) -> ListType {
    const FIELD: &str = "x-kubernetes-list-type";
    let keys: Vec<String> = strings(spec.get("x-kubernetes-list-map-keys"));
    let named = spec.get(FIELD).and_then(Value::as_str);
    if named.is_some() && kind != Type::Array {
        problems.add(path, FIELD, "Invalid value: must only be set on type array");
    }
    match named {
        None | Some("atomic") => ListType::Atomic,
        Some("set") => ListType::Set,
        Some("map") => {
            let properties = spec.get("items").and_then(|i| i.get("properties"));
            if keys.is_empty() {
                let message = "Required value: must be specified for x-kubernetes-list-type map";
                problems.add(path, "x-kubernetes-list-map-keys", message);
            }
            for key in &keys {
                if properties.and_then(|p| p.get(key)).is_none() {
                    let message = format!("Invalid value: \"{key}\": is not a property of items");
                    problems.add(path, "x-kubernetes-list-map-keys", message);
                }
            }
            ListType::Map(keys)
        }
        Some(other) => {
            let message = format!(
                "Unsupported value: \"{other}\": supported values: \"atomic\", \"set\", \"map\""
            );
            problems.add(path, FIELD, message);
            ListType::Atomic
        }
    }
}

fn map_type(spec: &Map<String, Value>, path: &str, problems: &mut Problems) -> bool {
    const FIELD: &str = "x-kubernetes-map-type";
    match spec.get(FIELD).and_then(Value::as_str) {
        None | Some("granular") => false,
        Some("atomic") => true,
        Some(other) => {
            let message = format!(
                "Unsupported value: \"{other}\": supported values: \"atomic\", \"granular\""
            );
            problems.add(path, FIELD, message);
            false
        }
    }
}

fn rules(spec: &Map<String, Value>, path: &str, problems: &mut Problems) -> Vec<Rule> {
    const FIELD: &str = "x-kubernetes-validations";
    match spec.get(FIELD) {
        None | Some(Value::Null) => Vec::new(),
        Some(rules) => serde_json::from_value(rules.clone()).unwrap_or_else(|e| {
            problems.add(path, FIELD, format!("Invalid value: {e}"));
            Vec::new()
        }),
    }
}

fn checks(spec: &Map<String, Value>, path: &str, problems: &mut Problems) -> Checks {
    let bound = |limit: &str, exclusive: &str| {
        number(spec, limit).map(|value| Bound { value, exclusive: flag(spec, exclusive) })
    };
    let format = spec.get("format").and_then(Value::as_str).and_then(Format::parse);
    Checks {
        allowed: spec.get("enum").and_then(Value::as_array).cloned().unwrap_or_default(),
        minimum: bound("minimum", "exclusiveMinimum"),
        maximum: bound("maximum", "exclusiveMaximum"),
        multiple_of: number(spec, "multipleOf"),
        min_length: size(spec, "minLength", path, problems),
        max_length: size(spec, "maxLength", path, problems),
        pattern: pattern(spec, path, problems),
        format,
        min_items: size(spec, "minItems", path, problems),
        max_items: size(spec, "maxItems", path, problems),
        unique_items: flag(spec, "uniqueItems"),
        min_properties: size(spec, "minProperties", path, problems),
        max_properties: size(spec, "maxProperties", path, problems),
        required: strings(spec.get("required")),
        all_of: junction(spec, "allOf", path, problems),
        any_of: junction(spec, "anyOf", path, problems),
        one_of: junction(spec, "oneOf", path, problems),
        not: spec
            .get("not")
            .map(|not| parse(not, &child(path, "not"), Place::Junction, problems).into()),
    }
}

fn junction(
    spec: &Map<String, Value>,
    word: &str,
    path: &str,
    problems: &mut Problems,
) -> Vec<Schema> {
    let Some(Value::Array(schemas)) = spec.get(word) else { return Vec::new() };
    let parse = |(i, schema): (usize, &Value)| {
        let at = format!("{}[{i}]", child(path, word));
        parse(schema, &at, Place::Junction, problems).into()
    };
    schemas.iter().enumerate().map(parse).collect()
}

fn pattern(spec: &Map<String, Value>, path: &str, problems: &mut Problems) -> Option<Pattern> {
    let pattern = spec.get("pattern").and_then(Value::as_str).filter(|p| !p.is_empty())?;
    Regex::new(pattern)
        .map(Pattern)
        .map_err(|e| problems.add(path, "pattern", format!("Invalid value: \"{pattern}\": {e}")))
        .ok()
}

fn size(
    spec: &Map<String, Value>,
    word: &str,
    path: &str,
    problems: &mut Problems,
) -> Option<usize> {
    let value = spec.get(word).filter(|v| !v.is_null())?;
    let size = value.as_u64().and_then(|n| usize::try_from(n).ok());
    if size.is_none() {
        problems.add(path, word, format!("Invalid value: {value}: must be a whole number >= 0"));
    }
    size
}

fn number(spec: &Map<String, Value>, word: &str) -> Option<Number> {
    spec.get(word).and_then(Value::as_number).cloned()
}

fn flag(spec: &Map<String, Value>, word: &str) -> bool {
    spec.get(word).and_then(Value::as_bool).unwrap_or(false)
}

fn strings(value: Option<&Value>) -> Vec<String> {
    let items = value.and_then(Value::as_array).into_iter().flatten();
    items.filter_map(|v| v.as_str().map(str::to_owned)).collect()
}
