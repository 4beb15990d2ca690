//! The parts of a Pod that capacity and unschedulable replicas need: a few bytes instead of kilobytes.

use serde_json::Value;

use super::amounts::Amounts;
use super::fault::{self, PodFault};
use crate::key::{GroupKind, Key};

/// Longest stored reason why a Pod found no node.
const MAX_REASON: usize = 300;

/// Summary of a Pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct PodFacts {
    /// Node that it is bound to.
    pub node: Option<String>,
    /// Requests in thousandths, `pods` among them.
    pub requests: Amounts,
    /// The scheduler found no node for it.
    pub unschedulable: Option<Unscheduled>,
    /// Why the Pod is not working.
    pub fault: Option<PodFault>,
    /// The workload that owns it; the Pod itself where it has none.
    pub workload: Key,
}

/// Why and since when a Pod waits for a node.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Unscheduled {
    /// Unix seconds.
    pub since: i64,
    /// The scheduler's message.
    pub reason: String,
}

/// Reads a Pod; `None` for one that has ended and no longer takes room.
#[must_use]
pub(super) fn read(pod: &Value) -> Option<PodFacts> {
    if matches!(pod["status"]["phase"].as_str(), Some("Succeeded" | "Failed")) {
        return None;
    }
    let node = pod["spec"]["nodeName"].as_str().filter(|name| !name.is_empty()).map(str::to_owned);
    let unschedulable = node.is_none().then(|| unscheduled(pod)).flatten();
    let fault = match &unschedulable {
        Some(unscheduled) => Some(fault::unscheduled(&unscheduled.reason)),
        None => fault::of_containers(pod),
    };
    Some(PodFacts { node, requests: requests(pod), unschedulable, fault, workload: workload(pod) })
}

/// A Pod's requests as the scheduler counts them, and one of `pods`.
fn requests(pod: &Value) -> Amounts {
    let mut amounts = Amounts::new();
    let list = atoll_interpreter::requirements(pod).map(|needs| needs.resource_request);
    for (resource, quantity) in list.unwrap_or_default() {
        // The API server rejects invalid quantities; more than 9e15 of anything fits no node, capped or not.
        if let Ok(milli) = quantity.milli() {
            amounts.insert(resource, i64::try_from(milli).unwrap_or(i64::MAX));
        }
    }
    amounts.insert("pods".to_owned(), 1000);
    amounts
}

fn unscheduled(pod: &Value) -> Option<Unscheduled> {
    let condition = pod["status"]["conditions"].as_array()?.iter().find(|condition| {
        condition["type"] == "PodScheduled"
            && condition["status"] == "False"
            && condition["reason"] == "Unschedulable"
    })?;
    let time = condition["lastTransitionTime"].as_str().and_then(|text| text.parse().ok());
    let message = condition["message"].as_str().unwrap_or("Unschedulable");
    Some(Unscheduled {
        since: time.map_or(0, jiff::Timestamp::as_second),
        reason: message.chars().take(MAX_REASON).collect(),
    })
}

/// The controller among the Pod's owners; for a Deployment's ReplicaSet the Deployment, whose name is part of the
/// ReplicaSet's (`<deployment>-<pod-template-hash>`, the Deployment controller's rule), so that no watch of ReplicaSets
/// is needed.
fn workload(pod: &Value) -> Key {
    let metadata = &pod["metadata"];
    let namespace = metadata["namespace"].as_str().unwrap_or_default().to_owned();
    let key = |group: &str, kind: &str, name: &str| Key {
        kind: GroupKind::new(group, kind),
        namespace: namespace.clone(),
        name: name.to_owned(),
    };
    let owners = metadata["ownerReferences"].as_array().into_iter().flatten();
    let Some(owner) = owners.into_iter().find(|owner| owner["controller"] == true) else {
        return key("", "Pod", metadata["name"].as_str().unwrap_or_default());
    };
    let text = |field: &str| owner[field].as_str().unwrap_or_default();
    let group = text("apiVersion").rsplit_once('/').map_or("", |(group, _)| group);
    let hash = metadata["labels"]["pod-template-hash"].as_str().unwrap_or_default();
    if group == "apps"
        && text("kind") == "ReplicaSet"
        && let Some(deployment) =
            text("name").strip_suffix(hash).and_then(|rest| rest.strip_suffix('-'))
    {
        return key("apps", "Deployment", deployment);
    }
    key(group, text("kind"), text("name"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn pods_lead_to_their_workloads() {
        let pod = |owner: Value, hash: &str| {
            json!({"metadata": {
                "name": "web-1", "namespace": "shop", "labels": {"pod-template-hash": hash},
                "ownerReferences": owner,
            }})
        };
        let owner = |api: &str, kind: &str, name: &str| {
            json!([
                {"apiVersion": "v1", "kind": "Other", "name": "x"},
                {"apiVersion": api, "kind": kind, "name": name, "controller": true},
            ])
        };
        for (pod, expected) in [
            (pod(owner("apps/v1", "ReplicaSet", "web-6d4f"), "6d4f"), "Deployment.apps shop/web"),
            (pod(owner("apps/v1", "ReplicaSet", "web-6d4f"), ""), "ReplicaSet.apps shop/web-6d4f"),
            (pod(owner("batch/v1", "Job", "load"), ""), "Job.batch shop/load"),
            (pod(json!([]), ""), "Pod shop/web-1"),
        ] {
            assert_eq!(workload(&pod).to_string(), expected);
        }
    }

    #[test]
    fn only_the_schedulers_own_verdict_counts_as_unschedulable() {
        let pod = |node: Value, status: Value| {
            read(&json!({
                "metadata": {"name": "p", "namespace": "a"},
                "spec": {"nodeName": node, "containers": []},
                "status": status,
            }))
        };
        let verdict = |reason: &str| {
            json!({"phase": "Pending", "conditions": [{
                "type": "PodScheduled", "status": "False", "reason": reason,
                "message": "0/3 nodes are available", "lastTransitionTime": "2026-01-01T00:00:05Z",
            }]})
        };
        let found = pod(Value::Null, verdict("Unschedulable")).unwrap().unschedulable.unwrap();
        assert_eq!(
            (found.since, found.reason.as_str()),
            (1_767_225_605, "0/3 nodes are available")
        );
        assert_eq!(pod(Value::Null, verdict("SchedulingGated")).unwrap().unschedulable, None);
        assert_eq!(pod(json!("n1"), verdict("Unschedulable")).unwrap().unschedulable, None);
        assert_eq!(pod(Value::Null, json!({"phase": "Pending"})).unwrap().unschedulable, None);
        assert_eq!(pod(json!("n1"), json!({"phase": "Succeeded"})), None);
    }
}
