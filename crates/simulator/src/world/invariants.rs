//! The invariants of ARCHITECTURE.md that can be checked at every event.

use std::collections::{BTreeMap, BTreeSet};

use atoll_api::marks;
use serde_json::Value;

use super::kinds;
use super::ledger::{Ledger, claims, required};
use super::tap::HUB;
use super::view::{View, condition, shares};

/// The invariants that a changed object violates.
pub(super) fn broken(
    view: &View,
    ledger: &Ledger,
    site: &str,
    before: &Value,
    object: &Value,
) -> Vec<String> {
    let kind = object["kind"].as_str().unwrap_or_default();
    let checks = match (site, kind) {
        (HUB, "ResourceBinding" | "ClusterResourceBinding") => {
            vec![
                conservation(view, object),
                one_share(object),
                single_writer(before, object),
                takes_lower(view, object),
                gives_higher(view, before, object),
            ]
        }
        (HUB, _) => Vec::new(),
        (_, "Lease") => vec![obeys_no_earlier_one(before, object)],
        _ => vec![no_orphan(ledger, site, object), one_object(view, site, object)],
    };
    checks.into_iter().filter_map(Result::err).collect()
}

/// I1: shares plus pending replicas equal the requested replicas.
fn conservation(view: &View, binding: &Value) -> Result<(), String> {
    let spec = &binding["spec"];
    let decision = &spec["decision"];
    if !spec["replicas"].is_i64() || decision.is_null() {
        return Ok(());
    }
    let desired = decision["desired"].as_i64().unwrap_or(0);
    let shares = shares(binding);
    let given: i64 = shares.values().sum();
    let pending = decision["pending"].as_array().into_iter().flatten();
    let pending: i64 = pending.filter_map(|group| group["replicas"].as_i64()).sum();
    // If nothing fits, the shares stay unchanged, even if fewer replicas are requested.
    let stays = ["NoFit", "FailoverInfeasible", "Invalid", "Unschedulable"];
    let stays = stays.iter().any(|outcome| decision["outcome"] == *outcome);
    if divides(view, spec) {
        let sum = given + pending;
        return (sum == desired || (stays && given > desired))
            .then_some(())
            .ok_or_else(|| format!("I1: {shares:?} and {pending} pending are not {desired}"));
    }
    let different = shares.iter().filter(|(_, share)| **share != desired && !stays);
    let different: Vec<_> = different.collect();
    let Some((name, share)) = different.first() else { return Ok(()) };
    // A quota holds up the growth of copies. All that they lack is pending then.
    let lacks: i64 = different.iter().map(|(_, share)| desired - **share).sum();
    let pending = decision["pending"].as_array().into_iter().flatten();
    let over_quota = pending.filter(|group| {
        group["reason"].as_str().is_some_and(|reason| reason.starts_with("QuotaExceeded"))
    });
    let over_quota: i64 = over_quota.filter_map(|group| group["replicas"].as_i64()).sum();
    let held_up = different.iter().all(|(_, share)| **share < desired) && lacks <= over_quota;
    match held_up {
        true => Ok(()),
        false => Err(format!("I1: duplicated, and {name} has {share} of {desired}")),
    }
}

/// Whether a binding's replicas are divided: by its placement, or because a WorkloadPolicy or a WorkloadSpread steers the
/// template.
fn divides(view: &View, spec: &Value) -> bool {
    if spec["placement"]["replicaScheduling"]["replicaSchedulingType"] == "Divided" {
        return true;
    }
    let resource = &spec["resource"];
    let text = |field: &str| resource[field].as_str().unwrap_or_default();
    let Some(kind) = kinds::of(text("apiVersion"), text("kind")) else { return false };
    let key = match resource["namespace"].as_str() {
        Some(namespace) => format!("{namespace}/{}", text("name")),
        None => text("name").to_owned(),
    };
    let spreads = view.all(HUB, &kinds::WORKLOAD_SPREAD);
    let mut targets = spreads.filter(|(spread, _)| {
        spread.split_once('/').map(|(namespace, _)| namespace) == resource["namespace"].as_str()
    });
    let same =
        |target: &Value| target["kind"] == resource["kind"] && target["name"] == resource["name"];
    if targets.any(|(_, spread)| same(&spread["spec"]["targetRef"])) {
        return true;
    }
    let template = view.hub(&kind, &key);
    let labels =
        [&template["metadata"]["labels"], &template["spec"]["template"]["metadata"]["labels"]];
    let names = [marks::WORKLOAD_POLICY].into_iter().chain(marks::WORKLOAD_POLICY_ALIASES);
    let mut steered = names.map(|name| labels.iter().any(|labels| labels[name].is_string()));
    steered.any(|steered| steered)
}

