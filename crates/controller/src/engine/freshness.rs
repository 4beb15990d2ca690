//! Is the hub as new as history? A hub that was restored from a backup, or that lost its last writes, holds decisions which
//! were replaced long ago: what they no longer name may be the only copy there is. So a new leader compares them once, and
//! removals are limited until it knows better.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use atoll_history::{NEWEST, Newest, Store};

use super::Engine;
use super::jobs::JobDone;
use super::recovery::limited;
use crate::members::LimitReason;

/// Pause before history is asked again that did not answer.
const AGAIN: Duration = Duration::from_secs(10);
/// Pause before bindings that seem older than history are looked at again: what this leader has just handed over is written
/// by then, also where the database had lost it.
const RECHECK: Duration = Duration::from_secs(3);
/// How often they are looked at again.
const RECHECKS: u32 = 5;

/// What a leader knows of the hub's age.
#[derive(Debug, Default)]
pub(super) struct Freshness {
    /// The term was raised while this process led: a member had seen a leader of which the hub knows nothing.
    raised: bool,
    /// Whether every decision of the hub was the newest; nothing before history has answered.
    newest: Option<bool>,
    /// Bindings of earlier leaders' decisions, by uid, whose decision is the newest.
    verified: BTreeMap<String, String>,
}

impl Freshness {
    /// A leadership begins.
    pub(super) fn begin(raised: bool) -> Self {
        Self { raised, ..Self::default() }
    }

    /// Why all removals are limited, if they are. `unreachable`: history's database does not take what it is given.
    fn limit(&self, unreachable: bool) -> Option<LimitReason> {
        match self.newest {
            _ if self.raised => Some(LimitReason::TermRaised),
            Some(false) => Some(LimitReason::HubOlderThanHistory),
            Some(true) if !unreachable => None,
            _ => Some(LimitReason::HistoryUnreachable),
        }
    }
}

/// A binding's decision as it was when the leadership began.
#[derive(Debug, Clone)]
pub(super) struct Held {
    uid: String,
    decision: String,
    /// Decisions before it that history may not have yet.
    before: BTreeSet<String>,
}

/// What a comparison gave.
#[derive(Debug)]
pub(super) struct Compared {
    /// Decisions that are the newest, by uid of their bindings.
    newest: BTreeMap<String, String>,
    /// Bindings for which history has a newer one.
    older: Vec<Held>,
    /// How often these were looked at again.
    rechecks: u32,
}

impl Engine {
    /// Compares what bindings hold with history.
    pub(super) fn compare_with_history(&mut self, term: u64) {
        let held = self.index.bindings().filter(|binding| !binding.deleting());
        let held = held.filter_map(|binding| {
            let decision = binding.spec.decision.as_ref()?;
            let unrecorded = binding.spec.unrecorded.iter();
            let before = unrecorded.map(|held| held.decision.id.clone());
            Some(Held {
                uid: binding.uid().to_owned(),
                decision: decision.id.clone(),
                before: before.chain(decision.parent.clone()).collect(),
            })
        });
        let held = held.collect();
        self.compare(term, held, 0);
    }

