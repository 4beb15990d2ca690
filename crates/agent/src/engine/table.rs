//! Desired state, actual state and last report of every object. Synchronous; no I/O.
//!
//! Input is a message, a watch event or the result of a call. Output is work for the queue and reports for the
//! controller.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use atoll_protocol::v1;
use atoll_traces::TraceContext;
use tokio::time::Instant;

use super::queue::{Place, Queue};
use crate::apply::fields::{extract, is_whole, touched_since_apply};
use crate::apply::object::{Applied, Desired, Known, Live};
use crate::apply::order::Rank;
use crate::apply::removal::{Withdrawal, Withdrawn};
use crate::inventory::agreement::{Line, claims};
use crate::key::{GroupKind, Key};
use crate::member::MemberError;
use atoll_api::{Backoff, Jitter};

/// Backoff of an object that the member rejects: soon at first, then rarely.
const FAILED: Backoff = Backoff { first: Duration::from_secs(1), most: Duration::from_secs(120) };
/// Checks of an object that is terminating.
const WAITING: Backoff =
    Backoff { first: Duration::from_millis(500), most: Duration::from_secs(10) };
/// Checks of an unmanaged object that is in the way.
const CONFLICT: Backoff = Backoff { first: Duration::from_secs(5), most: Duration::from_secs(120) };
/// Interval of checks while the lease is overdue.
const OVERDUE: Duration = Duration::from_secs(1);

#[derive(Debug, Default)]
struct ObjectEntry {
    desired: Option<Desired>,
    live: Option<Live>,
    /// Found at the start without proof that it holds the whole manifest. The inventory has no hash of it, so that the
    /// controller sends it again.
    unproven: bool,
    /// What we applied: its uid, and our fields.
    known: Known,
    /// The object as it was when last found to be as desired. `None`: there is work to do.
    settled: Option<Live>,
    /// The current desired state was in place once, so writing it again reverts drift.
    was_settled: bool,
    withdrawal: Option<Withdrawal>,
    /// A withdrawal that waits until controller and agent agree.
    held: Option<Withdrawal>,
    failures: u32,
    drift: u64,
    reported: Option<v1::Applied>,
    status: Option<v1::Status>,
    /// The trace of the decision that is being carried out, until that succeeds.
    trace: Option<TraceContext>,
    /// An event of the object came while a call was running: it may be newer than the result of the call.
    event_meanwhile: bool,
}

/// Work on one object.
#[derive(Debug)]
pub(super) enum Work {
    /// Apply this manifest.
    Apply(Desired, Known),
    /// Withdraw the object; with the uid that we applied.
    Withdraw(Withdrawal, Option<String>),
}

/// Result of a job.
#[derive(Debug)]
pub(super) enum Outcome {
    /// An apply.
    Applied(Result<Applied, MemberError>),
    /// A withdrawal.
    Withdrawn(Result<Withdrawn, MemberError>),
}

impl Outcome {
    /// Whether it is of an apply, and its result for metrics.
    pub(super) fn label(&self) -> (bool, &'static str) {
        match self {
            Self::Applied(Ok(Applied::Done { written: true, .. })) => (true, "applied"),
            Self::Applied(Ok(Applied::Done { written: false, .. })) => (true, "unchanged"),
            Self::Applied(Ok(Applied::Conflict { .. })) => (true, "conflict"),
            Self::Applied(Ok(Applied::Terminating { .. })) => (true, "terminating"),
            Self::Applied(Err(_)) => (true, "failed"),
            Self::Withdrawn(Ok(Withdrawn::Removed)) => (false, "removed"),
            Self::Withdrawn(Ok(Withdrawn::Released { .. })) => (false, "released"),
            Self::Withdrawn(Ok(_)) => (false, "refused"),
            Self::Withdrawn(Err(_)) => (false, "failed"),
        }
    }
}

/// What a call showed about an object.
struct Learned {
    result: v1::ApplyResult,
    /// uid of the object; empty where it is unknown.
    uid: String,
    /// Reason and message, where the object is not as desired.
    error: Option<(String, String)>,
}

/// All objects.
#[derive(Debug)]
pub(super) struct Table {
    entries: BTreeMap<Key, ObjectEntry>,
    /// Pending work.
    pub queue: Queue,
    jitter: Jitter,
}

impl Table {
    /// How many objects there are.
    #[must_use]
    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    /// An empty one.
    #[must_use]
    pub(super) fn new(jitter: Jitter) -> Self {
        Self { entries: BTreeMap::new(), queue: Queue::default(), jitter }
    }