/// I2: at most one share and one task per cluster; a cluster with both keeps the replicas in the task.
fn one_share(binding: &Value) -> Result<(), String> {
    let spec = &binding["spec"];
    let names = |list: &str, field: &str| -> Vec<String> {
        let entries = spec[list].as_array().into_iter().flatten();
        entries.map(|entry| entry[field].as_str().unwrap_or_default().to_owned()).collect()
    };
    let targets = names("clusters", "name");
    let leaving = names("gracefulEvictionTasks", "fromCluster");
    for (what, list) in [("shares", &targets), ("tasks", &leaving)] {
        let distinct: BTreeSet<&String> = list.iter().collect();
        if distinct.len() != list.len() {
            return Err(format!("I2: a cluster has two {what}: {list:?}"));
        }
    }
    for task in spec["gracefulEvictionTasks"].as_array().into_iter().flatten() {
        let name = task["fromCluster"].as_str().unwrap_or_default();
        let names_replicas = task["replicas"].as_i64().unwrap_or(0) > 0;
        if targets.iter().any(|target| target == name) && !names_replicas {
            return Err(format!(
                "I2: {name} is a target and leaves, and its task names no replicas"
            ));
        }
    }
    Ok(())
}

/// I3 and I10: terms never decrease, and a decision names its predecessor.
fn single_writer(before: &Value, binding: &Value) -> Result<(), String> {
    if before["metadata"]["uid"] != binding["metadata"]["uid"] {
        return Ok(());
    }
    let (old, new) = (&before["spec"]["decision"], &binding["spec"]["decision"]);
    let term = |decision: &Value| decision["term"].as_i64().unwrap_or(0);
    if term(new) < term(old) {
        return Err(format!("I3: term {} after {}", term(new), term(old)));
    }
    if new["id"] != old["id"] && new["parent"] != old["id"] {
        return Err(format!(
            "I10: decision {} names parent {}, not {}",
            new["id"], new["parent"], old["id"]
        ));
    }
    Ok(())
}

/// Replicas that a binding has on a cluster, and its priority.
fn holding(binding: &Value, cluster: &str) -> (i64, i64) {
    let share = shares(binding).get(cluster).copied().unwrap_or(0);
    (share, binding["spec"]["schedulePriority"]["priority"].as_i64().unwrap_or(0))
}

/// What a binding took from others, by the key of the victim.
fn taken(binding: &Value) -> impl Iterator<Item = (String, &Value)> {
    let entries = binding["spec"]["preempts"].as_array().into_iter().flatten();
    entries.map(|entry| {
        let text = |field: &str| entry[field].as_str().unwrap_or_default();
        (format!("{}/{}", text("namespace"), text("name")), entry)
    })
}

/// A decision preempts lower priority only.
fn takes_lower(view: &View, binding: &Value) -> Result<(), String> {
    let id = &binding["spec"]["decision"]["id"];
    for (victim, entry) in taken(binding).filter(|(_, entry)| entry["decision"] == *id) {
        let cluster = entry["cluster"].as_str().unwrap_or_default();
        let (_, own) = holding(binding, cluster);
        let (_, priority) = holding(view.hub(&kinds::RESOURCE_BINDING, &victim), cluster);
        if entry["priority"].as_i64().is_none_or(|lower| lower >= own) || priority >= own {
            return Err(format!("preemption: {victim} of priority {priority} for {own}"));
        }
    }
    Ok(())
}

/// A binding follows a decision that took its room once: it then has no more than may remain, and the other one has a
/// higher priority.
fn gives_higher(view: &View, before: &Value, binding: &Value) -> Result<(), String> {
    let meta = &binding["metadata"];
    let key = match meta["namespace"].as_str() {
        Some(namespace) => format!("{namespace}/{}", meta["name"].as_str().unwrap_or_default()),
        None => return Ok(()),
    };
    let followed = |binding: &Value, id: &Value| {
        let list = binding["spec"]["preemptedBy"].as_array().into_iter().flatten();
        list.into_iter().any(|known| known == id)
    };
    let mut cut = false;
    for (_, by) in view.all(HUB, &kinds::RESOURCE_BINDING) {
        for (_, entry) in taken(by).filter(|(victim, _)| *victim == key) {
            if followed(before, &entry["decision"]) || !followed(binding, &entry["decision"]) {
                continue;
            }
            let cluster = entry["cluster"].as_str().unwrap_or_default();
            let ((had, _), (has, _)) = (holding(before, cluster), holding(binding, cluster));
            let left = entry["remaining"].as_i64().unwrap_or(0);
            if has > left {
                return Err(format!("preemption: {key} keeps {has} on {cluster}, not {left}"));
            }
            cut |= had > has;
        }
    }
    let preempted = binding["spec"]["decision"]["trigger"] == "Preempted"
        && binding["spec"]["decision"]["id"] != before["spec"]["decision"]["id"];
    if preempted && !cut {
        return Err(format!("preemption: {key} was preempted by no decision in the hub"));
    }
    Ok(())
}

