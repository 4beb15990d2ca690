//! OpenAPI v3 documents: the operations and schemas of kinds.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use schemars::{SchemaGenerator, generate::SchemaSettings};
use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};

use super::paths;
use super::version::Version;
use crate::kind::{KindNames, KindSchema, ServedKind, ServedKinds};
use crate::response::encode;

const COMPONENTS: &str = "#/components/schemas/";

/// A hash that changes with the document.
pub(super) fn fingerprint<K: ServedKind>(
    kinds: &ServedKinds<K>,
    group: &str,
    version: &str,
) -> String {
    let mut hash = Sha256::new();
    hash.update(env!("CARGO_PKG_VERSION"));
    for kind in kinds.of_version(group, version) {
        hash.update(kind.names().plural.as_bytes());
        if let KindSchema::Own(schema) = kind.openapi() {
            hash.update(encode(&schema));
        }
    }
    hash.finalize().iter().take(16).map(|b| format!("{b:02X}")).collect()
}

/// `com.example.v1.Widget` for `example.com/v1`, as apiextensions names custom kinds' schemas.
pub(super) fn component_name(kind: &KindNames) -> String {
    let mut parts: Vec<&str> = kind.group.split('.').collect();
    parts.reverse();
    format!("{}.{}.{}", parts.join("."), kind.version, kind.kind)
}

/// The document of one group version.
pub(super) fn document<K: ServedKind>(
    kinds: &ServedKinds<K>,
    group: &str,
    version: &str,
    server: &Version,
) -> Value {
    let mut generator = SchemaSettings::openapi3().into_generator();
    let mut operations = Map::new();
    let mut own = Vec::new();
    let mut typed: Vec<(String, &K)> = Vec::new();
    for kind in kinds.of_version(group, version) {
        let name = match kind.openapi() {
            KindSchema::Typed(schema_of) => {
                let schema = schema_of(&mut generator);
                let reference = schema.get("$ref").and_then(Value::as_str).unwrap_or("");
                let name = reference.strip_prefix(COMPONENTS).unwrap_or("").to_owned();
                typed.push((name.clone(), kind));
                name
            }
            KindSchema::Own(schema) => {
                let name = component_name(kind.names());
                own.push((name.clone(), completed(kind.names(), &schema, &mut generator)));
                name
            }
        };
        paths::add(&mut operations, &**kind, &format!("{COMPONENTS}{name}"));
    }
    let mut schemas = generator.take_definitions(true);
    K::annotate(&mut schemas, &typed);
    for (name, kind) in typed {
        if let Some(schema) = schemas.get_mut(&name) {
            schema["x-kubernetes-group-version-kind"] = group_version_kind(kind.names());
        }
    }
    schemas.extend(own);
    json!({
        "openapi": "3.0.0",
        "info": {"title": "Kubernetes", "version": server.to_string()},
        "paths": operations,
        "components": {"schemas": schemas},
    })
}

/// The name that a schema refers to, directly or wrapped to carry a description.
#[must_use]
pub fn reference(schema: &Value) -> Option<String> {
    let wrapped = schema.get("allOf").and_then(Value::as_array).filter(|all| all.len() == 1);
    let schema = wrapped.and_then(|all| all.first()).unwrap_or(schema);
    let reference = schema.get("$ref")?.as_str()?;
    reference.rsplit('/').next().map(str::to_owned)
}

fn group_version_kind(kind: &KindNames) -> Value {
    json!([{"group": kind.group, "kind": kind.kind, "version": kind.version}])
}

/// A kind's own schema with the fields that every object has.
fn completed(kind: &KindNames, given: &Value, generator: &mut SchemaGenerator) -> Value {
    const API_VERSION: &str =
        "APIVersion defines the versioned schema of this representation of an object.";
    const KIND: &str =
        "Kind is a string value representing the REST resource this object represents.";
    let metadata = generator.subschema_for::<ObjectMeta>();
    let mut schema = given.clone();
    if !schema.is_object() {
        schema = json!({});
    }
    schema["type"] = "object".into();
    if !schema["properties"].is_object() {
        schema["properties"] = json!({});
    }
    schema["properties"]["apiVersion"] = json!({"type": "string", "description": API_VERSION});
    schema["properties"]["kind"] = json!({"type": "string", "description": KIND});
    // Wrapped, because a description beside a reference is ignored.
    schema["properties"]["metadata"] = json!({
        "description": "Standard object's metadata.",
        "allOf": [metadata],
    });
    schema["x-kubernetes-group-version-kind"] = group_version_kind(kind);
    schema
}