    /// Sets the desired manifest. Returns a report when the object is already as desired.
    pub(super) fn upsert(
        &mut self,
        key: &Key,
        desired: Desired,
        now: Instant,
    ) -> Option<v1::Applied> {
        let entry = self.entries.entry(key.clone()).or_default();
        entry.withdrawal = None;
        entry.held = None;
        if std::mem::take(&mut entry.unproven) {
            // It is applied even if its fields look settled.
            entry.settled = None;
            entry.known.fields = None;
        }
        let same = entry.desired.as_ref().is_some_and(|known| {
            known.hash == desired.hash
                && known.claims == desired.claims
                && known.preserve == desired.preserve
                && known.api_version == desired.api_version
        });
        entry.desired = Some(desired);
        if same && let Some(live) = &entry.settled {
            let report = report(key, entry, v1::ApplyResult::Applied, &live.uid.clone());
            entry.reported = Some(report.clone());
            return Some(report);
        }
        entry.settled = None;
        entry.was_settled &= same;
        entry.failures = 0;
        entry.reported = None;
        self.schedule(key, now);
        None
    }

    /// The trace that the work on an object belongs to.
    pub(super) fn set_trace(&mut self, key: &Key, trace: Option<TraceContext>) {
        if let Some(entry) = self.entries.get_mut(key) {
            entry.trace = trace;
        }
    }

    /// The trace that the work on an object belongs to.
    pub(super) fn trace(&self, key: &Key) -> Option<TraceContext> {
        self.entries.get(key)?.trace
    }

    /// Withdraws an object. `agreed`: at once; otherwise it waits for [`Table::release_held`].
    pub(super) fn withdraw(
        &mut self,
        key: &Key,
        withdrawal: Withdrawal,
        agreed: bool,
        now: Instant,
    ) {
        let entry = self.entries.entry(key.clone()).or_default();
        if !agreed {
            entry.held = Some(withdrawal);
            return;
        }
        entry.start_withdrawal(withdrawal);
        self.schedule(key, now);
    }

    /// Controller and agent agree: carry out held withdrawals.
    pub(super) fn release_held(&mut self, now: Instant) {
        let held: Vec<_> = self
            .entries
            .iter_mut()
            .filter_map(|(key, entry)| Some((key.clone(), entry.held.take()?)))
            .collect();
        for (key, withdrawal) in held {
            self.withdraw(&key, withdrawal, true, now);
        }
    }

    /// The inventory comparison restarts: drop held withdrawals; the controller orders them again.
    pub(super) fn drop_held(&mut self) {
        for entry in self.entries.values_mut() {
            entry.held = None;
        }
        self.entries.retain(|_, entry| !entry.is_empty());
    }

    /// An object with our marks, from the first list of its kind: its state and, unless others wrote to it since, what we
    /// applied. A removed field leaves no trace, so only the hash proves that it is all of the manifest.
    pub(super) fn found(&mut self, key: &Key, object: &serde_json::Value, now: Instant) {
        let live = Live::of(object);
        let entry = self.entries.entry(key.clone()).or_default();
        if entry.desired.is_some() || entry.live.is_some() || entry.withdrawal.is_some() {
            self.observed(key, live, now);
            return;
        }
        entry.known.uid = Some(live.uid.clone());
        // Objects without claims, which are namespaces that others needed, are not kept in sync.
        let claimed = !claims(&live.claims).is_empty() && !live.terminating;
        let applied = extract(object).filter(|_| claimed);
        entry.unproven = !applied.as_ref().is_some_and(is_whole);
        if let Some(manifest) = applied
            && !(entry.unproven && touched_since_apply(object))
        {
            entry.known.fields = live.fields;
            entry.settled = Some(live.clone());
            entry.was_settled = true;
            entry.desired = Some(Desired {
                hash: live.hash.clone(),
                claims: live.claims.clone(),
                preserve: live.preserve,
                api_version: object["apiVersion"].as_str().unwrap_or_default().to_owned(),
                manifest: manifest.to_string().into(),
                overwrite: false,
                if_absent: false,
            });
        }
        entry.live = Some(live);
    }

    /// Records the current state of an object with our marks.
    pub(super) fn observed(&mut self, key: &Key, live: Live, now: Instant) {
        let entry = self.entries.entry(key.clone()).or_default();
        entry.event_meanwhile |= self.queue.is_running(key);
        let changed = entry.settled.as_ref().is_some_and(|settled| *settled != live);
        entry.live = Some(live);
        if changed {
            entry.settled = None;
            self.schedule(key, now);
        }
    }

