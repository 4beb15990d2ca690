//! The pod that an object runs.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::{
    kind::Kind,
    read::{at, list, map},
    third_party,
};

/// The pod template of an object; a Pod is its own template. For an unknown kind: `spec.template`, if it has
/// containers.
pub(crate) fn template(obj: &Value) -> Option<&Value> {
    match Kind::of(obj) {
        Kind::Pod => Some(obj),
        Kind::CronJob => at(obj, &["spec", "jobTemplate", "spec", "template"]),
        Kind::ServiceImport | Kind::Other => {
            if let Some((_, template)) = third_party::replicas(obj) {
                return template;
            }
            at(obj, &["spec", "template"]).filter(|t| !list(t, &["spec", "containers"]).is_empty())
        }
        _ => at(obj, &["spec", "template"]),
    }
}

/// The labels of an object's pods; empty for an object without pods.
#[must_use]
pub fn pod_labels(obj: &Value) -> BTreeMap<String, String> {
    template(obj).map(labels).unwrap_or_default()
}

/// The labels of a pod or template.
pub(crate) fn labels(pod: &Value) -> BTreeMap<String, String> {
    map(pod, &["metadata", "labels"])
        .filter_map(|(name, v)| Some((name.to_owned(), v.as_str()?.to_owned())))
        .collect()
}
