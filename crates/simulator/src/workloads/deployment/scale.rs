//! The arithmetic of a rollout: the next size of each ReplicaSet.

use std::collections::BTreeMap;

use serde_json::json;

use super::{Deployment, Set, Sets, Strategy};
use crate::writes::Write;

/// Annotation on a ReplicaSet: the Deployment's `spec.replicas` when it was last scaled.
pub(super) const DESIRED: &str = "deployment.kubernetes.io/desired-replicas";
/// Annotation on a ReplicaSet: `spec.replicas` plus surge at that time.
pub(super) const MAXIMUM: &str = "deployment.kubernetes.io/max-replicas";

/// The two annotations, as of now.
pub(super) fn annotations(deployment: &Deployment<'_>) -> BTreeMap<String, String> {
    let maximum = deployment.replicas + deployment.max_surge();
    BTreeMap::from([
        (DESIRED.to_owned(), deployment.replicas.to_string()),
        (MAXIMUM.to_owned(), maximum.to_string()),
    ])
}

fn annotated(set: &Set, key: &str) -> Option<i64> {
    set.object.annotation(key)?.parse().ok()
}

/// Scales a ReplicaSet, or only refreshes its annotations; `None` if neither is needed.
pub(super) fn to(deployment: &Deployment<'_>, set: &Set, replicas: i64) -> Option<Write> {
    if set.wanted == replicas && replicas == 0 {
        // An unchanged set of size 0 is left alone; otherwise each scaling would rewrite the whole history.
        return None;
    }
    let fields = json!({
        "metadata": {"annotations": annotations(deployment)},
        "spec": {"replicas": replicas},
    });
    Write::fields(&set.object, fields)
}

/// Whether `spec.replicas` has changed since the ReplicaSets were last scaled.
pub(super) fn is_scaling_event(deployment: &Deployment<'_>, sets: &Sets) -> bool {
    sets.all()
        .filter(|set| set.wanted > 0)
        .filter_map(|set| annotated(set, DESIRED))
        .any(|desired| desired != deployment.replicas)
}

/// Initial size of a new ReplicaSet: the room that surge leaves (`NewRSNewReplicas`).
pub(super) fn first_size(deployment: &Deployment<'_>, sets: &Sets) -> i64 {
    grown(deployment, sets, 0)
}

fn grown(deployment: &Deployment<'_>, sets: &Sets, size: i64) -> i64 {
    match deployment.strategy {
        Strategy::Recreate => deployment.replicas,
        Strategy::Rolling { max_surge, .. } => {
            let total: i64 = sets.all().map(|set| set.wanted).sum();
            let room = deployment.replicas + max_surge - total;
            size + room.min(deployment.replicas - size).max(0)
        }
    }
}

/// The next step of a rolling update: scale the new set up, or else the old ones down.
pub(super) fn roll(deployment: &Deployment<'_>, sets: &Sets, new: &Set) -> Vec<Write> {
    let size = if new.wanted > deployment.replicas {
        deployment.replicas
    } else {
        grown(deployment, sets, new.wanted)
    };
    if size != new.wanted {
        return to(deployment, new, size).into_iter().collect();
    }
    shrink_old(deployment, sets, new)
}

/// Scales the old sets down within `maxUnavailable`: first Pods that are unavailable anyway, then available ones down
/// to the required minimum, oldest set first.
fn shrink_old(deployment: &Deployment<'_>, sets: &Sets, new: &Set) -> Vec<Write> {
    let old_total: i64 = sets.old.iter().map(|set| set.wanted).sum();
    if old_total == 0 {
        return Vec::new();
    }
    let minimum = deployment.replicas - deployment.max_unavailable();
    let new_unavailable = new.wanted - new.available;
    let mut budget = old_total + new.wanted - minimum - new_unavailable;
    if budget <= 0 {
        return Vec::new();
    }
    let mut sizes: Vec<i64> = sets.old.iter().map(|set| set.wanted).collect();
    for (size, set) in sizes.iter_mut().zip(&sets.old) {
        let unhealthy = (*size - set.available).max(0).min(budget);
        *size -= unhealthy;
        budget -= unhealthy;
    }
    let available: i64 = sets.all().map(|set| set.available).sum();
    let mut surplus = (available - minimum).max(0);
    for size in &mut sizes {
        let less = (*size).min(surplus);
        *size -= less;
        surplus -= less;
    }
    sets.old
        .iter()
        .zip(sizes)
        .filter(|(set, size)| set.wanted != *size)
        .filter_map(|(set, size)| to(deployment, set, size))
        .collect()
}

/// Applies a changed `spec.replicas` (or keeps a paused Deployment at it): to the only set in use, or, in the middle of
/// a rollout, to all sets in proportion to their sizes.
pub(super) fn in_proportion(deployment: &Deployment<'_>, sets: &Sets) -> Vec<Write> {
    let mut active: Vec<&Set> = sets.all().filter(|set| set.wanted > 0).collect();
    let only = match active.as_slice() {
        [] => sets.new.as_ref().or(sets.old.last()),
        [only] => Some(*only),
        _ => None,
    };
    if let Some(only) = only {
        return to(deployment, only, deployment.replicas).into_iter().collect();
    }
    let saturated = sets.new.as_ref().is_some_and(|new| is_saturated(deployment, new));
    if saturated || deployment.strategy == Strategy::Recreate {
        return sets.old.iter().filter_map(|set| to(deployment, set, 0)).collect();
    }
    let total: i64 = active.iter().map(|set| set.wanted).sum();
    let allowed =
        if deployment.replicas > 0 { deployment.replicas + deployment.max_surge() } else { 0 };
    let to_add = allowed - total;
    // Larger sets first; of equal ones the newer grows first and the older shrinks first.
    active.sort_by(|a, b| {
        let age = (a.object.created(), a.name()).cmp(&(b.object.created(), b.name()));
        b.wanted.cmp(&a.wanted).then(if to_add > 0 { age.reverse() } else { age })
    });
    let mut added = 0;
    let mut sizes: Vec<i64> = Vec::with_capacity(active.len());
    for set in &active {
        let change = proportion(deployment, set, to_add, added);
        added += change;
        sizes.push(set.wanted + change);
    }
    if let Some(first) = sizes.first_mut() {
        *first = (*first + to_add - added).max(0);
    }
    active.iter().zip(sizes).filter_map(|(set, size)| to(deployment, set, size)).collect()
}

fn is_saturated(deployment: &Deployment<'_>, new: &Set) -> bool {
    new.wanted == deployment.replicas
        && annotated(new, DESIRED) == Some(deployment.replicas)
        && new.available == deployment.replicas
}

/// A set's share of `to_add`, bounded by the remainder (`GetReplicaSetProportion`).
fn proportion(deployment: &Deployment<'_>, set: &Set, to_add: i64, added: i64) -> i64 {
    let left = to_add - added;
    if set.wanted == 0 || left == 0 {
        return 0;
    }
    let fraction = if deployment.replicas == 0 {
        -set.wanted
    } else {
        let before = annotated(set, MAXIMUM)
            .filter(|before| *before > 0)
            .unwrap_or_else(|| deployment.object.count("/status/replicas").max(1));
        let scaled = set.wanted * (deployment.replicas + deployment.max_surge());
        (2 * scaled + before).div_euclid(2 * before) - set.wanted
    };
    if to_add > 0 { fraction.min(left) } else { fraction.max(left) }
}
