//! When a status may be written: at most once per interval, only after a change, with changes combined. A status still
//! in progress waits for the end of the interval, because more changes will follow; a settled one is written as soon as
//! the interval allows.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::time::Duration;

use tokio::time::Instant;

use crate::index::key::{BindingKey, NamespacedName, PolicyKey};
use crate::pause;

/// An object with a status.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum Subject {
    /// A binding.
    Binding(BindingKey),
    /// The template of this binding.
    Template(BindingKey),
    /// The number of replicas in the template of this binding.
    Replicas(BindingKey),
    /// A policy.
    Policy(PolicyKey),
    /// An override policy.
    OverridePolicy(PolicyKey),
    /// A customization.
    Customization(String),
    /// A ClusterSet.
    ClusterSet(String),
    /// A ChangeGuard.
    ChangeGuard(String),
    /// A FederatedResourceQuota.
    Quota(NamespacedName),
    /// A configuration of webhooks.
    Webhooks(String),
    /// A WorkloadPolicy.
    WorkloadPolicy(NamespacedName),
    /// A WorkloadSpread.
    WorkloadSpread(NamespacedName),
}

/// Minimum time between two writes to a binding's status.
pub(crate) const BINDING_INTERVAL: Duration = Duration::from_secs(1);
/// Minimum time between two writes to a template's status.
pub(crate) const TEMPLATE_INTERVAL: Duration = Duration::from_secs(5);
/// Minimum time between two writes to a policy's status, whose figures change with every workload.
pub(crate) const POLICY_INTERVAL: Duration = Duration::from_secs(10);
/// The same while the status does not cover the policy's newest generation.
pub(crate) const ANSWER_INTERVAL: Duration = Duration::from_secs(1);
/// How long a binding in progress waits for more changes: about the start time of containers.
pub(crate) const BINDING_PROGRESS: Duration = Duration::from_secs(3);
/// How long the status of a binding that is about to be decided waits, unless [`Due::decided`] is called earlier. It would
/// be written again after the decision, and commits take priority over status writes.
pub(crate) const PAUSE_FOR_DECISION: Duration = Duration::from_secs(60);
/// How long the status of a policy waits while a kind that it selects is being listed.
pub(crate) const PAUSE_FOR_LIST: Duration = Duration::from_secs(1);
/// Limit of all deferrals together, so that a long queue does not hide the state forever. Enough for some 100,000
/// workloads that move at once, which twice as many status writes would delay.
pub(crate) const MOST_PUT_OFF: Duration = Duration::from_secs(300);
/// How long a settled status waits for further reports: those of several members often arrive together.
pub(crate) const SETTLE: Duration = Duration::from_millis(100);

impl Subject {
    /// What it is, for metrics.
    pub(crate) fn what(&self) -> &'static str {
        match self {
            Self::Binding(_) => "binding",
            Self::Template(_) | Self::Replicas(_) => "template",
            _ => "other",
        }
    }

    /// Minimum time between two writes. `pause` is the one after its last computation.
    fn interval(&self, phase: Phase, pause: Duration) -> Duration {
        let least = match self {
            Self::Binding(_) | Self::ChangeGuard(_) => BINDING_INTERVAL,
            Self::Template(_) | Self::Replicas(_) => TEMPLATE_INTERVAL,
            _ if phase == Phase::Unobserved => ANSWER_INTERVAL,
            Self::Policy(_)
            | Self::OverridePolicy(_)
            | Self::Customization(_)
            | Self::ClusterSet(_)
            | Self::Quota(_)
            | Self::Webhooks(_)
            | Self::WorkloadPolicy(_)
            | Self::WorkloadSpread(_) => POLICY_INTERVAL,
        };
        if phase == Phase::Unobserved { least } else { least.max(pause) }
    }

    /// How long a changed status waits for more changes.
    fn hold(&self, phase: Phase, pause: Duration) -> Duration {
        match (self, phase) {
            (_, Phase::Settled | Phase::Unobserved) => SETTLE,
            (Self::Binding(_), Phase::InProgress) => BINDING_PROGRESS,
            (_, Phase::InProgress) => self.interval(phase, pause),
        }
    }

    fn is_of_one_workload(&self) -> bool {
        matches!(self, Self::Binding(_) | Self::Template(_) | Self::Replicas(_))
    }
}

