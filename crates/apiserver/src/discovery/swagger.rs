//! The OpenAPI v2 document, of servers that have kinds of others only: an aggregator asks for it and goes on asking, with
//! an error in its log each time, where there is none (kube-aggregator, `pkg/controllers/openapi`).
//!
//! A server with built-in kinds has none on purpose: kubectl would compute patches from its schemas, which carry no merge
//! keys, instead of from its own types.

use serde_json::{Map, Value, json};

use super::openapi;
use crate::{
    kinds::{Origin, catalog::Snapshot},
    options::Version,
};

/// The document; `None` where it would do harm.
pub(super) fn document(kinds: &Snapshot, server: &Version) -> Option<Value> {
    let (mut paths, mut definitions) = (Map::new(), Map::new());
    for (group, versions) in kinds.groups() {
        for version in versions {
            if kinds.of_version(group, version).any(|k| !matches!(k.origin, Origin::Virtual(..))) {
                return None;
            }
            let mut third = openapi::document(kinds, group, version, server);
            for kind in kinds.of_version(group, version) {
                let name = openapi::component_name(kind);
                let mut schema = third["components"]["schemas"][&name].take();
                // Its own schema has the same name as the aggregator's and another text: both would be kept side by side.
                schema["properties"]["metadata"] =
                    json!({"type": "object", "description": "Standard object's metadata."});
                definitions.insert(name, schema);
            }
            if let Value::Object(of_version) = third["paths"].take() {
                paths.extend(of_version.into_iter().map(|(path, item)| (path, reduced(item))));
            }
        }
    }
    Some(json!({
        "swagger": "2.0",
        "info": {"title": "Kubernetes", "version": server.to_string()},
        "paths": paths,
        "definitions": definitions,
    }))
}

/// A path as version 2 has it: parameters have their type themselves, answers their schema, and no body is sent.
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
