//! The OpenAPI v2 document. kubectl checks a `kind: List` against its definitions, and without it an aggregator retries
//! forever and logs an error each time (kube-aggregator, `pkg/controllers/openapi`).

use serde_json::{Map, Value, json};

use super::openapi;
use super::version::{Definitions, Version};
use crate::kind::{ServedKind, ServedKinds};

/// Keywords of version 3 and of structural schemas that version 2 lacks.
const LATER_WORDS: [&str; 6] = ["allOf", "anyOf", "oneOf", "not", "nullable", "example"];

/// The document of all kinds.
pub(super) fn document<K: ServedKind>(
    kinds: &ServedKinds<K>,
    server: &Version,
    wanted: Definitions,
) -> Value {
    let (mut paths, mut definitions) = (Map::new(), Map::new());
    for (group, versions) in kinds.groups() {
        for version in versions {
            let mut third = openapi::document(kinds, group, version, server);
            match wanted {
                Definitions::All => all(&mut third, &mut definitions),
                Definitions::OwnKinds => {
                    own_kinds(kinds, (group, version), &mut third, &mut definitions);
                }
            }
            if let Value::Object(of_version) = third["paths"].take() {
                paths.extend(of_version.into_iter().map(|(path, item)| (path, reduced(item))));
            }
        }
    }
    json!({
        "swagger": "2.0",
        "info": {"title": "Kubernetes", "version": server.to_string()},
        "paths": paths,
        "definitions": definitions,
    })
}

/// Only the kinds' own schemas.
fn own_kinds<K: ServedKind>(
    kinds: &ServedKinds<K>,
    (group, version): (&str, &str),
    third: &mut Value,
    definitions: &mut Map<String, Value>,
) {
    for kind in kinds.of_version(group, version) {
        let name = openapi::component_name(kind.names());
        let mut schema = third["components"]["schemas"][&name].take();
        schema["properties"]["metadata"] =
            json!({"type": "object", "description": "Standard object's metadata."});
        definitions.insert(name, schema);
    }
}

/// Every definition of a version 3 document. A definition in several documents lists its kind only in its own group's.
fn all(third: &mut Value, definitions: &mut Map<String, Value>) {
    let Value::Object(schemas) = third["components"]["schemas"].take() else { return };
    for (name, mut schema) in schemas {
        let names_kind = schema.get("x-kubernetes-group-version-kind").is_some();
        if names_kind || !definitions.contains_key(&name) {
            lower(&mut schema);
            definitions.insert(name, schema);
        }
    }
}

/// Rewrites a schema of version 3 for version 2.
fn lower(schema: &mut Value) {
    if let Some(name) = openapi::reference(schema) {
        schema["$ref"] = format!("#/definitions/{name}").into();
    }
    let Some(fields) = schema.as_object_mut() else { return };
    for word in LATER_WORDS {
        fields.remove(word);
    }
    let set =
        |fields: &Map<String, Value>, word: &str| fields.get(word) == Some(&Value::Bool(true));
    if set(fields, "x-kubernetes-int-or-string") {
        fields.insert("type".to_owned(), "string".into());
        fields.insert("format".to_owned(), "int-or-string".into());
    }
    // Clients refuse undeclared fields, so a schema that accepts any field declares none.
    if set(fields, "x-kubernetes-preserve-unknown-fields") {
        for word in ["type", "properties", "additionalProperties", "items", "required"] {
            fields.remove(word);
        }
    }
    for word in ["items", "additionalProperties"] {
        if let Some(inner) = fields.get_mut(word) {
            lower(inner);
        }
    }
    let properties = fields.get_mut("properties").and_then(Value::as_object_mut);
    properties.into_iter().flatten().for_each(|(_, property)| lower(property));
}

/// A path in version 2: parameters have their type inline, answers their schema, and no body is sent.
fn reduced(mut item: Value) -> Value {
    let flatten = |parameters: &mut Value| {
        for parameter in parameters.as_array_mut().into_iter().flatten() {
            let schema = parameter["schema"].take();
            if let Some(fields) = parameter.as_object_mut() {
                fields.remove("schema");
                fields.extend(schema.as_object().cloned().unwrap_or_default());
            }
        }
    };
    for (member, value) in item.as_object_mut().into_iter().flatten() {
        if member == "parameters" {
            flatten(value);
            continue;
        }
        flatten(&mut value["parameters"]);
        let answer = &mut value["responses"]["200"];
        let reference = answer["content"]["application/json"]["schema"]["$ref"].as_str();
        let name = reference.and_then(|reference| reference.rsplit('/').next()).unwrap_or("");
        *answer = json!({"description": "OK", "schema": {"$ref": format!("#/definitions/{name}")}});
        value["produces"] = json!(["application/json"]);
    }
    item
}
