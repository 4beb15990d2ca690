//! Keys of the tables.

pub(crate) use atoll_decision::{BindingKey, BindingName};
pub(crate) use atoll_scheduler::detect::{GroupKind, PolicyKey, TemplateKey};

use serde_json::Value;

/// API version and kind of an object.
pub(crate) type Kind<'a> = (&'a str, &'a str);

/// The API version and kind in an object.
pub(crate) fn kind_of(object: &Value) -> Kind<'_> {
    let text = |field: &str| object[field].as_str().unwrap_or_default();
    (text("apiVersion"), text("kind"))
}

/// A namespaced object of Atoll's: WorkloadPolicy, WorkloadSpread.
pub(crate) type NamespacedName = (String, String);
