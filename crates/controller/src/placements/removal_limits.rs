//! Whether removals are limited, because the hub may be older than history. A hub that was restored from a backup, or
//! that lost its last writes, holds decisions that were replaced long ago: a copy that they do not name may be the only
//! one. So a new leader compares them once, and removals are limited until the comparison is done.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use atoll_api::{BindingUid, DecisionId};
use atoll_history::{NEWEST, Newest, Store};

use crate::audit::query::{AGAIN, limited};
use crate::env::Env;
use crate::index::Index;
use crate::leader::LeaderTerm;
use crate::members::LimitReason;
use crate::placements::Placements;

/// Delay before bindings that seem older than history are compared again: by then the records that this leader just
/// passed on are written, even if the database had lost them.
const RECHECK: Duration = Duration::from_secs(3);
/// Number of repeated comparisons.
const RECHECKS: u32 = 5;

/// Whether this leader's hub may be older than history.
#[derive(Debug)]
pub(crate) struct RemovalLimits {
    term: LeaderTerm,
    /// The term was raised in this leadership: a member had seen a leader that the hub has no trace of.
    raised: bool,
    /// Whether every decision of the hub was the newest; `None` before history has answered.
    newest: Option<bool>,
    /// Decisions of earlier leaders that are the newest, by their bindings.
    verified: BTreeMap<BindingUid, DecisionId>,
}

/// A binding's decision at the start of the leadership.
#[derive(Debug, Clone)]
pub(crate) struct Held {
    uid: BindingUid,
    decision: DecisionId,
    /// Earlier decisions that history may not have yet.
    before: BTreeSet<DecisionId>,
}

/// Result of a comparison.
#[derive(Debug)]
pub(crate) struct Compared {
    /// Decisions that are the newest, by their bindings.
    newest: BTreeMap<BindingUid, DecisionId>,
    /// Bindings with a newer decision in history.
    older: Vec<Held>,
    /// How often these were compared again.
    rechecks: u32,
}

impl RemovalLimits {
    /// At the start of a leadership.
    pub(crate) fn begin(term: LeaderTerm, raised: bool) -> Self {
        Self { term, raised, newest: None, verified: BTreeMap::new() }
    }

    /// Why all removals are limited, if they are. `unreachable`: the history database does not accept writes.
    pub(crate) fn limit(&self, unreachable: bool) -> Option<LimitReason> {
        match self.newest {
            _ if self.raised => Some(LimitReason::TermRaised),
            Some(false) => Some(LimitReason::HubOlderThanHistory),
            Some(true) if !unreachable => None,
            _ => Some(LimitReason::HistoryUnreachable),
        }
    }

    /// Compares what bindings hold with history.
    pub(crate) fn compare_all(
        &self,
        env: &Env,
        index: &Index,
    ) -> impl Future<Output = Compared> + Send + 'static {
        let held = index.bindings().filter(|binding| !binding.deleting());
        let held = held.filter_map(|binding| {
            let decision = binding.spec.decision.as_ref()?;
            let unrecorded = binding.spec.unrecorded.iter();
            let before = unrecorded.map(|held| held.decision.id.clone());
            Some(Held {
                uid: binding.uid.clone(),
                decision: decision.id.clone(),
                before: before.chain(decision.parent.clone()).collect(),
            })
        });
        compare(env.store.clone(), self.term, held.collect(), 0)
    }

    /// A comparison is done. Returns the next one, if some bindings have to be compared again.
    pub(crate) fn compared(
        &mut self,
        env: &Env,
        placements: &Placements,
        compared: Compared,
    ) -> Option<impl Future<Output = Compared> + Send + 'static> {
        let Compared { newest, older, rechecks } = compared;
        self.verified.extend(newest);
        self.newest = Some(older.is_empty());
        placements.verdicts.newest(self.verified.clone());
        let first = older.first()?;
        if rechecks == 0 {
            tracing::warn!(
                bindings = older.len(),
                example = first.uid.as_str(),
                decision = first.decision.as_str(),
                "history has newer decisions than the hub: mass removals from members are limited"
            );
        }
        (rechecks < RECHECKS).then(|| compare(env.store.clone(), self.term, older, rechecks + 1))
    }
}

