//! Queued Events. Synchronous; no I/O.
//!
//! The hub writes Events more slowly than a failover creates them. So queued Events are coalesced: a second Event of
//! the same object and reason replaces the first and counts both; beyond [`FOLD_FROM`] queued ones, an Event with the
//! same cause as a queued one is only counted there. An Event that does not fit is dropped and counted.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;

use super::note::Note;

/// Limit of queued Events. At about 2 KiB each they take 2 MiB.
pub(super) const ROOM: usize = 1024;
/// This many queued Events are a burst: from here on, Events with a common cause are merged. Few enough for the hub to
/// write within seconds.
pub(super) const FOLD_FROM: usize = 256;
/// Limit of objects with reasons whose last Event is remembered, for Events with a minimum repeat time.
const MOST_REMEMBERED: usize = 8192;

/// Result of queueing an Event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Offered {
    /// It will be written.
    Queued,
    /// It was merged into another one, or repeats a recently written one.
    Coalesced,
    /// There is no room.
    Dropped,
}

/// A queued Event, with the Events that it represents.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Waiting {
    /// The newest of its object and reason.
    pub(super) note: Note,
    /// Time of the first one.
    pub(super) first: Timestamp,
    /// Number of Events of this object and reason.
    pub(super) count: i32,
    /// Number of Events of other objects with the same cause.
    pub(super) more: u64,
}

impl Waiting {
    /// The message, including the number of other Events.
    pub(super) fn message(&self) -> String {
        match &self.note.cause {
            Some(cause) if self.more > 0 => {
                format!("and {} more {}; {}", self.more, cause.words, self.note.message)
            }
            _ => self.note.message.clone(),
        }
    }
}

/// Object and reason.
type Subject = (String, String);

#[derive(Debug, Default)]
pub(super) struct Outbox {
    waiting: BTreeMap<u64, Waiting>,
    next: u64,
    by_subject: BTreeMap<Subject, u64>,
    by_cause: BTreeMap<String, u64>,
    /// When an Event with a minimum repeat time was last accepted, and that time.
    accepted: BTreeMap<Subject, (Timestamp, Duration)>,
}

impl Outbox {
    /// Queues an Event.
    pub(super) fn offer(&mut self, note: Note) -> Offered {
        let subject = subject(&note);
        if let Some(waiting) =
            self.by_subject.get(&subject).and_then(|number| self.waiting.get_mut(number))
        {
            waiting.note = note;
            waiting.count = waiting.count.saturating_add(1);
            return Offered::Coalesced;
        }
        if self.is_repeated(&subject, &note) {
            return Offered::Coalesced;
        }
        if self.waiting.len() >= FOLD_FROM
            && let Some(cause) = &note.cause
            && let Some(waiting) =
                self.by_cause.get(&cause.key).and_then(|number| self.waiting.get_mut(number))
        {
            waiting.more = waiting.more.saturating_add(1);
            self.remember(subject, &note);
            return Offered::Coalesced;
        }
        if self.waiting.len() >= ROOM {
            return Offered::Dropped;
        }
        self.remember(subject.clone(), &note);
        let number = self.next;
        self.next += 1;
        self.by_subject.insert(subject, number);
        if let Some(cause) = &note.cause {
            self.by_cause.insert(cause.key.clone(), number);
        }
        self.waiting.insert(number, Waiting { first: note.at, note, count: 1, more: 0 });
        Offered::Queued
    }

    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// The Event that has waited longest.
    pub(super) fn take(&mut self) -> Option<Waiting> {
        let (number, waiting) = self.waiting.pop_first()?;
        self.by_subject.remove(&subject(&waiting.note));
        if let Some(cause) = &waiting.note.cause
            && self.by_cause.get(&cause.key) == Some(&number)
        {
            self.by_cause.remove(&cause.key);
        }
        Some(waiting)
    }

    fn is_repeated(&self, subject: &Subject, note: &Note) -> bool {
        note.repeat_after.is_some()
            && self.accepted.get(subject).is_some_and(|accepted| stands(accepted, note.at))
    }

