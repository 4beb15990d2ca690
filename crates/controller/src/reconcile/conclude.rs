//! What is written after a decision, or without one for work that needs none.

use std::time::Duration;

use atoll_api::binding::Trigger;
use atoll_history::Provenance;
use atoll_scheduler::Decision;
use jiff::Timestamp;

use super::step::{Committing, Context, Part, Purpose, Step, Waiting};
use super::subject::Subject;
use crate::commit::draft::{self, Decided};
use crate::commit::{Action, Write};
use crate::detect::{self, Claim};
use crate::guards::exempt;
use crate::hub_state::derived::groups_of;
use crate::index::Index;
use crate::index::key::BindingKey;
use crate::index::rows::Binding;
use crate::leader::LeaderTerm;
use crate::placements::dispatch::MembersOf;
use crate::placements::eviction;
use crate::placements::required::required;
use crate::queue::Done;
use crate::schedule::priority;

/// The scheduler decided on this part of the request. `may_move` tells whether a decision that moves replicas may be
/// committed now.
pub(crate) fn conclude(
    context: Context<'_>,
    subject: Subject,
    decision: Decision,
    part: Part,
    may_move: impl FnOnce(&Decision) -> bool,
) -> Step {
    let waiting = Waiting::after(&decision);
    let Some(binding) = subject.binding.clone() else {
        return create(context, &subject, decision, waiting);
    };
    let nothing = match &part {
        Part::Whole => decision.trigger() == Trigger::Avoid,
        Part::Exempt(_) => exempt::is_none(&decision),
    };
    // A decision that only changes what an eviction task waits for does not end the task: the next check does.
    let new = (!nothing)
        .then(|| match &part {
            Part::Whole => decided_by(&decision, context.term),
            // The placement that was applied last stays in force, so the change stays visible to later decisions.
            Part::Exempt(_) => {
                Decided { applied_placement: None, ..decided_by(&decision, context.term) }
            }
        })
        .filter(|decided| !decided.changes_nothing(&binding))
        .filter(|_| may_move(&decision));
    if new.is_none() {
        context.env.counters.avoided.inc();
    }
    let new = new.map(|decided| (decided, decision));
    change(context, &subject, &binding, new, waiting, part)
}

/// Work that needs no decision: copied policy fields, the end of old copies.
pub(crate) fn upkeep(context: Context<'_>, subject: &Subject) -> Step {
    match subject.binding.clone() {
        Some(binding) => {
            let part = match binding.spec.held.as_deref() {
                None => Part::Whole,
                held => Part::Exempt(held.cloned()),
            };
            change(context, subject, &binding, None, Waiting::default(), part)
        }
        None => Step::Done(Done::Settled),
    }
}

/// The first decision creates the binding.
fn create(context: Context<'_>, subject: &Subject, decision: Decision, waiting: Waiting) -> Step {
    let Context { env, hub, placements, term, .. } = context;
    let Subject { key, claim, template, .. } = subject;
    if decision.trigger() == Trigger::Avoid {
        env.counters.avoided.inc();
        return Step::Done(waiting.done(None, env.clock.now_seconds()));
    }
    let decided = decided_by(&decision, term);
    let priority = priority::priority(&hub.index, claim.policy().map(|policy| &**policy));
    let required = required(&hub.index, placements, &template.key, None);
    let demand = hub.index.demand(template, None);
    let asked = claim.asked(None);
    let value = priority::in_decision(&hub.index, claim, None).value;
    let standing = draft::standing((template, &demand), &asked, value, &decided);
    let body = draft::create((template, &demand), claim, &priority, &decided, &required);
    let provenance = Some(hub.authors.provenance(&decision, template));
    let committing = Committing {
        decided,
        decision: Some(decision),
        at: env.clock.now(),
        took: Duration::ZERO,
        inputs: None,
        provenance,
        parent: None,
        groups: groups_of(&asked.placement, &template.labels),
        standing,
        before: Vec::new(),
        exempt: false,
        ends_tasks: false,
    };
    commit(key, Action::Create(body), committing)
}

