//! Terms and epochs that agents name in their Hello, and when they are believed.
//!
//! An agent refuses a controller whose term is below the highest one that it accepted. After a restore of the hub that
//! may be every agent, and the leader has to raise its term above theirs. A raise ends all sessions, so one member must
//! not be able to cause it: a term is believed when a majority of the enrolled members (at least two) name it or a
//! higher one, or when a user accepts it (`atoll accept-term`). The hub's own Lease and bindings need no second source.

use atoll_api::{conditions, marks};
use tonic::Status;

use super::context::Context;
use super::metrics::Refused;
use super::registry::Member;
use super::types::MemberEvent;
use crate::leader::LeaderTerm;

/// Condition: the agent accepted a higher term than the leader's and refuses this leader.
pub(super) const TERM_AHEAD: &str = "TermAhead";
/// Condition: the agent names an epoch that its Lease cannot have reached.
pub(super) const EPOCH_AHEAD: &str = "EpochAhead";

/// How far an epoch may be ahead of the controller's clock, in seconds. Agents start at the Unix time, so this is the
/// allowed error of a member's clock: a day.
const EPOCH_LEAD: u64 = 24 * 60 * 60;
/// How many more acquisitions of its Lease are accepted since its last session, if its epochs are already ahead of the
/// clock.
const EPOCH_STEP: u64 = 1_000;

/// Why the member's last Hello was refused, if a user or other members are needed to continue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// Its agent accepted this term, which is above ours.
    Term { named: LeaderTerm, ours: LeaderTerm },
    /// Its epoch is above this limit.
    Epoch { named: u64, limit: u64 },
}

impl Refusal {
    /// Type of its condition.
    pub(crate) fn condition(self) -> &'static str {
        match self {
            Self::Term { .. } => TERM_AHEAD,
            Self::Epoch { .. } => EPOCH_AHEAD,
        }
    }

    /// Label of the refused-calls counter.
    fn label(self) -> &'static str {
        match self {
            Self::Term { .. } => "term",
            Self::Epoch { .. } => "epoch",
        }
    }

    /// Reason of the condition.
    pub(crate) fn reason(self) -> &'static str {
        match self {
            Self::Term { named, ours } if named.is_out_of_range(ours) => "TermOutOfRange",
            Self::Term { .. } => "NeedsSecondSource",
            Self::Epoch { .. } => "EpochOutOfRange",
        }
    }

    /// What happened and how to continue.
    pub(crate) fn message(self, cluster: &str) -> String {
        match self {
            Self::Term { named, ours } if named.is_out_of_range(ours) => format!(
                "the agent says that it obeyed term {named}, more than 2^32 above the leader's term {ours}: no election \
                 reached it. On the member, delete annotation {} of Lease atoll-system/atoll-agent and restart the agent",
                marks::TERM
            ),
            Self::Term { named, ours } => format!(
                "the agent says that it obeyed term {named}, the leader's term is {ours}: the agent gets no work. The leader \
                 raises its term when a majority of the members, at least two, say the same. If the hub was restored from a \
                 backup: `atoll accept-term {cluster}`"
            ),
            Self::Epoch { named, limit } => format!(
                "the agent names epoch {named}, the highest one accepted is {limit}: its clock or its Lease is wrong. Set \
                 the member's clock, delete Lease atoll-system/atoll-agent there, then `atoll rejoin {cluster}`"
            ),
        }
    }

    /// The status for the agent.
    pub(super) fn status(self) -> Status {
        match self {
            Self::Term { named, ours } if named.is_out_of_range(ours) => {
                Status::failed_precondition(
                    "hello.highest_term is more than 2^32 above the leader's",
                )
            }
            Self::Term { named, ours } => Status::unavailable(format!(
                "hello.highest_term {named} is above the leader's term {ours}: see condition {TERM_AHEAD} of the Cluster"
            )),
            Self::Epoch { named, limit } => Status::failed_precondition(format!(
                "hello.epoch {named} is above {limit}, the highest one accepted: see condition {EPOCH_AHEAD} of the Cluster"
            )),
        }
    }
}

/// Types of all conditions of refusals.
pub(crate) const CONDITIONS: [&str; 2] = [TERM_AHEAD, EPOCH_AHEAD];

/// Highest accepted epoch of a member whose highest one so far is `known`, at this Unix time.
pub(super) fn epoch_limit(known: u64, now: i64) -> u64 {
    let clock = u64::try_from(now).unwrap_or_default();
    clock.saturating_add(EPOCH_LEAD).max(known.saturating_add(EPOCH_STEP))
}