/// Whether more changes are expected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Phase {
    /// Yes: in progress.
    InProgress,
    /// No: settled.
    Settled,
    /// The status does not cover the object's generation yet: a user waits for it.
    Unobserved,
}

/// What became of a subject that was due.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Processed {
    /// The hub's status is up to date.
    UpToDate,
    /// The status was written.
    Written,
    /// The hub refused it, so another attempt has to wait for a change.
    Refused,
    /// It was not written for another reason, and has to be tried again.
    Failed,
}

/// Position among the timers: subjects with the same time are in the order in which it was set.
type Position = (Instant, u64);

#[derive(Debug, Default, Clone, Copy)]
struct Entry {
    due: Option<Position>,
    /// When the last write ended. A hub that refuses a status is not asked more often than one that takes it.
    attempted: Option<Instant>,
    /// First deferral since the last write.
    put_off: Option<Instant>,
    /// When it is due after the deferral ends early. Set while it is deferred.
    after: Option<Instant>,
    in_flight: bool,
    /// Whether it was marked [`Phase::Unobserved`] since the last pop.
    unobserved: bool,
    /// The first change that the hub's status does not show and no write in flight will.
    changed: Option<Instant>,
    /// The first change that the write in flight will show.
    showing: Option<Instant>,
}

/// The subjects with a due time, earliest first.
#[derive(Debug, Default)]
struct Timers {
    subjects: BTreeMap<Position, Subject>,
    /// Number of times that were set so far.
    count: u64,
}

impl Timers {
    fn set(&mut self, due: &mut Option<Position>, at: Instant, subject: Subject) {
        self.clear(due);
        self.count += 1;
        *due = Some((at, self.count));
        self.subjects.insert((at, self.count), subject);
    }

    fn clear(&mut self, due: &mut Option<Position>) {
        if let Some(position) = due.take() {
            self.subjects.remove(&position);
        }
    }

    fn next(&self) -> Option<Instant> {
        self.subjects.first_key_value().map(|((at, _), _)| *at)
    }

    fn pop(&mut self, now: Instant) -> Option<Subject> {
        let next = self.subjects.first_entry()?;
        (next.key().0 <= now).then(|| next.remove())
    }
}

/// Due times by subject.
#[derive(Debug, Default)]
pub(crate) struct Due {
    /// Never iterated, so its order does not matter.
    entries: HashMap<Subject, Entry>,
    timers: Timers,
    /// When subjects were processed, oldest first: an entry without a change is dropped after the longest interval.
    processed: VecDeque<(Instant, Subject)>,
    /// The pauses of subjects whose status took long to compute.
    costly: HashMap<Subject, Duration>,
}

impl Due {
    /// Something that this subject's status may show has changed.
    pub(crate) fn mark(&mut self, subject: Subject, phase: Phase, now: Instant) {
        let pause = self.pause(&subject);
        let entry = self.entries.entry(subject.clone()).or_default();
        entry.unobserved |= phase == Phase::Unobserved;
        entry.changed.get_or_insert(now);
        let interval = subject.interval(phase, pause);
        let allowed = entry.attempted.map_or(now, |attempted| attempted + interval);
        let wanted = (now + subject.hold(phase, pause)).max(allowed);
        if entry.after.is_some() {
            entry.after = Some(wanted);
            return;
        }
        // A further change of the same kind does not delay the write; settling brings it forward.
        let due = entry.due.map_or(wanted, |(due, _)| due.min(wanted));
        self.timers.set(&mut entry.due, due, subject);
    }

    fn pause(&self, subject: &Subject) -> Duration {
        self.costly.get(subject).copied().unwrap_or_default()
    }

    /// How long it took to compute a subject's status. That of one workload does not grow with their number: if it took long,
    /// something else delayed it.
    pub(crate) fn took(&mut self, subject: &Subject, took: Duration) {
        let pause = pause::after(took);
        if !subject.is_of_one_workload() && pause > BINDING_INTERVAL {
            self.costly.insert(subject.clone(), pause);
        } else {
            self.costly.remove(subject);
        }
    }

