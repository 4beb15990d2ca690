//! The plugins, one file each. The registry says at which points they run.

pub mod api_enablement;
pub mod application_health;
pub mod cluster_affinity;
pub mod cluster_eviction;
pub mod cluster_locality;
pub mod replica_division;
pub mod resource_fit;
pub mod spread_constraint;
pub mod sticky;
pub mod taint_toleration;
pub mod topology_spread;
pub mod workload_policy;
pub mod workload_spread;

/// Replicas of another binding's share: what is outside these bounds passed no schema.
pub(crate) fn sound(share: &atoll_api::binding::TargetCluster) -> i64 {
    share.replicas.clamp(0, i64::from(i32::MAX))
}

/// Declares `new` of a plugin without args.
macro_rules! without_args {
    ($plugin:ident) => {
        impl $plugin {
            /// Makes it.
            ///
            /// # Errors
            /// On any arg: it takes none.
            pub fn new(
                args: Option<&serde_json::Value>,
            ) -> Result<Self, crate::framework::registry::ArgError> {
                crate::framework::registry::no_args(args).map(|()| Self)
            }
        }
    };
}
pub(crate) use without_args;
