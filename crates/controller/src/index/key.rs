//! The names by which the tables know things.

pub use atoll_scheduler::BindingKey;
pub use atoll_scheduler::detect::{GroupKind, PolicyKey, TemplateKey};

/// A namespaced object of Atoll's: WorkloadPolicy, WorkloadSpread.
pub type NamespacedName = (String, String);
