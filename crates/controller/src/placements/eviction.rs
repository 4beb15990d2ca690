//! When the old copy on a cluster that a binding leaves may be removed, and the decision that ends its eviction task.

use atoll_api::binding::{
    DecisionRecord, GracefulEvictionTask, Mode, Outcome, ResourceBindingSpec, Trigger,
};
use atoll_api::hex;
use atoll_api::placement::ReplicaSync;
use atoll_api::policy::PurgeMode;
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use sha2::{Digest, Sha256};

use crate::leader::LeaderTerm;

/// Facts about the members of a binding.
pub(crate) trait Members {
    /// Whether this target runs its share healthily.
    fn is_healthy(&self, cluster: &str, replicas: Option<i64>) -> bool;
    /// Whether this member has confirmed that it holds no object of the binding.
    fn has_confirmed(&self, cluster: &str) -> bool;
    /// Whether this cluster is still in the federation.
    fn exists(&self, cluster: &str) -> bool;
}

/// The task as it continues; `None` when it has ended.
#[must_use]
pub(crate) fn rest(
    task: &GracefulEvictionTask,
    spec: &ResourceBindingSpec,
    members: &impl Members,
    now: Timestamp,
) -> Option<GracefulEvictionTask> {
    if !has_ended(task, spec, members, now) {
        return Some(task.clone());
    }
    // Replicas without a place elsewhere run only in the old copy: no deadline removes them.
    let pending = spec.decision.as_ref().map_or(0, DecisionRecord::pending_replicas);
    task.remainder(pending).filter(|_| members.exists(&task.from_cluster))
}

/// Whether a task has ended, except for replicas without a place elsewhere.
fn has_ended(
    task: &GracefulEvictionTask,
    spec: &ResourceBindingSpec,
    members: &impl Members,
    now: Timestamp,
) -> bool {
    if !members.exists(&task.from_cluster) {
        return true;
    }
    if task.purge_mode == PurgeMode::Never {
        return false; // a user who wants the copy removed removes the task
    }
    let stays = spec.clusters.iter().any(|target| target.name == task.from_cluster);
    #[cfg(test)]
    let stays = stays && !crate::mutants::is(crate::mutants::Mutant::TargetAndLeaving);
    if !task.keep && stays {
        // The cluster still has a share: the copy shrinks to it and stays, so no removal will be confirmed.
        return true;
    }
    if !task.keep {
        // The copy is removed at once; the task stays until the member confirms that.
        return members.has_confirmed(&task.from_cluster);
    }
    // No replicas are wanted, so there is nothing to wait for.
    if spec.replicas == Some(0) {
        return true;
    }
    let due = task.deadline.as_ref().is_some_and(|deadline| now >= deadline.0);
    // A copy whose member sets its replicas need not grow to the share before it replaces another.
    let has_replicas = spec.replicas.is_some() && !members_set_replicas(spec);
    due || (!spec.clusters.is_empty()
        && spec.clusters.iter().filter(|target| target.name != task.from_cluster).all(|target| {
            members.is_healthy(&target.name, has_replicas.then_some(target.replicas))
        }))
}

fn members_set_replicas(spec: &ResourceBindingSpec) -> bool {
    let placement = spec.placement.as_ref();
    let scheduling = placement.and_then(|placement| placement.replica_scheduling.as_ref());
    scheduling.is_some_and(|scheduling| scheduling.replica_sync == Some(ReplicaSync::FromMembers))
}

/// The tasks that continue, with the replicas that they still keep.
#[must_use]
pub(crate) fn remaining(
    tasks: &[GracefulEvictionTask],
    spec: &ResourceBindingSpec,
    members: &impl Members,
    now: Timestamp,
) -> Vec<GracefulEvictionTask> {
    tasks.iter().filter_map(|task| rest(task, spec, members, now)).collect()
}

/// The earliest future deadline.
#[must_use]
pub(crate) fn next_deadline(spec: &ResourceBindingSpec, now: Timestamp) -> Option<Timestamp> {
    let tasks = spec.graceful_eviction_tasks.iter().filter(|task| task.keep);
    tasks.filter_map(|task| Some(task.deadline.as_ref()?.0)).filter(|at| *at > now).min()
}

