//! Takes in changes of the hub's objects, by users or by our own writes.

use atoll_api::static_assignment::is_policy_name;

use super::Leading;
use super::jobs::JobDone;
use crate::hub_state::HubState;
use crate::index::Touched;
use crate::index::key::BindingKey;
use crate::queue::{Opening, Urgency};
use crate::status::due::{Phase, Subject};

impl Leading {
    /// Passes a change of the index on to everything that it affects; `news` is the kind of gate that it may open.
    pub(crate) fn absorb(
        &mut self,
        hub: &mut HubState,
        mut touched: Touched,
        urgency: Urgency,
        news: Opening,
    ) {
        let mut changes = hub.refresh_objects(&touched);
        for name in &touched.clusters.names {
            self.draining.cluster_changed(hub.index.cluster(name).is_some(), name);
            self.audit.member_changed(&hub.index, name);
        }
        for key in touched.rows.workload_policies.iter().chain(&touched.rows.spreads) {
            self.statuses.forget_deleted(&hub.index, key);
        }
        for key in &touched.replaced {
            self.forget_binding(key);
        }
        for key in &touched.bindings {
            changes.extend(self.binding_changed(hub, key));
        }
        self.wake(hub, &changes);
        self.guards_changed(hub, &touched.tenancy.guards);
        // What others refer to is sent before them.
        for key in touched.bindings.iter().chain(&touched.waiting) {
            let binding = hub.index.binding(key);
            if binding
                .is_some_and(|row| row.spec.propagate_deps || row.required_on().next().is_some())
            {
                self.dispatch(hub, key);
            }
        }
        touched.waiting.iter().for_each(|key| self.mark_status(hub, key));
        self.enqueue_touched(hub, &touched, urgency, news);
        use Opening::{Cluster, Hub, OverridePolicy, PriorityClass};
        if matches!(news, Cluster | OverridePolicy | PriorityClass | Hub) {
            self.reopen(hub, news);
        }
        // Statuses are written without a precondition: a write of an earlier leader may have arrived after our own.
        for key in touched.statuses {
            self.statuses.mark_both(&key, Phase::Settled);
        }
        for policy in touched.policies {
            self.statuses.mark_policy(hub, policy);
        }
        // The hub has no object for those of static assignments.
        touched.override_policies.retain(|key| !is_policy_name(&key.name));
        for policy in touched.override_policies {
            self.statuses.mark(Subject::OverridePolicy(policy), Phase::InProgress);
        }
        let customized = !touched.interpreters.customizations.is_empty();
        for name in touched.interpreters.customizations {
            self.statuses.mark_customization(&hub.index, &name);
        }
        for (namespace, _) in &touched.tenancy.quotas {
            self.statuses.mark_quotas(&hub.index, namespace);
        }
        if news == Cluster || !touched.tenancy.sets.is_empty() {
            self.statuses.mark_all_static_quotas(&hub.index);
        }
        for set in touched.tenancy.sets {
            self.statuses.mark_cluster_set(&hub.index, &set);
        }
        if customized || !touched.interpreters.webhooks.is_empty() {
            self.placements.readings.ask_all();
            self.env.interpreter.forget_old(hub.index.rules());
        }
        for name in touched.interpreters.webhooks {
            self.statuses.mark_webhooks(&hub.index, &name);
        }
        for spread in touched.spreads {
            self.statuses.mark(Subject::WorkloadSpread(spread), Phase::InProgress);
        }
        for policy in touched.workload_policies {
            self.statuses.mark(Subject::WorkloadPolicy(policy), Phase::InProgress);
        }
    }

    /// Adds bindings to the queue. One label of a member may concern every workload: what runs on the member comes first.
    fn enqueue_touched(
        &mut self,
        hub: &HubState,
        touched: &Touched,
        urgency: Urgency,
        news: Opening,
    ) {
        for key in touched.rechecks() {
            self.enqueue(hub, key.clone(), Urgency::Later, Some(news));
        }
        for key in &touched.keys {
            self.enqueue(hub, key.clone(), urgency, Some(news));
        }
    }

    /// A binding was created, changed or deleted.
    fn binding_changed(
        &mut self,
        hub: &mut HubState,
        key: &BindingKey,
    ) -> Vec<atoll_scheduler::TableChange> {
        let Some(binding) = hub.index.binding(key).cloned() else {
            self.forget_binding(key);
            return hub.tables.remove_binding(key);
        };
        hub.note_term(&binding, self.term);
        if self.term < binding.term() {
            // The hub is trusted: only administrators may write bindings.
            self.env.election.heard_term(binding.term());
        }
        self.placements.seed(&binding);
        self.draining.guards.marked(key);
        self.outbox.drop_receipts(key);
        self.offer_unknown(hub, key);
        self.refresh_binding(hub, key)
    }

    /// Gives history a decision that this leader did not commit. Its own are recorded, with their detail, when their
    /// write has ended.
    pub(super) fn offer_unknown(&mut self, hub: &HubState, key: &BindingKey) {
        let Some(binding) = hub.index.binding(key) else { return };
        if !self.queue.is_in_flight(key) && hub.index.refusal(binding).is_none() {
            self.outbox.offer_unknown(&self.env, binding);
        }
    }

    /// Updates a binding in the scheduler's tables.
    pub(super) fn refresh_binding(
        &self,
        hub: &mut HubState,
        key: &BindingKey,
    ) -> Vec<atoll_scheduler::TableChange> {
        // While a decision is being committed its shares count, not those still in the hub.
        if self.queue.is_in_flight(key) {
            return Vec::new();
        }
        hub.refresh_binding(key, self.placements.replicas(key))
    }

    /// A binding was deleted from the hub.
    fn forget_binding(&mut self, key: &BindingKey) {
        self.reissued.note(&self.placements, key);
        self.query_reissued();
        self.placements.verdicts.forget(key);
        self.placements.forget(key);
        self.draining.forget(key);
        self.rollouts.forget(key);
        self.outbox.forget(key);
        self.audit.forget(key);
        self.statuses.forget(key);
        self.attachments.forget(key);
        self.jobs.later.forget(key);
    }

    /// Queries history about bindings that ended without this leader, unless it is being queried.
    pub(super) fn query_reissued(&mut self) {
        if let Some(query) = self.reissued.query(&self.env) {
            self.jobs.spawn(async { JobDone::Reissued(query.await) });
        }
    }

    /// History fell behind, or keeps up again: the statuses of the bindings concerned show it.
    pub(crate) fn history_turned(&mut self, hub: &HubState) {
        let behind = hub.history_error.is_some();
        self.publish_limits(hub);
        let concerned = hub.index.bindings().filter(|binding| match behind {
            true => self.outbox.awaits(binding),
            false => binding.status.is_behind(),
        });
        let concerned: Vec<_> = concerned.map(|binding| binding.key.clone()).collect();
        for key in concerned {
            self.mark_status(hub, &key);
        }
    }
}
