//! Ends a deleted binding: every member that may hold its objects removes them, history records which members could not
//! confirm that, then the finalizer goes.

use std::collections::BTreeSet;

use atoll_api::{Cluster, ClusterName, DecisionId};
use atoll_history::{Receipt, Record, RecordState, Withdrawal as Withdrawn};
use serde_json::Value;
use tokio::time::Instant;

use super::Placements;
use super::withdrawal::{Next, Withdrawal};
use crate::audit::binding_ref;
use crate::commit::draft;
use crate::env::Env;
use crate::hub_state::HubState;
use crate::index::rows::Binding;
use crate::leader::LeaderTerm;
use crate::members::{Proof, Withdrawal as How};

/// How a withdrawal goes on.
pub(crate) enum WithdrawStep {
    /// Another finalizer keeps the binding.
    NotOurs,
    /// Members have until this time to confirm, or history has to acknowledge the record.
    Waits(Option<Instant>),
    /// History was given the record with this id, and will acknowledge it.
    Recording { id: DecisionId, receipt: Receipt },
    /// History's queue is full.
    QueueFull,
    /// This patch removes the finalizer.
    Release(Value),
}

/// One step of a binding's withdrawal.
pub(crate) fn step(
    env: &Env,
    hub: &HubState,
    placements: &mut Placements,
    binding: &Binding,
    term: LeaderTerm,
) -> WithdrawStep {
    let mut finalizers = binding.meta.finalizers.iter();
    if !finalizers.any(|finalizer| **finalizer == *atoll_api::marks::BINDING_FINALIZER) {
        return WithdrawStep::NotOurs;
    }
    let now = Instant::now();
    let withdrawal = placements.withdrawal(&binding.key);
    if withdrawal.is_none_or(|withdrawal| !withdrawal.is_of(&binding.uid)) {
        begin(env, hub, placements, binding, now);
    }
    let verdicts = placements.verdicts.clone();
    let Some(withdrawal) = placements.withdrawal_mut(&binding.key) else {
        return WithdrawStep::Waits(None);
    };
    match withdrawal.next(now, |cluster| hub.is_connected(cluster)) {
        Next::Confirmations(until) => WithdrawStep::Waits(Some(until)),
        Next::History => WithdrawStep::Waits(None),
        Next::Record(unconfirmed) => {
            for cluster in &unconfirmed {
                verdicts.unconfirmed(cluster, [binding.uid.clone()]);
            }
            record(env, withdrawal, binding, &unconfirmed, term)
        }
        Next::Release => WithdrawStep::Release(draft::without_finalizer(binding)),
    }
}

fn begin(env: &Env, hub: &HubState, placements: &mut Placements, binding: &Binding, now: Instant) {
    let key = &binding.key;
    // The ledger has an entry for each member that was sent something, reported something, or has to remove something.
    let held = placements.of(key).map(|(cluster, _)| cluster.clone());
    // An earlier leader may have ordered a member to remove its copy, which the decision does not name any more.
    let joined = |cluster: &Cluster| cluster.status.as_ref().is_some_and(|s| s.session.is_some());
    let unknown = hub
        .index
        .clusters()
        .filter(|(name, cluster)| joined(cluster) && !placements.is_inventoried(name));
    let unknown = unknown.map(|(name, _)| name.clone());
    let members = binding.clusters().map(ClusterName::from).chain(held).chain(unknown);
    // A cluster that left the federation cannot confirm and holds no managed objects.
    let members: BTreeSet<ClusterName> =
        members.filter(|cluster| hub.index.cluster(cluster).is_some()).collect();
    let how = if binding.spec.preserve_resources_on_deletion { How::Release } else { How::Remove };
    placements.verdicts.set(binding, BTreeSet::new(), BTreeSet::new(), false);
    for cluster in &members {
        env.outlet.withdraw(cluster, &binding.uid, how, Proof::BindingDeleted);
    }
    placements.begin_withdrawal(key, Withdrawal::begin(&binding.uid, members, now));
}

fn record(
    env: &Env,
    withdrawal: &mut Withdrawal,
    binding: &Binding,
    unconfirmed: &[ClusterName],
    term: LeaderTerm,
) -> WithdrawStep {
    let at = binding.meta.deleted.time();
    let record = Record::withdrawn(
        binding_ref(binding),
        binding.spec.resource.clone(),
        binding.spec.decision.as_ref(),
        binding.spec.clusters.clone(),
        Withdrawn { clusters: withdrawal.members(), unconfirmed: unconfirmed.to_vec() },
        at.unwrap_or_else(|| env.clock.now_seconds()),
        term.to_record(),
    );
    let id = record.record.id.clone();
    match env.recorder.record(record) {
        Ok(receipt) => {
            withdrawal.handed(id.clone());
            WithdrawStep::Recording { id, receipt }
        }
        Err(error) => {
            tracing::warn!(key = %binding.key, %error, "the withdrawal waits for history");
            WithdrawStep::QueueFull
        }
    }
}

/// History answered about a withdrawal's record. Returns whether the withdrawal goes on.
pub(crate) fn recorded(withdrawal: &mut Withdrawal, id: &DecisionId, state: RecordState) -> bool {
    if withdrawal.awaited() != Some(id) {
        return false;
    }
    match state {
        RecordState::Recorded => withdrawal.held(),
        RecordState::Refused(why) => {
            // It is rejected permanently: waiting would block the name forever, so the log is the record.
            tracing::error!(id = id.as_str(), why, "history refuses the record of a withdrawal");
            withdrawal.held();
        }
        RecordState::Queued => {
            tracing::warn!(id = id.as_str(), "the recorder ended before it wrote a withdrawal")
        }
    }
    true
}
