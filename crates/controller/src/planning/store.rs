//! Bindings as they would be after a decision.

use atoll_api::rebalancer::RebalanceMode;
use atoll_scheduler::Decision;
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::commit::draft::{self, Decided, Required};
use crate::index::Index;
use crate::index::rows::Binding;
use crate::leader::LeaderTerm;
use crate::reconcile::{Subject, decided_by};
use crate::schedule::priority;

/// What the hub would hold after the commit of a decision; `None` if nothing would be committed.
pub(super) fn after(
    index: &Index,
    subject: &Subject,
    decision: &Decision,
    term: LeaderTerm,
) -> Option<Value> {
    let decided = decided_by(decision, term);
    match &subject.binding {
        None => Some(created(index, subject, &decided)),
        Some(binding) if decided.changes_nothing(binding) => None,
        Some(binding) => changed(index, subject, binding, &decided),
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

fn changed(
    index: &Index,
    subject: &Subject,
    binding: &Binding,
    decided: &Decided,
) -> Option<Value> {
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
    let patch = draft::change(binding, &upkeep, Some(decided), |_| true)?;
    Some(patched(binding, &patch))
}

/// A binding for which a rebalance is asked now.
pub(super) fn rebalanced(binding: &Binding, mode: RebalanceMode, now: Timestamp) -> Value {
    let asked = json!({"spec": {"rescheduleTriggeredAt": now, "rescheduleMode": mode}});
    patched(binding, &asked)
}

/// The next version of a binding.
fn patched(binding: &Binding, patch: &Value) -> Value {
    let mut object = json!({
        "metadata": binding.metadata,
        "spec": binding.spec,
        "status": binding.whole_status(),
    });
    atoll_merge::patch::json_merge(&mut object, patch);
    let version: u64 = binding.resource_version().parse().unwrap_or_default();
    object["metadata"]["resourceVersion"] = (version + 1).to_string().into();
    object
}