/// What a decision, or without one the policy and the eviction tasks, changes in an existing binding.
fn change(
    context: Context<'_>,
    subject: &Subject,
    binding: &Binding,
    new: Option<(Decided, Decision)>,
    waiting: Waiting,
    part: Part,
) -> Step {
    let Context { env, hub, placements, outbox, term } = context;
    let Subject { key, claim, template, .. } = subject;
    let claim = &match &part {
        Part::Whole => claim.clone(),
        Part::Exempt(_) => exempt::claim(claim.clone()),
    };
    let now = env.clock.now_seconds();
    let held = binding.term();
    if held > term {
        // The hub rejects a decision with a lower term than the one that it holds.
        if held.is_out_of_range(term) {
            return Step::UpToDate(Done::Waits(Vec::new(), None));
        }
        return Step::HigherTerm(held);
    }
    let (decided, decision) = match new {
        Some((decided, decision)) => (Some(decided), Some(decision)),
        None => (end_of_tasks(context, binding, now), None),
    };
    let priority = priority::priority(&hub.index, claim.policy().map(|policy| &**policy));
    let demand = hub.index.demand(template, Some(binding));
    let upkeep = draft::Upkeep {
        template,
        demand: &demand,
        claim,
        priority: &priority,
        unclaimed: *claim == Claim::None && policy_let_go(&hub.index, binding),
        required: &required(&hub.index, placements, &template.key, Some(binding)),
        held: match &part {
            Part::Whole => None,
            Part::Exempt(held) => held.as_ref(),
        },
    };
    let recorded = |id: &str| outbox.is_recorded(key, id);
    let patch = draft::change(binding, &upkeep, decided.as_ref(), recorded);
    match (patch, decided) {
        (Some(patch), Some(decided)) => {
            let asked = claim.asked(Some(&binding.spec));
            let value = priority::in_decision(&hub.index, claim, Some(&binding.spec)).value;
            let made_from = |decision| Provenance {
                approved: binding.spec.held.as_deref().and_then(|held| hub.index.approval(held)),
                ..hub.authors.provenance(decision, template)
            };
            let committing = Committing {
                exempt: matches!(part, Part::Exempt(_)),
                ends_tasks: ends_tasks(binding, &decided),
                provenance: decision.as_ref().map(made_from),
                standing: draft::standing((template, &demand), &asked, value, &decided),
                decided,
                decision,
                at: env.clock.now(),
                took: Duration::ZERO,
                inputs: None,
                parent: binding.spec.decision.clone(),
                groups: groups_of(&asked.placement, &template.labels),
                before: binding.spec.clusters.clone(),
            };
            commit(key, Action::Patch(patch), committing)
        }
        (Some(patch), None) => {
            let action = Action::Patch(patch);
            let write = Write { key: key.clone(), action, decision: None };
            Step::Write(write, Purpose::Upkeep(waiting))
        }
        (None, _) => Step::UpToDate(waiting.done(Some(binding), now)),
    }
}

/// Whether a decision ends eviction tasks of a binding.
fn ends_tasks(binding: &Binding, decided: &Decided) -> bool {
    let leaves = |cluster: &str| decided.evictions.iter().any(|task| task.from_cluster == cluster);
    binding.spec.graceful_eviction_tasks.iter().any(|task| !leaves(&task.from_cluster))
}

fn commit(key: &BindingKey, action: Action, committing: Committing) -> Step {
    let decision = Some(committing.decided.record.id.clone());
    let write = Write { key: key.clone(), action, decision };
    Step::Write(write, Purpose::Decision(Box::new(committing)))
}

/// Whether the policy in a binding's marks was deleted or no longer selects its object. An invalid policy keeps its
/// claims: they would return when it is fixed.
fn policy_let_go(index: &Index, binding: &Binding) -> bool {
    binding.policy().is_some_and(|key| {
        let Some(policy) = index.policy(&key) else { return true };
        // While the hub's kinds are not known, a policy for every kind claims nothing new and keeps what it has.
        let still = index
            .template(&binding.template)
            .is_some_and(|template| detect::selects_here(index, policy, template).is_some());
        policy.deleting || (policy.selectors.is_ok() && !still)
    })
}

/// The decision that ends eviction tasks, in whole or for the replicas that have a place elsewhere, if one has ended.
pub(crate) fn end_of_tasks(
    context: Context<'_>,
    binding: &Binding,
    now: Timestamp,
) -> Option<Decided> {
    let Context { hub, placements, term, .. } = context;
    let members = MembersOf { hub, placements, key: &binding.key };
    let tasks = &binding.spec.graceful_eviction_tasks;
    let left = eviction::remaining(tasks, &binding.spec, &members, now);
    (left != *tasks).then(|| Decided {
        record: eviction::record(&binding.spec, &left, now, term),
        clusters: binding.spec.clusters.clone(),
        evictions: left,
        preserved: binding.spec.preserved_state.clone(),
        preempts: binding.spec.preempts.clone(),
        preempted_by: binding.spec.preempted_by.clone(),
        applied_placement: None,
    })
}

/// The durable part of a decision.
pub(crate) fn decided_by(decision: &Decision, term: LeaderTerm) -> Decided {
    let evictions = decision.evictions().to_vec();
    #[cfg(test)]
    let evictions = crate::mutants::grace_leaks(evictions);
    Decided {
        record: decision.record(term.get()),
        clusters: decision.clusters().to_vec(),
        evictions,
        preserved: decision.preserved().cloned().map(Box::new),
        preempts: decision.preempts.clone(),
        preempted_by: decision.preempted_by.clone(),
        applied_placement: Some(decision.applied_placement()),
    }
}
