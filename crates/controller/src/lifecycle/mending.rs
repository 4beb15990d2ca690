//! Mends the skew of topologySpreadConstraints in the background, within a budget of moved replicas.
//!
//! Once in a minute every workload with a hard constraint, its own or its profile's, is decided on as if a rebalance that only mends skew had been
//! requested. What such a decision moves is taken from the budget; one that moves nothing, does anything else, or finds
//! no budget left is dropped, and the workload is decided on as usual. So nothing is written unless replicas move.

use std::collections::BTreeSet;
use std::time::Duration;

use atoll_api::binding::{DecisionRecord, Mode, Trigger};
use atoll_api::placement::{ReplicaSchedulingType, WhenUnsatisfiable};
use atoll_api::rebalancer::RebalanceMode;
use atoll_interpreter::RETAIN_REPLICAS;
use atoll_scheduler::{Decision, Request};
use tokio::time::Instant;

use crate::index::Index;
use crate::index::key::BindingKey;
use crate::index::rows::Binding;
use crate::schedule::extend::Extensions;

/// Time between two rounds, and of the budget.
const ROUND: Duration = Duration::from_secs(60);
/// The profile with Karmada's rules, which mends nothing.
const KARMADA: &str = "karmada";

/// The mending of this leadership.
pub(crate) struct Mending {
    /// Replicas that may move in a round.
    budget: i64,
    /// Those that may still move. A workload that needs more than the budget of a round uses up later ones.
    left: i64,
    /// When the next round begins; `None` = never.
    next: Option<Instant>,
    /// Workloads of this round that have not been decided on yet.
    due: BTreeSet<BindingKey>,
    /// The workload that is being decided on.
    asked: Option<BindingKey>,
}

impl Mending {
    /// Mends nothing with a budget of 0.
    pub(super) fn begin(replicas_per_minute: u32, now: Instant) -> Self {
        Self {
            budget: replicas_per_minute.into(),
            left: 0,
            next: (replicas_per_minute > 0).then_some(now + ROUND),
            due: BTreeSet::new(),
            asked: None,
        }
    }

    /// When the next round begins.
    pub(super) fn next(&self) -> Option<Instant> {
        self.next
    }

    /// The workloads of a round that begins now.
    pub(crate) fn round(
        &mut self,
        index: &Index,
        extensions: &Extensions,
        now: Instant,
    ) -> Vec<BindingKey> {
        if self.next.is_none_or(|next| next > now) {
            return Vec::new();
        }
        self.next = Some(now + ROUND);
        self.left = self.left.saturating_add(self.budget).min(self.budget);
        self.due = match self.left > 0 {
            true => {
                let rows =
                    index.bindings().filter(|binding| is_mendable(index, extensions, binding));
                rows.map(|binding| binding.key.clone()).collect()
            }
            false => BTreeSet::new(),
        };
        self.due.iter().cloned().collect()
    }

    /// Makes the request one for mending, if it is the workload's turn.
    pub(crate) fn ask(&mut self, request: &mut Request) {
        self.asked = None;
        if !self.due.remove(&request.key) || self.left <= 0 {
            return;
        }
        let now = request.now;
        let Some(previous) = &mut request.previous else { return };
        let rebalances = previous.reschedule_triggered_at > previous.decided_at();
        if rebalances || previous.decided_at().is_none_or(|decided| decided >= now) {
            return;
        }
        previous.reschedule_triggered_at = Some(now);
        previous.mends_in_background = true;
        request.rebalance = RebalanceMode::MendSkew;
        self.asked = Some(request.key.clone());
    }

    /// Whether a decision may be committed; otherwise the workload must be decided on again. Decisions that were not
    /// asked for here may always be.
    pub(crate) fn admit(&mut self, decision: &Decision) -> bool {
        let asked = self.asked.take().is_some_and(|asked| asked == decision.binding);
        if !asked || decision.trigger() != Trigger::Rebalance {
            return true;
        }
        let moved = decision.moves.iter().fold(0_i64, |sum, step| sum.saturating_add(step.count));
        let sum = |shares: &[atoll_api::binding::TargetCluster]| {
            shares.iter().fold(0_i64, |sum, share| sum.saturating_add(share.replicas))
        };
        let only_moves = decision.mode == Mode::Steady
            && decision.pending.is_empty()
            && sum(decision.before()) == sum(decision.clusters());
        // A workload that needs more than a whole budget has to start at some time.
        let fits = moved <= self.left || self.left == self.budget;
        if moved == 0 || !only_moves || !fits {
            return false;
        }
        self.left -= moved;
        true
    }
}

/// Whether a workload is placed as a whole, at rest, and has a hard constraint that a division can mend. A WorkloadPolicy
/// or WorkloadSpread decides itself where replicas are.
fn is_mendable(index: &Index, extensions: &Extensions, binding: &Binding) -> bool {
    let spec = &binding.spec;
    let Some(placement) = spec.placement.as_deref() else { return false };
    let own = &placement.topology_spread_constraints;
    let hard = match own.is_empty() {
        true => extensions.limits_skew_by_default(spec.scheduler_name.as_deref()),
        false => own.iter().any(|one| one.when_unsatisfiable == WhenUnsatisfiable::DoNotSchedule),
    };
    let scheduling = placement.replica_scheduling.as_ref();
    let divided = scheduling.is_some_and(|scheduling| {
        scheduling.replica_scheduling_type == ReplicaSchedulingType::Divided
    });
    let pending = spec.decision.as_ref().map_or(0, DecisionRecord::pending_replicas);
    let rests =
        !spec.clusters.is_empty() && spec.graceful_eviction_tasks.is_empty() && pending == 0;
    let Some(template) = index.template(&binding.template) else { return false };
    let steered =
        template.extract.workload_policy.is_some() || index.spreads_for(&template.key).is_some();
    // Members keep their own replicas: another share would add some there and remove none.
    let own = scheduling.is_some_and(|scheduling| scheduling.replica_sync.is_some())
        || template.labels.get(RETAIN_REPLICAS).is_some_and(|value| &**value == "true");
    hard && divided
        && !own
        && rests
        && !steered
        && !placement.sticky
        && spec.scheduler_name.as_deref() != Some(KARMADA)
        && !binding.deleting()
}
