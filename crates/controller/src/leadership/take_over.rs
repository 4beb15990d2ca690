//! A new leader first passes all committed decisions on to members and to history, and queues every binding once. That takes
//! seconds with many bindings, so it is done in slices: between two of them the event loop sees whether the leadership has ended.
//! Reports and changes of the hub wait until all is passed on.

use std::num::NonZero;
use std::ops::ControlFlow;
use std::sync::Arc;

use atoll_api::ClusterName;
use tokio::sync::watch;
use tokio::time::Instant;

use super::Leading;
use crate::env::Env;
use crate::hub_state::HubState;
use crate::index::key::BindingKey;
use crate::index::rows::Binding;
use crate::leader::{LeaderTerm, Leadership};
use crate::queue::Urgency;
use crate::status::due::{Phase, Subject};

/// Bindings of a slice. One core takes a few dozen milliseconds for it.
pub(crate) const SLICE: NonZero<usize> = NonZero::new(256).expect("it is not zero");

/// A leadership that has not passed on all committed decisions yet.
pub(crate) struct TakeOver {
    leading: Leading,
    bindings: Vec<Arc<Binding>>,
    /// Bindings of a slice.
    slice: NonZero<usize>,
    /// How many of them were passed on.
    done: usize,
    began: Instant,
}

impl TakeOver {
    /// `raised`: the term was raised while this process led.
    pub(crate) fn begin(
        env: &Arc<Env>,
        hub: &HubState,
        term: LeaderTerm,
        leadership: watch::Receiver<Option<Leadership>>,
        raised: bool,
        slice: NonZero<usize>,
    ) -> Self {
        env.counters.leads.set(1);
        env.interpreter.begin_term();
        let mut leading = Leading::new(env, term, leadership, raised);
        let bindings: Vec<_> = hub.index.bindings().cloned().collect();
        for binding in &bindings {
            leading.placements.seed(binding);
        }
        Self { leading, bindings, slice, done: 0, began: Instant::now() }
    }

    pub(crate) fn term(&self) -> LeaderTerm {
        self.leading.term
    }

    /// Passes the next slice on. After the last one the leadership is complete.
    pub(crate) fn step(mut self: Box<Self>, hub: &HubState) -> ControlFlow<Leading, Box<Self>> {
        let end = self.bindings.len().min(self.done + self.slice.get());
        let slice = &self.bindings[self.done..end];
        self.leading.dispatch_all(hub, slice);
        for binding in slice {
            if hub.index.refusal(binding).is_none() {
                self.leading.outbox.offer(&self.leading.env, binding);
            }
            self.leading.enqueue(hub, binding.key.clone(), Urgency::Later, None);
        }
        self.done = end;
        match end < self.bindings.len() {
            true => ControlFlow::Continue(self),
            false => ControlFlow::Break(self.finish(hub)),
        }
    }

    fn finish(self, hub: &HubState) -> Leading {
        let Self { mut leading, bindings, began, .. } = self;
        leading.mark_all(hub);
        if hub.index.guards().next().is_some() {
            let all = leading.queue.busy();
            leading.draining.guards.expect(all);
        }
        leading.ask_history(hub);
        let (term, bindings, took) = (leading.term, bindings.len(), began.elapsed());
        tracing::info!(%term, bindings, ?took, "committed decisions passed on; deciding begins");
        leading
    }
}

impl Leading {
    /// Queues workloads, and everything whose status this leader writes.
    fn mark_all(&mut self, hub: &HubState) {
        let clusters: Vec<ClusterName> =
            hub.index.clusters().map(|(name, _)| name.clone()).collect();
        for cluster in clusters {
            self.audit.member_changed(&hub.index, &cluster);
        }
        for kind in hub.index.wanted_kinds().into_keys() {
            let templates = hub.index.templates_of(&kind);
            let keys: Vec<BindingKey> = templates.map(|t| t.key.binding()).collect();
            for key in keys {
                // A workload without a binding waits for its first decision.
                let placed = hub.index.binding(&key).is_some();
                let urgency = if placed { Urgency::Later } else { Urgency::Now };
                self.enqueue(hub, key, urgency, None);
            }
        }
        let policies: Vec<_> = hub.index.policies().map(|policy| policy.key.clone()).collect();
        for policy in policies {
            self.statuses.mark_policy(hub, policy);
        }
        for policy in hub.index.override_policies() {
            self.statuses.mark(Subject::OverridePolicy(policy.clone()), Phase::InProgress);
        }
        for name in hub.index.customizations() {
            self.statuses.mark_customization(&hub.index, name);
        }
        for set in hub.index.cluster_sets() {
            self.statuses.mark_cluster_set(&hub.index, set);
        }
        for ((namespace, _), _) in hub.index.quotas() {
            self.statuses.mark_quotas(&hub.index, namespace);
        }
        for name in hub.index.webhook_configurations() {
            self.statuses.mark_webhooks(&hub.index, name);
        }
        let guards = hub.index.guards().map(|(name, _)| name.clone()).collect();
        self.guards_changed(hub, &guards);
        for spread in hub.index.spreads() {
            self.statuses.mark(Subject::WorkloadSpread(spread.clone()), Phase::InProgress);
        }
    }
}
