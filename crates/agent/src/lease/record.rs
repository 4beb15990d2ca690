//! The Lease object, read and written as JSON.

use atoll_api::marks::TERM;
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use crate::key::{GroupKind, Key};
use crate::member::Target;

/// Name of the Lease.
const NAME: &str = "atoll-agent";

/// Annotation of the Lease: how often it was acquired. `leaseTransitions` has only 31 bits.
const EPOCH: &str = "atoll.dev/epoch";

/// The endpoint of Leases.
pub(super) fn target() -> Target {
    Target::builtin("coordination.k8s.io", "v1", "Lease", "leases", true)
}

/// The Lease on the member.
pub(super) fn key(namespace: &str) -> Key {
    Key {
        kind: GroupKind::new("coordination.k8s.io", "Lease"),
        namespace: namespace.to_owned(),
        name: NAME.to_owned(),
    }
}

/// The Lease as read from the member.
#[derive(Debug, Clone)]
pub(super) struct Record {
    pub(super) object: Value,
    pub(super) epoch: u64,
    pub(super) term: u64,
    /// It did not exist before this acquisition.
    pub(super) made: bool,
}

impl Record {
    pub(super) fn read(object: Value) -> Self {
        let number = |name: &str| {
            object["metadata"]["annotations"][name]
                .as_str()
                .and_then(|text| text.parse().ok())
                .unwrap_or(0)
        };
        Self { epoch: number(EPOCH), term: number(TERM), object, made: false }
    }

    /// A new Lease. The counter starts at the Unix time, so that it never starts below its value before the Lease was
    /// deleted: the controller refuses an epoch below one that it has seen.
    pub(super) fn new(namespace: &str, now: Timestamp) -> Self {
        let object = json!({
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": {"name": NAME, "namespace": namespace},
            "spec": {},
        });
        // Acquiring raises the counter exactly to the Unix time, not beyond; otherwise a backup that is restored within
        // the same second would stay behind.
        Self { object, epoch: time_of_day(now).saturating_sub(1), term: 0, made: true }
    }

    pub(super) fn holder(&self) -> &str {
        self.object["spec"]["holderIdentity"].as_str().unwrap_or_default()
    }

    /// The version, which changes with every renewal by any holder.
    pub(super) fn version(&self) -> &str {
        self.object["metadata"]["resourceVersion"].as_str().unwrap_or_default()
    }

    pub(super) fn duration(&self) -> Option<std::time::Duration> {
        let seconds = self.object["spec"]["leaseDurationSeconds"].as_u64()?;
        Some(std::time::Duration::from_secs(seconds))
    }

    /// When the Lease was last acquired, in Unix seconds; `None` where that cannot be parsed.
    fn last_taken(&self) -> Option<u64> {
        let at: Timestamp = self.object["spec"]["acquireTime"].as_str()?.parse().ok()?;
        Some(time_of_day(at))
    }

    /// Acquisitions since the Lease was created.
    fn transitions(&self) -> u64 {
        self.object["spec"]["leaseTransitions"].as_u64().unwrap_or(0)
    }

    /// The record with another holder, and an epoch above every earlier one, even if the counter was damaged since: any
    /// earlier counter started at a Unix time as well. The clock may be wrong now, so the time of the last acquisition
    /// and the number of acquisitions count as well.
    pub(super) fn taken(&self, instance: &str, now: Timestamp, seconds: u64) -> Self {
        let before = self.last_taken().map_or(0, |at| at.saturating_add(self.transitions() + 1));
        let epoch = self.epoch.saturating_add(1).max(time_of_day(now)).max(before);
        let mut next = Self { epoch, ..self.clone() };
        let transitions = next.object["spec"]["leaseTransitions"].as_i64().unwrap_or(-1);
        next.object["spec"] = json!({
            "holderIdentity": instance,
            "leaseDurationSeconds": seconds,
            "acquireTime": micro_time(now),
            "renewTime": micro_time(now),
            "leaseTransitions": i32::try_from(transitions.saturating_add(1)).unwrap_or(i32::MAX),
        });
        next.annotate();
        next
    }

