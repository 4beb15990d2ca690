//! What an object of a kind means: how many replicas it asks for and what one of them needs, whether it is
//! healthy, what its status says over several clusters, what it depends on, and which of its fields belong to
//! the cluster that runs it.
//!
//! Pure functions over objects as they travel, as JSON. The meanings are those of Karmada's default interpreter,
//! and for kinds that it does not know those of the Kubernetes API conventions. Nothing here fails: a field of the
//! wrong type counts as absent, since the API server that served the object has refused what is really wrong.
//! Writing replicas and overrides into manifests is left to `atoll-render`.

mod conditions;
mod dependencies;
mod health;
mod kind;
mod kinds;
mod observed;
mod pod;
mod read;
mod replicas;
mod requirements;
mod retained;

pub use dependencies::{DependentRef, dependencies};
pub use health::{Health, HealthState};
pub use kinds::{aggregate, health};
pub use observed::{Observed, observed};
pub use pod::pod_labels;
pub use replicas::{replicas, set_replicas};
pub use requirements::requirements;
pub use retained::{retained_fields, strip_allocated, strip_retained};
