//! How far a member is from being empty, in words for people: what still is there, and what holds each of it up.

use atoll_api::binding::{Outcome, ResourceBindingSpec};
use atoll_api::cluster::ClusterSpec;
use atoll_api::marks;
use atoll_api::placement::RescheduleOn;
use atoll_api::policy::PurgeMode;
use atoll_scheduler::state::supply::tolerates;
use k8s_openapi::api::core::v1::Taint;

use super::pace::{Hold, PaceLimits, ROOM_WINDOW};

/// What is said of a member that is to be emptied.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Emptying {
    /// Nobody has looked yet: what was said before stays.
    #[default]
    Unknown,
    /// It is not to be emptied.
    No,
    /// It is.
    Yes {
        /// Whether nothing is left.
        done: bool,
        /// CamelCase.
        reason: &'static str,
        /// For people.
        message: String,
    },
}

/// Whether a member is to be emptied: it is drained, has failed for long enough, or is being deleted. Other taints are
/// people's own matter: they may be there for good, for those that tolerate them.
#[must_use]
pub fn is_wanted(spec: &ClusterSpec, terminating: bool) -> bool {
    terminating || evicting(spec).next().is_some()
}

fn evicting(spec: &ClusterSpec) -> impl Iterator<Item = &Taint> {
    let keys = [marks::TAINT_DRAIN, marks::TAINT_UNREACHABLE, marks::TAINT_NOT_READY];
    spec.taints
        .iter()
        .filter(move |taint| taint.effect == "NoExecute" && keys.contains(&taint.key.as_str()))
}

/// Why a policy lets a workload stay on a member that is to be emptied, for good.
fn keeps(
    spec: &ResourceBindingSpec,
    cluster: &ClusterSpec,
    terminating: bool,
) -> Option<&'static str> {
    let placement = spec.placement.as_ref()?;
    if spec.suspension.as_ref().is_some_and(|suspension| suspension.scheduling) {
        return Some("suspension.scheduling");
    }
    if placement.sticky {
        return Some("placement.sticky");
    }
    if terminating {
        return None;
    }
    let moves = |on: &Vec<RescheduleOn>| on.contains(&RescheduleOn::ClusterFailure);
    if !placement.reschedule_on.as_ref().is_none_or(moves) {
        return Some("placement.rescheduleOn has no ClusterFailure");
    }
    let borne = |taint: &Taint| {
        let mut tolerations = placement.cluster_tolerations.iter();
        tolerations.any(|t| t.toleration_seconds.is_none() && tolerates(t, taint))
    };
    evicting(cluster).all(borne).then_some("placement.clusterTolerations")
}

/// What is left on a member, counted by what it waits for.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Left {
    /// Bindings whose turn has not come: the rate.
    rate: usize,
    /// The same: the survivors' room.
    room: usize,
    /// Bindings that nothing can take.
    stuck: usize,
    /// Bindings with a share there that no limit holds: just being decided.
    placed: usize,
    /// Bindings whose policies keep them there.
    kept_by_policy: usize,
    /// The first of them, and by which field.
    keeper: Option<String>,
    /// Copies that stay until their replacements are healthy.
    replacing: usize,
    /// Copies that the member has not confirmed as removed.
    unconfirmed: usize,
    /// Copies that are never purged.
    kept: usize,
    /// Why the first one that is stuck is.
    example: Option<String>,
}

impl Left {
    /// Counts a binding. `hold` is what it waits for by the pace.
    pub fn count(
        &mut self,
        name: &str,
        spec: &ResourceBindingSpec,
        (cluster, row, terminating): (&str, &ClusterSpec, bool),
        hold: Option<Hold>,
    ) {
        if spec.clusters.iter().any(|target| target.name == cluster) {
            let last = spec.decision.as_ref();
            let stuck = last.filter(|last| {
                matches!(
                    last.outcome,
                    Outcome::FailoverInfeasible | Outcome::NoFit | Outcome::Unschedulable
                )
            });
            match (hold, stuck) {
                (Some(Hold::Rate), _) => self.rate += 1,
                (Some(Hold::Room), _) => self.room += 1,
                (None, Some(last)) => {
                    self.stuck += 1;
                    self.example.get_or_insert_with(|| {
                        let pending = last.pending.first().map(|pending| pending.reason.as_str());
                        let why = last.reason.as_deref().or(pending).unwrap_or("no cluster fits");
                        format!("{name}: {why}")
                    });
                }
                (None, None) => match keeps(spec, row, terminating) {
                    Some(field) => {
                        self.kept_by_policy += 1;
                        self.keeper.get_or_insert_with(|| format!("{name}: {field}"));
                    }
                    None => self.placed += 1,
                },
            }
        }
        for task in spec.graceful_eviction_tasks.iter().filter(|task| task.from_cluster == cluster)
        {
            match (task.keep, task.purge_mode) {
                (_, PurgeMode::Never) => self.kept += 1,
                (true, _) => self.replacing += 1,
                (false, _) => self.unconfirmed += 1,
            }
        }
    }

