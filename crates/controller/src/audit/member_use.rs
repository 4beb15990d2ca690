//! Samples of how much of each member's capacity is requested, for charts. Pure.

use std::collections::BTreeMap;

use atoll_api::{Cluster, ClusterName};
use atoll_history::{MemberEvent, MemberEventKind as Kind};
use jiff::{SignedDuration, Timestamp};

use super::member_events::event;

/// The resources that are sampled.
const RESOURCES: [&str; 3] = ["cpu", "memory", "pods"];
/// Percentage points by which a resource has to change since the last sample.
const STEP: u8 = 5;
/// Samples that a member may have in a row: a member decides what its Cluster says, and each sample is a row.
const BURST: u8 = 12;
/// Time after which it may have one more.
const REFILL: SignedDuration = SignedDuration::from_mins(5);

/// Requested percentage of each resource; `None` = unknown.
type Uses = [Option<u8>; RESOURCES.len()];

/// The last samples of all members. Lives as long as a leadership, so each leadership begins with a sample of each.
#[derive(Debug, Default)]
pub(super) struct Samples(BTreeMap<ClusterName, Last>);

#[derive(Debug)]
struct Last {
    uses: Uses,
    /// Samples that it may still have.
    left: u8,
    /// Since when `left` is right.
    at: Timestamp,
}

impl Samples {
    /// A sample, if the use of a member changed notably.
    pub(super) fn take(&mut self, cluster: &Cluster, now: Timestamp) -> Option<MemberEvent> {
        let summary = cluster.status.as_ref()?.resource_summary.as_ref()?;
        let uses: Uses = RESOURCES.map(|resource| summary.requested_percent(resource));
        if uses.iter().all(Option::is_none) {
            return None;
        }
        let name = ClusterName::from(cluster.metadata.name.as_deref()?);
        match self.0.get_mut(&name) {
            Some(last) => {
                last.refill(now);
                let notable = uses.iter().zip(&last.uses).any(|(new, old)| match (new, old) {
                    (Some(new), Some(old)) => new.abs_diff(*old) >= STEP,
                    (new, old) => new != old,
                });
                if !notable || last.left == 0 {
                    return None;
                }
                (last.uses, last.left) = (uses, last.left - 1);
            }
            None => {
                self.0.insert(name, Last { uses, left: BURST - 1, at: now });
            }
        }
        let known: Vec<(&str, u8)> =
            RESOURCES.into_iter().zip(uses).filter_map(|(of, use_)| Some((of, use_?))).collect();
        let join = |parts: Vec<String>, with| parts.join(with);
        let reason = join(known.iter().map(|(of, use_)| format!("{of}={use_}")).collect(), ",");
        let words = join(known.iter().map(|(of, use_)| format!("{of} {use_} %")).collect(), ", ");
        Some(event(cluster, Kind::Used, now, &reason, format!("requested: {words}")))
    }

    /// A member left.
    pub(super) fn forget(&mut self, name: &ClusterName) {
        self.0.remove(name);
    }
}

impl Last {
    fn refill(&mut self, now: Timestamp) {
        while self.left < BURST && now.duration_since(self.at) >= REFILL {
            self.left += 1;
            self.at = self.at.checked_add(REFILL).unwrap_or(now);
        }
        if self.left == BURST {
            self.at = now;
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn using(cpu: i64) -> Cluster {
        serde_json::from_value(json!({
            "apiVersion": "cluster.atoll.dev/v1alpha1", "kind": "Cluster",
            "metadata": {"name": "m1", "uid": "u1"}, "spec": {},
            "status": {"resourceSummary": {
                "allocatable": {"cpu": "100", "pods": "0"},
                "allocated": {"cpu": cpu.to_string(), "memory": "1Gi"},
            }},
        }))
        .unwrap()
    }

    #[test]
    fn notable_changes_of_use_are_samples_and_a_member_cannot_flood_history() {
        let mut samples = Samples::default();
        let start = Timestamp::UNIX_EPOCH;
        let mut reasons = |cpu: i64, second: i64| {
            let now = Timestamp::from_second(second).unwrap();
            samples.take(&using(cpu), now).map(|event| (event.reason, event.message))
        };
        let sample = |cpu: i64| Some((format!("cpu={cpu}"), format!("requested: cpu {cpu} %")));
        assert_eq!(reasons(10, 0), sample(10));
        assert_eq!(reasons(14, 1), None);
        assert_eq!(reasons(15, 2), sample(15));
        assert_eq!(reasons(11, 3), None);
        let flood = (0..1_000).filter(|n| reasons((n % 2) * 50, 10 + n).is_some()).count();
        assert_eq!(flood, usize::from(BURST) - 2 + 3, "three were refilled in a thousand seconds");
        assert_eq!(reasons(99, 2_000), sample(99));
        assert_eq!(samples.take(&Cluster::new("m2", Default::default()), start), None);
        samples.forget(&"m1".into());
        assert!(samples.take(&using(99), start).is_some());
    }
}
