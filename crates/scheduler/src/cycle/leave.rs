//! Leaving a cluster: the eviction tasks of a decision, and when they end.

use std::collections::BTreeMap;

use atoll_api::binding::{GracefulEvictionTask, TargetCluster, Trigger};
use atoll_api::policy::PurgeMode;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::preempted::Lost;
use crate::request::{Previous, Request};
use crate::state::row::Session;
use crate::state::snapshot::Snapshot;
use atoll_decision::{BitSet, Shares};

/// Default time that a member keeps an old copy while the replacements are not healthy.
pub const GRACE: SignedDuration = SignedDuration::from_secs(600);

/// Why a task has ended, at least for the replicas that are placed elsewhere: the replacements are healthy, or the
/// deadline has passed.
#[must_use]
pub fn ended(task: &GracefulEvictionTask, request: &Request) -> Option<String> {
    if !task.keep {
        // The task ends when the member confirms the removal, which the controller handles.
        return None;
    }
    let previous = request.previous.as_ref()?;
    // Replicas without a place elsewhere run only in the old copy. No deadline removes them.
    if task.remainder(previous.pending()).as_ref() == Some(task) {
        return None;
    }
    let late = task.deadline.as_ref().is_some_and(|deadline| deadline.0 <= request.now);
    if late {
        return Some(format!("{}: the deadline has passed", task.from_cluster));
    }
    let healthy = |target: &TargetCluster| {
        let report = request.reports.get(target.name.as_str());
        report.is_some_and(|r| r.healthy == Some(true) && r.ready >= target.replicas)
    };
    let replaced = !previous.clusters.is_empty() && previous.clusters.iter().all(healthy);
    (task.purge_mode != PurgeMode::Never && replaced)
        .then(|| format!("{}: the replacements are healthy", task.from_cluster))
}

/// What remains of a task after a decision: all of it, or once it has ended its [`GracefulEvictionTask::remainder`].
fn rest(task: &GracefulEvictionTask, request: &Request) -> Option<GracefulEvictionTask> {
    if ended(task, request).is_none() {
        return Some(task.clone());
    }
    task.remainder(request.previous.as_ref().map_or(0, Previous::pending))
}

/// What a decision changes.
#[derive(Debug)]
pub struct Leaving<'a> {
    /// Its trigger.
    pub trigger: Trigger,
    /// Shares before it.
    pub before: &'a [TargetCluster],
    /// Shares after it.
    pub after: &'a Shares,
    /// Clusters that get a task even while scaling.
    pub failed: &'a BitSet,
    /// Replicas whose room another workload took.
    pub lost: &'a [Lost],
    /// Replicas without a place.
    pub pending: i64,
}

/// The tasks after a decision: the tasks that have not ended, and one for every cluster that loses replicas for a
/// reason other than scaling down or being unschedulable there. In those cases, clusters in `failed` also get one. At most
/// `pending` of the leaving replicas have no place elsewhere.
#[must_use]
pub fn plan(
    snapshot: &Snapshot,
    request: &Request,
    leaving: &Leaving<'_>,
) -> Vec<GracefulEvictionTask> {
    let &Leaving { trigger, before, after, failed, lost, pending } = leaving;
    let old = request.previous.iter().flat_map(|previous| &previous.eviction_tasks);
    let mut tasks: BTreeMap<String, GracefulEvictionTask> = old
        .filter_map(|task| rest(task, request))
        .map(|task| (task.from_cluster.clone(), task))
        .collect();
    let had = before.iter().map(|target| target.replicas).fold(0, i64::saturating_add);
    let has = after.each().map(|(_, replicas)| replicas).fold(0, i64::saturating_add);
    // Newly requested replicas do not replace an old copy.
    let previous = request.previous.as_ref().and_then(|previous| previous.decision.as_ref());
    let asked = previous.map_or(0, |record| {
        request.template.replicas.unwrap_or(0).saturating_sub(record.desired).max(0)
    });
    give_places(&mut tasks, has.saturating_sub(had).saturating_sub(asked), pending);
    let preempted = lost.iter().map(|lost| lost.replicas).fold(0, i64::saturating_add);
    let short = had.saturating_sub(has).max(0);
    // Preempted replicas lose their room also if they find no other. No copy of those stays.
    let mut replaced = preempted.saturating_sub(short).max(0);
    let mut unplaced = short.saturating_sub(preempted).clamp(0, pending.max(0));
    // What leaves as unschedulable runs nowhere, so no old copy has to wait for its replacement.
    let shrinks = matches!(trigger, Trigger::Scale | Trigger::Unschedulable);
    if !before.is_empty() && (!shrinks || !failed.is_empty()) {
        let now: BTreeMap<&str, i64> = after.each().collect();
        for target in before {
            let left = now.get(target.name.as_str());
            let leaves = target.replicas.saturating_sub(left.copied().unwrap_or(0));
            if leaves > 0 || left.is_none() {
                let Some(row) = snapshot.find(&target.name) else { continue };
                if shrinks && !failed.contains(row) {
                    continue;
                }
                let session = snapshot.row(row).session;
                if let Some(lost) = lost.iter().find(|lost| lost.cluster == target.name) {
                    let (all, taken) = (leaves.max(0), leaves.clamp(0, lost.replicas));
                    let stay = taken.min(replaced);
                    replaced -= stay;
                    let stay = all.saturating_sub(taken).saturating_add(stay);
                    if stay == 0 && left.is_some() {
                        continue; // the copy shrinks at once, as when scaling down
                    }
                    let task = of_lost(request, trigger, target, (all, stay), session);
                    if task.keep || !tasks.contains_key(&task.from_cluster) {
                        merge(&mut tasks, task);
                    }
                    continue;
                }
                let mut task = task(request, trigger, target, leaves.max(0), session);
                if task.keep {
                    task.unplaced = task.replicas.min(unplaced);
                    unplaced -= task.unplaced;
                }
                merge(&mut tasks, task);
            }
        }
    }
    tasks.into_values().collect()
}

