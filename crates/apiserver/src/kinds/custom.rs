//! The kinds that CRDs define.

use std::sync::{Arc, OnceLock};

use atoll_apimachinery::{
    kind::{KindNames, api_version},
    meta,
    selector::SelectableField,
};
use atoll_merge::schema::Schema;
use serde_json::Value;

use super::{
    catalog::Snapshot,
    kind::{Conversion, Kind, Origin, Scale},
};
use crate::crd::{
    cel, columns,
    custom::Custom,
    definition,
    fields::{objects_table, text, texts, versions},
};

/// A dotted path without its leading dot.
fn undotted(path: &str) -> String {
    path.strip_prefix('.').unwrap_or(path).to_owned()
}

/// The kinds that an established CRD serves. Unchanged ones are reused from `previous`, with their compiled rules.
pub(crate) fn served(definition: &Value, revision: u64, previous: &Snapshot) -> Vec<Arc<Kind>> {
    if !definition::is_established(definition) {
        return Vec::new();
    }
    let (group, plural) = (text(definition, "spec.group"), text(definition, "spec.names.plural"));
    versions(definition)
        .filter(|v| v.get("served") == Some(&Value::Bool(true)))
        .filter_map(|version| {
            let known = previous.find(group, text(version, "name"), plural);
            match known.map(|kind| (kind, &kind.origin)) {
                Some((kind, Origin::Custom(c))) if c.revision == revision => Some(kind.clone()),
                // A built-in kind takes precedence.
                Some((_, Origin::Builtin(_))) => None,
                _ => Some(Arc::new(kind(definition, version, revision))),
            }
        })
        .collect()
}

fn kind(definition: &Value, version: &Value, revision: u64) -> Kind {
    let (group, version_name) = (text(definition, "spec.group"), text(version, "name"));
    let kind_name = text(definition, "spec.names.kind");
    let openapi = version.pointer("/schema/openAPIV3Schema").cloned().unwrap_or_default();
    // Installed CRDs have passed `definition::check`; a stored one that no longer parses is served untyped.
    let schema = Schema::from_openapi(&openapi).unwrap_or_else(|error| {
        tracing::error!(crd = meta::name(definition), %error, "stored CRD has an unusable schema");
        Schema::deduced()
    });
    let stored_version = versions(definition)
        .find(|v| v.get("storage") == Some(&Value::Bool(true)))
        .map_or(version_name, |v| text(v, "name"));
    let subresources = version.get("subresources");
    let scale = subresources.and_then(|s| s.get("scale")).map(|scale| Scale {
        spec_replicas: undotted(text(scale, "specReplicasPath")),
        status_replicas: undotted(text(scale, "statusReplicasPath")),
        selector: Some(undotted(text(scale, "labelSelectorPath"))).filter(|p| !p.is_empty()),
    });
    let selectable: Vec<SelectableField> = version
        .get("selectableFields")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .map(|f| SelectableField::path(&undotted(text(f, "jsonPath"))))
        .collect();
    let names = |path: &str, default: String| match text(definition, path) {
        "" => default,
        name => name.to_owned(),
    };
    let programs = cel::Programs::of(&schema);
    let mut open = schema.open_objects();
    let leads_to =
        |field: &SelectableField, part: &[String]| field.path.split('.').take(part.len()).eq(part);
    open.retain(|part| !selectable.iter().any(|field| leads_to(field, part)));
    let cell = OnceLock::new();
    // A fresh cell is empty, so this cannot fail.
    let _ = cell.set(schema);
    Kind {
        names: KindNames {
            group: group.to_owned(),
            version: version_name.to_owned(),
            kind: kind_name.to_owned(),
            list_kind: names("spec.names.listKind", format!("{kind_name}List")),
            plural: text(definition, "spec.names.plural").to_owned(),
            singular: names("spec.names.singular", kind_name.to_lowercase()),
            short_names: texts(definition, "spec.names.shortNames"),
            categories: texts(definition, "spec.names.categories"),
            namespaced: text(definition, "spec.scope") == "Namespaced",
        },
        table: objects_table(definition),
        stored_api_version: api_version(group, stored_version),
        conversion: Conversion::ApiVersion,
        status: subresources.is_some_and(|s| s.get("status").is_some()),
        scale,
        selectable,
        origin: Origin::Custom(Custom {
            revision,
            terminating: meta::is_deleting(definition),
            columns: columns::of(version),
            openapi,
            programs,
            open,
        }),
        schema: cell,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn open(definition: &Value) -> Vec<Vec<String>> {
        let kind = kind(definition, versions(definition).next().unwrap(), 1);
        kind.custom().unwrap().open.clone()
    }

    #[test]
    fn placement_and_status_of_a_binding_are_open() {
        let definitions = atoll_api::crds::all();
        let binding = definitions.iter().find(|crd| crd.spec.names.kind == "ResourceBinding");
        let open = open(&serde_json::to_value(binding.unwrap()).unwrap());
        for part in [&["spec", "placement"][..], &["status"]] {
            assert!(open.iter().any(|path| path == part), "{part:?}: {open:?}");
        }
    }

    #[test]
    fn a_part_that_a_field_selector_reads_is_not_open() {
        let part = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
        let mut definition = json!({"spec": {"versions": [{
            "name": "v1",
            "schema": {"openAPIV3Schema": {"type": "object", "properties": {
                "read": part, "readNot": part,
            }}},
            "selectableFields": [{"jsonPath": ".read.color"}],
        }]}});
        assert_eq!(open(&definition), [["readNot"]]);
        definition["spec"]["versions"][0]["selectableFields"] = json!([]);
        assert_eq!(open(&definition), [["read"], ["readNot"]]);
    }
}