    /// What is said of it. `connected` = the member can be asked.
    #[must_use]
    pub fn say(&self, limits: PaceLimits, connected: bool) -> Emptying {
        let mut parts = Vec::new();
        let mut reason = None;
        let mut tell = |count: usize, why: &'static str, text: String| {
            if count > 0 {
                reason.get_or_insert(why);
                parts.push(format!("{count} {text}"));
            }
        };
        let example = self.example.as_deref().unwrap_or_default();
        tell(self.stuck, "NothingTakes", format!("find no place elsewhere and stay ({example})"));
        let rate = format!("wait for their turn ({} bindings/s)", limits.bindings_per_second);
        tell(self.rate, "Paced", rate);
        let room = format!(
            "wait for the survivors ({} % of their room in {} s)",
            limits.room_percent,
            ROOM_WINDOW.as_secs()
        );
        tell(self.room, "Paced", room);
        tell(self.placed, "Moving", "are being moved".to_owned());
        let text = "run on until their replacements are healthy".to_owned();
        tell(self.replacing, "WaitingForReplacements", text);
        let text = if connected {
            "copies are being removed"
        } else {
            "copies go when the member is back: it cannot be reached"
        };
        tell(self.unconfirmed, "WaitingForMember", text.to_owned());
        // Last: only when nothing else is left is it what is waited for.
        let keeper = self.keeper.as_deref().unwrap_or_default();
        tell(self.kept_by_policy, "PolicyKeeps", format!("stay by their policies ({keeper})"));
        let kept = match self.kept {
            0 => String::new(),
            kept => format!("; {kept} copies stay there, as their policies say (purgeMode: Never)"),
        };
        match reason {
            None => Emptying::Yes {
                done: true,
                reason: "Emptied",
                message: format!("nothing is placed here any more{kept}"),
            },
            Some(reason) => {
                let message = format!("of the workloads here {}{kept}", parts.join("; "));
                Emptying::Yes { done: false, reason, message }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn spec(extra: serde_json::Value) -> ResourceBindingSpec {
        let mut spec =
            json!({"resource": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}});
        for (key, value) in extra.as_object().unwrap() {
            spec[key] = value.clone();
        }
        serde_json::from_value(spec).unwrap()
    }

    fn there(outcome: &str) -> ResourceBindingSpec {
        spec(json!({
            "clusters": [{"name": "m1", "replicas": 2}],
            "decision": {"id": "1", "trigger": "Failover", "mode": "Steady", "outcome": outcome,
                "reason": "2 replicas stay on m1", "at": "2026-01-01T00:00:00Z"},
        }))
    }

    fn task(keep: bool, purge: &str) -> ResourceBindingSpec {
        spec(json!({"gracefulEvictionTasks": [{
            "fromCluster": "m1", "replicas": 1, "reason": "Failover", "keep": keep,
            "purgeMode": purge, "creationTimestamp": "2026-01-01T00:00:00Z",
        }]}))
    }

    fn on(name: &str) -> (&str, &'static ClusterSpec, bool) {
        static DRAINED: std::sync::OnceLock<ClusterSpec> = std::sync::OnceLock::new();
        let drained = DRAINED.get_or_init(|| tainted(marks::TAINT_DRAIN, "NoExecute"));
        (name, drained, false)
    }

    fn tainted(key: &str, effect: &str) -> ClusterSpec {
        serde_json::from_value(json!({"taints": [{"key": key, "effect": effect}]})).unwrap()
    }

    #[test]
    fn who_stays_by_policy_is_named_when_nothing_else_is_left() {
        for (placement, field) in [
            (json!({"sticky": true}), "placement.sticky"),
            (json!({"rescheduleOn": ["PolicyChange"]}), "placement.rescheduleOn"),
            (json!({"clusterTolerations": [{"operator": "Exists"}]}), "clusterTolerations"),
        ] {
            let mut stays = there("Placed");
            stays.placement = Some(serde_json::from_value(placement).unwrap());
            let mut left = Left::default();
            left.count("shop/db", &stays, on("m1"), None);
            let said = left.say(PaceLimits::default(), true);
            let Emptying::Yes { done: false, reason, message } = said else { panic!("{said:?}") };
            assert!(reason == "PolicyKeeps" && message.contains(field), "{message}");
            left.count("web", &there("Placed"), on("m1"), None);
            let said = left.say(PaceLimits::default(), true);
            assert!(matches!(said, Emptying::Yes { reason: "Moving", .. }), "{said:?}");
        }
    }

    #[test]
    fn what_holds_a_member_up_is_said_worst_first() {
        let mut left = Left::default();
        left.count("web", &task(true, "Gracefully"), on("m1"), None);
        left.count("web", &there("Placed"), on("m2"), None);
        let said = |left: &Left| match left.say(PaceLimits::default(), true) {
            Emptying::Yes { done, reason, message } => (done, reason, message),
            other => panic!("{other:?}"),
        };
        assert_eq!(said(&left).1, "WaitingForReplacements");
        left.count("api", &there("Placed"), on("m1"), Some(Hold::Rate));
        assert_eq!(said(&left).1, "Paced");
        left.count("shop/db", &there("FailoverInfeasible"), on("m1"), None);
        let (done, reason, message) = said(&left);
        assert_eq!((done, reason), (false, "NothingTakes"));
        assert!(message.contains("shop/db: 2 replicas stay on m1"), "{message}");
        assert!(message.contains("1 wait for their turn (100 bindings/s)"), "{message}");
    }

    #[test]
    fn an_empty_member_is_said_to_be() {
        let mut left = Left::default();
        left.count("web", &task(false, "Never"), on("m1"), None);
        let Emptying::Yes { done, message, .. } = left.say(PaceLimits::default(), true) else {
            panic!()
        };
        assert!(done && message.contains("purgeMode: Never"), "{message}");
    }

    #[test]
    fn drained_tainted_and_deleted_members_are_to_be_emptied() {
        let drained = |effect| tainted(marks::TAINT_DRAIN, effect);
        assert!(is_wanted(&drained("NoExecute"), false));
        assert!(!is_wanted(&drained("NoSchedule"), false));
        assert!(!is_wanted(&tainted("gpu", "NoExecute"), false), "for good, by people");
        assert!(is_wanted(&ClusterSpec::default(), true));
    }
}
