//! Bindings that this leader sent to members although they had already ended: its watch lagged, and an earlier leader
//! had withdrawn them meanwhile. The members hold their objects again; history's record is the proof needed to remove
//! them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use atoll_api::{BindingUid, ClusterName};
use atoll_history::{NEWEST, Store};

use super::Placements;
use crate::audit::query::{AGAIN, limited};
use crate::env::Env;
use crate::index::Index;
use crate::index::key::BindingKey;
use crate::members::{Proof, Withdrawal as How};

/// Bindings that ended although this leader did not withdraw them.
#[derive(Debug, Default)]
pub(crate) struct Reissued {
    /// Members that were sent something, by binding.
    open: BTreeMap<BindingUid, BTreeSet<ClusterName>>,
    /// Whether a query is running.
    asking: bool,
}

/// History's answer about some of them.
#[derive(Debug)]
pub(crate) struct Answer {
    asked: Vec<BindingUid>,
    withdrawn: BTreeSet<BindingUid>,
}

impl Reissued {
    /// A binding was deleted from the hub: if it was sent and not withdrawn by this leader, history has to be queried.
    pub(crate) fn note(&mut self, placements: &Placements, key: &BindingKey) {
        if placements.withdrawal(key).is_some() {
            return;
        }
        for (cluster, sent) in placements.all_sent(key) {
            let members = self.open.entry(sent.claim().clone()).or_default();
            members.insert(cluster.clone());
        }
    }

    /// The next query, unless one is running.
    pub(crate) fn query(
        &mut self,
        env: &Env,
    ) -> Option<impl Future<Output = Answer> + Send + 'static> {
        let uids: Vec<BindingUid> = self.open.keys().take(NEWEST).cloned().collect();
        if self.asking || uids.is_empty() {
            return None;
        }
        self.asking = true;
        let store = env.store.clone();
        Some(async move {
            let withdrawn = recorded(&store, &uids).await;
            Answer { asked: uids, withdrawn }
        })
    }

    /// History answered. Objects of bindings without a record stay on the members, as orphans.
    pub(crate) fn answered(
        &mut self,
        env: &Env,
        placements: &Placements,
        index: &Index,
        answer: &Answer,
    ) {
        self.asking = false;
        for claim in &answer.asked {
            let clusters = self.open.remove(claim).unwrap_or_default();
            if !answer.withdrawn.contains(claim) || index.binding_by_uid(claim).is_some() {
                continue;
            }
            tracing::info!(
                binding = claim.as_str(),
                ?clusters,
                "sent to members again after its withdrawal, because this leader's watch lagged: removed again"
            );
            for cluster in &clusters {
                placements.verdicts.unconfirmed(cluster, [claim.clone()]);
                env.outlet.withdraw(cluster, claim, How::Remove, Proof::Recorded);
            }
        }
    }
}

/// Those of these bindings that are withdrawn in history. Ends with the leadership at the latest, like every job.
async fn recorded(store: &Arc<dyn Store>, uids: &[BindingUid]) -> BTreeSet<BindingUid> {
    let uids: Vec<String> = uids.iter().map(Into::into).collect();
    let mut warned = false;
    loop {
        match limited(store.newest(&uids)).await {
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
