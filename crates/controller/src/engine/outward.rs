//! Sends committed decisions to members, and ends bindings.

use std::collections::{BTreeMap, BTreeSet};

use atoll_api::policy::{ConflictResolution, PurgeMode};
use atoll_history::{BindingRef, Record, RecordState, Stage, Withdrawal as Withdrawn};
use atoll_scheduler::Session;
use tokio::time::Instant;

use super::Engine;
use super::jobs::{JobDone, Purpose};
use super::work::Step;
use crate::commit::{Action, Write, draft};
use crate::dispatch::{self, Inputs, plan};
use crate::index::key::BindingKey;
use crate::index::rows::Binding;
use crate::leader::LeaderTerm;
use crate::lifecycle::eviction;
use crate::lifecycle::withdrawal::{Next, Withdrawal};
use crate::members::{Proof, Withdrawal as How};
use crate::queue::Done;
use crate::status::views::Certainty;
use atoll_api::binding::ResourceHealth;

/// A binding's members, for plans and eviction tasks.
pub(super) struct MembersOf<'a> {
    engine: &'a Engine,
    key: &'a BindingKey,
}

impl plan::Members for MembersOf<'_> {
    fn connected(&self, cluster: &str) -> bool {
        self.engine.connected(cluster)
    }

    fn sent(&self, cluster: &str) -> Option<Option<i64>> {
        self.engine.sent.get(self.key, cluster).map(|handed| handed.replicas)
    }
}

impl eviction::Members for MembersOf<'_> {
    fn is_healthy(&self, cluster: &str, replicas: Option<i64>) -> bool {
        let Some(view) = self.engine.views.get(self.key, cluster) else { return false };
        let given = self.engine.sent.get(self.key, cluster);
        view.certainty == Certainty::Fresh
            && view.observed
            && view.trouble.is_none()
            && given.is_some_and(|given| given.hash == view.hash)
            && view.item.health == ResourceHealth::Healthy
            && replicas.is_none_or(|wanted| view.item.ready_replicas.unwrap_or_default() >= wanted)
    }

    fn has_confirmed(&self, cluster: &str) -> bool {
        let confirmed = self.engine.confirmed.get(self.key);
        confirmed.is_some_and(|confirmed| confirmed.contains(cluster))
    }

    fn exists(&self, cluster: &str) -> bool {
        self.engine.index.cluster(cluster).is_some()
    }
}

impl Engine {
    pub(super) fn members_of<'a>(&'a self, binding: &'a Binding) -> MembersOf<'a> {
        MembersOf { engine: self, key: &binding.key }
    }

    pub(super) fn connected(&self, cluster: &str) -> bool {
        self.live.get(cluster).is_some_and(|live| live.session == Session::Connected)
    }

