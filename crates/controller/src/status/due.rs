//! When a status may be written: at most once per interval, only while something changes, and what changes together at
//! once. A status of something that is still on its way waits for the end of the interval, because more will follow; one
//! that came to rest is written as soon as the interval allows.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use tokio::time::Instant;

use crate::index::key::{BindingKey, NamespacedName, PolicyKey};

/// Something that has a status.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Subject {
    /// A binding.
    Binding(BindingKey),
    /// The template of this binding.
    Template(BindingKey),
    /// A policy.
    Policy(PolicyKey),
    /// A WorkloadPolicy.
    WorkloadPolicy(NamespacedName),
    /// A WorkloadSpread.
    WorkloadSpread(NamespacedName),
}

/// Least time between two writes to a binding's status.
pub const BINDING_INTERVAL: Duration = Duration::from_secs(1);
/// Least time between two writes to a template's status.
pub const TEMPLATE_INTERVAL: Duration = Duration::from_secs(5);
/// Least time between two writes to a policy's status, whose figures every workload changes.
pub const POLICY_INTERVAL: Duration = Duration::from_secs(10);
/// The same while the status does not speak of the policy's newest generation.
pub const ANSWER_INTERVAL: Duration = Duration::from_secs(1);
/// How long a binding on its way waits for more to come: about what containers need to start.
pub const BINDING_PROGRESS: Duration = Duration::from_secs(3);
/// How long the status of a binding that is about to be decided is put off at least. After the decision it would be written
/// again, and what moves work goes before what tells of it. From then on as long again as it has waited, so that a hundred
/// thousand that wait in a long queue are not looked at all the time.
pub const PUT_OFF: Duration = Duration::from_secs(1);
/// How long it is put off at a time at most: what was decided without a change is told of so late.
pub const PUT_OFF_MOST: Duration = Duration::from_secs(30);
/// How long it is put off in all, so that who waits in a long queue is told the truth at last. Enough for some 100,000
/// workloads that move at once, which twice as many statuses would hold up.
pub const MOST_PUT_OFF: Duration = Duration::from_secs(300);
/// How long what came to rest waits for company: reports of several members that come at one time.
pub const SETTLE: Duration = Duration::from_millis(100);

impl Subject {
    fn interval(&self, pace: Pace) -> Duration {
        match self {
            Self::Binding(_) => BINDING_INTERVAL,
            Self::Template(_) => TEMPLATE_INTERVAL,
            _ if pace == Pace::Unanswered => ANSWER_INTERVAL,
            Self::Policy(_) | Self::WorkloadPolicy(_) | Self::WorkloadSpread(_) => POLICY_INTERVAL,
        }
    }

    fn hold(&self, pace: Pace) -> Duration {
        match (self, pace) {
            (_, Pace::AtRest | Pace::Unanswered) => SETTLE,
            (Self::Binding(_), Pace::OnItsWay) => BINDING_PROGRESS,
            (_, Pace::OnItsWay) => self.interval(pace),
        }
    }
}

/// Whether more is to be expected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pace {
    /// Yes.
    OnItsWay,
    /// No.
    AtRest,
    /// The status does not speak of the object's generation yet: a person waits for the answer.
    Unanswered,
}

#[derive(Debug, Default, Clone, Copy)]
struct Entry {
    due: Option<Instant>,
    written: Option<Instant>,
    /// When it was put off first since it was written last.
    put_off: Option<Instant>,
    in_flight: bool,
    /// It was marked [`Pace::Unanswered`] since it was popped last.
    unanswered: bool,
}

/// Who is due when.
#[derive(Debug, Default)]
pub struct Due {
    entries: BTreeMap<Subject, Entry>,
    timers: BTreeSet<(Instant, Subject)>,
}

impl Due {
    /// Something changed that the status of this subject may show.
    pub fn mark(&mut self, subject: Subject, pace: Pace, now: Instant) {
        let entry = self.entries.entry(subject.clone()).or_default();
        entry.unanswered |= pace == Pace::Unanswered;
        let allowed = entry.written.map_or(now, |written| written + subject.interval(pace));
        let wanted = (now + subject.hold(pace)).max(allowed);
        let due = match (entry.due, pace) {
            // More of the same does not put the write off; coming to rest brings it forward.
            (Some(due), _) => due.min(wanted),
            (None, _) => wanted,
        };
        if let Some(old) = entry.due.replace(due) {
            self.timers.remove(&(old, subject.clone()));
        }
        self.timers.insert((due, subject));
    }

    /// When the next write is due.
    #[must_use]
    pub fn next(&self) -> Option<Instant> {
        self.timers.first().map(|(at, _)| *at)
    }

    /// The next subject whose time has come. It is not due again before [`Due::done`].
    pub fn pop(&mut self, now: Instant) -> Option<Subject> {
        loop {
            let (at, subject) = self.timers.first().cloned()?;
            if at > now {
                return None;
            }
            self.timers.pop_first();
            let Some(entry) = self.entries.get_mut(&subject) else { continue };
            entry.due = None;
            if entry.in_flight {
                // A write is under way: look again when it has ended, which `done` sees to.
                entry.due = Some(at);
                continue;
            }
            entry.in_flight = true;
            entry.unanswered = false;
            return Some(subject);
        }
    }