    /// When the next write is due.
    #[must_use]
    pub(crate) fn next(&self) -> Option<Instant> {
        self.timers.next()
    }

    /// The next due subject. It is not due again before [`Due::done`].
    pub(crate) fn pop(&mut self, now: Instant) -> Option<Subject> {
        self.drop_resting(now);
        loop {
            let subject = self.timers.pop(now)?;
            let Some(entry) = self.entries.get_mut(&subject) else { continue };
            if entry.in_flight {
                // A write is in progress: `done` sets its time again.
                continue;
            }
            entry.due = None;
            entry.after = None;
            entry.in_flight = true;
            entry.unobserved = false;
            entry.showing = entry.changed.take();
            return Some(subject);
        }
    }

    /// Drops entries that have no effect any more.
    fn drop_resting(&mut self, now: Instant) {
        while let Some((at, _)) = self.processed.front()
            && *at + POLICY_INTERVAL <= now
            && let Some((at, subject)) = self.processed.pop_front()
        {
            let rests = self.entries.get(&subject).is_some_and(|entry| {
                let attempted = entry.attempted.is_none_or(|attempted| attempted <= at);
                attempted && entry.due.is_none() && entry.changed.is_none() && !entry.in_flight
            });
            if rests {
                self.entries.remove(&subject);
            }
        }
    }

    /// Defers a popped subject that is about to change anyway, unless it was deferred for too long. Returns whether it
    /// was deferred.
    pub(crate) fn put_off(&mut self, subject: &Subject, now: Instant) -> bool {
        let Some(entry) = self.entries.get_mut(subject) else { return false };
        let last = *entry.put_off.get_or_insert(now) + MOST_PUT_OFF;
        if last <= now {
            return false;
        }
        entry.in_flight = false;
        entry.changed = entry.showing.take().or(entry.changed);
        let pause = if subject.is_of_one_workload() { PAUSE_FOR_DECISION } else { PAUSE_FOR_LIST };
        let due = (now + pause).min(last);
        entry.after = Some(due);
        self.timers.set(&mut entry.due, due, subject.clone());
        true
    }

    /// A binding was decided, or will not be: ends the deferral of a subject.
    pub(crate) fn decided(&mut self, subject: &Subject, now: Instant) {
        if let Some(entry) = self.entries.get_mut(subject)
            && let Some(after) = entry.after.take()
        {
            let due = after.min(now + subject.hold(Phase::InProgress, Duration::ZERO));
            self.timers.set(&mut entry.due, due, subject.clone());
        }
    }

    /// A subject was processed. Returns the age of the first change that a written status shows.
    pub(crate) fn done(
        &mut self,
        subject: &Subject,
        how: Processed,
        now: Instant,
    ) -> Option<Duration> {
        let pause = self.pause(subject);
        let entry = self.entries.get_mut(subject)?;
        if how == Processed::Failed {
            // The next attempt shows the same change.
            entry.changed = entry.showing.take().or(entry.changed);
        }
        let showing = entry.showing.take().filter(|_| how == Processed::Written);
        entry.in_flight = false;
        entry.put_off = None;
        if how != Processed::UpToDate {
            entry.attempted = Some(now);
        }
        self.processed.push_back((now, subject.clone()));
        let phase = if entry.unobserved { Phase::Unobserved } else { Phase::Settled };
        let interval = subject.interval(phase, pause);
        let allowed = entry.attempted.map_or(now, |attempted| attempted + interval);
        if let Some((due, _)) = entry.due {
            self.timers.set(&mut entry.due, due.max(allowed), subject.clone());
        }
        showing.map(|changed| now.saturating_duration_since(changed))
    }

