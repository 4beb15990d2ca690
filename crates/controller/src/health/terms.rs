//! Terms and epochs that agents name in their Hello, and when they are believed.
//!
//! An agent refuses a controller whose term is below the highest one that it accepted. After a restore of the hub that
//! may be every agent, and the leader has to raise its term above theirs. A raise ends all sessions, so one member must
//! not be able to cause it: a term is believed when a majority of the enrolled members (at least two) name it or a
//! higher one, or when a user accepts it (`atoll accept-term`). The hub's own Lease and bindings need no second source.

use atoll_api::{conditions, marks};
use tonic::Status;

use crate::leader::LeaderTerm;

/// Condition: the agent accepted a higher term than the leader's and refuses this leader.
pub(crate) const TERM_AHEAD: &str = "TermAhead";
/// Condition: the agent names an epoch that its Lease cannot have reached.
pub(crate) const EPOCH_AHEAD: &str = "EpochAhead";

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
    pub(crate) fn label(self) -> &'static str {
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
                "the agent reports that it accepted term {named}, more than 2^32 above the leader's term {ours}: no election \
                 can have reached it. On the member, delete annotation {} of Lease atoll-system/atoll-agent and restart the agent",
                marks::TERM
            ),
            Self::Term { named, ours } => format!(
                "the agent reports that it accepted term {named}, and the leader's term is {ours}: the agent gets no work. The \
                 leader raises its term when a majority of the members, at least two, report such a term. If the hub was restored from a \
                 backup: `atoll accept-term {cluster}`"
            ),
            Self::Epoch { named, limit } => format!(
                "the agent reports epoch {named}, and the highest accepted one is {limit}: its clock or its Lease is wrong. Set \
                 the member's clock, delete Lease atoll-system/atoll-agent there, then `atoll rejoin {cluster}`"
            ),
        }
    }

    /// The status for the agent.
    pub(crate) fn status(self) -> Status {
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
pub(crate) fn epoch_limit(known: u64, now: i64) -> u64 {
    let clock = u64::try_from(now).unwrap_or_default();
    clock.saturating_add(EPOCH_LEAD).max(known.saturating_add(EPOCH_STEP))
}

/// The highest term above `ours` that enough of the enrolled members name or exceed.
pub(crate) fn believed(
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
        assert_eq!(believed(&[9], 1), None, "a single member needs an operator");
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