    fn compare(&mut self, term: u64, held: Vec<Held>, rechecks: u32) {
        let store = self.store.clone();
        self.jobs.spawn(async move {
            if rechecks > 0 {
                tokio::time::sleep(RECHECK).await;
            }
            let mut warned = false;
            // Ends with the leadership at the latest, as every job does.
            loop {
                match ask(&store, &held).await {
                    Ok(rows) => {
                        let compared = judge(held, &rows, term, rechecks);
                        return JobDone::Compared { term, compared };
                    }
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
        });
    }

    /// The comparison is done.
    pub(super) fn compared(&mut self, term: u64, compared: Compared) {
        if self.led != Some(term) {
            return;
        }
        let Compared { newest, older, rechecks } = compared;
        self.freshness.verified.extend(newest);
        self.freshness.newest = Some(older.is_empty());
        if let Some(first) = older.first() {
            if rechecks == 0 {
                tracing::warn!(
                    bindings = older.len(),
                    example = first.uid,
                    decision = first.decision,
                    "history has newer decisions than the hub: mass removals from members are limited"
                );
            }
            if rechecks < RECHECKS {
                self.compare(term, older, rechecks + 1);
            }
        }
        self.verdicts.newest(self.freshness.verified.clone());
        self.review_limit();
    }

    /// Tells the members' side whether removals are limited, where that changed.
    pub(super) fn review_limit(&mut self) {
        let limit = self.freshness.limit(self.behind);
        self.verdicts.limit_all(limit);
        self.outlet.limits_changed();
    }
}

async fn ask(store: &Arc<dyn Store>, held: &[Held]) -> Result<Vec<Newest>, String> {
    let mut rows = Vec::with_capacity(held.len());
    for chunk in held.chunks(NEWEST) {
        let uids: Vec<String> = chunk.iter().map(|held| held.uid.clone()).collect();
        rows.extend(limited(store.newest(&uids)).await?);
    }
    Ok(rows)
}

fn judge(held: Vec<Held>, rows: &[Newest], term: u64, rechecks: u32) -> Compared {
    let rows: BTreeMap<&str, &Newest> =
        rows.iter().map(|row| (row.binding_uid.as_str(), row)).collect();
    let (mut newest, mut older) = (BTreeMap::new(), Vec::new());
    for held in held {
        // Without a row nothing says that the decision is the newest, nor that it is not.
        let Some(row) = rows.get(held.uid.as_str()) else { continue };
        if row.decision == held.decision || held.before.contains(&row.decision) {
            newest.insert(held.uid, held.decision);
        } else if rechecks > 0 || u64::try_from(row.term) != Ok(term) {
            // What this leader has decided since replaces no doubt that there was before.
            older.push(held);
        }
    }
    Compared { newest, older, rechecks }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn held(decision: &str, before: &[&str]) -> Held {
        let before = before.iter().map(|id| (*id).to_owned()).collect();
        Held { uid: "u".to_owned(), decision: decision.to_owned(), before }
    }

    fn row(decision: &str, term: i64) -> Newest {
        Newest {
            binding_uid: "u".to_owned(),
            decision: decision.to_owned(),
            term,
            withdrawn: false,
        }
    }

    #[test]
    fn a_decision_is_old_when_history_has_another_that_it_does_not_know() {
        let judged = |row: Newest, rechecks| {
            let compared = judge(vec![held("d3", &["d1", "d2"])], &[row], 5, rechecks);
            (compared.newest.len(), compared.older.len())
        };
        assert_eq!(judged(row("d3", 4), 0), (1, 0));
        assert_eq!(judged(row("d2", 4), 0), (1, 0), "history has not written it yet");
        assert_eq!(judged(row("d9", 4), 0), (0, 1), "the hub is a backup");
        assert_eq!(judged(row("d4", 5), 0), (0, 0), "decided by this leader since");
        assert_eq!(judged(row("d4", 5), 1), (0, 1), "the same, on a hub that is a backup");
        let unknown = judge(vec![held("d3", &[])], &[], 5, 0);
        assert_eq!((unknown.newest.len(), unknown.older.len()), (0, 0));
    }

    #[test]
    fn everything_is_limited_until_history_says_that_the_hub_is_the_newest() {
        let mut freshness = Freshness::begin(false);
        assert_eq!(freshness.limit(false), Some(LimitReason::HistoryUnreachable));
        freshness.newest = Some(false);
        assert_eq!(freshness.limit(false), Some(LimitReason::HubOlderThanHistory));
        freshness.newest = Some(true);
        assert_eq!(freshness.limit(false), None);
        assert_eq!(freshness.limit(true), Some(LimitReason::HistoryUnreachable));
        let mut raised = Freshness::begin(true);
        raised.newest = Some(true);
        assert_eq!(raised.limit(false), Some(LimitReason::TermRaised));
    }
}
