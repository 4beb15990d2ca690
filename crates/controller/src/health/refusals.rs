//! What happens when an agent's Hello is refused because of its term or epoch, and how a refusal ends.

use tonic::Status;

use super::terms::Refusal;
use crate::member::context::Context;
use crate::member::metrics::RefusedLabels;
use crate::member::state::Member;
use crate::member::types::MemberEvent;

/// Stores why a Hello is refused, shows it on the Cluster, and raises the term if enough members name a higher one.
pub(crate) fn refuse(cx: &Context, member: &Member, refusal: Refusal) -> Status {
    cx.metrics.refused.get_or_create(&RefusedLabels { reason: refusal.label() }).inc();
    let uid = {
        let mut state = member.lock();
        let changed = state.refusal.replace(refusal) != Some(refusal);
        if changed {
            let message = refusal.message(&member.name);
            tracing::warn!(
                cluster = member.name.as_str(),
                reason = refusal.reason(),
                message,
                "session refused"
            );
        }
        state.uid().map(str::to_owned)
    };
    cx.writes.mark(&member.name);
    if let (Refusal::Term { named, ours }, Some(uid)) = (refusal, uid)
        && let Some(term) = cx.registry.name_term(&uid, named, ours)
    {
        cx.outbox.push(MemberEvent::HigherTerm { cluster: member.name.clone(), term });
    }
    refusal.status()
}

/// A Hello was accepted: clears the refusal.
pub(crate) fn clear(cx: &Context, member: &Member) {
    let uid = {
        let mut state = member.lock();
        state.refusal = None;
        state.uid().map(str::to_owned)
    };
    if let Some(uid) = uid {
        cx.registry.forget_term(&uid);
    }
}

/// A user accepts the term that the member names (annotation `atoll.dev/accept-term`). Returns whether the request is
/// done: the term was raised, there is nothing to accept, or it cannot be accepted. It does not cover terms that the
/// member names later.
pub(crate) fn accept(cx: &Context, member: &Member) -> bool {
    let Some(ours) = cx.term() else { return false };
    let mut state = member.lock();
    let named = match state.refusal {
        Some(Refusal::Term { named, .. }) => named,
        // A disconnected member has not sent a Hello to this leader yet.
        Some(Refusal::Epoch { .. }) | None => return state.session.is_some(),
    };
    let accepted = *state.accepted_term.get_or_insert(named);
    let done = accepted <= ours || accepted.is_out_of_range(ours);
    if done {
        state.accepted_term = None;
    }
    drop(state);
    if !done {
        tracing::warn!(
            cluster = member.name.as_str(),
            term = %accepted,
            %ours,
            "an operator accepted the member's term"
        );
        let cluster = member.name.clone();
        cx.outbox.push(MemberEvent::HigherTerm { cluster, term: accepted });
    }
    done
}
