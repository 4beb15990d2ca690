//! What a committed decision wants of each member: pure.
//!
//! A decision names shares. Eviction tasks say which copies stay for now, which are removed at once, and what new copies
//! wait for.

use std::collections::BTreeMap;

use atoll_api::ClusterName;
use atoll_api::binding::ResourceBindingSpec;
use atoll_api::placement::{ReplicaScheduling, ReplicaSchedulingType};
use atoll_api::policy::PurgeMode;

use crate::optional_number::OptionalNumber;

/// What one member must hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Presence {
    /// The object.
    Want(Wanted),
    /// Nothing is sent and nothing is removed.
    Leave(Hold),
}

impl Presence {
    /// The share that the member must hold.
    pub(crate) fn wanted(self) -> Option<Wanted> {
        match self {
            Self::Want(wanted) => Some(wanted),
            Self::Leave(_) => None,
        }
    }
}

/// One member's share of a workload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Wanted {
    /// Replicas there, including those that eviction tasks keep. `None` for kinds without.
    pub replicas: OptionalNumber,
    /// Replicas on clusters before it by name; 0 where every cluster gets all.
    pub before: i64,
}

/// Why a member is not changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Hold {
    /// Its share waits until another member has confirmed the removal of the old copy (`purgeMode: Directly`).
    Withheld,
    /// `suspension` names the member.
    Suspended,
    /// `purgeMode: Never`.
    NeverPurged,
}

/// Facts about a member beyond the decision.
pub(crate) trait Members {
    /// Whether it has a session.
    fn connected(&self, cluster: &str) -> bool;
    /// Replicas last sent to it, if any order was sent.
    fn sent(&self, cluster: &str) -> Option<Option<i64>>;
}

/// What the decision wants of each member; members that it does not name hold nothing of this binding. `steered`: a
/// WorkloadPolicy or a WorkloadSpread divides the replicas, regardless of the placement.
#[must_use]
pub(crate) fn plan(
    spec: &ResourceBindingSpec,
    steered: bool,
    members: &impl Members,
) -> BTreeMap<ClusterName, Presence> {
    let has_replicas = spec.replicas.is_some();
    let mut wanted: BTreeMap<&str, i64> =
        spec.clusters.iter().map(|target| (target.name.as_str(), target.replicas)).collect();
    for task in spec.graceful_eviction_tasks.iter().filter(|task| task.keep) {
        *wanted.entry(&task.from_cluster).or_default() += task.replicas;
    }
    // New copies of a workload that must not run twice wait for the end of the old ones.
    let blocked = spec.graceful_eviction_tasks.iter().any(|task| {
        task.purge_mode == PurgeMode::Directly
            && !task.keep
            && members.connected(&task.from_cluster)
    });
    let divided = is_divided(spec, steered);
    let mut before = 0;
    let mut plan = BTreeMap::new();
    for (cluster, mut replicas) in wanted {
        let mut hold = suspended(spec, cluster).then_some(Hold::Suspended);
        if blocked {
            match members.sent(cluster) {
                Some(sent) => replicas = sent.map_or(replicas, |sent| replicas.min(sent)),
                None => hold = hold.or(Some(Hold::Withheld)),
            }
        }
        let presence = match hold {
            Some(hold) => Presence::Leave(hold),
            None => {
                Presence::Want(Wanted { replicas: has_replicas.then_some(replicas).into(), before })
            }
        };
        if divided {
            before += replicas;
        }
        plan.insert(cluster.into(), presence);
    }
    for cluster in spec.required_by.iter().flat_map(|by| &by.clusters) {
        plan.entry(cluster.name.as_str().into()).or_insert_with(|| {
            match suspended(spec, &cluster.name) {
                true => Presence::Leave(Hold::Suspended),
                false => Presence::Want(Wanted { replicas: spec.replicas.into(), before: 0 }),
            }
        });
    }
    for task in &spec.graceful_eviction_tasks {
        if task.purge_mode == PurgeMode::Never {
            plan.entry((&task.from_cluster).into()).or_insert(Presence::Leave(Hold::NeverPurged));
        }
    }
    plan
}

/// Whether the replicas are divided among clusters, as opposed to Duplicated.
#[must_use]
pub(crate) fn is_divided(spec: &ResourceBindingSpec, steered: bool) -> bool {
    let scheduling = spec.placement.as_ref().and_then(|p| p.replica_scheduling.as_ref());
    let divided = |scheduling: &ReplicaScheduling| {
        scheduling.replica_scheduling_type == ReplicaSchedulingType::Divided
    };
    steered || scheduling.is_some_and(divided)
}

