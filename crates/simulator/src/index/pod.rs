//! Facts of a Pod that are read often, computed once per version.

use std::collections::BTreeMap;

use atoll_api::quantity::Quantity;
use jiff::Timestamp;
use serde_json::Value;

use super::fields::{int, list, map, text, time};

/// Amounts by resource name, in thousandths of the resource's unit.
pub(crate) type Amounts = BTreeMap<String, i128>;

/// `status.phase`, in the order in which a ReplicaSet deletes Pods.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Phase {
    Pending,
    Unknown,
    Running,
    Succeeded,
    Failed,
}

impl Phase {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "Pending",
            Self::Unknown => "Unknown",
            Self::Running => "Running",
            Self::Succeeded => "Succeeded",
            Self::Failed => "Failed",
        }
    }
}

/// The computed facts of a Pod.
#[derive(Debug, Clone)]
pub(crate) struct PodFacts {
    /// Node that it is bound to.
    pub(crate) node: Option<String>,
    pub(crate) phase: Phase,
    /// When it became Ready; `None` if it is not.
    pub(crate) ready_since: Option<Timestamp>,
    /// Largest restart count of its containers.
    pub(crate) restarts: i64,
    pub(crate) priority: i64,
    /// Its resource requests, as the scheduler sums them.
    pub(crate) requests: Amounts,
    pub(crate) ip: Option<String>,
}

impl PodFacts {
    pub(crate) fn read(data: &Value) -> Self {
        let ready = list(data, "/status/conditions").iter().find(|condition| {
            text(condition, "/type") == Some("Ready") && text(condition, "/status") == Some("True")
        });
        Self {
            node: text(data, "/spec/nodeName").filter(|node| !node.is_empty()).map(str::to_owned),
            phase: match text(data, "/status/phase") {
                Some("Running") => Phase::Running,
                Some("Succeeded") => Phase::Succeeded,
                Some("Failed") => Phase::Failed,
                Some("Unknown") => Phase::Unknown,
                _ => Phase::Pending,
            },
            ready_since: ready
                .map(|ready| time(ready, "/lastTransitionTime").unwrap_or(Timestamp::UNIX_EPOCH)),
            restarts: list(data, "/status/containerStatuses")
                .iter()
                .filter_map(|status| int(status, "/restartCount"))
                .max()
                .unwrap_or(0),
            priority: int(data, "/spec/priority").unwrap_or(0),
            requests: requests(data.get("spec").unwrap_or(&Value::Null)),
            ip: text(data, "/status/podIP").map(str::to_owned),
        }
    }

    /// Whether it has terminated.
    pub(crate) fn is_finished(&self) -> bool {
        matches!(self.phase, Phase::Succeeded | Phase::Failed)
    }

    /// Whether it has been Ready for `min_ready_seconds`.
    pub(crate) fn is_available(&self, min_ready_seconds: i64, now: Timestamp) -> bool {
        self.ready_since
            .is_some_and(|since| now.as_second() - since.as_second() >= min_ready_seconds)
    }
}

/// Resource requests of a Pod spec: the larger of the running containers' sum (restartable init containers included)
/// and the peak of the start sequence, plus `overhead` (`PodRequests` of `k8s.io/component-helpers`). Unreadable
/// quantities count as zero: the API server refuses them before they get here.
pub(crate) fn requests(spec: &Value) -> Amounts {
    let mut running = Amounts::new();
    for container in list(spec, "/containers") {
        add(&mut running, &container_requests(container));
    }
    let mut started_sidecars = Amounts::new();
    let mut peak = Amounts::new();
    for container in list(spec, "/initContainers") {
        let mut moment = container_requests(container);
        if text(container, "/restartPolicy") == Some("Always") {
            add(&mut running, &moment);
            add(&mut started_sidecars, &moment);
            moment.clone_from(&started_sidecars);
        } else {
            add(&mut moment, &started_sidecars);
        }
        raise(&mut peak, &moment);
    }
    raise(&mut running, &peak);
    add(&mut running, &amounts(spec, "/overhead"));
    running
}

/// Requests of one container; a limit without a request is also the request (the API server's default).
fn container_requests(container: &Value) -> Amounts {
    let mut all = amounts(container, "/resources/limits");
    all.extend(amounts(container, "/resources/requests"));
    all
}

/// The resource list at a JSON pointer.
pub(crate) fn amounts(value: &Value, pointer: &str) -> Amounts {
    map(value, pointer)
        .into_iter()
        .flatten()
        .filter_map(|(name, quantity)| {
            let quantity: Quantity = serde_json::from_value(quantity.clone()).ok()?;
            Some((name.clone(), quantity.milli().ok()?))
        })
        .collect()
}

/// Adds `more` to `sum`, resource by resource.
pub(crate) fn add(sum: &mut Amounts, more: &Amounts) {
    for (name, amount) in more {
        *sum.entry(name.clone()).or_default() += amount;
    }
}

fn raise(floor: &mut Amounts, to: &Amounts) {
    for (name, amount) in to {
        let entry = floor.entry(name.clone()).or_default();
        *entry = (*entry).max(*amount);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn cpu(spec: Value) -> i128 {
        requests(&spec).get("cpu").copied().unwrap_or(0)
    }

    fn container(cpu: &str) -> Value {
        json!({"name": "c", "resources": {"requests": {"cpu": cpu}}})
    }

    fn sidecar(cpu: &str) -> Value {
        json!({"name": "s", "restartPolicy": "Always", "resources": {"requests": {"cpu": cpu}}})
    }

    #[test]
    fn requests_are_summed_as_kube_scheduler_does() {
        let containers = json!([container("300m"), container("200m")]);
        assert_eq!(cpu(json!({"containers": containers})), 500);
        assert_eq!(
            cpu(json!({"containers": containers, "initContainers": [container("1")]})),
            1000
        );
        assert_eq!(
            cpu(
                json!({"containers": containers, "initContainers": [sidecar("400m"), container("1")]})
            ),
            1400
        );
        assert_eq!(
            cpu(
                json!({"containers": containers, "initContainers": [container("1"), sidecar("600m")]})
            ),
            1100
        );
        assert_eq!(cpu(json!({"containers": containers, "overhead": {"cpu": "50m"}})), 550);
        let limited = json!({"containers": [{"resources": {"limits": {"cpu": 2}}}]});
        assert_eq!(cpu(limited), 2000);
    }
}
