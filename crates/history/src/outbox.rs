//! The binding as the outbox of history: the records it holds.

use atoll_api::binding::{ResourceBindingSpec, UnrecordedDecision};

use crate::{BindingRef, Gap, Record};

/// The records that a binding holds, in decision order: the earlier ones that history may lack, then its last decision.
/// They have no detail, and the first has no `before`: both are only in the full Decision.
#[must_use]
pub fn records(binding: &BindingRef, spec: &ResourceBindingSpec) -> Vec<Record> {
    let last = spec.decision.clone().map(|decision| UnrecordedDecision {
        decision,
        clusters: spec.clusters.clone(),
        count: 1,
        from: None,
    });
    let mut records: Vec<Record> = Vec::new();
    for held in spec.unrecorded.iter().cloned().chain(last) {
        // The shares in between are known only from this binding: the previous record is the parent, unless history has
        // rows in between, which the ids show.
        let before = records
            .last()
            .filter(|previous| held.decision.parent.as_ref() == Some(&previous.record.id))
            .map(|previous| previous.after.clone());
        let first = held.decision.parent.is_none();
        records.push(Record {
            binding: binding.clone(),
            workload: spec.resource.clone(),
            before: before.or_else(|| first.then(Vec::new)),
            after: held.clusters,
            reason: None,
            gap: (held.count > 1).then(|| Gap {
                from: held.from.unwrap_or_else(|| held.decision.id.clone()),
                count: held.count,
            }),
            withdrawal: None,
            provenance: None,
            rejections: None,
            detail: None,
            inputs: None,
            record: held.decision,
        });
    }
    records
}