/// Compares these bindings with history, which is queried until it answers: at the latest, the end of the leadership
/// ends the job.
async fn compare(
    store: Arc<dyn Store>,
    term: LeaderTerm,
    held: Vec<Held>,
    rechecks: u32,
) -> Compared {
    if rechecks > 0 {
        tokio::time::sleep(RECHECK).await;
    }
    let mut warned = false;
    loop {
        match ask(&store, &held).await {
            Ok(rows) => return judge(held, &rows, term, rechecks),
            Err(why) if !std::mem::replace(&mut warned, true) => {
                tracing::warn!(
                    why,
                    "history database unreachable: mass removals from members are limited"
                );
            }
            Err(_) => {}
        }
        tokio::time::sleep(AGAIN).await;
    }
}

async fn ask(store: &Arc<dyn Store>, held: &[Held]) -> Result<Vec<Newest>, String> {
    let mut rows = Vec::with_capacity(held.len());
    for chunk in held.chunks(NEWEST) {
        let uids: Vec<String> = chunk.iter().map(|held| String::from(&held.uid)).collect();
        rows.extend(limited(store.newest(&uids)).await?);
    }
    Ok(rows)
}

fn judge(held: Vec<Held>, rows: &[Newest], term: LeaderTerm, rechecks: u32) -> Compared {
    let rows: BTreeMap<&BindingUid, &Newest> =
        rows.iter().map(|row| (&row.binding_uid, row)).collect();
    let (mut newest, mut older) = (BTreeMap::new(), Vec::new());
    for held in held {
        // Without a row it is unknown whether the decision is the newest.
        let Some(row) = rows.get(&held.uid) else { continue };
        if row.decision == held.decision || held.before.contains(&row.decision) {
            newest.insert(held.uid, held.decision);
        } else if rechecks > 0 || LeaderTerm::from_record(row.term) != term {
            // Decisions made by this leader since then do not remove the earlier doubt.
            older.push(held);
        }
    }
    Compared { newest, older, rechecks }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn held(decision: &str, before: &[&str]) -> Held {
        let before = before.iter().map(|id| (*id).into()).collect();
        Held { uid: "u".into(), decision: decision.into(), before }
    }

    fn row(decision: &str, term: i64) -> Newest {
        Newest { binding_uid: "u".into(), decision: decision.into(), term, withdrawn: false }
    }

    #[test]
    fn a_decision_is_old_when_history_has_another_that_it_does_not_know() {
        let judged = |row: Newest, rechecks| {
            let compared =
                judge(vec![held("d3", &["d1", "d2"])], &[row], LeaderTerm::new(5), rechecks);
            (compared.newest.len(), compared.older.len())
        };
        assert_eq!(judged(row("d3", 4), 0), (1, 0));
        assert_eq!(judged(row("d2", 4), 0), (1, 0), "history has not written it yet");
        assert_eq!(judged(row("d9", 4), 0), (0, 1), "the hub is a backup");
        assert_eq!(judged(row("d4", 5), 0), (0, 0), "decided by this leader since");
        assert_eq!(judged(row("d4", 5), 1), (0, 1), "the same, on a hub that is a backup");
        let unknown = judge(vec![held("d3", &[])], &[], LeaderTerm::new(5), 0);
        assert_eq!((unknown.newest.len(), unknown.older.len()), (0, 0));
    }

    #[test]
    fn everything_is_limited_until_history_says_that_the_hub_is_the_newest() {
        let mut limits = RemovalLimits::begin(LeaderTerm::new(1), false);
        assert_eq!(limits.limit(false), Some(LimitReason::HistoryUnreachable));
        limits.newest = Some(false);
        assert_eq!(limits.limit(false), Some(LimitReason::HubOlderThanHistory));
        limits.newest = Some(true);
        assert_eq!(limits.limit(false), None);
        assert_eq!(limits.limit(true), Some(LimitReason::HistoryUnreachable));
        let mut raised = RemovalLimits::begin(LeaderTerm::new(1), true);
        raised.newest = Some(true);
        assert_eq!(raised.limit(false), Some(LimitReason::TermRaised));
    }
}