/// Whether the policy suspends this member.
#[must_use]
pub(crate) fn suspended(spec: &ResourceBindingSpec, cluster: &str) -> bool {
    spec.suspension.as_ref().is_some_and(|suspension| {
        suspension.dispatching
            || suspension
                .dispatching_on_clusters
                .as_ref()
                .is_some_and(|on| on.cluster_names.iter().any(|name| name == cluster))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    struct Fixed {
        connected: &'static [&'static str],
        sent: &'static [(&'static str, i64)],
    }

    impl Members for Fixed {
        fn connected(&self, cluster: &str) -> bool {
            self.connected.contains(&cluster)
        }

        fn sent(&self, cluster: &str) -> Option<Option<i64>> {
            let sent = self.sent.iter().find(|(name, _)| *name == cluster);
            sent.map(|(_, replicas)| Some(*replicas))
        }
    }

    const NONE: Fixed = Fixed { connected: &[], sent: &[] };

    fn spec(extra: serde_json::Value) -> ResourceBindingSpec {
        let mut spec = json!({
            "resource": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
            "replicas": 3,
            "placement": {"replicaScheduling": {"replicaSchedulingType": "Divided"}},
            "clusters": [{"name": "b", "replicas": 1}, {"name": "a", "replicas": 2}],
        });
        for (key, value) in extra.as_object().unwrap() {
            spec[key] = value.clone();
        }
        serde_json::from_value(spec).unwrap()
    }

    fn task(cluster: &str, keep: bool, purge: &str) -> serde_json::Value {
        json!({"gracefulEvictionTasks": [{
            "fromCluster": cluster, "replicas": 4, "reason": "Reconcile", "keep": keep,
            "purgeMode": purge, "creationTimestamp": "2026-01-01T00:00:00Z",
        }]})
    }

    fn want(replicas: i64, before: i64) -> Presence {
        Presence::Want(Wanted { replicas: Some(replicas).into(), before })
    }

    #[test]
    fn shares_count_up_by_name() {
        let plan = plan(&spec(json!({})), false, &NONE);
        assert_eq!(plan["a"], want(2, 0));
        assert_eq!(plan["b"], want(1, 2));
        assert_eq!(plan.len(), 2);
    }

    #[test]
    fn what_is_steered_is_divided_whatever_its_placement_says() {
        let placement = json!({"placement": {}});
        let duplicated = plan(&spec(placement.clone()), false, &NONE);
        assert_eq!((duplicated["a"], duplicated["b"]), (want(2, 0), want(1, 0)));
        assert_eq!(plan(&spec(placement), true, &NONE)["b"], want(1, 2));
    }

    #[test]
    fn a_kept_task_runs_on_besides_the_share() {
        let leaving = plan(&spec(task("c", true, "Gracefully")), false, &NONE);
        assert_eq!(leaving["c"], want(4, 3));
        let shrinking = plan(&spec(task("a", true, "Gracefully")), false, &NONE);
        assert_eq!(shrinking["a"], want(6, 0));
        let lost = plan(&spec(task("c", false, "Gracefully")), false, &NONE);
        assert!(!lost.contains_key("c"), "a lost cluster keeps nothing");
    }

    #[test]
    fn directly_withholds_what_is_new_until_the_old_copy_is_gone_or_its_cluster_lost() {
        let spec = spec(task("c", false, "Directly"));
        let waiting = plan(&spec, false, &Fixed { connected: &["c"], sent: &[("a", 1)] });
        assert_eq!(waiting["a"], want(1, 0), "what runs already runs on");
        assert_eq!(waiting["b"], Presence::Leave(Hold::Withheld));
        assert!(!waiting.contains_key("c"));
        assert_eq!(plan(&spec, false, &NONE)["b"], want(1, 2));
    }

    #[test]
    fn suspended_and_never_purged_members_are_left_alone() {
        let mut never = spec(task("c", false, "Never"));
        assert_eq!(plan(&never, false, &NONE)["c"], Presence::Leave(Hold::NeverPurged));
        never.suspension =
            serde_json::from_value(json!({"dispatchingOnClusters": {"clusterNames": ["b"]}}))
                .unwrap();
        let plan = plan(&never, false, &NONE);
        assert_eq!(plan["b"], Presence::Leave(Hold::Suspended));
        assert_eq!(plan["a"], want(2, 0));
    }
}
