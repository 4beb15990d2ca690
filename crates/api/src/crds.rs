//! The CRDs of Atoll's kinds, for `crds/*.yaml` and `atoll up`.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, JSONSchemaProps, JSONSchemaPropsOrArray,
};
use kube::CustomResourceExt;
use serde_json::Value;

use crate::binding::{ClusterResourceBinding, ResourceBinding};
use crate::policy::PropagationPolicy;

/// All CRDs, in installation order.
#[must_use]
pub fn all() -> Vec<CustomResourceDefinition> {
    let mut crds = vec![
        crate::cluster::Cluster::crd(),
        crate::cluster_set::ClusterSet::crd(),
        PropagationPolicy::crd(),
        crate::policy::ClusterPropagationPolicy::crd(),
        crate::override_policy::OverridePolicy::crd(),
        crate::override_policy::ClusterOverridePolicy::crd(),
        crate::workload_policy::WorkloadPolicy::crd(),
        crate::workload_spread::WorkloadSpread::crd(),
        crate::cluster_taint_policy::ClusterTaintPolicy::crd(),
        crate::change_guard::ChangeGuard::crd(),
        crate::federated_resource_quota::FederatedResourceQuota::crd(),
        crate::customization::ResourceInterpreterCustomization::crd(),
        crate::interpreter_webhook::definition::crd(),
        crate::rebalancer::WorkloadRebalancer::crd(),
        without_status_fields(ResourceBinding::crd()),
        without_status_fields(ClusterResourceBinding::crd()),
    ];
    for crd in &mut crds {
        crd.spec.names.categories = Some(vec!["atoll".to_owned()]);
    }
    crds
}

/// The CRD of a kind of binding, without the fields of the status: an API server checks each field that is described with each
/// write, and the status, which only the controller writes, has most of them. As one field for server-side apply, it is also
/// short in the managed fields.
fn without_status_fields(mut crd: CustomResourceDefinition) -> CustomResourceDefinition {
    let schema = crd.spec.versions.first_mut().and_then(|version| version.schema.as_mut());
    let schema = schema.and_then(|schema| schema.open_api_v3_schema.as_mut());
    let status = schema.and_then(|schema| schema.properties.as_mut()?.get_mut("status"));
    if let Some(status) = status {
        *status = JSONSchemaProps {
            description: Some(described_fields(status)),
            nullable: status.nullable,
            type_: status.type_.take(),
            x_kubernetes_preserve_unknown_fields: Some(true),
            x_kubernetes_map_type: Some("atomic".to_owned()),
            ..JSONSchemaProps::default()
        };
    }
    crd
}

/// The description of an object with the names and descriptions of its fields, for `kubectl explain`.
fn described_fields(object: &JSONSchemaProps) -> String {
    let text = |schema: &JSONSchemaProps| schema.description.clone().unwrap_or_default();
    let names = |schema: &JSONSchemaProps| {
        schema
            .properties
            .iter()
            .flatten()
            .map(|(name, _)| format!("`{name}`"))
            .collect::<Vec<_>>()
            .join(", ")
    };
    let fields = object.properties.iter().flatten().map(|(name, field)| {
        let below = match &field.items {
            Some(JSONSchemaPropsOrArray::Schema(item)) => names(item),
            _ => names(field),
        };
        let below = if below.is_empty() { below } else { format!(" ({below})") };
        format!("`{name}`{below}: {}", text(field))
    });
    let fields: Vec<_> = fields.collect();
    format!("{} API servers do not check these fields: {}", text(object), fields.join(" "))
}

/// Where bindings have their status.
const STATUS: &str = "/properties/status";
/// Where policies and bindings have their placement.
const PLACEMENT: &str = "/properties/spec/properties/placement";

/// The schema of a kind's objects. It has also the fields of a binding's placement and status, which API servers do not check.
#[must_use]
pub fn full_schema(crd: &CustomResourceDefinition) -> Value {
    let mut schema = checked_schema(crd);
    for (place, full) in [(PLACEMENT, placement_schema as fn() -> Value), (STATUS, status_schema)] {
        if let Some(part) = schema.pointer_mut(place)
            && part["x-kubernetes-preserve-unknown-fields"] == true
        {
            *part = full();
            part["nullable"] = true.into();
        }
    }
    schema
}

/// The schema of a binding's status.
#[must_use]
pub fn status_schema() -> Value {
    let mut binding = checked_schema(&ResourceBinding::crd());
    binding.pointer_mut(STATUS).map(Value::take).unwrap_or_default()
}

/// The schema of placements, without a default.
#[must_use]
pub fn placement_schema() -> Value {
    let mut policy = checked_schema(&PropagationPolicy::crd());
    let mut placement = policy.pointer_mut(PLACEMENT).map(Value::take).unwrap_or_default();
    if let Some(fields) = placement.as_object_mut() {
        fields.remove("default");
    }
    placement
}

