//! What containers and nodes use, as the metrics API serves it. A container uses a share of what it requests.

use atoll_api::quantity::Quantity;
use jiff::Timestamp;
use serde_json::{Value, json};

use super::{container_status, spread};
use crate::index::fields::{list, text};

/// A container uses at least this share of its requests, in percent.
const LEAST: u64 = 70;
/// And at most so many percent more.
const MORE: u64 = 25;
/// Seconds for which a container uses the same.
const WINDOW: i64 = 15;
/// Use of a container that requests nothing: millicores, and bytes.
const IDLE: Usage = Usage { cpu: 2, memory: 12 << 20 };
/// Use of a node without pods: its kubelet and system.
const NODE: Usage = Usage { cpu: 90, memory: 600 << 20 };

/// Millicores, and bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Usage {
    /// Processor time in thousandths of a core.
    pub cpu: u64,
    /// Memory in bytes.
    pub memory: u64,
}

impl Usage {
    fn plus(self, other: Self) -> Self {
        Self {
            cpu: self.cpu.saturating_add(other.cpu),
            memory: self.memory.saturating_add(other.memory),
        }
    }

    fn to_json(self) -> Value {
        json!({"cpu": format!("{}m", self.cpu), "memory": format!("{}Ki", self.memory >> 10)})
    }
}

/// The PodMetrics of a Pod; `None` if no container runs.
#[must_use]
pub fn of_pod(pod: &Value, now: Timestamp) -> Option<Value> {
    let containers: Vec<Value> = running(pod, now)
        .map(|(name, usage)| json!({"name": name, "usage": usage.to_json()}))
        .collect();
    let mut metrics = head("PodMetrics", pod, now);
    metrics["metadata"]["namespace"] = pod["metadata"]["namespace"].clone();
    metrics["containers"] = containers.into();
    let runs = metrics["containers"].as_array().is_some_and(|containers| !containers.is_empty());
    runs.then_some(metrics)
}

/// The NodeMetrics of a Node, with the Pods of the member.
#[must_use]
pub fn of_node<'a>(
    node: &Value,
    pods: impl IntoIterator<Item = &'a Value>,
    now: Timestamp,
) -> Value {
    let name = text(node, "/metadata/name");
    let here = pods.into_iter().filter(|pod| text(pod, "/spec/nodeName") == name);
    let all = here.flat_map(|pod| running(pod, now)).map(|(_, usage)| usage);
    let mut metrics = head("NodeMetrics", node, now);
    metrics["usage"] = all.fold(NODE, Usage::plus).to_json();
    metrics
}

fn head(kind: &str, object: &Value, now: Timestamp) -> Value {
    let metadata = &object["metadata"];
    let now = crate::index::fields::stamp(now);
    let mut head = json!({
        "apiVersion": "metrics.k8s.io/v1beta1",
        "kind": kind,
        "metadata": {"name": metadata["name"], "creationTimestamp": now},
        "timestamp": now,
        "window": format!("{WINDOW}s"),
    });
    if metadata["labels"].is_object() {
        head["metadata"]["labels"] = metadata["labels"].clone();
    }
    head
}

/// The running containers of a Pod and what they use.
fn running(pod: &Value, now: Timestamp) -> impl Iterator<Item = (&str, Usage)> {
    let uid = text(pod, "/metadata/uid").unwrap_or_default();
    list(pod, "/spec/containers").iter().filter_map(move |container| {
        let name = text(container, "/name")?;
        container_status(pod, name)?.pointer("/state/running")?;
        let seed = format!("{uid}/{name}/{}", now.as_second() / WINDOW);
        Some((name, used(container, &seed)))
    })
}

fn used(container: &Value, seed: &str) -> Usage {
    let asked = |resource: &str| {
        let at = |field: &str| container["resources"][field][resource].as_str();
        let text = at("requests").or_else(|| at("limits"))?;
        let milli = Quantity::new(text).milli().ok()?;
        u64::try_from(milli).ok()
    };
    let percent = LEAST + spread(seed, MORE + 1);
    // Divided first: requests may be as large as users write them.
    let share = |amount: u64| (amount / 100).saturating_mul(percent).max(1);
    Usage {
        cpu: asked("cpu").map_or(IDLE.cpu, share),
        memory: asked("memory").map_or(IDLE.memory, |milli| share(milli / 1000)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(name: &str, node: &str, requests: Value) -> Value {
        json!({
            "metadata": {"name": name, "namespace": "shop", "uid": name, "labels": {"app": "web"}},
            "spec": {"nodeName": node, "containers": [{"name": "main", "resources": {"requests": requests}}]},
            "status": {"containerStatuses": [{"name": "main", "state": {"running": {}}}]},
        })
    }

    fn amount(metrics: &Value, pointer: &str, unit: &str) -> u64 {
        metrics
            .pointer(pointer)
            .unwrap()
            .as_str()
            .unwrap()
            .strip_suffix(unit)
            .unwrap()
            .parse()
            .unwrap()
    }

    #[test]
    fn containers_use_most_of_what_they_request_and_nodes_the_sum() {
        let now = Timestamp::from_second(1_800_000_000).unwrap();
        let web = pod("web", "n1", json!({"cpu": "2", "memory": "1Gi"}));
        let used = of_pod(&web, now).unwrap();
        let cpu = amount(&used, "/containers/0/usage/cpu", "m");
        let memory = amount(&used, "/containers/0/usage/memory", "Ki");
        assert!((1400..=1900).contains(&cpu) && memory < 1 << 20, "{used}");
        assert_eq!(used["metadata"]["labels"]["app"], "web");
        let free = pod("free", "n2", json!({}));
        let node = json!({"metadata": {"name": "n1"}});
        let node = of_node(&node, [&web, &free], now);
        assert_eq!(amount(&node, "/usage/cpu", "m"), NODE.cpu + cpu);
        assert_eq!(of_pod(&free, now).unwrap()["containers"][0]["usage"]["cpu"], "2m");
        let mut waiting = free;
        waiting["status"] =
            json!({"containerStatuses": [{"name": "main", "state": {"waiting": {}}}]});
        assert_eq!(of_pod(&waiting, now), None);
    }
}