    /// A subject that was popped is about to change anyway: it comes again in a while, unless it was put off for long.
    /// Answers whether it was.
    pub fn put_off(&mut self, subject: &Subject, now: Instant) -> bool {
        let Some(entry) = self.entries.get_mut(subject) else { return false };
        let first = *entry.put_off.get_or_insert(now);
        let last = first + MOST_PUT_OFF;
        if last <= now {
            return false;
        }
        entry.in_flight = false;
        let due = (now + (now - first).clamp(PUT_OFF, PUT_OFF_MOST)).min(last);
        entry.due = Some(due);
        self.timers.insert((due, subject.clone()));
        true
    }

    /// The subject was looked at; `wrote` tells whether it was written.
    pub fn done(&mut self, subject: &Subject, wrote: bool, now: Instant) {
        let Some(entry) = self.entries.get_mut(subject) else { return };
        entry.in_flight = false;
        entry.put_off = None;
        if wrote {
            entry.written = Some(now);
        }
        let pace = if entry.unanswered { Pace::Unanswered } else { Pace::AtRest };
        let allowed = entry.written.map_or(now, |written| written + subject.interval(pace));
        if let Some(due) = entry.due {
            self.timers.remove(&(due, subject.clone()));
            let due = due.max(allowed);
            entry.due = Some(due);
            self.timers.insert((due, subject.clone()));
        }
    }

    /// The subject is gone.
    pub fn forget(&mut self, subject: &Subject) {
        if let Some(entry) = self.entries.remove(subject)
            && let Some(due) = entry.due
        {
            self.timers.remove(&(due, subject.clone()));
        }
    }

    /// Nothing is due.
    pub fn clear(&mut self) {
        self.entries.clear();
        self.timers.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn subject() -> Subject {
        Subject::Binding(BindingKey { namespace: Some("shop".into()), name: "web".into() })
    }

    #[tokio::test(start_paused = true)]
    async fn what_changes_together_is_written_once() {
        let start = Instant::now();
        let mut due = Due::default();
        for after in [0, 50, 900, 2000] {
            due.mark(subject(), Pace::OnItsWay, start + Duration::from_millis(after));
        }
        assert_eq!(due.next(), Some(start + BINDING_PROGRESS));
        let rest = start + Duration::from_millis(2100);
        due.mark(subject(), Pace::AtRest, rest);
        assert_eq!(due.pop(rest), None);
        assert_eq!(due.pop(rest + SETTLE), Some(subject()));
        due.done(&subject(), true, rest + SETTLE);
        assert_eq!(due.next(), None);
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_about_to_be_decided_is_put_off_but_not_for_ever() {
        let start = Instant::now();
        let mut due = Due::default();
        due.mark(subject(), Pace::AtRest, start);
        let mut now = start + SETTLE;
        let first = now;
        let mut looks = Vec::new();
        while due.pop(now) == Some(subject()) && due.put_off(&subject(), now) {
            assert_eq!(due.pop(now), None);
            now = due.next().unwrap();
            looks.push((now - first).as_secs());
        }
        assert_eq!(looks[..7], [1, 2, 4, 8, 16, 32, 62], "as long again as it has waited, or 30 s");
        assert_eq!(now, first + MOST_PUT_OFF);
        due.done(&subject(), true, now);
        // The decision came: what it left is written as soon as it may be.
        due.mark(subject(), Pace::OnItsWay, now);
        assert_eq!(due.pop(now + BINDING_PROGRESS), Some(subject()));
        assert!(due.put_off(&subject(), now + BINDING_PROGRESS), "anew");
        let rest = now + BINDING_PROGRESS;
        due.mark(subject(), Pace::AtRest, rest);
        assert_eq!(due.pop(rest + SETTLE), Some(subject()));
    }

    #[tokio::test(start_paused = true)]
    async fn a_policys_new_generation_is_answered_within_about_a_second() {
        let policy = || Subject::Policy(PolicyKey { namespace: None, name: "all".into() });
        let start = Instant::now();
        let mut due = Due::default();
        due.mark(policy(), Pace::OnItsWay, start);
        assert_eq!(due.next(), Some(start + POLICY_INTERVAL), "figures are gathered");
        due.mark(policy(), Pace::Unanswered, start);
        let first = start + SETTLE;
        assert_eq!(due.pop(first), Some(policy()));
        // The next edit comes while the answer to the first one is being written.
        due.mark(policy(), Pace::Unanswered, first);
        due.done(&policy(), true, first);
        assert_eq!(due.next(), Some(first + ANSWER_INTERVAL));
        let second = first + ANSWER_INTERVAL;
        assert_eq!(due.pop(second), Some(policy()));
        due.mark(policy(), Pace::OnItsWay, second);
        due.done(&policy(), true, second);
        assert_eq!(due.next(), Some(second + POLICY_INTERVAL));
    }

    #[tokio::test(start_paused = true)]
    async fn two_writes_keep_their_distance_and_none_runs_twice_at_once() {
        let start = Instant::now();
        let mut due = Due::default();
        due.mark(subject(), Pace::AtRest, start);
        let first = start + SETTLE;
        assert_eq!(due.pop(first), Some(subject()));
        due.mark(subject(), Pace::AtRest, first);
        assert_eq!(due.pop(first + SETTLE), None, "the first write is under way");
        due.done(&subject(), true, first + SETTLE);
        assert_eq!(due.next(), Some(first + SETTLE + BINDING_INTERVAL));
    }
}
