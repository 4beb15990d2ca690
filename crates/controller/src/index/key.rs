//! Keys of the tables.

pub(crate) use atoll_decision::BindingKey;
pub(crate) use atoll_scheduler::detect::{GroupKind, KindRef, PolicyKey, TemplateKey};

use serde_json::Value;

/// API version and kind of an object.
pub(crate) type Kind<'a> = (&'a str, &'a str);

/// The API version and kind in an object.
pub(crate) fn kind_of(object: &Value) -> Kind<'_> {
    let text = |field: &str| object[field].as_str().unwrap_or_default();
    (text("apiVersion"), text("kind"))
}

/// The uid of an object.
pub(crate) fn uid_of(object: &Value) -> Option<&str> {
    object["metadata"]["uid"].as_str()
}

/// The resourceVersion of an object.
pub(crate) fn version_of(object: &Value) -> Option<&str> {
    object["metadata"]["resourceVersion"].as_str()
}

/// A namespaced object of Atoll's: WorkloadPolicy, WorkloadSpread.
pub(crate) type NamespacedName = (String, String);
