//! Determines the trigger of a decision: the first one, in a fixed order, that holds and is allowed. A pure function of
//! facts.

use atoll_api::binding::{Mode, Trigger};
use atoll_api::placement::RescheduleOn;

use atoll_decision::CheckedTrigger;

/// What a check found, in words.
pub type Evidence = Option<std::borrow::Cow<'static, str>>;

/// The observed facts. `Some` = the condition holds, with what the check found.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TriggerFacts {
    /// No target, and no decision ever placed a replica.
    pub first: Evidence,
    /// A binding of higher priority took room of this one.
    pub preempted: Evidence,
    /// A rebalance was requested after the last decision.
    pub rebalance: Evidence,
    /// The placement in force changed.
    pub reconcile: Evidence,
    /// The number of replicas changed.
    pub scale: Evidence,
    /// A target is gone or terminating, so that nothing can stay there.
    pub lost: Evidence,
    /// A target is on a cluster that its namespace may not use, by ClusterSets.
    pub outside: Evidence,
    /// A target has a NoExecute taint that is not or no longer tolerated.
    pub failed: Evidence,
    /// The application was unhealthy on a target for longer than its policy tolerates.
    pub application: Evidence,
    /// Other clusters would be selected now.
    pub cluster_change: Evidence,
    /// Replicas are unschedulable on their member.
    pub overflow: Evidence,
    /// Replicas stayed unschedulable on their member for too long.
    pub unschedulable: Evidence,
    /// Whether some of those can move: another cluster has room.
    pub can_migrate: bool,
    /// A preferred cluster, subset or term is available again.
    pub recover: Evidence,
    /// Replicas are pending, or there is no result.
    pub retry: Evidence,
    /// An eviction task has ended.
    pub eviction_done: Evidence,
}

/// The triggers that may cause a decision.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AllowedTriggers {
    /// One bit per kind of change.
    on: u8,
    /// Whether `placement.sticky` applies: it is set and the workload is placed.
    pub sticky: bool,
}

impl AllowedTriggers {
    /// Reads the placement's list or its default. The default for workloads without division includes ClusterChange.
    #[must_use]
    pub fn new(given: Option<&[RescheduleOn]>, divides: bool, sticky: bool) -> Self {
        use RescheduleOn::{ClusterChange, ClusterFailure, PolicyChange, ReplicasChange};
        let default: &[RescheduleOn] = if divides {
            &[PolicyChange, ReplicasChange, ClusterFailure]
        } else {
            &[PolicyChange, ReplicasChange, ClusterFailure, ClusterChange]
        };
        let on = given.unwrap_or(default).iter().fold(0, |on, change| on | bit(*change));
        Self { on, sticky }
    }

    /// Allows every kind of change, because Karmada has no `rescheduleOn`.
    #[must_use]
    pub fn everything() -> Self {
        use RescheduleOn::{ClusterChange, ClusterFailure, PolicyChange, Recovery, ReplicasChange};
        let all = [PolicyChange, ReplicasChange, ClusterFailure, ClusterChange, Recovery];
        Self { on: all.into_iter().fold(0, |on, change| on | bit(change)), sticky: false }
    }

    /// Whether this kind of change may move a placed workload.
    #[must_use]
    pub fn has(&self, on: RescheduleOn) -> bool {
        self.on & bit(on) != 0
    }
}

fn bit(change: RescheduleOn) -> u8 {
    1 << match change {
        RescheduleOn::PolicyChange => 0,
        RescheduleOn::ReplicasChange => 1,
        RescheduleOn::ClusterFailure => 2,
        RescheduleOn::ClusterChange => 3,
        RescheduleOn::Recovery => 4,
        RescheduleOn::Unschedulable => 5,
    }
}

/// Finds the trigger. Also returns every condition that holds, down to the trigger.
#[must_use]
pub fn first_allowed(
    facts: &TriggerFacts,
    allowed: &AllowedTriggers,
) -> (Trigger, Vec<CheckedTrigger>) {
    let free = !allowed.sticky;
    let on = |change| free && allowed.has(change);
    let failover = facts.lost.as_ref().or(facts.failed.as_ref()).cloned();
    let order = [
        (Trigger::First, &facts.first, true),
        // The room already belongs to another workload, whatever the policy says.
        (Trigger::Preempted, &facts.preempted, true),
        (Trigger::Rebalance, &facts.rebalance, true),
        (Trigger::Reconcile, &facts.reconcile, on(RescheduleOn::PolicyChange)),
        (Trigger::Scale, &facts.scale, allowed.has(RescheduleOn::ReplicasChange)),
        // No policy keeps work outside a ClusterSet.
        (Trigger::OutsideClusterSet, &facts.outside, true),
        (
            Trigger::Failover,
            &failover,
            free && (facts.lost.is_some() || allowed.has(RescheduleOn::ClusterFailure)),
        ),
        // The policy's rules for application failures are the permission.
        (Trigger::ApplicationFailure, &facts.application, free),
        (Trigger::ClusterChange, &facts.cluster_change, on(RescheduleOn::ClusterChange)),
        (Trigger::Overflow, &facts.overflow, free),
        (
            Trigger::Unschedulable,
            &facts.unschedulable,
            facts.can_migrate && on(RescheduleOn::Unschedulable),
        ),
        (Trigger::Recover, &facts.recover, on(RescheduleOn::Recovery)),
        (Trigger::Retry, &facts.retry, true),
        (Trigger::EvictionDone, &facts.eviction_done, true),
    ];
    let mut seen = Vec::new();
    for (trigger, condition, allowed) in order {
        if let Some(why) = condition {
            seen.push(CheckedTrigger { trigger, holds: true, allowed, why: why.clone() });
            if allowed {
                return (trigger, seen);
            }
        }
    }
    (Trigger::Avoid, seen)
}