/// What API servers check. Null if the CRD has no schema.
fn checked_schema(crd: &CustomResourceDefinition) -> Value {
    let schema = crd.spec.versions.first().and_then(|version| version.schema.as_ref());
    let schema = schema.and_then(|schema| schema.open_api_v3_schema.as_ref());
    // It came from JSON.
    serde_json::to_value(schema).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// Calls `visit` on every schema below this one.
    fn walk(schema: &Value, path: &str, visit: &mut impl FnMut(&str, &Value)) {
        visit(path, schema);
        for (name, child) in schema["properties"].as_object().into_iter().flatten() {
            walk(child, &format!("{path}.{name}"), visit);
        }
        for child in ["items", "additionalProperties"] {
            if schema[child].is_object() {
                walk(&schema[child], &format!("{path}[]"), visit);
            }
        }
    }

    #[test]
    fn every_kind_has_a_structural_schema_columns_and_a_status() {
        for crd in all() {
            let name = crd.metadata.name.clone().unwrap();
            let version = &crd.spec.versions[0];
            assert!(version.subresources.as_ref().unwrap().status.is_some(), "{name}");
            assert!(version.additional_printer_columns.as_ref().unwrap().len() >= 3, "{name}");
            assert_eq!(name, format!("{}.{}", crd.spec.names.plural, crd.spec.group));
            let schema = serde_json::to_value(version.schema.as_ref().unwrap()).unwrap();
            walk(&schema["openAPIV3Schema"], "", &mut |path, node| {
                assert!(node.get("$ref").is_none(), "{name}{path} is a reference");
                // kube-apiserver refuses a default that breaks a rule beside it. An empty placement breaks none, and the term 0
                // is not less than the term 0.
                let has = |field: &str| node.get(field).is_some();
                assert!(
                    !(has("default") && has("x-kubernetes-validations"))
                        || path.ends_with(".placement")
                        || path.ends_with(".decision.term"),
                    "{name}{path} has a default beside rules"
                );
                let typed = node["type"].is_string()
                    || node["x-kubernetes-int-or-string"] == json!(true)
                    || node["x-kubernetes-preserve-unknown-fields"] == json!(true);
                assert!(typed, "{name}{path} has no type: {node}");
                if node["x-kubernetes-list-type"] == json!("map") {
                    for key in node["x-kubernetes-list-map-keys"].as_array().unwrap() {
                        let key = key.as_str().unwrap();
                        let required = node["items"]["required"].as_array();
                        let required = required.is_some_and(|r| r.iter().any(|k| k == key));
                        let defaulted = !node["items"]["properties"][key]["default"].is_null();
                        assert!(required || defaulted, "{name}{path}: key {key} may be absent");
                    }
                }
            });
        }
    }

    #[test]
    fn api_servers_check_neither_placement_nor_status_of_a_binding() {
        let of_policies = placement_schema();
        let typed = checked_schema(&ResourceBinding::crd());
        assert!(of_policies["properties"]["spreadConstraints"].is_object());
        let mut bindings = 0;
        for crd in all() {
            let (checked, full) = (checked_schema(&crd), full_schema(&crd));
            if !crd.spec.names.kind.ends_with("ResourceBinding") {
                assert_eq!(checked, full);
                continue;
            }
            bindings += 1;
            let placement =
                |schema: &Value| schema.pointer(PLACEMENT).unwrap()["properties"].clone();
            assert_eq!(placement(&checked), Value::Null);
            assert_eq!(placement(&full), of_policies["properties"]);

            let status = checked.pointer(STATUS).unwrap();
            assert_eq!(status["properties"], Value::Null);
            let (text, full) = (status["description"].as_str().unwrap(), full.pointer(STATUS));
            assert!(
                text.contains("`summary` (`applied`, `ready`, `unhealthy`, `unknown`)"),
                "{text}"
            );
            assert_eq!(full, typed.pointer(STATUS));
        }
        assert_eq!(bindings, 2);
    }

    #[test]
    fn a_late_leaders_decision_is_refused_by_the_schema() {
        for crd in all().into_iter().filter(|crd| crd.spec.names.kind.ends_with("ResourceBinding"))
        {
            let schema =
                serde_json::to_value(crd.spec.versions[0].schema.as_ref().unwrap()).unwrap();
            let decision =
                &schema["openAPIV3Schema"]["properties"]["spec"]["properties"]["decision"];
            let term = &decision["properties"]["term"];
            assert_eq!(term["x-kubernetes-validations"][0]["rule"], "self >= oldSelf");
            // So that a decision without a term is of the first one.
            assert_eq!(term["default"], 0);
        }
    }

    /// kube-apiserver rejects a CRD with a rule on `oldSelf` below a list, because it cannot match old and new
    /// items.
    #[test]
    fn no_rule_compares_items_of_lists_with_what_they_were() {
        for crd in all() {
            let schema = serde_json::to_value(&crd.spec.versions[0].schema).unwrap();
            walk(&schema["openAPIV3Schema"], "", &mut |path, node| {
                let rules = node["x-kubernetes-validations"].to_string();
                let below_a_list = path.contains("[]");
                assert!(!(below_a_list && rules.contains("oldSelf")), "{path}: {rules}");
            });
        }
    }
}
