//! Keys of the tables.

pub(crate) use atoll_decision::{BindingKey, BindingName};
pub(crate) use atoll_scheduler::detect::{GroupKind, PolicyKey, TemplateKey};

/// A namespaced object of Atoll's: WorkloadPolicy, WorkloadSpread.
pub(crate) type NamespacedName = (String, String);