    /// Sends a binding's committed decision to members, as far as it differs from what was sent. Uses the binding only
    /// as read from the hub or its watch: only durable decisions reach a member.
    pub(super) fn dispatch(&mut self, key: &BindingKey) {
        if self.led.is_none() {
            return;
        }
        let Some(binding) = self.index.binding(key).cloned() else { return };
        if binding.deleting() {
            return;
        }
        if self.index.refusal(&binding).is_some() {
            self.verdicts.set(&binding, BTreeSet::new(), BTreeSet::new(), true);
            return;
        }
        if binding.spec.decision.is_none() {
            return;
        }
        let template_key = binding.template();
        let template = self.index.template(&template_key).cloned();
        let template = template.filter(|template| {
            binding.spec.resource.uid.as_deref().is_none_or(|u| u == template.uid)
        });
        let frozen = self.index.frozen(&template_key.kind).is_some() || template.is_none();
        let spread = template.as_ref().and_then(|t| self.index.spread_in_force(&t.key)).cloned();
        let steered =
            spread.is_some() || template.as_ref().is_some_and(|t| t.workload_policy.is_some());
        let mut plan = plan::plan(&binding.spec, steered, &self.members_of(&binding));
        // A copy that is never purged would keep a departing member forever: it stays there, without our marks.
        let freed: BTreeSet<String> = binding
            .spec
            .graceful_eviction_tasks
            .iter()
            .filter(|task| task.purge_mode == PurgeMode::Never && self.leaves(&task.from_cluster))
            .map(|task| task.from_cluster.clone())
            .filter(|cluster| binding.spec.clusters.iter().all(|target| target.name != *cluster))
            .collect();
        plan.retain(|cluster, _| !freed.contains(cluster));
        let (mut wanted, mut left) = (BTreeSet::new(), freed.clone());
        for (cluster, presence) in &plan {
            match presence {
                plan::Presence::Want { .. } => wanted.insert(cluster.clone()),
                plan::Presence::Leave(_) => left.insert(cluster.clone()),
            };
        }
        self.verdicts.set(&binding, wanted, left, frozen);
        let Some(template) = template.filter(|_| !frozen) else { return };
        let namespace = template.key.namespace.as_ref();
        let namespace =
            namespace.and_then(|name| self.index.namespace(name)).map(|n| n.object.clone());
        let claim = binding.uid().to_owned();
        let source = self.sent.source(key, &template);
        self.unrendered.remove(key);
        // Both for all clusters at once: each call parses the selectors of all subsets.
        let shares = &binding.spec.clusters;
        let concerned = plan.keys().chain(shares.iter().map(|share| &share.name));
        let subsets: BTreeMap<&str, usize> = spread
            .iter()
            .flat_map(|spread| concerned.clone().map(move |name| (spread, name)))
            .filter_map(|(spread, name)| {
                let row = self.index.cluster(name)?;
                Some((name.as_str(), dispatch::subset_of(spread, row)?))
            })
            .collect();
        let subset = |name: &str| subsets.get(name).copied();
        let ordinals = match spread.is_some() && template.key.kind.kind == "StatefulSet" {
            true => dispatch::ordinals_before(shares, plan.keys().map(String::as_str), subset),
            false => BTreeMap::new(),
        };
        for (cluster, presence) in &plan {
            let patch = spread.as_deref().zip(subset(cluster));
            let patch = patch.and_then(|(spread, at)| spread.spec.subsets.get(at)?.patch.as_ref());
            let ordinals = ordinals.get(cluster.as_str()).copied();
            let inputs = Inputs {
                source,
                claim: claim.clone(),
                namespace: namespace.as_deref().map(|object| object["metadata"]["labels"].clone()),
                patch: patch.cloned(),
                labels: dispatch::labels_for(&binding, cluster),
                ordinals,
                presence: *presence,
                preserve: binding.spec.preserve_resources_on_deletion,
                overwrite: binding.spec.conflict_resolution == ConflictResolution::Overwrite,
            };
            if self.sent.is_current(key, cluster, &inputs) {
                self.come_back(key, cluster);
                continue;
            }
            let order = dispatch::order(
                &binding,
                &template,
                namespace.as_deref(),
                patch,
                ordinals,
                cluster,
                *presence,
            );
            let order = match order {
                Ok(Some(order)) => order,
                Ok(None) => continue,
                Err(error) => {
                    tracing::warn!(%key, cluster, %error, "cannot be rendered");
                    self.unrendered.insert(key.clone(), error.to_string());
                    continue;
                }
            };
            self.counters.renders.inc();
            self.come_back(key, cluster);
            if self.sent.hand(key, cluster, &order, inputs, template.revision()) {
                let conflict = if order.overwrite {
                    ConflictResolution::Overwrite
                } else {
                    ConflictResolution::Abort
                };
                self.outlet.set_desired(cluster, &claim, order.objects, conflict);
                self.reached(key, cluster, Stage::Dispatched);
            }
        }
        let tasks = binding.spec.graceful_eviction_tasks.iter();
        let told_to_go = tasks.filter(|task| !task.keep && task.purge_mode != PurgeMode::Never);
        let given = self.sent.of(key).map(|(cluster, _)| cluster);
        let gone: BTreeSet<String> = given
            .chain(told_to_go.map(|task| &task.from_cluster))
            .chain(&freed)
            .filter(|cluster| !plan.contains_key(*cluster))
            .cloned()
            .collect();
        for cluster in gone {
            self.sent.take_back(key, &cluster);
            #[cfg(test)]
            if crate::mutants::is(crate::mutants::Mutant::LostAreNotTold)
                && binding.spec.graceful_eviction_tasks.iter().any(|task| !task.keep)
            {
                continue;
            }
            if self.leaving.entry(key.clone()).or_default().insert(cluster.clone()) {
                let how = if freed.contains(&cluster) { How::Release } else { How::Remove };
                self.outlet.withdraw(&cluster, &claim, how, Proof::NotTargeted);
            }
        }
    }

    /// Whether a member is leaving the federation.
    fn leaves(&self, cluster: &str) -> bool {
        let cluster = self.index.cluster(cluster);
        cluster.is_some_and(|cluster| cluster.metadata.deletion_timestamp.is_some())
    }

    /// A member that was ordered to remove the binding holds it again.
    fn come_back(&mut self, key: &BindingKey, cluster: &str) {
        for sets in [&mut self.leaving, &mut self.confirmed] {
            if let Some(set) = sets.get_mut(key) {
                set.remove(cluster);
            }
        }
    }

    /// One step of a binding's withdrawal.
    pub(super) fn withdraw(&mut self, binding: &Binding, term: LeaderTerm) -> Step {
        let key = &binding.key;
        let ours = |finalizer: &String| finalizer == atoll_api::marks::BINDING_FINALIZER;
        if !binding.metadata.finalizers.iter().flatten().any(ours) {
            return Step::Done(Done::Settled); // another finalizer keeps it
        }
        let now = Instant::now();
        if !self.withdrawals.contains_key(key) {
            self.begin_withdrawal(binding, now);
        }
        let Some(withdrawal) = self.withdrawals.get(key) else {
            return Step::Done(Done::Failed);
        };
        match withdrawal.next(now, |cluster| self.connected(cluster)) {
            Next::Confirmations(until) => Step::Done(Done::Waits(Vec::new(), Some(until))),
            Next::History => Step::Done(Done::Waits(Vec::new(), None)),
            Next::Record(unconfirmed) => self.record_withdrawal(binding, unconfirmed, term),
            Next::Release => {
                let write = Write {
                    key: key.clone(),
                    action: Action::Patch(draft::without_finalizer(binding)),
                    decision: None,
                };
                self.write(write, Purpose::Release)
            }
        }
    }