    /// The subject was deleted.
    pub(crate) fn forget(&mut self, subject: &Subject) {
        self.costly.remove(subject);
        if let Some(mut entry) = self.entries.remove(subject) {
            self.timers.clear(&mut entry.due);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn subject() -> Subject {
        Subject::Binding(BindingKey::of(Some("shop"), "web"))
    }

    /// A subject that changed, and was popped when it was due.
    fn popped() -> (Due, Instant) {
        let start = Instant::now();
        let mut due = Due::default();
        due.mark(subject(), Phase::Settled, start);
        assert_eq!(due.pop(start + SETTLE), Some(subject()));
        (due, start + SETTLE)
    }

    #[tokio::test(start_paused = true)]
    async fn what_changes_together_is_written_once() {
        let start = Instant::now();
        let mut due = Due::default();
        for after in [0, 50, 900, 2000] {
            due.mark(subject(), Phase::InProgress, start + Duration::from_millis(after));
        }
        assert_eq!(due.next(), Some(start + BINDING_PROGRESS));
        let rest = start + Duration::from_millis(2100);
        due.mark(subject(), Phase::Settled, rest);
        assert_eq!(due.pop(rest), None);
        assert_eq!(due.pop(rest + SETTLE), Some(subject()));
        // A change meanwhile is not part of this write.
        let late = rest + SETTLE + Duration::from_millis(10);
        due.mark(subject(), Phase::Settled, late);
        assert_eq!(
            due.done(&subject(), Processed::Written, late),
            Some(late - start),
            "the age of the first change"
        );
        let next = due.next().unwrap();
        assert_eq!(due.pop(next), Some(subject()));
        assert_eq!(due.done(&subject(), Processed::Written, next), Some(next - late));
        assert_eq!(due.next(), None);
    }

    #[tokio::test(start_paused = true)]
    async fn what_rests_is_forgotten_after_the_longest_interval() {
        let (mut due, first) = popped();
        due.done(&subject(), Processed::Written, first);
        assert_eq!(due.pop(first + POLICY_INTERVAL - SETTLE), None);
        due.mark(subject(), Phase::InProgress, first + POLICY_INTERVAL - SETTLE);
        assert_eq!(due.pop(first + POLICY_INTERVAL), None);
        assert_eq!(due.entries.len(), 1, "it has changed");
        let second = due.next().unwrap();
        assert_eq!(due.pop(second), Some(subject()));
        due.done(&subject(), Processed::Written, second);
        assert_eq!(due.pop(second + POLICY_INTERVAL), None);
        assert!(due.entries.is_empty() && due.processed.is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_about_to_be_decided_is_put_off_but_not_for_ever() {
        let start = Instant::now();
        let mut due = Due::default();
        due.mark(subject(), Phase::Settled, start);
        let mut now = start + SETTLE;
        let first = now;
        let mut looks = Vec::new();
        while due.pop(now) == Some(subject()) && due.put_off(&subject(), now) {
            assert_eq!(due.pop(now), None);
            due.mark(subject(), Phase::Settled, now);
            now = due.next().unwrap();
            looks.push((now - first).as_secs());
        }
        assert_eq!(looks, [60, 120, 180, 240, 300], "a change does not end the pause");
        assert_eq!(now, first + MOST_PUT_OFF);
        due.done(&subject(), Processed::Written, now);
        // The decision was made: its result is written as soon as allowed.
        due.mark(subject(), Phase::InProgress, now);
        assert_eq!(due.pop(now + BINDING_PROGRESS), Some(subject()));
        assert!(due.put_off(&subject(), now + BINDING_PROGRESS), "anew");
        let rest = now + BINDING_PROGRESS;
        due.mark(subject(), Phase::Settled, rest);
        assert_eq!(due.pop(rest + SETTLE), None, "the decision is still due");
        due.decided(&subject(), rest + SETTLE);
        assert_eq!(due.pop(rest + SETTLE), Some(subject()));
    }

    #[tokio::test(start_paused = true)]
    async fn a_decision_without_a_change_ends_the_pause() {
        let (mut due, first) = popped();
        assert!(due.put_off(&subject(), first));
        due.decided(&subject(), first);
        assert_eq!(due.next(), Some(first + BINDING_PROGRESS), "its copies may report soon");
        due.decided(&subject(), first + SETTLE);
        assert_eq!(due.next(), Some(first + BINDING_PROGRESS), "not put off again");
    }

    #[tokio::test(start_paused = true)]
    async fn a_status_that_takes_long_to_compute_is_computed_rarely() {
        let policy = || Subject::Policy(PolicyKey { namespace: None, name: "all".into() });
        let start = Instant::now();
        let mut due = Due::default();
        due.mark(policy(), Phase::InProgress, start);
        let first = start + POLICY_INTERVAL;
        assert_eq!(due.pop(first), Some(policy()));
        due.took(&policy(), Duration::from_secs(1));
        due.done(&policy(), Processed::Written, first);
        due.mark(policy(), Phase::InProgress, first);
        let second = first + pause::after(Duration::from_secs(1));
        assert_eq!(due.next(), Some(second));
        assert_eq!(due.pop(second), Some(policy()));
        due.took(&policy(), Duration::from_millis(1));
        due.done(&policy(), Processed::Written, second);
        due.mark(policy(), Phase::InProgress, second);
        assert_eq!(due.next(), Some(second + POLICY_INTERVAL));
    }

    #[tokio::test(start_paused = true)]
    async fn the_status_of_one_workload_is_not_computed_less_often() {
        let (mut due, first) = popped();
        due.took(&subject(), Duration::from_secs(1));
        due.done(&subject(), Processed::Written, first);
        due.mark(subject(), Phase::InProgress, first);
        assert_eq!(due.next(), Some(first + BINDING_PROGRESS));
    }

    #[tokio::test(start_paused = true)]
    async fn a_policys_new_generation_is_answered_within_about_a_second() {
        let policy = || Subject::Policy(PolicyKey { namespace: None, name: "all".into() });
        let start = Instant::now();
        let mut due = Due::default();
        due.mark(policy(), Phase::InProgress, start);
        assert_eq!(due.next(), Some(start + POLICY_INTERVAL), "figures are gathered");
        due.mark(policy(), Phase::Unobserved, start);
        let first = start + SETTLE;
        assert_eq!(due.pop(first), Some(policy()));
        // The next edit arrives while the status for the first one is being written.
        due.mark(policy(), Phase::Unobserved, first);
        due.done(&policy(), Processed::Written, first);
        assert_eq!(due.next(), Some(first + ANSWER_INTERVAL));
        let second = first + ANSWER_INTERVAL;
        assert_eq!(due.pop(second), Some(policy()));
        due.mark(policy(), Phase::InProgress, second);
        due.done(&policy(), Processed::Written, second);
        assert_eq!(due.next(), Some(second + POLICY_INTERVAL));
    }

    #[tokio::test(start_paused = true)]
    async fn a_write_that_failed_shows_nothing_and_the_next_one_shows_the_old_change() {
        let (mut due, first) = popped();
        let start = first - SETTLE;
        // The hub does not answer, and meanwhile something else changes.
        let failed = first + Duration::from_secs(30);
        due.mark(subject(), Phase::Settled, failed);
        assert_eq!(due.done(&subject(), Processed::Failed, failed), None, "no status, no lag");
        let again = due.next().unwrap();
        assert_eq!(due.pop(again), Some(subject()));
        assert_eq!(
            due.done(&subject(), Processed::Written, again),
            Some(again - start),
            "since the first change"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn two_writes_keep_their_distance_and_none_runs_twice_at_once() {
        let (mut due, first) = popped();
        due.mark(subject(), Phase::Settled, first);
        assert_eq!(due.pop(first + SETTLE), None, "the first write is under way");
        due.done(&subject(), Processed::Written, first + SETTLE);
        assert_eq!(due.next(), Some(first + SETTLE + BINDING_INTERVAL));
    }
    #[tokio::test(start_paused = true)]
    async fn a_refused_status_is_not_tried_again_with_every_change() {
        let policy = || Subject::Policy(PolicyKey { namespace: None, name: "all".into() });
        let (mut due, start) = (Due::default(), Instant::now());
        due.mark(policy(), Phase::Unobserved, start);
        let first = start + SETTLE;
        assert_eq!(due.pop(first), Some(policy()));
        due.done(&policy(), Processed::Refused, first);
        assert_eq!(due.next(), None, "another attempt waits for a change");
        due.mark(policy(), Phase::Unobserved, first);
        assert_eq!(due.next(), Some(first + ANSWER_INTERVAL));
    }
}
