//! Bindings as they would be after a decision.

use atoll_api::rebalancer::RebalanceMode;
use atoll_scheduler::Decision;
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde_json::Value;

use crate::commit::draft::{self, Changeable, Decided, Required};
use crate::index::Index;
use crate::index::meta::{Meta, Texts};
use crate::index::rows::{Binding, RowError};
use crate::leader::LeaderTerm;
use crate::reconcile::{Subject, decided_by};
use crate::schedule::priority;

/// What the hub would hold after the commit of a decision; `None` if nothing would be committed.
///
/// # Errors
/// When a new binding cannot be read back.
pub(super) fn after(
    index: &Index,
    subject: &Subject,
    decision: &Decision,
    term: LeaderTerm,
) -> Result<Option<Binding>, RowError> {
    let decided = decided_by(decision, term);
    match &subject.binding {
        None => Binding::read(&created(index, subject, &decided)).map(Some),
        Some(binding) if decided.changes_nothing(binding) => Ok(None),
        Some(binding) => Ok(Some(changed(index, subject, binding, &decided))),
    }
}

fn created(index: &Index, subject: &Subject, decided: &Decided) -> Value {
    let Subject { key, claim, template, .. } = subject;
    let priority = priority::priority(index, claim.policy().map(|policy| &**policy));
    let demand = index.demand(template, None);
    let required = Required::default();
    let mut body = draft::create((template, &demand), claim, &priority, decided, &required);
    body["metadata"]["uid"] = format!("planned/{key}").into();
    body["metadata"]["resourceVersion"] = "1".into();
    body
}

fn changed(index: &Index, subject: &Subject, binding: &Binding, decided: &Decided) -> Binding {
    let Subject { claim, template, .. } = subject;
    let priority = priority::priority(index, claim.policy().map(|policy| &**policy));
    let demand = index.demand(template, Some(binding));
    let required = Required { by: binding.spec.required_by.clone(), ..Required::default() };
    let upkeep = draft::Upkeep {
        template,
        demand: &demand,
        claim,
        priority: &priority,
        unclaimed: false,
        required: &required,
        held: None,
    };
    let Changeable { labels, annotations, spec } =
        draft::next(binding, &upkeep, Some(decided), |_| true);
    let (labels, annotations) = (Texts::from(&labels), Texts::from(&annotations));
    binding.next(Meta { labels, annotations, ..binding.meta.clone() }, spec)
}

/// A binding for which a rebalance is asked now.
pub(super) fn rebalanced(binding: &Binding, mode: RebalanceMode, now: Timestamp) -> Binding {
    let mut spec = binding.spec.clone();
    spec.reschedule_triggered_at = Some(Box::new(Time(now)));
    spec.reschedule_mode = Some(mode);
    binding.next(binding.meta.clone(), spec)
}