    pub(super) fn renewed(&self, now: Timestamp) -> Self {
        let mut next = self.clone();
        let time = &mut next.object["spec"]["renewTime"];
        // Others treat a record that does not change as abandoned: it must change even if our clock stands still.
        let tick = SignedDuration::from_micros(i64::from(*time == micro_time(now).as_str()));
        *time = json!(micro_time(now.checked_add(tick).unwrap_or(now)));
        next
    }

    /// The record with this term, or a higher one that it has: another write of ours may have been done although its
    /// answer did not come.
    pub(super) fn with_term(&self, term: u64) -> Self {
        let mut next = Self { term: self.term.max(term), ..self.clone() };
        next.annotate();
        next
    }

    /// The record with an epoch above this one. The holder may continue from the epoch that the controller has seen.
    pub(super) fn above(&self, floor: u64) -> Self {
        let mut next = Self { epoch: self.epoch.max(floor.saturating_add(1)), ..self.clone() };
        next.annotate();
        next
    }

    pub(super) fn released(&self) -> Self {
        let mut next = self.clone();
        next.object["spec"]["holderIdentity"] = json!("");
        next
    }

    fn annotate(&mut self) {
        let annotations = &mut self.object["metadata"]["annotations"];
        if !annotations.is_object() {
            *annotations = json!({});
        }
        annotations[EPOCH] = json!(self.epoch.to_string());
        annotations[TERM] = json!(self.term.to_string());
    }
}

fn time_of_day(now: Timestamp) -> u64 {
    u64::try_from(now.as_second()).unwrap_or(0)
}

/// Kubernetes' `MicroTime`: always six digits.
fn micro_time(now: Timestamp) -> String {
    format!("{now:.6}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn taking_raises_the_epoch_and_keeps_the_term() {
        let now: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
        let first = Record::new("atoll-system", now).taken("a", now, 15);
        assert_eq!(first.epoch, 1_767_225_600, "the time of day");
        assert_eq!(first.object["spec"]["renewTime"], "2026-01-01T00:00:00.000000Z");
        let later = Record::read(first.with_term(7).released().object);
        assert_eq!((later.holder(), later.term), ("", 7));
        // Setting the clock back does not lower the epoch.
        let earlier: Timestamp = "2020-01-01T00:00:00Z".parse().unwrap();
        let second = Record::read(later.taken("b", earlier, 15).object);
        assert_eq!((second.holder(), second.epoch, second.term), ("b", first.epoch + 1, 7));
        assert_eq!(second.object["spec"]["leaseTransitions"], 1);
    }

    #[test]
    fn the_holder_counts_on_from_what_the_controller_has_seen() {
        let now: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
        let first = Record::new("atoll-system", now).taken("a", now, 15).with_term(7);
        let raised = Record::read(first.above(first.epoch + 3_600).object);
        assert_eq!((raised.epoch, raised.term), (first.epoch + 3_601, 7));
        assert_eq!(raised.above(5).epoch, raised.epoch, "never down");
    }

    #[test]
    fn every_renewal_changes_the_record() {
        let now: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
        let first = Record::new("atoll-system", now).taken("a", now, 15);
        let (second, third) = (first.renewed(now), first.renewed(now).renewed(now));
        assert_ne!(first.object, second.object, "a clock that stands still");
        assert_ne!(second.object, third.object);
    }

    #[test]
    fn a_damaged_counter_starts_above_where_it_was() {
        let now: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
        let first = Record::new("atoll-system", now).taken("a", now, 15);
        let later = now + std::time::Duration::from_secs(60);
        for damaged in ["\u{fffd}", "", "17"] {
            let mut object = first.object.clone();
            object["metadata"]["annotations"][EPOCH] = json!(damaged);
            let next = Record::read(object).taken("a", later, 15);
            assert!(next.epoch > first.epoch, "{damaged}: {}", next.epoch);
        }
        // Several acquisitions within a second, and then the clock is set back as well.
        let (second, hour) = (first.taken("b", now, 15), std::time::Duration::from_secs(3_600));
        let mut object = second.taken("c", now, 15).object;
        object["metadata"]["annotations"][EPOCH] = json!("\u{fffd}");
        let next = Record::read(object).taken("d", now - hour, 15);
        assert!(next.epoch > second.epoch + 1, "{}", next.epoch);
    }
}
