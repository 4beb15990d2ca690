//! Reports of members whose health or status webhooks read. Webhooks are asked in jobs; the ledger gets what they say.
//!
//! Of each object the newest report is kept, so that it can be read again when the webhook is reachable again, or after
//! a change of its configuration.

use std::collections::{BTreeMap, BTreeSet};

use atoll_api::ClusterName;

use crate::index::key::BindingKey;
use crate::members::{Key, Report};

/// Bytes of reports that are kept after they were read. Those beyond are read once, and again with the member's next report.
const HELD_BYTES: usize = 128 * 1024 * 1024;
/// Bytes of all reports, also of those that wait while a webhook is slow or unreachable. One that does not fit is dropped:
/// the object keeps its last known state until the member reports it again.
const MOST_BYTES: usize = 3 * HELD_BYTES;
/// Size of a report without its status.
const REPORT_BYTES: usize = 512;

/// One object on one member.
pub(crate) type Place = (BindingKey, ClusterName);

/// A report to be read.
#[derive(Debug, Clone)]
pub(crate) struct Reading {
    pub(crate) place: Place,
    /// The object on the member.
    pub(crate) object: Key,
    pub(crate) report: Report,
}

#[derive(Debug, Default)]
pub(crate) struct Readings {
    held: BTreeMap<Place, (Key, Report)>,
    bytes: usize,
    waiting: BTreeSet<Place>,
    /// Those that jobs read now.
    asked: BTreeSet<Place>,
    /// A report was dropped since the reports last fitted into [`HELD_BYTES`].
    full: bool,
}

fn size(report: &Report) -> usize {
    REPORT_BYTES + report.status_bytes
}

impl Readings {
    /// A member reported an object.
    pub(crate) fn push(&mut self, place: Place, object: Key, report: Report) {
        self.drop_report(&place);
        if self.bytes + size(&report) > MOST_BYTES {
            self.waiting.remove(&place);
            if !std::mem::replace(&mut self.full, true) {
                tracing::warn!(
                    binding = %place.0,
                    member = %place.1,
                    bytes = self.bytes,
                    "reports are dropped: too many wait for interpreter webhooks; this is the first"
                );
            }
            return;
        }
        self.bytes += size(&report);
        self.held.insert(place.clone(), (object, report));
        self.waiting.insert(place);
    }

    fn drop_report(&mut self, place: &Place) {
        if let Some((_, report)) = self.held.remove(place) {
            self.bytes -= size(&report);
            self.full &= self.bytes > HELD_BYTES;
        }
    }

    /// The object is gone, or no webhook reads it any more. Returns whether a report of it was held.
    pub(crate) fn forget(&mut self, place: &Place) -> bool {
        let held = self.held.contains_key(place);
        self.drop_report(place);
        self.waiting.remove(place);
        held
    }

    /// The binding was deleted.
    pub(super) fn forget_binding(&mut self, key: &BindingKey) {
        for place in self.places(key) {
            self.forget(&place);
        }
    }

    fn places(&self, key: &BindingKey) -> Vec<Place> {
        let from = (key.clone(), ClusterName::default());
        let all = self.held.range(from..).take_while(|((of, _), _)| of == key);
        all.map(|(place, _)| place.clone()).collect()
    }

    /// Reads the objects of a binding again.
    pub(crate) fn ask_again(&mut self, key: &BindingKey) {
        let places = self.places(key);
        self.waiting.extend(places);
    }

    /// Reads all objects again: rules changed.
    pub(crate) fn ask_all(&mut self) {
        self.waiting.extend(self.held.keys().cloned());
    }

    /// The next report to read. Reports of one object are read one after the other.
    pub(crate) fn next(&mut self) -> Option<Reading> {
        let place = self.waiting.iter().find(|place| !self.asked.contains(*place))?.clone();
        self.waiting.remove(&place);
        let (object, report) = self.held.get(&place)?.clone();
        self.asked.insert(place.clone());
        Some(Reading { place, object, report })
    }

    /// A job has read a report. Returns whether its result is still of interest; `again`: it has to be read again.
    pub(crate) fn done(&mut self, place: &Place, again: bool) -> bool {
        self.asked.remove(place);
        if !self.held.contains_key(place) {
            return false;
        }
        if again {
            self.waiting.insert(place.clone());
        } else if self.bytes > HELD_BYTES && !self.waiting.contains(place) {
            self.drop_report(place);
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(name: &str, cluster: &str) -> Place {
        (BindingKey::of(None, name), cluster.into())
    }

    fn push(readings: &mut Readings, place: &Place, generation: i64, status_bytes: usize) {
        let object = Key::new("", "A", None, place.0.name());
        let report = Report { generation, status_bytes, ..Report::unknown() };
        readings.push(place.clone(), object, report);
    }

    #[test]
    fn of_each_object_the_newest_report_is_read_and_can_be_read_again() {
        let mut readings = Readings::default();
        let (a, b) = (place("a", "m1"), place("b", "m1"));
        push(&mut readings, &a, 1, 0);
        push(&mut readings, &a, 2, 0);
        push(&mut readings, &b, 1, 0);
        assert_eq!(readings.next().unwrap().report.generation, 2);
        push(&mut readings, &a, 3, 0);
        assert_eq!(readings.next().unwrap().place, b, "a is being read");
        assert!(readings.next().is_none());
        assert!(readings.done(&a, false));
        assert_eq!(readings.next().unwrap().report.generation, 3);
        assert!(readings.forget(&a));
        assert!(!readings.done(&a, true), "it is gone");
        assert!(readings.done(&b, true));
        assert_eq!(readings.next().unwrap().place, b);
        readings.done(&b, false);
        readings.ask_again(&a.0);
        assert!(readings.next().is_none());
        readings.ask_again(&b.0);
        assert_eq!(readings.next().unwrap().place, b);
        readings.forget_binding(&b.0);
        assert_eq!(readings.bytes, 0);
    }

    #[test]
    fn reports_that_wait_for_an_unreachable_webhook_are_bounded_in_bytes() {
        let mut readings = Readings::default();
        for at in 0..5 {
            push(&mut readings, &place(&format!("a{at}"), "m1"), 1, HELD_BYTES - REPORT_BYTES);
        }
        assert!(readings.full && readings.bytes <= MOST_BYTES, "{}", readings.bytes);
        let first = readings.next().unwrap().place;
        readings.forget(&first);
        push(&mut readings, &first, 2, 0);
        assert!(readings.held.contains_key(&first), "there is room again");
    }

    #[test]
    fn reports_beyond_a_bound_in_bytes_are_read_once() {
        let mut readings = Readings::default();
        for cluster in ["m1", "m2"] {
            push(&mut readings, &place("a", cluster), 1, HELD_BYTES);
        }
        let first = readings.next().unwrap().place;
        assert!(readings.done(&first, false));
        let second = readings.next().unwrap().place;
        assert!(readings.done(&second, false));
        readings.ask_all();
        assert!(readings.next().is_none());
    }
}