/// I3 on a member: the highest term that its agent obeyed never decreases.
fn obeys_no_earlier_one(before: &Value, lease: &Value) -> Result<(), String> {
    let term =
        |lease: &Value| lease["metadata"]["annotations"][marks::TERM].as_str()?.parse::<u64>().ok();
    match (term(before), term(lease)) {
        (Some(old), Some(new)) if new < old => Err(format!("I3: term {new} after {old}")),
        _ => Ok(()),
    }
}

/// I4: a decision assigned every object that we applied to its member.
fn no_orphan(ledger: &Ledger, member: &str, object: &Value) -> Result<(), String> {
    if object["metadata"]["labels"][marks::MANAGED_BY] != marks::MANAGED_BY_VALUE
        || object["kind"] == "Namespace"
        // The agent's own objects (Lease, identity, inventory index) belong to no binding.
        || object["metadata"]["namespace"] == marks::SYSTEM_NAMESPACE
    {
        return Ok(());
    }
    let claims = claims(object);
    if claims.is_empty() {
        return Err("I4: it has our label and no claim".to_owned());
    }
    let strangers: Vec<_> =
        claims.iter().filter(|claim| !ledger.ever_given(claim, member)).collect();
    match strangers.is_empty() {
        true => Ok(()),
        false => Err(format!("I4: no decision gave it to {member} for {strangers:?}")),
    }
}

/// I2 on a member: each binding has one object there.
fn one_object(view: &View, member: &str, object: &Value) -> Result<(), String> {
    for claim in claims(object) {
        let held = view.managed(member).filter(|(_, _, other)| claims(other).contains(&claim));
        let held: Vec<_> = held.map(|(kind, key, _)| format!("{} {key}", kind.kind)).collect();
        if held.len() > 1 {
            return Err(format!("I2: {member} holds {held:?} for one binding"));
        }
    }
    Ok(())
}

/// Whether the observed state equals the desired state (I9): every share runs where it should, nothing else does, and
/// no member is leaving.
///
/// # Errors
/// The first difference.
pub(super) fn settled(view: &View) -> Result<(), String> {
    let mut wanted: BTreeMap<(String, String), i64> = BTreeMap::new();
    let mut known: BTreeSet<&str> = BTreeSet::new();
    for kind in [kinds::RESOURCE_BINDING, kinds::CLUSTER_RESOURCE_BINDING] {
        for (key, binding) in view.all(HUB, &kind) {
            let tasks = binding["spec"]["gracefulEvictionTasks"].as_array().map_or(0, Vec::len);
            if tasks > 0 {
                return Err(format!("{key} has {tasks} eviction tasks"));
            }
            if condition(binding, "FullyApplied") != "True" {
                return Err(format!("{key} is not fully applied"));
            }
            let uid = binding["metadata"]["uid"].as_str().unwrap_or_default();
            known.insert(uid);
            for cluster in required(binding) {
                wanted.insert((cluster.to_owned(), uid.to_owned()), 0);
            }
            for (cluster, replicas) in shares(binding) {
                wanted.insert((cluster, uid.to_owned()), replicas);
            }
        }
    }
    let running: Vec<&str> = view.running().collect();
    for member in &running {
        for (kind, key, object) in view.managed(member) {
            let replicas = object["spec"]["replicas"].as_i64();
            for claim in claims(object) {
                let share = wanted.remove(&((*member).to_owned(), claim.to_owned()));
                match share {
                    // A restored object whose binding is gone is reported and kept.
                    None if view.was_restored(member) && !known.contains(claim) => {}
                    None => return Err(format!("I4: {} {key} of {member} is nobody's", kind.kind)),
                    Some(share) if replicas.is_some_and(|replicas| replicas != share) => {
                        return Err(format!("{key} of {member} has {replicas:?} of {share}"));
                    }
                    Some(_) => {}
                }
            }
        }
    }
    let missing = wanted.keys().find(|(member, _)| running.contains(&member.as_str()));
    missing.map_or(Ok(()), |(member, claim)| Err(format!("{member} lacks its share of {claim}")))
}

#[cfg(test)]
mod tests;