    fn begin_withdrawal(&mut self, binding: &Binding, now: Instant) {
        let key = &binding.key;
        let given = self.sent.of(key).map(|(cluster, _)| cluster.clone());
        let seen = self.views.of(key).map(|(cluster, _)| cluster.clone());
        let leaving = self.leaving.get(key).into_iter().flatten().cloned();
        let named = binding.clusters().map(str::to_owned);
        let members: BTreeSet<String> = named.chain(given).chain(seen).chain(leaving).collect();
        // A cluster that left the federation cannot confirm and holds no managed objects.
        let members: BTreeSet<String> =
            members.into_iter().filter(|cluster| self.index.cluster(cluster).is_some()).collect();
        let how =
            if binding.spec.preserve_resources_on_deletion { How::Release } else { How::Remove };
        self.verdicts.set(binding, BTreeSet::new(), BTreeSet::new(), false);
        for cluster in &members {
            self.outlet.withdraw(cluster, binding.uid(), how, Proof::BindingDeleted);
        }
        self.sent.forget(key);
        self.pace.forget(key);
        self.withdrawals.insert(key.clone(), Withdrawal::begin(members, now));
    }

    fn record_withdrawal(
        &mut self,
        binding: &Binding,
        unconfirmed: Vec<String>,
        term: LeaderTerm,
    ) -> Step {
        let key = &binding.key;
        let Some(withdrawal) = self.withdrawals.get_mut(key) else {
            return Step::Done(Done::Failed);
        };
        let at = binding.metadata.deletion_timestamp.as_ref().map(|time| time.0);
        for cluster in &unconfirmed {
            self.verdicts.unconfirmed(cluster, [binding.uid().to_owned()]);
        }
        let record = Record::withdrawn(
            binding_ref(binding),
            binding.spec.resource.clone(),
            binding.spec.decision.as_ref(),
            binding.spec.clusters.clone(),
            Withdrawn { clusters: withdrawal.members(), unconfirmed },
            at.unwrap_or_else(|| self.clock.now_seconds()),
            term.to_record(),
        );
        let id = record.record.id.clone();
        match self.recorder.record(record) {
            Ok(mut receipt) => {
                withdrawal.handed(id.clone());
                let key = key.clone();
                self.jobs.spawn(async move {
                    let state = receipt.settled().await;
                    JobDone::Recorded { key, id, state }
                });
                Step::Done(Done::Waits(Vec::new(), None))
            }
            Err(error) => {
                tracing::warn!(%key, %error, "the withdrawal waits for history");
                Step::Done(Done::Failed)
            }
        }
    }

    /// History's answer about a withdrawal's record.
    pub(super) fn withdrawal_recorded(&mut self, key: BindingKey, id: &str, state: RecordState) {
        let Some(withdrawal) = self.withdrawals.get_mut(&key) else { return };
        if withdrawal.awaited() != Some(id) {
            return;
        }
        match state {
            RecordState::Recorded => withdrawal.held(),
            RecordState::Refused(why) => {
                // It is rejected permanently: waiting would block the name forever, so the log is the record.
                tracing::error!(%key, why, "history refuses the record of a withdrawal");
                withdrawal.held();
            }
            RecordState::Queued => {
                tracing::warn!(%key, "history ended before it took a withdrawal")
            }
        }
        self.enqueue(key, crate::queue::Urgency::Now, None);
    }

    /// A binding was deleted from the hub.
    pub(super) fn forget_binding(&mut self, key: &BindingKey) {
        self.note_reissued(key);
        self.verdicts.forget(key);
        self.sent.forget(key);
        self.views.forget(key);
        self.leaving.remove(key);
        self.confirmed.remove(key);
        self.unrendered.remove(key);
        self.withdrawals.remove(key);
        self.pace.forget(key);
        self.unoffered.remove(key);
        self.lives.forget(key);
        for subject in [
            crate::status::due::Subject::Binding(key.clone()),
            crate::status::due::Subject::Template(key.clone()),
        ] {
            self.due.forget(&subject);
        }
    }
}

/// Reference to a binding in history.
pub(super) fn binding_ref(binding: &Binding) -> BindingRef {
    let namespaced = binding.key.namespace.is_some();
    BindingRef {
        kind: if namespaced { "ResourceBinding" } else { "ClusterResourceBinding" }.to_owned(),
        namespace: binding.key.namespace.clone(),
        name: binding.key.name.clone(),
        uid: binding.uid().to_owned(),
    }
}
