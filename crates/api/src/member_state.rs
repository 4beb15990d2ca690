//! The state of a member in a few words: the columns STATUS and REASON of `kubectl get clusters` and `atoll get
//! members`.
//!
//! A CRD column is a single JSONPath, and kubectl prints only its first value. A text from several conditions and
//! taints therefore needs a status field of its own, which the controller maintains.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;

use crate::cluster::ClusterSpec;
use crate::{conditions, marks};

/// The state of a member in a few words.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct MemberState {
    /// `Ready`, `NotReady` or `Unknown`, followed by `SchedulingDisabled`, `Draining` or `Drained`, `RemovalsHeld`,
    /// `Terminating` where they apply, separated by commas.
    pub state: String,
    /// The reasons of the conditions behind these words, separated by commas. Empty for a member that is only ready.
    pub reason: String,
}

impl MemberState {
    /// Derives the state from a Cluster's spec and conditions. `terminating` = the Cluster is being deleted.
    #[must_use]
    pub fn of(spec: &ClusterSpec, held: &[Condition], terminating: bool) -> Self {
        let has = |key: &str, effect: &str| {
            spec.taints.iter().any(|taint| taint.key == key && taint.effect == effect)
        };
        let ready = conditions::find(held, conditions::READY);
        let emptied = conditions::find(held, conditions::EMPTIED);
        let (mut words, mut reasons) = (Vec::new(), Vec::new());
        words.push(match ready.map(|ready| ready.status.as_str()) {
            Some("True") => "Ready",
            Some("False") => "NotReady",
            _ => "Unknown",
        });
        reasons.extend(ready.filter(|ready| ready.status != "True"));
        if has(marks::TAINT_CORDONED, "NoSchedule") {
            words.push("SchedulingDisabled");
        }
        if has(marks::TAINT_DRAIN, "NoExecute") {
            let drained = emptied.is_some_and(|emptied| emptied.status == "True");
            words.push(if drained { "Drained" } else { "Draining" });
            reasons.extend(emptied.filter(|_| !drained));
        }
        if let Some(removals) = conditions::find(held, conditions::PRUNE_HELD) {
            words.push("RemovalsHeld");
            reasons.push(removals);
        }
        if terminating {
            words.push("Terminating");
            reasons.extend(conditions::find(held, conditions::LEAVING));
        }
        let reasons: Vec<&str> = reasons.into_iter().map(|c| c.reason.as_str()).collect();
        Self { state: words.join(","), reason: reasons.join(",") }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn of(
        taints: &[(&str, &str)],
        held: &[(&str, &str, &str)],
        terminating: bool,
    ) -> (String, String) {
        let taints: Vec<_> =
            taints.iter().map(|(key, effect)| json!({"key": key, "effect": effect})).collect();
        let spec: ClusterSpec = serde_json::from_value(json!({"taints": taints})).unwrap();
        let held: Vec<_> = held
            .iter()
            .map(|(kind, status, reason)| {
                json!({"type": kind, "status": status, "reason": reason, "message": "",
                    "lastTransitionTime": "2026-01-01T00:00:00Z"})
            })
            .collect();
        let held: Vec<Condition> = serde_json::from_value(json!(held)).unwrap();
        let found = MemberState::of(&spec, &held, terminating);
        (found.state, found.reason)
    }

    #[test]
    fn cordoned_and_draining_members_do_not_look_healthy() {
        let ready = ("Ready", "True", "MemberReady");
        let cordoned = (marks::TAINT_CORDONED, "NoSchedule");
        let drain = (marks::TAINT_DRAIN, "NoExecute");
        for (taints, held, terminating, state, reason) in [
            (&[][..], &[ready][..], false, "Ready", ""),
            (&[], &[], false, "Unknown", ""),
            (&[], &[("Ready", "Unknown", "SessionLost")], false, "Unknown", "SessionLost"),
            (&[cordoned], &[ready], false, "Ready,SchedulingDisabled", ""),
            (
                &[cordoned, drain],
                &[ready, ("Emptied", "False", "NothingTakes")],
                false,
                "Ready,SchedulingDisabled,Draining",
                "NothingTakes",
            ),
            (
                &[cordoned, drain],
                &[ready, ("Emptied", "True", "Emptied")],
                false,
                "Ready,SchedulingDisabled,Drained",
                "",
            ),
            (
                &[],
                &[("Ready", "False", "MemberApiUnhealthy"), ("PruneHeld", "True", "LimitReached")],
                false,
                "NotReady,RemovalsHeld",
                "MemberApiUnhealthy,LimitReached",
            ),
            (
                &[],
                &[ready, ("Leaving", "True", "WorkMovesAway")],
                true,
                "Ready,Terminating",
                "WorkMovesAway",
            ),
        ] {
            assert_eq!(of(taints, held, terminating), (state.to_owned(), reason.to_owned()));
        }
    }
}
