//! Bindings that this leader sent to members although they had already ended: its watch lagged, and an earlier leader
//! had withdrawn them meanwhile. The members hold their objects again; history's record is the proof needed to remove
//! them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use atoll_history::{NEWEST, Store};

use super::Engine;
use super::jobs::JobDone;
use super::recovery::limited;
use crate::index::key::BindingKey;
use crate::leader::LeaderTerm;
use crate::members::{Proof, Withdrawal as How};

/// Delay before history is queried again after a failure.
const AGAIN: Duration = Duration::from_secs(10);

/// Bindings that ended although this leader did not withdraw them.
#[derive(Debug, Default)]
pub(super) struct Reissued {
    /// Members that were sent something, by uid of the binding.
    open: BTreeMap<String, BTreeSet<String>>,
    /// Whether a query is running.
    asking: bool,
}

impl Engine {
    /// A binding was deleted from the hub: if it was sent and not withdrawn here, history is queried about it.
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

    /// History's answer. Objects of bindings without a record stay on the members, as orphans.
    pub(super) fn records_known(
        &mut self,
        term: LeaderTerm,
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

/// Those of these bindings that are withdrawn in history. Ends with the leadership at the latest, like every job.
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
