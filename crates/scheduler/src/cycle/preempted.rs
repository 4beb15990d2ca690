//! The binding that loses room: which replicas it loses because committed decisions of bindings with higher priority
//! took their room.

use std::collections::BTreeMap;

use atoll_api::binding::TargetCluster;
use atoll_api::text::counted;

use super::state::{Cycle, Targets};
use super::triggers::Evidence;
use crate::framework::verdicts::Verdicts;
use crate::plugins::preemption::NAME;
use crate::request::Request;
use crate::state::snapshot::Snapshot;
use crate::state::standing::Claim;

/// Claims named in the evidence. Further ones are only counted.
const MAX_NAMED: usize = 4;

/// Replicas that a binding loses on a cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lost {
    /// Name of the cluster.
    pub cluster: String,
    /// How many.
    pub replicas: i64,
    /// How many it may keep.
    pub remaining: i64,
}

/// The committed claims on a binding that it has not followed yet.
fn open<'s>(snapshot: &'s Snapshot, request: &'s Request) -> impl Iterator<Item = &'s Claim> {
    let followed = |id: &String| {
        request.previous.as_ref().is_some_and(|previous| previous.preempted_by.contains(id))
    };
    let claims = snapshot.claims(&request.key).iter();
    claims.filter(move |claim| claim.committed && !followed(&claim.taken.decision))
}

/// What a binding loses, by cluster. Each claim says how many replicas may remain, so claims on one cluster do not add up,
/// and a claim that was followed in part or is read twice has the same result.
#[must_use]
pub fn lost(snapshot: &Snapshot, request: &Request) -> Vec<Lost> {
    let mut remaining: BTreeMap<&str, i64> = BTreeMap::new();
    for claim in open(snapshot, request) {
        let least = remaining.entry(&claim.taken.cluster).or_insert(i64::MAX);
        *least = (*least).min(claim.taken.remaining.max(0));
    }
    if remaining.is_empty() {
        return Vec::new();
    }
    let held = request.previous.iter().flat_map(|previous| &previous.clusters);
    // A cluster that left the federation has no room to give.
    let held = held.filter(|target| snapshot.find(&target.name).is_some());
    let lost = held.filter_map(|target| {
        let most = remaining.get(target.name.as_str()).copied()?;
        let replicas = target.replicas.saturating_sub(most);
        let cluster = target.name.clone();
        (replicas > 0).then_some(Lost { cluster, replicas, remaining: most })
    });
    lost.collect()
}

/// Takes what is lost out of a list of shares. A share without replicas is removed.
#[must_use]
pub fn without(shares: &[TargetCluster], lost: &[Lost]) -> Vec<TargetCluster> {
    let rest = shares.iter().filter_map(|target| {
        match lost.iter().find(|lost| lost.cluster == target.name) {
            None => Some(target.clone()),
            Some(lost) if lost.remaining == 0 => None,
            Some(lost) => Some(TargetCluster { replicas: lost.remaining, ..target.clone() }),
        }
    });
    rest.collect()
}

/// Shares by row, including the replicas that are lost.
#[must_use]
pub fn before(targets: &Targets, snapshot: &Snapshot) -> Vec<(u32, i64)> {
    let mut seats: BTreeMap<u32, i64> = targets.seats.iter().copied().collect();
    for lost in &targets.lost {
        if let Some(row) = snapshot.find(&lost.cluster) {
            let share = seats.entry(row as u32).or_default();
            *share = share.saturating_add(lost.replicas);
        }
    }
    seats.into_iter().collect()
}

/// Which decisions a binding has followed once it has been decided again: all committed ones that still list it.
#[must_use]
pub fn followed(snapshot: &Snapshot, request: &Request) -> Vec<String> {
    let claims = snapshot.claims(&request.key).iter().filter(|claim| claim.committed);
    let mut ids: Vec<String> = claims.map(|claim| claim.taken.decision.clone()).collect();
    ids.sort_unstable();
    ids.dedup();
    ids
}

/// What the trigger found.
#[must_use]
pub fn evidence(cycle: &Cycle<'_>) -> Evidence {
    let lost = &cycle.targets.lost;
    if lost.is_empty() {
        return None;
    }
    let concerned = |claim: &&Claim| lost.iter().any(|lost| lost.cluster == claim.taken.cluster);
    let claims: Vec<&Claim> = open(cycle.snapshot, cycle.request).filter(concerned).collect();
    let text = |claim: &&Claim| {
        format!(
            "{} (priority {}) took the room of {} on {}",
            claim.by,
            claim.priority,
            counted(claim.taken.replicas, "replica"),
            claim.taken.cluster
        )
    };
    let mut parts: Vec<String> = claims.iter().take(MAX_NAMED).map(text).collect();
    if let Some(more) = claims.len().checked_sub(MAX_NAMED).filter(|more| *more > 0) {
        parts.push(format!("and {more} more"));
    }
    Some(parts.join("; ").into())
}

/// The clusters that lost room take no more replicas of the binding in this decision, whatever the strategy.
pub fn limit(targets: &Targets, snapshot: &Snapshot, verdicts: &mut Verdicts) {
    for lost in &targets.lost {
        let Some(row) = snapshot.find(&lost.cluster) else { continue };
        let reason = "a workload of higher priority took the room".to_owned();
        verdicts.limit(NAME, row, lost.remaining, reason);
    }
}
