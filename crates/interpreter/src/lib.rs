//! The meaning of kinds: replicas and their requirements, health, aggregated status, dependencies, and the fields that
//! belong to the cluster that runs the object.
//!
//! Pure functions over objects as JSON. They follow Karmada's default interpreter and, for kinds that it does not
//! cover, the Kubernetes API conventions. They cannot fail: a field of the wrong type counts as absent, because the API
//! server that served the object has already rejected invalid ones. `atoll-render` writes replicas and overrides into
//! manifests.

mod attached;
mod conditions;
mod dependencies;
mod error;
mod health;
mod kind;
mod kinds;
mod observed;
mod operations;
mod pod;
mod read;
mod replicas;
mod requirements;
mod retained;
mod schema;
mod third_party;

pub use attached::{
    Attached, BindingKey, HubObject, Parent, Plan, RequiredBy, State, Strategy, plan,
};
pub use dependencies::{DependentRef, dependencies};
pub use error::InterpretError;
pub use health::{Health, HealthState};
pub use kinds::{aggregate, health};
pub use observed::{Observed, observed};
pub use operations::{
    Operation, RETAIN_REPLICAS, interpret, prune, retain, retain_metadata, retained,
};
pub use pod::pod_labels;
pub use replicas::{replicas, set_replicas};
pub use requirements::requirements;
pub use retained::{retained_fields, strip_allocated, strip_retained};
pub use third_party::{Component, components};
