//! What the leader records in history in addition to decisions: how far each decision has come, events of members, and
//! the authors of a decision's inputs.
//!
//! The leader records all of it as observed, through the recorder's queue: nothing is written to the hub, and nothing
//! waits. The next leader recovers unobserved events from the objects, with their times or marked as noticed later; the
//! rest is missing in history, never invented.

pub(crate) mod absence;
pub(crate) mod inputs;
mod lag;
mod member_events;
mod member_use;
mod outbox;
pub(crate) mod query;
pub(crate) mod recovery;
mod rollout;
pub(crate) mod unconfirmed;

use std::collections::BTreeMap;
use std::sync::Arc;

use atoll_api::binding::{DecisionRecord, ObjectReference, TargetCluster};
use atoll_api::{Cluster, ClusterName};
use atoll_history::{BindingRef, Event, MemberEvent, MemberEventKind, Milestone, Stage};
use jiff::Timestamp;
use kube::Resource;
use tokio::time::Instant;

pub(crate) use lag::turned;
pub(crate) use outbox::Outbox;

use crate::commit::draft::Decided;
use crate::env::Env;
use crate::events::{self, Cause, Note, Severity};
use crate::index::Index;
use crate::index::key::BindingKey;
use crate::index::rows::Binding;
use crate::lifecycle::rollouts::Rollouts;
use crate::placements::Placements;
use crate::telemetry::{DecisionTraces, Steps};
use member_use::Samples;
use rollout::RolloutProgress;

/// What this leader records.
pub(crate) struct Audit {
    env: Arc<Env>,
    /// Progress of the decisions made in this leadership.
    progress: RolloutProgress,
    /// Clusters in the state last recorded.
    last_audited: BTreeMap<ClusterName, Arc<Cluster>>,
    samples: Samples,
    /// Traces of the decisions that members are applying.
    traces: DecisionTraces,
}

impl Audit {
    pub(crate) fn new(env: Arc<Env>) -> Self {
        let traces = DecisionTraces::new(env.tracer.clone(), env.clock.clone());
        Self {
            env,
            progress: RolloutProgress::default(),
            last_audited: BTreeMap::new(),
            samples: Samples::default(),
            traces,
        }
    }

    fn note(&self, event: Event) {
        self.env.recorder.note(event);
    }

    /// A decision, made at `at`, was committed.
    pub(crate) fn committed(
        &mut self,
        binding: &Binding,
        decided: &Decided,
        parent: Option<&DecisionRecord>,
        before: &[TargetCluster],
        at: Timestamp,
    ) {
        let now = self.env.clock.now();
        let note = |decision, stage, at| {
            self.note(Event::Milestone(Milestone::of(decision, None, stage, at)));
        };
        note(&decided.record, Stage::Decided, at);
        note(&decided.record, Stage::Committed, now);
        if let Some(parent) = parent {
            note(parent, Stage::Superseded, now);
        }
        self.progress.begin(&binding.key, &decided.record, before, &decided.clusters);
    }

    /// A member reached a stage of the decision in force.
    pub(crate) fn reached(&mut self, key: &BindingKey, cluster: &ClusterName, stage: Stage) {
        let now = (self.env.clock.now(), Instant::now());
        let Some(reached) = self.progress.reached(key, cluster, stage, now) else { return };
        if let Some(after) = reached.after {
            match reached.milestone.stage {
                Stage::Applied => self.env.counters.latency.applied(cluster.as_str(), after),
                Stage::Healthy => self.env.counters.latency.healthy(cluster.as_str(), after),
                _ => {}
            }
        }
        self.traces.reached(key, &reached.milestone);
        self.note(Event::Milestone(reached.milestone));
    }

    /// Begins the trace of a decision that was committed.
    pub(crate) fn trace(&mut self, steps: &Steps<'_>) {
        self.traces.begin(steps, self.progress.awaited(steps.key, &steps.record.id));
    }

    /// The members' orders are being made.
    pub(crate) fn dispatching(&mut self, key: &BindingKey) {
        self.traces.dispatching(key);
    }

    /// The traces that are open.
    pub(crate) fn traces(&self) -> &DecisionTraces {
        &self.traces
    }

    /// Ends traces that have been open for too long.
    pub(crate) fn expire_traces(&mut self, now: Instant) {
        self.traces.expire(now);
    }