/// The record of the decision that ends tasks: the shares stay unchanged.
#[must_use]
pub(crate) fn record(
    spec: &ResourceBindingSpec,
    remaining: &[GracefulEvictionTask],
    now: Timestamp,
    term: LeaderTerm,
) -> DecisionRecord {
    let last = spec.decision.as_ref();
    let mut content = Sha256::new();
    let mut feed = |text: &str| {
        content.update(u64::try_from(text.len()).unwrap_or(u64::MAX).to_le_bytes());
        content.update(text.as_bytes());
    };
    feed(spec.resource.uid.as_deref().unwrap_or_default());
    feed(last.map_or("", |last| &last.id));
    feed("EvictionDone");
    feed(&now.to_string());
    for task in remaining {
        feed(&task.from_cluster);
        feed(&task.replicas.to_string());
    }
    DecisionRecord {
        id: hex::encode(&content.finalize()[..16]).into(),
        parent: last.map(|last| last.id.clone()),
        trigger: Trigger::EvictionDone,
        mode: Mode::Steady,
        outcome: last.map_or(Outcome::Unchanged, |last| last.outcome.held()),
        desired: last.map_or_else(|| spec.replicas.unwrap_or_default(), |last| last.desired),
        pending: last.map(|last| last.pending.clone()).unwrap_or_default(),
        affinity_name: last.and_then(|last| last.affinity_name.clone()),
        reason: last.and_then(|last| last.reason.clone()),
        full_clusters: last.map(|last| last.full_clusters.clone()).unwrap_or_default(),
        at: Time(now),
        term: term.to_record(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[derive(Default)]
    struct Fixed {
        healthy: Vec<(&'static str, i64)>,
        confirmed: Vec<&'static str>,
        left: Vec<&'static str>,
    }

    impl Members for Fixed {
        fn is_healthy(&self, cluster: &str, replicas: Option<i64>) -> bool {
            self.healthy.iter().any(|(name, ready)| *name == cluster && Some(*ready) >= replicas)
        }

        fn has_confirmed(&self, cluster: &str) -> bool {
            self.confirmed.contains(&cluster)
        }

        fn exists(&self, cluster: &str) -> bool {
            !self.left.contains(&cluster)
        }
    }

    fn spec(keep: bool, purge: &str) -> ResourceBindingSpec {
        serde_json::from_value(json!({
            "resource": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web", "uid": "t"},
            "replicas": 3,
            "clusters": [{"name": "a", "replicas": 2}, {"name": "b", "replicas": 1}],
            "gracefulEvictionTasks": [{
                "fromCluster": "old", "replicas": 3, "unplaced": 1, "reason": "Failover", "keep": keep,
                "purgeMode": purge, "creationTimestamp": "2026-01-01T00:00:00Z",
                "deadline": "2026-01-01T00:10:00Z",
            }],
        }))
        .unwrap()
    }

    fn ended(spec: &ResourceBindingSpec, members: &Fixed, now: &str) -> bool {
        let tasks = &spec.graceful_eviction_tasks;
        remaining(tasks, spec, members, now.parse().unwrap()).is_empty()
    }

    const EARLY: &str = "2026-01-01T00:05:00Z";
    const LATE: &str = "2026-01-01T00:10:00Z";

    #[test]
    fn a_kept_copy_goes_when_every_replacement_is_healthy_or_at_the_deadline() {
        let spec = spec(true, "Gracefully");
        let healthy = |ready| Fixed { healthy: vec![("a", ready), ("b", 1)], ..Fixed::default() };
        assert!(!ended(&spec, &healthy(1), EARLY));
        assert!(ended(&spec, &healthy(2), EARLY));
        assert!(ended(&spec, &healthy(1), LATE));
        let deadline = next_deadline(&spec, EARLY.parse().unwrap());
        assert_eq!(deadline, Some(LATE.parse().unwrap()));
        assert_eq!(next_deadline(&spec, LATE.parse().unwrap()), None);
    }

    /// World seed 11300087: the copy on the lost member stayed for ten minutes.
    #[test]
    fn a_replacement_whose_member_sets_the_replicas_need_not_have_the_share() {
        let mut spec = spec(true, "Gracefully");
        let placement = json!({"replicaScheduling": {"replicaSync": "FromMembers"}});
        spec.placement = Some(serde_json::from_value(placement).unwrap());
        let healthy = |healthy| Fixed { healthy, ..Fixed::default() };
        assert!(ended(&spec, &healthy(vec![("a", 1), ("b", 1)]), EARLY));
        assert!(!ended(&spec, &healthy(vec![("a", 1)]), EARLY));
    }

    #[test]
    fn no_deadline_takes_what_nothing_replaces() {
        let mut spec = spec(true, "Gracefully");
        let mut last = record(&spec, &[], EARLY.parse().unwrap(), LeaderTerm::new(1));
        last.pending =
            serde_json::from_value(json!([{"replicas": 1, "reason": "no room"}])).unwrap();
        spec.decision = Some(last);
        let healthy = Fixed { healthy: vec![("a", 2), ("b", 1)], ..Fixed::default() };
        assert!(!ended(&spec, &healthy, LATE));
        // Replicas that were pending before the eviction ran nowhere: no copy stands in for them.
        let mut replaced = spec.clone();
        replaced.graceful_eviction_tasks[0].unplaced = 0;
        assert!(ended(&replaced, &healthy, EARLY));
        spec.decision.as_mut().unwrap().pending.clear();
        assert!(ended(&spec, &Fixed::default(), LATE));
    }

    #[test]
    fn a_kept_copy_shrinks_to_what_nothing_replaces() {
        let mut spec = spec(true, "Gracefully");
        let mut last = record(&spec, &[], EARLY.parse().unwrap(), LeaderTerm::new(1));
        last.pending =
            serde_json::from_value(json!([{"replicas": 2, "reason": "no room"}])).unwrap();
        spec.decision = Some(last);
        let left = |now: &str| {
            let tasks = &spec.graceful_eviction_tasks;
            remaining(tasks, &spec, &Fixed::default(), now.parse().unwrap())
        };
        assert_eq!(left(EARLY)[0].replicas, 3);
        assert_eq!((left(LATE)[0].replicas, left(LATE)[0].unplaced), (1, 1));
    }

    #[test]
    fn a_kept_copy_of_a_workload_that_was_scaled_to_zero_goes_at_once() {
        let mut spec = spec(true, "Gracefully");
        (spec.replicas, spec.clusters) = (Some(0), Vec::new());
        assert!(ended(&spec, &Fixed::default(), EARLY));
    }

    #[test]
    fn the_task_of_a_lost_cluster_ends_with_its_confirmation_and_never_by_time() {
        let spec = spec(false, "Gracefully");
        assert!(!ended(&spec, &Fixed::default(), LATE));
        assert!(ended(&spec, &Fixed { confirmed: vec!["old"], ..Fixed::default() }, EARLY));
        assert!(ended(&spec, &Fixed { left: vec!["old"], ..Fixed::default() }, EARLY));
    }

    #[test]
    fn a_copy_that_only_becomes_smaller_is_not_waited_for() {
        let mut spec = spec(false, "Gracefully");
        spec.clusters[0].name = "old".to_owned();
        assert!(ended(&spec, &Fixed::default(), EARLY));
    }

    #[test]
    fn a_copy_that_is_never_purged_keeps_its_task_until_the_cluster_leaves() {
        let kept = spec(true, "Never");
        let replaced = Fixed { healthy: vec![("a", 2), ("b", 1)], ..Fixed::default() };
        assert!(!ended(&kept, &replaced, LATE));
        let spec = spec(false, "Never");
        assert!(!ended(&spec, &Fixed { confirmed: vec!["old"], ..Fixed::default() }, LATE));
        assert!(ended(&spec, &Fixed { left: vec!["old"], ..Fixed::default() }, EARLY));
    }

    #[test]
    fn the_end_of_a_task_is_a_decision_of_its_own() {
        let spec = spec(true, "Gracefully");
        let record = record(&spec, &[], LATE.parse().unwrap(), LeaderTerm::new(7));
        assert_eq!((record.trigger, record.term, record.id.len()), (Trigger::EvictionDone, 7, 32));
    }

    #[test]
    fn what_was_wrong_before_a_task_ended_still_is() {
        let after = |outcome: Outcome| {
            let mut spec = spec(true, "Gracefully");
            let mut last = record(&spec, &[], LATE.parse().unwrap(), LeaderTerm::new(7));
            last.outcome = outcome;
            spec.decision = Some(last);
            record(&spec, &[], LATE.parse().unwrap(), LeaderTerm::new(7)).outcome
        };
        assert_eq!(after(Outcome::Placed), Outcome::Unchanged);
        assert_eq!(after(Outcome::Unchanged), Outcome::Unchanged);
        for wrong in [Outcome::Partial, Outcome::NoFit, Outcome::FailoverInfeasible] {
            assert_eq!(after(wrong), wrong);
        }
    }
}
