//! The decision that is made while a change waits: with the binding's last committed placement, and without what people
//! asked for. Failover, scaling and pending replicas go on with it.

use atoll_api::binding::Trigger;
use atoll_api::placement::RescheduleOn;
use atoll_decision::Decision;
use atoll_scheduler::Request;

use crate::detect::Claim;

/// The claim of such a decision: the policy waits, and the binding keeps what it has.
pub(crate) fn claim(claim: Claim) -> Claim {
    match claim {
        Claim::Policy(policy, _) | Claim::Waiting(policy) => Claim::Waiting(policy),
        Claim::Bare | Claim::None | Claim::Excluded(_) => Claim::None,
    }
}

/// Leaves out of a request what people asked for.
pub(crate) fn limit(request: &mut Request) {
    let on = match &request.placement.reschedule_on {
        Some(given) => given.clone(),
        None => vec![RescheduleOn::ReplicasChange, RescheduleOn::ClusterFailure],
    };
    let people = [RescheduleOn::PolicyChange, RescheduleOn::ClusterChange];
    request.placement.reschedule_on =
        Some(on.into_iter().filter(|one| !people.contains(one)).collect());
    if let Some(previous) = &mut request.previous {
        previous.reschedule_triggered_at = None;
    }
}

/// Whether such a decision is not one: profile `karmada` follows clusters whatever it is told.
pub(crate) fn is_none(decision: &Decision) -> bool {
    matches!(
        decision.trigger(),
        Trigger::Avoid | Trigger::Reconcile | Trigger::Rebalance | Trigger::ClusterChange
    )
}
