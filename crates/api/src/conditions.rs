//! Conditions by the Kubernetes conventions, and Atoll's types and reasons.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};

/// Cluster: the agent has a session and the member's API is healthy.
pub const READY: &str = "Ready";
/// Cluster that is being emptied (drained, failed or deleted): no work is placed there any more. If not, the reason
/// names what remains.
pub const EMPTIED: &str = "Emptied";
/// Cluster: removals exceed their limit and are held.
pub const PRUNE_HELD: &str = "PruneHeld";
/// Cluster: it is being deleted, and its member is being emptied.
pub const LEAVING: &str = "Leaving";
/// Policies: the object is valid and in use.
pub const ACCEPTED: &str = "Accepted";
/// Customizations: every rule compiles.
pub const COMPILED: &str = "Compiled";
/// Configurations of webhooks: every webhook can be called.
pub const VALID: &str = "Valid";
/// Customizations: a rule failed since the spec last changed. Configurations of webhooks: a webhook is unreachable, or
/// gave an answer that cannot be used since the configuration last changed.
pub const FAILING: &str = "Failing";
/// Bindings: every desired replica is placed.
pub const SCHEDULED: &str = "Scheduled";
/// Bindings: every member applied its manifest.
pub const FULLY_APPLIED: &str = "FullyApplied";
/// Bindings: the object is healthy on every target. If not, the reason is the one that most members report.
pub const HEALTHY: &str = "Healthy";
/// Bindings with `propagateDeps`: every object that the template refers to goes along.
pub const DEPENDENCIES: &str = "DependenciesPropagated";
/// Bindings: a policy claims the template.
pub const CLAIMED: &str = "Claimed";
/// Bindings with required rules in `placement.workloadAffinity`: every cluster satisfies them.
pub const WORKLOAD_AFFINITY: &str = "WorkloadAffinitySatisfied";

/// FederatedResourceQuotas with `staticAssignments`: every member holds its ResourceQuota.
pub const ASSIGNED: &str = "Assigned";
/// FederatedResourceQuotas with `staticAssignments`: no workload lacks requests or limits without which the ResourceQuota
/// of a member refuses its pods.
pub const PODS_ADMITTED: &str = "PodsAdmitted";

/// Bindings: a ChangeGuard holds a change. Present only while it does.
pub const HELD: &str = "Held";

/// Bindings: history has all decisions. Set once decisions had to wait for the history database.
pub const RECORDED: &str = "Recorded";

/// The status of a condition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Status {
    /// The condition holds.
    True,
    /// The condition does not hold.
    False,
    /// It is unknown whether the condition holds.
    Unknown,
}

impl Status {
    /// The Kubernetes spelling.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::True => "True",
            Self::False => "False",
            Self::Unknown => "Unknown",
        }
    }
}

impl From<bool> for Status {
    fn from(holds: bool) -> Self {
        if holds { Self::True } else { Self::False }
    }
}

/// Sets the condition of this type and returns whether anything changed. `lastTransitionTime` changes only with the
/// status, as in `meta.SetStatusCondition`.
pub fn set(
    conditions: &mut Vec<Condition>,
    type_: &str,
    status: Status,
    reason: &str,
    message: &str,
    generation: Option<i64>,
    now: Timestamp,
) -> bool {
    let fresh = Condition {
        type_: type_.to_owned(),
        status: status.as_str().to_owned(),
        reason: reason.to_owned(),
        message: message.to_owned(),
        observed_generation: generation,
        last_transition_time: Time(now),
    };
    match conditions.iter_mut().find(|condition| condition.type_ == type_) {
        None => {
            conditions.push(fresh);
            true
        }
        Some(old) => {
            let since = if old.status == fresh.status {
                old.last_transition_time.clone()
            } else {
                Time(now)
            };
            let fresh = Condition { last_transition_time: since, ..fresh };
            let changed = *old != fresh;
            *old = fresh;
            changed
        }
    }
}

/// The condition of this type.
#[must_use]
pub fn find<'a>(conditions: &'a [Condition], type_: &str) -> Option<&'a Condition> {
    conditions.iter().find(|condition| condition.type_ == type_)
}

/// Whether the condition of this type exists and is `True`.
#[must_use]
pub fn is_true(conditions: &[Condition], type_: &str) -> bool {
    find(conditions, type_).is_some_and(|condition| condition.status == "True")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_transition_time_moves_with_the_status_only() {
        let (early, late) =
            (Timestamp::from_second(1).unwrap(), Timestamp::from_second(2).unwrap());
        let mut conditions = Vec::new();
        assert!(set(&mut conditions, READY, Status::True, "Ok", "", None, early));
        assert!(!set(&mut conditions, READY, Status::True, "Ok", "", None, late));
        assert!(set(&mut conditions, READY, Status::True, "Ok", "more", None, late));
        assert_eq!(conditions[0].last_transition_time.0, early);
        assert!(set(&mut conditions, READY, Status::False, "Lost", "", None, late));
        assert_eq!(conditions[0].last_transition_time.0, late);
        assert!(!is_true(&conditions, READY));
    }
}
