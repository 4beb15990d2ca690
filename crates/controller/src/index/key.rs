//! Keys of the tables.

pub use atoll_scheduler::BindingKey;
pub use atoll_scheduler::detect::{GroupKind, PolicyKey, TemplateKey};

/// A namespaced object of Atoll's: WorkloadPolicy, WorkloadSpread.
pub type NamespacedName = (String, String);
