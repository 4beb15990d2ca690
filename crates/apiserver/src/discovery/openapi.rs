//! OpenAPI v3 documents: operations for all kinds, the schemas of built-in kinds from k8s-openapi, those of
//! custom kinds from their CRDs.

use std::collections::BTreeSet;

use atoll_merge::schema::Schema;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use schemars::{SchemaGenerator, generate::SchemaSettings};
use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};

use super::{merge_keys, paths};
use crate::{
    kinds::{Kind, Origin, catalog::Snapshot},
    options::Version,
};

const COMPONENTS: &str = "#/components/schemas/";

/// A hash that changes with the document.
pub(super) fn fingerprint(kinds: &Snapshot, group: &str, version: &str) -> String {
    let mut hash = Sha256::new();
    hash.update(env!("CARGO_PKG_VERSION"));
    for kind in kinds.of_version(group, version) {
        hash.update(kind.plural.as_bytes());
        if let Some(custom) = kind.custom() {
            hash.update(crate::store::encode(&custom.openapi));
        }
    }
    hash.finalize().iter().take(16).map(|b| format!("{b:02X}")).collect()
}

/// `com.example.v1.Widget` for `example.com/v1`, as apiextensions names custom kinds' schemas.
pub(super) fn component_name(kind: &Kind) -> String {
    let mut parts: Vec<&str> = kind.group.split('.').collect();
    parts.reverse();
    format!("{}.{}.{}", parts.join("."), kind.version, kind.kind)
}

/// The document of one group version.
pub(super) fn document(kinds: &Snapshot, group: &str, version: &str, server: &Version) -> Value {
    let mut generator = SchemaSettings::openapi3().into_generator();
    let mut operations = Map::new();
    let mut custom = Vec::new();
    let mut builtin: Vec<(String, &Kind)> = Vec::new();
    for kind in kinds.of_version(group, version) {
        let name = match &kind.origin {
            Origin::Builtin(b) => {
                let schema = (b.openapi)(&mut generator);
                let reference = schema.get("$ref").and_then(Value::as_str).unwrap_or("");
                let name = reference.strip_prefix(COMPONENTS).unwrap_or("").to_owned();
                builtin.push((name.clone(), kind));
                name
            }
            Origin::Custom(c) => {
                let name = component_name(kind);
                custom.push((name.clone(), own(kind, &c.openapi, &mut generator)));
                name
            }
            Origin::Virtual(_, v) => {
                let name = component_name(kind);
                let given = v.schema.clone().unwrap_or_else(|| json!({"type": "object"}));
                custom.push((name.clone(), own(kind, &given, &mut generator)));
                name
            }
        };
        paths::add(&mut operations, kind, &format!("{COMPONENTS}{name}"));
    }
    let mut schemas = generator.take_definitions(true);
    let mut annotated = BTreeSet::new();
    for (name, kind) in builtin {
        if let Some(fields) = Schema::builtin(&kind.group, &kind.version, &kind.kind) {
            merge_keys::annotate(&mut schemas, &name, &fields, &mut annotated);
        }
        if let Some(schema) = schemas.get_mut(&name) {
            schema["x-kubernetes-group-version-kind"] = group_version_kind(kind);
        }
    }
    schemas.extend(custom);
    json!({
        "openapi": "3.0.0",
        "info": {"title": "Kubernetes", "version": server.to_string()},
        "paths": operations,
        "components": {"schemas": schemas},
    })
}

fn group_version_kind(kind: &Kind) -> Value {
    json!([{"group": kind.group, "kind": kind.kind, "version": kind.version}])
}

/// A custom kind's schema with the fields that every object has.
fn own(kind: &Kind, given: &Value, generator: &mut SchemaGenerator) -> Value {
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
