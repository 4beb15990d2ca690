//! Atoll's kinds as Rust types: their schemas, the marks that Atoll sets on objects, and the CRDs.
//!
//! Field names, enums and defaults are Karmada's wherever the meaning is the same, so that manifests can be migrated by
//! changing the group. This crate has data and its validation (schemas, CEL rules, quantities, selectors).
//! `atoll-scheduler` and `atoll-controller` implement the policies.

pub mod backoff;
pub mod binding;
mod binding_clusters;
mod binding_status;
pub mod change_guard;
mod clock;
pub mod cluster;
pub mod cluster_set;
pub mod cluster_taint_policy;
pub mod conditions;
pub mod crds;
pub mod cron;
pub mod customization;
pub mod federated_resource_quota;
mod few;
pub mod hex;
mod ids;
pub mod interpreter_webhook;
mod manifest_hash;
pub mod marks;
mod member_state;
pub mod names;
mod object_key;
pub mod override_policy;
pub mod placement;
pub mod policy;
mod preemption;
pub mod quantity;
pub mod rebalancer;
mod reserved;
mod runs_on;
pub mod selector;
mod shared;
pub mod start;
pub mod static_assignment;
pub mod text;
mod twin;
pub mod workload_affinity;
pub mod workload_policy;
pub mod workload_spread;

pub use backoff::{Backoff, Jitter};
pub use binding::{ClusterResourceBinding, ResourceBinding};
pub use change_guard::ChangeGuard;
pub use clock::Clock;
pub use cluster::Cluster;
pub use cluster_set::ClusterSet;
pub use cluster_taint_policy::ClusterTaintPolicy;
pub use customization::ResourceInterpreterCustomization;
pub use federated_resource_quota::FederatedResourceQuota;
pub use few::{Few, PodLabels};
pub use ids::{BindingUid, ClusterName, DecisionId, ManifestHash, TemplateUid};
pub use interpreter_webhook::ResourceInterpreterWebhookConfiguration;
pub use member_state::MemberState;
pub use object_key::ObjectKey;
pub use override_policy::{ClusterOverridePolicy, OverridePolicy};
pub use policy::{ClusterPropagationPolicy, PropagationPolicy};
pub use rebalancer::WorkloadRebalancer;
pub use reserved::ReservedNamespaces;
pub use runs_on::RunsOn;
pub use shared::{Shared, share_equal};
pub use workload_policy::WorkloadPolicy;
pub use workload_spread::WorkloadSpread;

/// Group of the policies.
pub const POLICY_GROUP: &str = "policy.atoll.dev";
/// Group of the bindings.
pub const WORK_GROUP: &str = "work.atoll.dev";
/// Group of requests about workloads, such as rebalancing.
pub const APPS_GROUP: &str = "apps.atoll.dev";
/// Group of the settings, such as interpreters of kinds.
pub const CONFIG_GROUP: &str = "config.atoll.dev";
/// Group that serves recorded decisions, read-only.
pub const HISTORY_GROUP: &str = "history.atoll.dev";
/// The API group through which users of the hub reach members.
pub const PROXY_GROUP: &str = "proxy.atoll.dev";
/// The API group in which plans are approved.
pub const REVIEW_GROUP: &str = "review.atoll.dev";
/// The version of all groups.
pub const VERSION: &str = "v1alpha1";
