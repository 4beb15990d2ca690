//! Bindings that this leader gave to members and that had ended before: its watch lagged, and an earlier leader had withdrawn
//! them meanwhile. The members hold their objects again, and the proof by which they go is history's record.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use atoll_history::{NEWEST, Store};

use super::Engine;
use super::jobs::JobDone;
use super::recovery::limited;
use crate::index::key::BindingKey;
use crate::members::{Proof, Withdrawal as How};

/// Pause before history is asked again that did not answer.
const AGAIN: Duration = Duration::from_secs(10);

/// Bindings that ended although this leader did not withdraw them.
#[derive(Debug, Default)]
pub(super) struct Reissued {
    /// Members that were given something, by uid of the binding.
    open: BTreeMap<String, BTreeSet<String>>,
    /// Whether history is being asked.
    asking: bool,
}

impl Engine {
    /// A binding is gone from the hub: what of it was given out here, and not withdrawn, is asked about.
    pub(super) fn note_reissued(&mut self, key: &BindingKey) {
        if self.led.is_none() || self.withdrawals.contains_key(key) {
            return;
        }
        for (cluster, handed) in self.sent.of(key) {
            let claim = handed.claim().to_owned();
            self.reissued.open.entry(claim).or_default().insert(cluster.clone());
        }
        self.ask_for_records();
    }

    fn ask_for_records(&mut self) {
        let Some(term) = self.led.filter(|_| !self.reissued.asking) else { return };
        let uids: Vec<String> = self.reissued.open.keys().take(NEWEST).cloned().collect();
        if uids.is_empty() {
            return;
        }
        self.reissued.asking = true;
        let store = self.store.clone();
        self.jobs.spawn(async move {
            let withdrawn = recorded(&store, &uids).await;
            JobDone::Reissued { term, asked: uids, withdrawn }
        });
    }

    /// History's answer. What it has no record of stays on the members, as orphans.
    pub(super) fn records_known(
        &mut self,
        term: u64,
        asked: &[String],
        withdrawn: &BTreeSet<String>,
    ) {
        if self.led != Some(term) {
            return;
        }
        self.reissued.asking = false;
        for claim in asked {
            let clusters = self.reissued.open.remove(claim).unwrap_or_default();
            if !withdrawn.contains(claim) || self.index.binding_by_uid(claim).is_some() {
                continue;
            }
            tracing::info!(
                binding = claim,
                ?clusters,
                "given to members again after its withdrawal, because this leader's watch lagged: removed again"
            );
            for cluster in &clusters {
                self.verdicts.unconfirmed(cluster, [claim.clone()]);
                self.outlet.withdraw(cluster, claim, How::Remove, Proof::Recorded);
            }
        }
        self.ask_for_records();
    }
}

/// Those of these bindings that history records as withdrawn. Ends with the leadership at the latest, as every job does.
async fn recorded(store: &Arc<dyn Store>, uids: &[String]) -> BTreeSet<String> {
    let mut warned = false;
    loop {
        match limited(store.newest(uids)).await {
            Ok(rows) => {
                let withdrawn = rows.into_iter().filter(|row| row.withdrawn);
                return withdrawn.map(|row| row.binding_uid).collect();
            }
            Err(why) if !std::mem::replace(&mut warned, true) => {
                tracing::warn!(
                    why,
                    "history database unreachable: copies of bindings that ended stay on members until it answers"
                );
            }
            Err(_) => {}
        }
        tokio::time::sleep(AGAIN).await;
    }
}