/// The highest term above `ours` that enough of the enrolled members name or exceed.
pub(super) fn believed(
    named: impl Iterator<Item = LeaderTerm>,
    enrolled: usize,
    ours: LeaderTerm,
) -> Option<LeaderTerm> {
    let needed = (enrolled / 2 + 1).max(2);
    let mut above: Vec<LeaderTerm> =
        named.filter(|term| *term > ours && !term.is_out_of_range(ours)).collect();
    if above.len() < needed {
        return None;
    }
    above.sort_unstable_by(|a, b| b.cmp(a));
    above.get(needed - 1).copied()
}

/// Stores why a Hello is refused, shows it on the Cluster, and raises the term if enough members name a higher one.
pub(super) fn refuse(cx: &Context, member: &Member, refusal: Refusal) -> Status {
    cx.metrics.refused.get_or_create(&Refused { reason: refusal.label() }).inc();
    let uid = {
        let mut state = member.lock();
        let news = state.refusal.replace(refusal) != Some(refusal);
        if news {
            let message = refusal.message(&member.name);
            tracing::warn!(
                cluster = member.name,
                reason = refusal.reason(),
                message,
                "session refused"
            );
        }
        state.uid().map(str::to_owned)
    };
    cx.due.mark(&member.name);
    if let (Refusal::Term { named, ours }, Some(uid)) = (refusal, uid)
        && let Some(term) = cx.registry.name_term(&uid, named, ours)
    {
        cx.outbox.push(MemberEvent::HigherTerm { cluster: member.name.clone(), term });
    }
    refusal.status()
}

/// A Hello was accepted: clears the refusal.
pub(super) fn accepted(cx: &Context, member: &Member) {
    let uid = {
        let mut state = member.lock();
        state.refusal = None;
        state.uid().map(str::to_owned)
    };
    if let Some(uid) = uid {
        cx.registry.forget_term(&uid);
    }
}

/// A user accepts the term that the member names (annotation [`marks::ACCEPT_TERM`]). Returns whether the request is
/// done: the term was raised, there is nothing to accept, or it cannot be accepted. It does not cover terms that the
/// member names later.
pub(super) fn accept(cx: &Context, member: &Member) -> bool {
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
            cluster = member.name,
            term = %accepted,
            %ours,
            "a person accepts the member's term"
        );
        let cluster = member.name.clone();
        cx.outbox.push(MemberEvent::HigherTerm { cluster, term: accepted });
    }
    done
}

/// Sets or removes the refusal's condition. Without a session or a refusal, the previous leader's condition stays.
pub(crate) fn show(
    conditions_list: &mut Vec<k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition>,
    refusal: Option<Refusal>,
    connected: bool,
    cluster: &str,
    generation: Option<i64>,
    now: jiff::Timestamp,
) {
    let holds = conditions::Status::True;
    let shown = refusal.map(Refusal::condition);
    conditions_list.retain(|condition| {
        let kind = condition.type_.as_str();
        !CONDITIONS.contains(&kind) || shown == Some(kind) || (shown.is_none() && !connected)
    });
    if let Some(refusal) = refusal {
        let (kind, message) = (refusal.condition(), refusal.message(cluster));
        conditions::set(conditions_list, kind, holds, refusal.reason(), &message, generation, now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::leader::LARGEST_TERM_STEP;

    #[test]
    fn a_term_needs_a_majority_and_at_least_two() {
        let believed = |named: &[u64], enrolled| {
            let named = named.iter().copied().map(LeaderTerm::new);
            believed(named, enrolled, LeaderTerm::new(5)).map(LeaderTerm::get)
        };
        assert_eq!(believed(&[9], 1), None, "a single member needs a person");
        assert_eq!(believed(&[9], 2), None);
        assert_eq!(believed(&[9], 3), None);
        assert_eq!(believed(&[9, 9], 2), Some(9));
        assert_eq!(believed(&[9, 9], 3), Some(9));
        assert_eq!(believed(&[9, 9], 4), None, "half is no majority");
        // A member that names a much higher term has no more weight.
        assert_eq!(believed(&[7, 1 << 31, 8], 3), Some(8));
        assert_eq!(believed(&[7, 5 + LARGEST_TERM_STEP + 1], 2), None, "out of range");
        assert_eq!(believed(&[5, 4, 9], 3), None, "not above ours");
    }

    #[test]
    fn epochs_are_bounded_by_the_clock_and_by_what_is_known() {
        let now = 1_700_000_000;
        assert_eq!(epoch_limit(0, now), 1_700_000_000 + EPOCH_LEAD);
        assert_eq!(epoch_limit(1_800_000_000, now), 1_800_000_000 + EPOCH_STEP);
        assert_eq!(epoch_limit(u64::MAX, now), u64::MAX);
        assert_eq!(epoch_limit(0, -1), EPOCH_LEAD);
    }
}
