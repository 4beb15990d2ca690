//! How a binding goes on, and what that is computed from.

use std::sync::Arc;
use std::time::Duration;

use atoll_api::binding::{DecisionRecord, Outcome, TargetCluster};
use atoll_api::change_guard::HeldChange;
use atoll_history::{Detail, Provenance, Record};
use atoll_scheduler::replay::Inputs;
use atoll_scheduler::state::affinity_group::Membership;
use atoll_scheduler::{Decision, Standing, WakeCondition};
use jiff::Timestamp;
use tokio::time::Instant;

use super::subject::Subject;
use crate::audit::{Outbox, binding_ref};
use crate::commit::draft::Decided;
use crate::commit::{Action, Write};
use crate::detect::refusal::Refusal;
use crate::env::Env;
use crate::hub_state::HubState;
use crate::index::key::TemplateKey;
use crate::index::rows::Binding;
use crate::index::template::Template;
use crate::leader::LeaderTerm;
use crate::placements::{Placements, eviction};
use crate::queue::Done;

/// What the steps of a binding are computed from.
#[derive(Clone, Copy)]
pub(crate) struct Context<'a> {
    pub(crate) env: &'a Env,
    pub(crate) hub: &'a HubState,
    pub(crate) placements: &'a Placements,
    pub(crate) outbox: &'a Outbox,
    pub(crate) term: LeaderTerm,
}

/// How a binding goes on.
pub(crate) enum Step {
    /// Nothing is to be written.
    Done(Done<WakeCondition>),
    /// The binding holds everything: its members and statuses follow it.
    UpToDate(Done<WakeCondition>),
    /// It is not processed, and why.
    Refused(Arc<Binding>, Refusal),
    /// Its deletion goes on.
    Withdraw(Arc<Binding>),
    /// Look up in the hub whether this version of the template still exists.
    LookUp(TemplateKey, String),
    /// The rules of users have to say what the template means.
    Interpret(Arc<Template>),
    /// The scheduler has to decide.
    Decide(Box<Subject>),
    /// No policy claims the object, but others refer to it, or did.
    Attach(Box<Subject>),
    /// The binding is behind a shut gate: only work that needs no decision is done.
    Upkeep(Box<Subject>),
    /// This is written to the binding.
    Write(Write, Purpose),
    /// The binding holds a decision of a higher term than ours.
    HigherTerm(LeaderTerm),
}

/// Purpose of a write to a binding.
pub(crate) enum Purpose {
    /// A decision.
    Decision(Box<Committing>),
    /// Marks and copied policy fields, or the end of an eviction task's copy; without a decision.
    Upkeep(Waiting),
    /// Starts its deletion.
    Delete,
    /// Removes the finalizer.
    Release,
}

impl Purpose {
    /// The id of the decision, for logs.
    pub(crate) fn decision(&self) -> Option<&str> {
        match self {
            Self::Decision(committing) => Some(&committing.decided.record.id),
            Self::Upkeep(_) | Self::Delete | Self::Release => None,
        }
    }
}

/// A decision being written to the hub.
pub(crate) struct Committing {
    /// The durable part.
    pub(crate) decided: Decided,
    /// The full decision; `None` for the end of an eviction task.
    pub(crate) decision: Option<Decision>,
    /// Time of the decision, to the millisecond.
    pub(crate) at: Timestamp,
    /// How long the scheduler took; set when it answers.
    pub(crate) took: Duration,
    /// The objects that the decision was made from.
    pub(crate) provenance: Option<Provenance>,
    /// All that the scheduler read; set when it answers.
    pub(crate) inputs: Option<Inputs>,
    /// The previous decision, which it replaces.
    pub(crate) parent: Option<DecisionRecord>,
    /// The object's groups for `placement.workloadAffinity`.
    pub(crate) groups: Arc<[Membership]>,
    /// Its priority, and its part in preemptions.
    pub(crate) standing: Standing,
    /// Previous shares.
    pub(crate) before: Vec<TargetCluster>,
    /// Whether a change by people waits, and this decision was made without it.
    pub(crate) exempt: bool,
    /// Whether it ends eviction tasks: their clusters are candidates again, which this decision did not see.
    pub(crate) ends_tasks: bool,
}

impl Committing {
    /// The decision for history, with its detail.
    pub(crate) fn record(&self, binding: &Binding, detail: Option<Detail>) -> Record {
        let decision = self.decision.as_ref();
        Record {
            record: self.decided.record.clone(),
            binding: binding_ref(binding),
            workload: binding.spec.resource.clone(),
            before: Some(self.before.clone()),
            after: self.decided.clusters.clone(),
            reason: decision.and_then(atoll_history::reason),
            gap: None,
            withdrawal: None,
            provenance: self.provenance.clone(),
            rejections: decision.map(atoll_history::rejections),
            detail,
            inputs: None,
        }
    }
}

/// What of a request a decision answers.
pub(crate) enum Part {
    /// All of it.
    Whole,
    /// Not the change by people that a ChangeGuard holds; and what the binding says about that change.
    Exempt(Option<HeldChange>),
}

/// What a binding waits for after a decision.
#[derive(Default)]
pub(crate) struct Waiting {
    /// Events that may change the result.
    conditions: Vec<WakeCondition>,
    /// Whether some replicas found no place.
    refused: bool,
}

impl Waiting {
    /// The state after the decision.
    pub(crate) fn after(decision: &Decision) -> Self {
        let placed = matches!(decision.outcome(), Outcome::Placed | Outcome::Unchanged);
        Self {
            conditions: decision.waits_for().to_vec(),
            refused: !placed || decision.pending_replicas() > 0,
        }
    }

    /// How the binding waits: for the conditions, or for a deadline of its own or of its eviction tasks.
    pub(crate) fn done(self, binding: Option<&Binding>, now: Timestamp) -> Done<WakeCondition> {
        let Self { mut conditions, refused } = self;
        let due = conditions.iter().filter_map(WakeCondition::due);
        let deadline = binding.and_then(|binding| eviction::next_deadline(&binding.spec, now));
        let at = due.chain(deadline).min().map(|at| {
            let wait = at.duration_since(now);
            Instant::now() + std::time::Duration::try_from(wait).unwrap_or_default()
        });
        let edits = |condition: &WakeCondition| matches!(condition, WakeCondition::Edit { .. });
        match (conditions.is_empty(), at) {
            (true, None) => Done::Settled,
            (false, None) if conditions.iter().all(edits) => Done::Mistake,
            _ if refused => Done::Waits(conditions, at),
            _ => {
                // `Queue::wake_placed` passes these on: as topics each would be one workload's own.
                conditions.retain(|condition| {
                    !matches!(condition, WakeCondition::WorkloadSpreadChanges { .. })
                });
                Done::Watches(conditions, at)
            }
        }
    }
}

/// The step that starts the deletion of a binding.
pub(crate) fn delete(binding: &Binding) -> Step {
    let action = Action::Delete { uid: binding.uid.clone() };
    let key = binding.key.clone();
    Step::Write(Write { key, action, decision: None }, Purpose::Delete)
}
