//! The synchronous core of a member: takes changes in, returns the next writes and the next wake-up time.
//!
//! It does no I/O and reads no clock, so tests drive it with a fake server and fake time.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use atoll_api::Backoff;
use jiff::Timestamp;

use super::concern::{Concern, Task, concerned};
use super::memory::{Failure, Memory};
use crate::index::kind::Kind;
use crate::index::object::{Key, Object};
use crate::index::{Change, Index};
use crate::member::Settings;
use crate::writes::execute::{Answer, WriteError};
use crate::writes::{Plan, Write};
use crate::{kubelet, network, scheduler, volumes, workloads};

/// Backoff after failed writes of a task.
const RETRY: Backoff = Backoff { first: Duration::from_millis(200), most: Duration::from_secs(30) };
/// Alarms fire at whole multiples of this: Pods started within one interval become ready together, and their owners
/// report once.
const ALARM_GRAIN: Duration = Duration::from_millis(100);

/// The inputs of a behaviour.
#[derive(Debug, Clone, Copy)]
pub(crate) struct View<'a> {
    pub(crate) index: &'a Index,
    pub(crate) memory: &'a Memory,
    pub(crate) settings: &'a Settings,
    pub(crate) now: Timestamp,
}

impl View<'_> {
    /// The server's message when it last refused to create something for this task.
    pub(crate) fn refused_create(&self, concern: Concern, key: &Key) -> Option<&str> {
        self.memory.failures.get(&(concern, key.clone()))?.refused_create.as_deref()
    }
}

/// A task and the writes it needs.
#[derive(Debug)]
pub(crate) struct Work {
    pub(crate) task: Task,
    pub(crate) writes: Vec<Write>,
    /// While a failed task waits for its next attempt, only its status is written; this does not count as success.
    pub(crate) status_only: bool,
}

/// Index, memory and queue of one member.
#[derive(Debug)]
pub(crate) struct Brain {
    pub(crate) index: Index,
    memory: Memory,
    settings: Settings,
    dirty: BTreeSet<Task>,
    alarms: BTreeSet<(Timestamp, Task)>,
    alarm_of: BTreeMap<Task, Timestamp>,
}

impl Brain {
    pub(crate) fn new(settings: Settings, now: Timestamp) -> Self {
        Self {
            index: Index::default(),
            memory: Memory::new(now),
            settings,
            dirty: BTreeSet::new(),
            alarms: BTreeSet::new(),
            alarm_of: BTreeMap::new(),
        }
    }

    /// Applies a change from a watch.
    pub(crate) fn observe(&mut self, change: Option<Change>, now: Timestamp) {
        self.take_in(change, false, now);
    }

    fn take_in(&mut self, change: Option<Change>, ours: bool, now: Timestamp) {
        let Some(change) = change else { return };
        self.memory.note(&change, &self.index, ours, now);
        concerned(&self.index, &change, &mut self.dirty);
    }

    /// The next writes, or `None` if nothing is due before [`Brain::wake_at`].
    pub(crate) fn next_work(&mut self, now: Timestamp) -> Option<Work> {
        while let Some((at, task)) = self.alarms.first().cloned() {
            if at > now {
                break;
            }
            self.silence(&task);
            self.dirty.insert(task);
        }
        while let Some(task) = self.dirty.pop_first() {
            let Plan { mut writes, again } = self.plan(&task, now);
            self.silence(&task);
            let retry_at = self.memory.failures.get(&task).map(|failure| failure.retry_at);
            let retry_at = retry_at.filter(|retry_at| *retry_at > now);
            if retry_at.is_some() {
                writes.retain(|write| {
                    matches!(write, Write::PatchStatus { target, .. } if target.key == task.1)
                });
            } else if writes.is_empty() {
                self.memory.failures.remove(&task);
            }
            if let Some(at) = retry_at.into_iter().chain(again).min() {
                self.set_alarm(&task, at);
            }
            if !writes.is_empty() {
                return Some(Work { task, writes, status_only: retry_at.is_some() });
            }
        }
        None
    }

    /// When work may become due without a change.
    pub(crate) fn wake_at(&self) -> Option<Timestamp> {
        self.alarms.first().map(|(at, _)| *at)
    }

