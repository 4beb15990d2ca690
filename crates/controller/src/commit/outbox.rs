//! The binding as the outbox of history: the next commit carries the decisions that the database does not hold yet.

use atoll_api::binding::{ResourceBindingSpec, UnrecordedDecision};

/// Limit of individual decisions; older ones are merged into one gap entry before them.
pub(crate) const MOST_UNRECORDED: usize = 8;

/// The outbox after a commit with a new decision: decisions acknowledged by history are dropped, and the replaced
/// decision is added unless history holds it.
#[must_use]
pub(crate) fn after_commit(
    before: &ResourceBindingSpec,
    acknowledged: impl Fn(&str) -> bool,
) -> Vec<UnrecordedDecision> {
    let mut outbox: Vec<UnrecordedDecision> = before
        .unrecorded
        .iter()
        // A gap is recorded as one row, under the id of its last decision.
        .filter(|entry| !acknowledged(&entry.decision.id))
        .cloned()
        .collect();
    if let Some(decision) = &before.decision
        && !acknowledged(&decision.id)
    {
        outbox.push(UnrecordedDecision {
            decision: decision.clone(),
            clusters: before.clusters.clone(),
            count: 1,
            from: None,
        });
    }
    while outbox.len() > MOST_UNRECORDED + 1 {
        let oldest = outbox.remove(0);
        let Some(next) = outbox.first_mut() else { break };
        next.count += oldest.count;
        next.from = Some(oldest.from.unwrap_or(oldest.decision.id));
    }
    outbox
}

#[cfg(test)]
mod tests {
    use super::*;
    use atoll_api::binding::{DecisionRecord, Mode, Outcome, Trigger};
    use jiff::Timestamp;
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

    fn record(id: usize) -> DecisionRecord {
        DecisionRecord {
            id: id.to_string().into(),
            parent: id.checked_sub(1).map(|parent| parent.to_string().into()),
            trigger: Trigger::Scale,
            mode: Mode::Steady,
            outcome: Outcome::Placed,
            desired: 1,
            pending: Vec::new(),
            affinity_name: None,
            reason: None,
            full_clusters: Vec::new(),
            at: Time(Timestamp::UNIX_EPOCH),
            term: 1,
        }
    }

    fn commit(spec: &mut ResourceBindingSpec, id: usize, acknowledged: impl Fn(&str) -> bool) {
        spec.unrecorded = after_commit(spec, acknowledged);
        spec.decision = Some(record(id));
    }

    #[test]
    fn an_acknowledged_decision_leaves_no_trace() {
        let mut spec = ResourceBindingSpec::default();
        (0..5).for_each(|id| commit(&mut spec, id, |_| true));
        assert!(spec.unrecorded.is_empty());
    }

    #[test]
    fn while_history_is_unreachable_decisions_wait_and_the_oldest_become_a_gap() {
        let mut spec = ResourceBindingSpec::default();
        (0..20).for_each(|id| commit(&mut spec, id, |_| false));
        assert_eq!(spec.unrecorded.len(), MOST_UNRECORDED + 1);
        let gap = &spec.unrecorded[0];
        assert_eq!(
            (gap.from.as_deref(), gap.decision.id.as_str(), gap.count),
            (Some("0"), "10", 11)
        );
        let rest: Vec<_> = spec.unrecorded[1..].iter().map(|e| e.decision.id.clone()).collect();
        assert_eq!(rest, (11..19).map(|id| id.to_string()).collect::<Vec<_>>());
        // History recovered and has all but the last.
        commit(&mut spec, 20, |id| id != "19");
        assert_eq!(spec.unrecorded.len(), 1);
        assert_eq!(spec.unrecorded[0].decision.id, "19");
    }
}
