//! The plugins, one file each. The registry maps them to extension points.

pub mod api_enablement;
pub mod application_health;
pub mod auto_migration;
pub mod cluster_affinity;
pub mod cluster_eviction;
pub mod cluster_locality;
pub mod cluster_sets;
pub mod preemption;
pub mod replica_division;
pub mod resource_fit;
pub mod spread_constraint;
pub mod sticky;
pub mod taint_toleration;
pub mod topology_spread;
pub mod workload_affinity;
pub mod workload_policy;
pub mod workload_spread;

/// Replicas of another binding's share, clamped to the range that the CRD schema allows.
pub(crate) fn sound(share: &atoll_api::binding::TargetCluster) -> i64 {
    share.replicas.clamp(0, i64::from(i32::MAX))
}

/// Declares `new` for a plugin without args.
macro_rules! without_args {
    ($plugin:ident) => {
        impl $plugin {
            /// Creates the plugin.
            ///
            /// # Errors
            /// Any arg is given.
            pub fn new(
                args: Option<&serde_json::Value>,
            ) -> Result<Self, crate::framework::registry::ArgError> {
                crate::framework::registry::no_args(args).map(|()| Self)
            }
        }
    };
}
pub(crate) use without_args;
