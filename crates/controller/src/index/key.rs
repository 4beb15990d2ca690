//! Keys of the tables.

pub(crate) use atoll_decision::{BindingKey, BindingName};
pub(crate) use atoll_scheduler::detect::{GroupKind, PolicyKey, TemplateKey};

/// API version and kind of an object.
pub(crate) type Kind<'a> = (&'a str, &'a str);

/// A namespaced object of Atoll's: WorkloadPolicy, WorkloadSpread.
pub(crate) type NamespacedName = (String, String);
