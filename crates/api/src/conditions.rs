//! Conditions by the Kubernetes conventions, and the types and reasons that Atoll uses.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};

/// Cluster: the agent's session is up and the member's API healthy.
pub const READY: &str = "Ready";
/// Cluster that is to be emptied (drained, failed or deleted): nothing is placed there any more; else what holds it up.
pub const EMPTIED: &str = "Emptied";
/// Cluster: removals are held back by their limit.
pub const PRUNE_HELD: &str = "PruneHeld";
/// Cluster: it is deleted, and its member is being emptied.
pub const LEAVING: &str = "Leaving";
/// Policies: the controller understands the object and acts on it.
pub const ACCEPTED: &str = "Accepted";
/// Bindings: every wanted replica has a place.
pub const SCHEDULED: &str = "Scheduled";
/// Bindings: every member applied what it was given.
pub const FULLY_APPLIED: &str = "FullyApplied";
/// Bindings: the object is healthy on every member that it is to run on; else the reason of most members where it is not.
pub const HEALTHY: &str = "Healthy";
/// Bindings: a policy claims the template.
pub const CLAIMED: &str = "Claimed";

/// Bindings: history has its decisions. There once they had to wait for its database.
pub const RECORDED: &str = "Recorded";

/// The value of a condition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Status {
    /// It holds.
    True,
    /// It does not hold.
    False,
    /// Nobody can say.
    Unknown,
}

impl Status {
    /// As Kubernetes spells it.
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

/// Sets the condition of this type and returns whether anything changed. `lastTransitionTime` moves only with the
/// status, as `meta.SetStatusCondition` does.
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

/// Whether the condition of this type is there and `True`.
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