    /// An object was deleted, or lost its label. Returns whether a status of it had been reported.
    pub(super) fn gone(&mut self, key: &Key, uid: &str, now: Instant) -> bool {
        let Some(entry) = self.entries.get_mut(key) else { return false };
        if entry.live.as_ref().is_some_and(|live| live.uid != uid) {
            return false;
        }
        entry.event_meanwhile |= self.queue.is_running(key);
        entry.live = None;
        entry.settled = None;
        // Work that waited for the deletion of the old object continues at once.
        entry.failures = 0;
        let known = entry.status.take().is_some();
        if entry.is_empty() {
            self.queue.cancel(key);
            self.entries.remove(key);
        } else {
            self.schedule(key, now);
        }
        known
    }

    /// Keys of a kind that were on the member and are not in `seen`, with their uids.
    #[must_use]
    pub(super) fn missing(&self, kind: &GroupKind, seen: &BTreeSet<Key>) -> Vec<(Key, String)> {
        self.of_kind(kind)
            .filter(|(key, _)| !seen.contains(*key))
            .filter_map(|(key, entry)| Some((key.clone(), entry.live.as_ref()?.uid.clone())))
            .collect()
    }

    /// Whether the table has entries of a kind.
    #[must_use]
    pub(super) fn uses(&self, kind: &GroupKind) -> bool {
        self.of_kind(kind).next().is_some()
    }

    fn of_kind(&self, kind: &GroupKind) -> impl Iterator<Item = (&Key, &ObjectEntry)> {
        let first = Key { kind: kind.clone(), namespace: String::new(), name: String::new() };
        self.entries.range(first..).take_while(move |(key, _)| key.kind == *kind)
    }

    /// Kinds with entries.
    #[must_use]
    pub(super) fn kinds(&self) -> BTreeSet<GroupKind> {
        self.entries.keys().map(|key| key.kind.clone()).collect()
    }

    /// Namespaces with entries.
    #[must_use]
    pub(super) fn namespaces(&self) -> BTreeSet<String> {
        self.entries.keys().map(|key| key.namespace.clone()).filter(|ns| !ns.is_empty()).collect()
    }

    /// The `apiVersion` in which an object of the kind is desired.
    #[must_use]
    pub(super) fn version_of(&self, kind: &GroupKind) -> Option<String> {
        self.of_kind(kind).find_map(|(_, entry)| Some(entry.desired.as_ref()?.api_version.clone()))
    }

    /// The key's work, if any is left.
    #[must_use]
    pub(super) fn work(&self, key: &Key) -> Option<Work> {
        let entry = self.entries.get(key)?;
        if let Some(withdrawal) = &entry.withdrawal {
            return Some(Work::Withdraw(withdrawal.clone(), entry.known.uid.clone()));
        }
        let desired = entry.desired.as_ref().filter(|_| entry.settled.is_none())?;
        Some(Work::Apply(desired.clone(), entry.known.clone()))
    }

    /// A job ended. Returns a report for the controller, unless it would repeat the last one.
    pub(super) fn done(
        &mut self,
        key: &Key,
        work: &Work,
        outcome: Outcome,
        now: Instant,
    ) -> Option<v1::Applied> {
        self.queue.finish(key);
        let entry = self.entries.get_mut(key)?;
        // The order may have changed meanwhile: what the job learned about the object still counts.
        let current = match work {
            Work::Apply(desired, _) => {
                entry.withdrawal.is_none() && entry.desired.as_ref() == Some(desired)
            }
            Work::Withdraw(withdrawal, _) => entry.withdrawal.as_ref() == Some(withdrawal),
        };
        let watched = entry.differs_from_watch(&outcome).then(|| entry.live.clone());
        entry.event_meanwhile = false;
        let Some(learned) = entry.learn(key, outcome, current) else {
            self.schedule_at(key, now + OVERDUE);
            return None;
        };
        let overtaken = watched.is_some();
        if let Some(live) = watched {
            entry.live = live;
            entry.settled = None;
        }
        if !current || overtaken {
            self.schedule(key, now);
            return None;
        }
        let wait = match learned.result {
            v1::ApplyResult::Failed => Some(FAILED),
            v1::ApplyResult::Waiting => Some(WAITING),
            v1::ApplyResult::Conflict => Some(CONFLICT),
            _ => None,
        };
        let mut message = report(key, entry, learned.result, &learned.uid);
        (message.reason, message.message) = learned.error.unwrap_or_default();
        let repeated = entry.reported.as_ref() == Some(&message);
        entry.reported = Some(message.clone());
        match wait {
            Some(backoff) => {
                entry.failures += 1;
                let wait = backoff.half_jitter(entry.failures, &self.jitter);
                self.schedule_at(key, now + wait);
            }
            None => {
                entry.failures = 0;
                entry.trace = None;
                entry.withdrawal = None;
                if entry.is_empty() {
                    self.queue.cancel(key);
                    self.entries.remove(key);
                }
            }
        }
        (!repeated).then_some(message)
    }