    /// A member reported the health of its copy.
    pub(crate) fn note_health(
        &mut self,
        placements: &Placements,
        binding: &Binding,
        cluster: &ClusterName,
    ) {
        let key = &binding.key;
        if !self.progress.awaits(key, cluster, &Stage::Healthy) {
            return;
        }
        let share = binding.spec.clusters.iter().find(|target| target.name == *cluster);
        let Some(share) = share else { return };
        let wanted = binding.spec.replicas.map(|_| share.replicas);
        if placements.get(key, cluster).is_some_and(|placement| placement.is_healthy(wanted)) {
            self.reached(key, cluster, Stage::Healthy);
        }
    }

    /// The binding was deleted.
    pub(crate) fn forget(&mut self, key: &BindingKey) {
        self.progress.forget(key);
        self.traces.forget(key);
    }

    /// A Cluster was created, changed or deleted.
    pub(crate) fn member_changed(&mut self, index: &Index, name: &ClusterName) {
        let new = index.cluster(name).cloned();
        let old = self.last_audited.get(name).cloned();
        let now = self.env.clock.now();
        for event in member_events::between(old.as_deref(), new.as_deref(), now) {
            // A new leader's first sight of a Cluster is not an event: the last leader recorded it, or recovery does.
            if let Some(cluster) = old.as_ref().map(|old| new.as_ref().unwrap_or(old)) {
                self.publish(cluster, &event);
            }
            self.note(Event::Member(event));
        }
        if let Some(sample) = new.as_deref().and_then(|new| self.samples.take(new, now)) {
            self.note(Event::Member(sample));
        }
        match new {
            Some(new) => self.last_audited.insert(name.clone(), new),
            None => {
                self.samples.forget(name);
                self.env.counters.latency.forget(name.as_str());
                self.last_audited.remove(name)
            }
        };
    }

    /// Records events of members that history lacked.
    pub(crate) fn members_missed(&self, missed: Vec<MemberEvent>) {
        for event in missed {
            self.note(Event::Member(event));
        }
    }

    /// Records manifests that changed without their templates, when due.
    pub(crate) fn rollouts(&self, rollouts: &mut Rollouts, now: Instant) {
        for event in rollouts.records(now, self.env.clock.now()) {
            self.note(Event::Member(event));
        }
    }

    /// The controller's self-suspicion because of a member's silence begins or ends.
    pub(crate) fn suspicion(&self, cluster: &ClusterName, begins: bool, message: &str) {
        let now = self.env.clock.now();
        self.note(Event::Member(member_events::suspected(cluster, begins, message, now)));
    }

    /// Publishes a member event of this leadership as an Event on the Cluster.
    fn publish(&self, cluster: &Cluster, event: &MemberEvent) {
        let (severity, words) = match event.kind {
            MemberEventKind::Lost => (Severity::Warning, "members were lost"),
            MemberEventKind::Other(_) => (Severity::Warning, "members"),
            MemberEventKind::Ready => (Severity::Normal, "members are back"),
            MemberEventKind::Joined
            | MemberEventKind::Left
            | MemberEventKind::Cordoned
            | MemberEventKind::Uncordoned
            | MemberEventKind::Draining
            | MemberEventKind::Drained
            | MemberEventKind::Terminating => (Severity::Normal, "members"),
            // The taints of health repeat what is known; users know the taints that they add.
            _ => return,
        };
        let reason = event.kind.to_string();
        let about = ObjectReference {
            api_version: Cluster::api_version(&()).into_owned(),
            kind: Cluster::kind(&()).into_owned(),
            namespace: None,
            name: event.cluster.to_string(),
            uid: cluster.metadata.uid.clone(),
        };
        self.env.notes.post(Note {
            about,
            id: events::id(&[&event.cluster, &reason, &event.at.to_string()]),
            message: match event.message.is_empty() {
                true => event.reason.clone(),
                false => format!("{}: {}", event.reason, event.message),
            },
            cause: Some(Cause { key: format!("member {reason}"), words }),
            reason,
            severity,
            at: event.at,
            repeat_after: None,
        });
    }
}

/// Reference to a binding in history.
pub(crate) fn binding_ref(binding: &Binding) -> BindingRef {
    let namespaced = binding.key.namespace().is_some();
    BindingRef {
        kind: if namespaced { "ResourceBinding" } else { "ClusterResourceBinding" }.to_owned(),
        namespace: binding.key.namespace().map(str::to_owned),
        name: binding.key.name().to_owned(),
        uid: binding.uid.clone(),
    }
}