    fn remember(&mut self, subject: Subject, note: &Note) {
        let Some(repeat_after) = note.repeat_after else { return };
        if self.accepted.len() >= MOST_REMEMBERED {
            self.accepted.retain(|_, accepted| stands(accepted, note.at));
        }
        // Beyond this limit, one Event too many is written rather than one too few.
        if self.accepted.len() < MOST_REMEMBERED {
            self.accepted.insert(subject, (note.at, repeat_after));
        }
    }
}

/// Whether an earlier Event also covers `now`.
fn stands((at, repeat_after): &(Timestamp, Duration), now: Timestamp) -> bool {
    Duration::try_from(now.duration_since(*at)).is_ok_and(|since| since < *repeat_after)
}

fn subject(note: &Note) -> Subject {
    let about = &note.about;
    let namespace = about.namespace.as_deref().unwrap_or_default();
    let uid = about.uid.as_deref().unwrap_or_default();
    (format!("{}/{namespace}/{}/{uid}", about.kind, about.name), note.reason.clone())
}

#[cfg(test)]
mod tests {
    use atoll_api::binding::ObjectReference;

    use super::*;
    use crate::events::{Cause, Severity};

    fn note(name: &str, at: i64, cause: Option<&str>) -> Note {
        Note {
            about: ObjectReference {
                api_version: "apps/v1".to_owned(),
                kind: "Deployment".to_owned(),
                namespace: Some("shop".to_owned()),
                name: name.to_owned(),
                ..ObjectReference::default()
            },
            id: format!("{name}{at}"),
            reason: "Failover".to_owned(),
            message: format!("{name} at {at}"),
            severity: Severity::Normal,
            at: Timestamp::from_second(at).unwrap(),
            cause: cause.map(|key| Cause { key: key.to_owned(), words: "of this failover" }),
            repeat_after: None,
        }
    }

    #[test]
    fn events_of_one_object_that_wait_become_one() {
        let mut outbox = Outbox::default();
        assert_eq!(outbox.offer(note("web", 1, None)), Offered::Queued);
        assert_eq!(outbox.offer(note("web", 5, None)), Offered::Coalesced);
        let taken = outbox.take().unwrap();
        assert_eq!((taken.count, taken.first.as_second()), (2, 1));
        assert_eq!(taken.message(), "web at 5");
        assert_eq!(outbox.take(), None);
        assert_eq!(outbox.offer(note("web", 9, None)), Offered::Queued, "the first is written");
    }

    #[test]
    fn a_burst_with_one_cause_is_told_in_full_as_long_as_there_is_room_and_counted_beyond() {
        let mut outbox = Outbox::default();
        let total = FOLD_FROM + 411;
        for number in 0..total {
            assert_ne!(outbox.offer(note(&number.to_string(), 1, Some("m1"))), Offered::Dropped);
        }
        let taken: Vec<Waiting> = std::iter::from_fn(|| outbox.take()).collect();
        assert_eq!(taken.len(), FOLD_FROM);
        let last = taken.last().unwrap();
        assert!(
            last.message().starts_with("and 411 more of this failover; "),
            "{}",
            last.message()
        );
        assert_eq!(taken[0].message(), "0 at 1");
        assert!(outbox.by_subject.is_empty() && outbox.by_cause.is_empty());
    }

    #[test]
    fn what_finds_no_room_is_dropped() {
        let mut outbox = Outbox::default();
        for number in 0..ROOM {
            assert_eq!(outbox.offer(note(&number.to_string(), 1, None)), Offered::Queued);
        }
        assert_eq!(outbox.offer(note("one-more", 1, None)), Offered::Dropped);
        outbox.take();
        assert_eq!(outbox.offer(note("one-more", 1, None)), Offered::Queued);
    }

    #[test]
    fn what_may_not_be_repeated_soon_is_told_once_in_that_time() {
        let mut outbox = Outbox::default();
        let sick = |at: i64| Note {
            repeat_after: Some(Duration::from_secs(600)),
            ..note("web", at, None)
        };
        assert_eq!(outbox.offer(sick(0)), Offered::Queued);
        assert!(outbox.take().is_some());
        assert_eq!(outbox.offer(sick(599)), Offered::Coalesced);
        assert_eq!(outbox.offer(sick(600)), Offered::Queued);
    }
}