/// Determines which replicas the division may move.
#[must_use]
pub fn mode(facts: &TriggerFacts, allowed: &AllowedTriggers, replans: bool) -> Mode {
    if facts.rebalance.is_some() {
        Mode::Fresh
    } else if facts.reconcile.is_some()
        && replans
        && !allowed.sticky
        && allowed.has(RescheduleOn::PolicyChange)
    {
        Mode::Replan
    } else {
        Mode::Steady
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_that_holds_and_is_allowed_names_the_decision() {
        let all = TriggerFacts {
            first: Some("1".into()),
            preempted: None,
            rebalance: Some("2".into()),
            reconcile: Some("3".into()),
            scale: Some("4".into()),
            lost: None,
            outside: None,
            failed: Some("5".into()),
            application: Some("5a".into()),
            cluster_change: Some("6".into()),
            overflow: Some("7".into()),
            unschedulable: Some("7a".into()),
            can_migrate: false,
            recover: Some("8".into()),
            retry: Some("9".into()),
            eviction_done: Some("10".into()),
        };
        let default = AllowedTriggers::new(None, true, false);
        let none = AllowedTriggers::new(Some(&[]), true, false);
        let trigger =
            |facts: &TriggerFacts, allowed: &AllowedTriggers| first_allowed(facts, allowed).0;
        assert_eq!(trigger(&all, &none), Trigger::First);
        let mut facts = TriggerFacts { first: None, ..all.clone() };
        assert_eq!(trigger(&facts, &none), Trigger::Rebalance);
        facts.rebalance = None;
        assert_eq!(trigger(&facts, &default), Trigger::Reconcile);
        assert_eq!(
            trigger(&facts, &none),
            Trigger::ApplicationFailure,
            "reconcile, scale, failure need leave; rules for the application are one"
        );
        facts.lost = Some("gone".into());
        assert_eq!(trigger(&facts, &none), Trigger::Failover, "a gone target always");
        facts.lost = None;
        facts.reconcile = None;
        assert_eq!(trigger(&facts, &default), Trigger::Scale);
        facts.scale = None;
        assert_eq!(trigger(&facts, &default), Trigger::Failover);
        facts.failed = None;
        assert_eq!(trigger(&facts, &default), Trigger::ApplicationFailure);
        facts.application = None;
        assert_eq!(trigger(&facts, &default), Trigger::Overflow, "no ClusterChange for Divided");
        assert_eq!(
            trigger(&facts, &AllowedTriggers::new(None, false, false)),
            Trigger::ClusterChange
        );
        facts.overflow = None;
        assert_eq!(trigger(&facts, &default), Trigger::Retry, "Recovery is asked for by name");
        let migrates = AllowedTriggers::new(Some(&[RescheduleOn::Unschedulable]), true, false);
        assert_eq!(trigger(&facts, &migrates), Trigger::Retry, "no other cluster has room");
        facts.can_migrate = true;
        assert_eq!(trigger(&facts, &migrates), Trigger::Unschedulable);
        assert_eq!(trigger(&facts, &default), Trigger::Retry, "it is asked for by name, too");
        let recovery = AllowedTriggers::new(Some(&[RescheduleOn::Recovery]), true, false);
        assert_eq!(trigger(&facts, &recovery), Trigger::Recover);
        facts.retry = None;
        assert_eq!(trigger(&facts, &default), Trigger::EvictionDone);
        facts.eviction_done = None;
        assert_eq!(trigger(&facts, &default), Trigger::Avoid);
        let sticky = AllowedTriggers::new(None, true, true);
        let moved =
            TriggerFacts { first: None, rebalance: None, scale: None, retry: None, ..all.clone() };
        assert_eq!(trigger(&moved, &sticky), Trigger::EvictionDone);
        let outside = TriggerFacts { outside: Some("tenant".into()), ..moved };
        assert_eq!(
            trigger(&outside, &sticky),
            Trigger::OutsideClusterSet,
            "whatever the policy says"
        );
        let taken = TriggerFacts { first: None, preempted: Some("taken".into()), ..all };
        assert_eq!(trigger(&taken, &sticky), Trigger::Preempted, "whatever the policy says");
    }

    #[test]
    fn modes_are_decided_apart() {
        let allowed = AllowedTriggers::new(None, true, false);
        let facts = TriggerFacts { rebalance: Some("".into()), ..TriggerFacts::default() };
        assert_eq!(mode(&facts, &allowed, true), Mode::Fresh);
        let facts = TriggerFacts { reconcile: Some("".into()), ..TriggerFacts::default() };
        assert_eq!(mode(&facts, &allowed, true), Mode::Replan);
        assert_eq!(mode(&facts, &allowed, false), Mode::Steady);
        assert_eq!(mode(&facts, &AllowedTriggers::new(Some(&[]), true, false), true), Mode::Steady);
        assert_eq!(mode(&TriggerFacts::default(), &allowed, true), Mode::Steady);
    }
}
