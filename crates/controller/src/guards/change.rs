//! What a decision moves because people changed something. Pure.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use atoll_api::binding::{Mode, TargetCluster, Trigger};
use atoll_api::placement::{Placement, RescheduleOn};
use atoll_api::{hex, marks};
use atoll_decision::Decision;
use sha2::{Digest, Sha256};

use crate::index::Index;
use crate::index::rows::Binding;

/// Hex digits of the ids of plans and of the hashes of changes.
const DIGITS: usize = 16;
/// Most clusters in the text of a change.
const MOST_CLUSTERS: usize = 8;

/// What one decision moves.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Change {
    /// Equal for equal changes: what leaves which cluster, and which clusters take it.
    pub(crate) hash: String,
    /// Replicas that leave a cluster, but for those that scaling down ends; 0 for kinds without replicas.
    pub(crate) replicas: i64,
    /// The shares before and after, for people.
    pub(crate) text: String,
}

/// What a decision moves because of people. `None` if people did not cause it, or nothing leaves a cluster.
pub(crate) fn by_people(
    index: &Index,
    placement: &Placement,
    binding: &Binding,
    decision: &Decision,
) -> Option<Change> {
    let follows = placement.reschedule_on.iter().flatten();
    let follows = follows.into_iter().any(|on| *on == RescheduleOn::ClusterChange);
    let mut losses = losses(decision, binding);
    let moves = match decision.trigger() {
        Trigger::Reconcile => true,
        // Skew that is mended in the background is no request.
        Trigger::Rebalance => {
            let asked = binding.spec.reschedule_triggered_at.as_ref();
            asked.map(|at| at.0) > binding.spec.decision.as_ref().map(|last| last.at.0)
        }
        // It takes in a change of the policy or a rebalance, although another trigger is named first.
        Trigger::Preempted => {
            let applied = binding.annotation(marks::APPLIED_PLACEMENT);
            decision.mode != Mode::Steady || applied != Some(&*decision.applied_placement())
        }
        // Clusters that are left with the one that failed, because their labels or taints changed.
        Trigger::ClusterChange => {
            losses.retain(|loss| !index.is_emptied_anyway(&loss.name));
            true
        }
        Trigger::First | Trigger::Withdrawn | Trigger::Avoid => false,
        _ => {
            losses.retain(|loss| !index.is_emptied_anyway(&loss.name));
            follows
        }
    };
    if !moves || losses.is_empty() {
        return None;
    }
    let counted = decision.desired.is_some();
    let before = binding.spec.decision.as_ref().map_or(0, |last| last.desired);
    let less = (before - decision.desired.unwrap_or(before)).max(0);
    let lost = losses.iter().fold(0_i64, |sum, loss| sum.saturating_add(loss.replicas));
    let replicas = if counted { (lost - less).max(0) } else { 0 };
    let gone = |loss: &TargetCluster| share(decision.clusters(), &loss.name).is_none();
    if replicas == 0 && !losses.iter().any(gone) {
        return None;
    }
    Some(Change {
        hash: hash(binding, &losses, decision.clusters(), replicas),
        replicas,
        text: text(&binding.spec.clusters, decision.clusters(), counted),
    })
}

/// What leaves each cluster. If every cluster has all replicas, a share that shrinks with them loses nothing.
fn losses(decision: &Decision, binding: &Binding) -> Vec<TargetCluster> {
    let desired = decision.desired.unwrap_or_default();
    let had = binding.spec.decision.as_ref().map_or(desired, |last| last.desired);
    let all = |shares: &[TargetCluster], each: i64| shares.iter().all(|one| one.replicas == each);
    let copies = all(&binding.spec.clusters, had) && all(decision.clusters(), desired);
    let lost = binding.spec.clusters.iter().filter_map(|before| {
        let after = share(decision.clusters(), &before.name);
        let replicas = match after {
            None => before.replicas,
            Some(_) if copies => return None,
            Some(after) if after < before.replicas => before.replicas - after,
            Some(_) => return None,
        };
        Some(TargetCluster { name: before.name.clone(), replicas })
    });
    lost.collect()
}

fn share(shares: &[TargetCluster], name: &str) -> Option<i64> {
    shares.iter().find(|share| share.name == name).map(|share| share.replicas)
}

/// How many replicas each gaining cluster takes is left out: it follows the free room, which changes all the time.
fn hash(
    binding: &Binding,
    losses: &[TargetCluster],
    after: &[TargetCluster],
    replicas: i64,
) -> String {
    let gains = after.iter().filter(|now| {
        share(&binding.spec.clusters, &now.name).is_none_or(|before| before < now.replicas)
    });
    let gains: BTreeSet<&str> = gains.map(|share| share.name.as_str()).collect();
    let losses: Vec<_> = losses.iter().map(|loss| (&loss.name, loss.replicas)).collect();
    digest([format!("{} {losses:?} {gains:?} {replicas}", binding.uid)].iter())
}

/// The id of a plan: equal for equal sets of changes.
pub(super) fn plan_id<'a>(hashes: impl Iterator<Item = &'a String>) -> String {
    digest(hashes.collect::<BTreeSet<_>>().into_iter())
}

fn digest<'a>(parts: impl Iterator<Item = &'a String>) -> String {
    let mut hash = Sha256::new();
    for part in parts {
        hash.update(part);
        hash.update([0]);
    }
    let mut text = hex::encode(&hash.finalize());
    text.truncate(DIGITS);
    text
}

fn text(before: &[TargetCluster], after: &[TargetCluster], counted: bool) -> String {
    let names: BTreeSet<&str> = before.iter().chain(after).map(|one| one.name.as_str()).collect();
    let word = |share: Option<i64>| match share {
        None => "-".to_owned(),
        Some(replicas) if counted => replicas.to_string(),
        Some(_) => "there".to_owned(),
    };
    let changed: Vec<&str> =
        names.into_iter().filter(|name| share(before, name) != share(after, name)).collect();
    let mut text = String::new();
    for name in changed.iter().take(MOST_CLUSTERS) {
        let separator = if text.is_empty() { "" } else { ", " };
        let (old, new) = (word(share(before, name)), word(share(after, name)));
        // Writing to a String cannot fail.
        let _ = write!(text, "{separator}{name}: {old} -> {new}");
    }
    if changed.len() > MOST_CLUSTERS {
        let _ = write!(text, " and {} more", changed.len() - MOST_CLUSTERS);
    }
    text
}