/// Lowers `unplaced` by the replicas that were placed, and to at most `pending` in total. A workload may request more
/// than its policy places; replicas that are pending for that reason never ran in an old copy.
fn give_places(tasks: &mut BTreeMap<String, GracefulEvictionTask>, found: i64, pending: i64) {
    let unplaced = tasks.values().map(|task| task.unplaced).fold(0, i64::saturating_add);
    let mut fewer = found.max(unplaced.saturating_sub(pending.max(0))).clamp(0, unplaced.max(0));
    for task in tasks.values_mut() {
        let less = task.unplaced.clamp(0, fewer);
        task.unplaced -= less;
        fewer -= less;
    }
}

fn merge(tasks: &mut BTreeMap<String, GracefulEvictionTask>, task: GracefulEvictionTask) {
    match tasks.get_mut(&task.from_cluster) {
        // One task per cluster: new evictions are merged into the existing task.
        Some(known) => {
            known.replicas = known.replicas.saturating_add(task.replicas);
            known.unplaced = known.unplaced.saturating_add(task.unplaced);
            known.keep = known.keep && task.keep;
        }
        None => {
            tasks.insert(task.from_cluster.clone(), task);
        }
    }
}

/// The task of a cluster that lost room: `all` replicas leave it, and `stay` of them have a place elsewhere. They run on
/// until they are healthy there, at most for the grace period. The others leave at once. The room belongs to another
/// workload, so `purgeMode: Never` does not keep them.
fn of_lost(
    request: &Request,
    trigger: Trigger,
    target: &TargetCluster,
    (all, stay): (i64, i64),
    session: Session,
) -> GracefulEvictionTask {
    let task = task(request, trigger, target, stay, session);
    if stay == 0 {
        let purge_mode = match task.purge_mode {
            PurgeMode::Never => PurgeMode::Gracefully,
            other => other,
        };
        return GracefulEvictionTask {
            replicas: all,
            keep: false,
            purge_mode,
            deadline: None,
            ..task
        };
    }
    if task.purge_mode == PurgeMode::Never {
        let deadline =
            task.keep.then(|| Time(request.now.checked_add(GRACE).unwrap_or(Timestamp::MAX)));
        return GracefulEvictionTask { purge_mode: PurgeMode::Gracefully, deadline, ..task };
    }
    task
}

fn task(
    request: &Request,
    trigger: Trigger,
    target: &TargetCluster,
    replicas: i64,
    session: Session,
) -> GracefulEvictionTask {
    let rules = match (trigger, &request.failover) {
        (Trigger::ApplicationFailure, Some(failover)) => failover
            .application
            .as_ref()
            .map(|rules| (rules.purge_mode, rules.grace_period_seconds)),
        (_, failover) => failover
            .as_ref()
            .and_then(|failover| failover.cluster.as_ref())
            .map(|rules| (rules.purge_mode, rules.grace_period_seconds)),
    };
    let (purge_mode, grace) = rules.unwrap_or((PurgeMode::Gracefully, None));
    let grace = grace.map_or(GRACE, |seconds| SignedDuration::from_secs(seconds.max(0)));
    let keep = session != Session::Lost && purge_mode != PurgeMode::Directly;
    let deadline = (keep && purge_mode == PurgeMode::Gracefully)
        .then(|| request.now.checked_add(grace).unwrap_or(Timestamp::MAX))
        .map(Time);
    GracefulEvictionTask {
        from_cluster: target.name.clone(),
        replicas,
        unplaced: 0,
        reason: trigger,
        keep,
        purge_mode,
        creation_timestamp: Time(request.now),
        deadline,
    }
}