    /// Objects of a kind that are on the member.
    #[must_use]
    pub(super) fn live(&self, kind: &GroupKind) -> Vec<Key> {
        let live = self.of_kind(kind).filter(|(_, entry)| entry.live.is_some());
        live.map(|(key, _)| key.clone()).collect()
    }

    /// Fields that the member kept are no longer kept: applies every object of a kind again.
    pub(super) fn apply_again(&mut self, kind: &GroupKind, now: Instant) {
        let desired = self.of_kind(kind).filter(|(_, entry)| entry.desired.is_some());
        let keys: Vec<_> = desired.map(|(key, _)| key.clone()).collect();
        for key in keys {
            if let Some(entry) = self.entries.get_mut(&key) {
                entry.settled = None;
                // It is not drift.
                entry.was_settled = false;
                entry.known.fields = None;
            }
            self.schedule(&key, now);
        }
    }

    /// Retries objects that failed with this reason now: what they were missing may exist.
    pub(super) fn wake(&mut self, reason: &str, now: Instant) {
        let keys: Vec<_> = self
            .entries
            .iter()
            .filter(|(_, entry)| entry.reported.as_ref().is_some_and(|last| last.reason == reason))
            .map(|(key, _)| key.clone())
            .collect();
        for key in keys {
            if self.queue.has(&key) {
                self.schedule_at(&key, now);
            }
        }
    }

    /// Reports for a controller without state: every object that is not as desired, and why.
    #[must_use]
    pub(super) fn open_reports(&self) -> Vec<(Key, v1::Applied)> {
        self.entries
            .iter()
            .filter(|(_, entry)| entry.settled.is_none())
            .filter_map(|(key, entry)| Some((key.clone(), entry.reported.clone()?)))
            .collect()
    }

    /// The latest statuses.
    #[must_use]
    pub(super) fn statuses(&self) -> Vec<(Key, v1::Status)> {
        self.entries
            .iter()
            .filter_map(|(key, entry)| Some((key.clone(), entry.status.clone()?)))
            .collect()
    }

    /// The latest status of an existing object.
    #[must_use]
    pub(super) fn status(&self, key: &Key) -> Option<&v1::Status> {
        self.entries.get(key)?.status.as_ref()
    }

    /// Stores a status; returns whether it differs from the last.
    pub(super) fn set_status(&mut self, key: &Key, status: v1::Status) -> bool {
        let Some(entry) = self.entries.get_mut(key) else { return false };
        // A reading by users' rules takes time: the object may have been replaced.
        if entry.live.as_ref().is_none_or(|live| live.uid != status.object_uid) {
            return false;
        }
        let changed = entry.status.as_ref() != Some(&status);
        entry.status = Some(status);
        changed
    }

    /// What the member holds, or will hold by orders of earlier sessions.
    #[must_use]
    pub(super) fn inventory(&self) -> BTreeMap<Key, Line> {
        self.entries.iter().filter_map(|(key, entry)| Some((key.clone(), entry.line()?))).collect()
    }

    fn schedule(&mut self, key: &Key, at: Instant) {
        if self.work(key).is_some() {
            self.schedule_at(key, at);
        }
    }

    fn schedule_at(&mut self, key: &Key, at: Instant) {
        let Some(entry) = self.entries.get(key) else { return };
        let rank = Rank::of(&key.kind);
        let place = match entry.withdrawal {
            Some(_) => Place::Withdraw(Reverse(rank)),
            None => Place::Apply(rank),
        };
        self.queue.schedule(key, place, at, entry.failures == 0);
    }
}