    /// Applies the answer to a write.
    pub(crate) fn answered(&mut self, write: &Write, answer: Answer, now: Timestamp) {
        let change = match answer {
            Answer::Is(object) => self.index.written(*object),
            Answer::Gone => match write {
                Write::Create { .. } => None,
                Write::Patch { target, .. }
                | Write::PatchStatus { target, .. }
                | Write::Bind { target, .. }
                | Write::Delete { target, .. } => {
                    self.index.erased(target.kind, &target.key, &target.uid)
                }
            },
            Answer::Done => {
                if let Write::Bind { target, node } = write {
                    self.memory.assume(&target.uid, node);
                }
                None
            }
        };
        self.take_in(change, true, now);
    }

    /// All writes succeeded.
    pub(crate) fn completed(&mut self, work: &Work) {
        if !work.status_only {
            self.memory.failures.remove(&work.task);
        }
    }

    /// A write of a task failed; the rest of its plan is discarded.
    pub(crate) fn failed(
        &mut self,
        task: &Task,
        write: &Write,
        error: &WriteError,
        now: Timestamp,
    ) {
        let before = self.memory.failures.get(task);
        let attempts = before.map_or(0, |failure| failure.attempts) + 1;
        let retry_at = now + RETRY.ceiling(attempts);
        let refused_create = match (write, error) {
            (Write::Create { .. }, WriteError::Refused { message, .. }) if !error.is_race() => {
                Some(message.clone())
            }
            _ => before.and_then(|failure| failure.refused_create.clone()),
        };
        if refused_create.is_some() && matches!(write, Write::Create { .. }) {
            self.dirty.insert(task.clone());
        }
        self.memory.failures.insert(task.clone(), Failure { attempts, retry_at, refused_create });
        self.set_alarm(task, retry_at);
    }

    fn set_alarm(&mut self, task: &Task, at: Timestamp) {
        self.silence(task);
        let at = on_the_grain(at);
        self.alarms.insert((at, task.clone()));
        self.alarm_of.insert(task.clone(), at);
    }

    fn silence(&mut self, task: &Task) {
        if let Some(at) = self.alarm_of.remove(task) {
            self.alarms.remove(&(at, task.clone()));
        }
    }

    fn plan(&self, (concern, key): &Task, now: Timestamp) -> Plan {
        let view = View { index: &self.index, memory: &self.memory, settings: &self.settings, now };
        let with = |kind: Kind, behave: fn(&View<'_>, &Object) -> Plan| {
            self.index.get(kind, key).map(|object| behave(&view, object)).unwrap_or_default()
        };
        match concern {
            Concern::ServiceAccount => with(Kind::Namespace, network::service_account::reconcile),
            Concern::Node => with(Kind::Node, kubelet::node::reconcile),
            Concern::Volume => volumes::reconcile(&view, key),
            Concern::Deployment => with(Kind::Deployment, workloads::deployment::reconcile),
            Concern::StatefulSet => with(Kind::StatefulSet, workloads::stateful_set::reconcile),
            Concern::DaemonSet => with(Kind::DaemonSet, workloads::daemon_set::reconcile),
            Concern::Job => with(Kind::Job, workloads::job::reconcile),
            Concern::CronJob => with(Kind::CronJob, workloads::cron_job::reconcile),
            Concern::ReplicaSet => with(Kind::ReplicaSet, workloads::replica_set::reconcile),
            Concern::Scheduler => scheduler::reconcile(&view),
            Concern::Kubelet => with(Kind::Pod, kubelet::reconcile),
            Concern::Service => with(Kind::Service, network::reconcile),
        }
    }
}

/// The first multiple of [`ALARM_GRAIN`] that is not before `at`.
fn on_the_grain(at: Timestamp) -> Timestamp {
    let grain = i64::try_from(ALARM_GRAIN.as_millis()).unwrap_or(1);
    let millis = at.as_millisecond() + i64::from(at.subsec_nanosecond() % 1_000_000 != 0);
    Timestamp::from_millisecond(millis + (-millis).rem_euclid(grain)).unwrap_or(at)
}