impl ObjectEntry {
    /// Its line in the inventory: what the member holds, or what was ordered in an earlier session and is not applied
    /// yet. That has no hash, so that the controller orders it again, or its removal. Nor has an object that is being removed:
    /// a controller that wants it again would take it for one that stays.
    fn line(&self) -> Option<Line> {
        if let Some(live) = &self.live {
            let stays = !self.unproven && self.withdrawal.is_none();
            return Some(Line {
                hash: if stays { live.hash.clone() } else { String::new() },
                claims: claims(&live.claims),
                preserve: live.preserve,
                uid: live.uid.clone(),
            });
        }
        let ordered = self.desired.as_ref()?;
        Some(Line {
            hash: String::new(),
            claims: claims(&ordered.claims),
            preserve: ordered.preserve,
            uid: String::new(),
        })
    }

    fn start_withdrawal(&mut self, withdrawal: Withdrawal) {
        self.desired = None;
        self.settled = None;
        self.was_settled = false;
        self.failures = 0;
        self.reported = None;
        self.withdrawal = Some(withdrawal);
    }

    /// Whether events that came during an apply left the object in another state than the apply returned. Which of the
    /// two is newer is unknown, so the object has to be read again.
    fn differs_from_watch(&self, outcome: &Outcome) -> bool {
        let Outcome::Applied(Ok(Applied::Done { live, .. })) = outcome else { return false };
        self.event_meanwhile && self.live.as_ref() != Some(live)
    }

    /// Takes in what a call showed about the object. `current`: the call did what is still asked for. `None`: nothing was
    /// done, because the lease is overdue.
    fn learn(&mut self, key: &Key, outcome: Outcome, current: bool) -> Option<Learned> {
        let learned = |result, uid| Learned { result, uid, error: None };
        let but = |result, uid, reason: &str, message| Learned {
            result,
            uid,
            error: Some((reason.to_owned(), message)),
        };
        Some(match outcome {
            Outcome::Applied(Ok(Applied::Done { live, written })) => {
                self.drift += u64::from(written && current && self.was_settled);
                if live.marked {
                    self.known = Known { uid: Some(live.uid.clone()), fields: live.fields };
                    self.live = Some(live.clone());
                }
                let uid = live.uid.clone();
                if current {
                    self.settled = Some(live);
                    self.was_settled = true;
                }
                learned(v1::ApplyResult::Applied, uid)
            }
            Outcome::Applied(Ok(Applied::Conflict { uid, managers })) => but(
                v1::ApplyResult::Conflict,
                uid,
                "Conflict",
                format!(
                    "{key} exists on the member and is not Atoll's ({managers}); it is left alone (conflictResolution: Overwrite takes it over)"
                ),
            ),
            Outcome::Applied(Ok(Applied::Terminating { uid }))
            | Outcome::Withdrawn(Ok(Withdrawn::Terminating { uid })) => {
                but(v1::ApplyResult::Waiting, uid, "Terminating", format!("{key} is being deleted"))
            }
            Outcome::Withdrawn(Ok(Withdrawn::Removed)) => {
                self.live = None;
                learned(v1::ApplyResult::Removed, String::new())
            }
            Outcome::Withdrawn(Ok(Withdrawn::Released { uid })) => {
                self.live = None;
                learned(v1::ApplyResult::Released, uid)
            }
            Outcome::Withdrawn(Ok(Withdrawn::NotOurs { uid, .. })) => {
                let message = format!("{key} has another uid; it is left alone");
                but(v1::ApplyResult::NotOurs, uid, "NotOurs", message)
            }
            Outcome::Applied(Err(MemberError::LeaseOverdue))
            | Outcome::Withdrawn(Err(MemberError::LeaseOverdue)) => return None,
            Outcome::Applied(Err(error)) | Outcome::Withdrawn(Err(error)) => {
                but(v1::ApplyResult::Failed, String::new(), &error.reason(), error.message())
            }
        })
    }

    /// Whether the entry holds no state and no work.
    fn is_empty(&self) -> bool {
        self.desired.is_none()
            && self.live.is_none()
            && self.withdrawal.is_none()
            && self.held.is_none()
    }
}

fn report(key: &Key, entry: &ObjectEntry, result: v1::ApplyResult, uid: &str) -> v1::Applied {
    let withdrawing = entry.withdrawal.is_some();
    let hash = entry.desired.as_ref().filter(|_| !withdrawing).map(|desired| desired.hash.clone());
    v1::Applied {
        key: Some(key.to_wire()),
        hash: hash.unwrap_or_default(),
        object_uid: uid.to_owned(),
        result: result.into(),
        reason: String::new(),
        message: String::new(),
        drift: entry.drift,
    }
}
