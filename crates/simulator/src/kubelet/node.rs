//! A node's own status, and what kube-controller-manager does about nodes that become silent.
//!
//! Kubelets and node controller share a process here, so no Lease is needed for liveness: a node is down when its
//! annotation says so. Its status is written when it changes and otherwise every five minutes, as by kubelets.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use serde_json::{Value, json};

use super::{addresses, annotations};
use crate::clock;
use crate::engine::brain::View;
use crate::index::fields::{list, stamp, text, time};
use crate::index::object::Object;
use crate::member::NodeCapacity;
use crate::scheduler::taints;
use crate::writes::conditions::{Condition, Conditions, Custom};
use crate::writes::{Plan, Write};

/// How often an unchanged status is written again (`nodeStatusReportFrequency`).
const HEARTBEAT: Duration = Duration::from_secs(300);
/// How long a node may be silent before it counts as lost (`--node-monitor-grace-period`, 50 s since 1.32).
const MONITOR_GRACE: Duration = Duration::from_secs(50);
/// Taint of a node that has become silent.
const UNREACHABLE: &str = "node.kubernetes.io/unreachable";
/// Taint of a node that is not ready; kube-apiserver puts it on every new one (admission plugin `TaintNodesByCondition`).
const NOT_READY: &str = "node.kubernetes.io/not-ready";
/// Conditions of a healthy node other than Ready: type, reason, message; all are False.
const PRESSURES: [(&str, &str, &str); 3] = [
    ("MemoryPressure", "KubeletHasSufficientMemory", "kubelet has sufficient memory available"),
    ("DiskPressure", "KubeletHasNoDiskPressure", "kubelet has no disk pressure"),
    ("PIDPressure", "KubeletHasSufficientPID", "kubelet has sufficient PID available"),
];

/// Reconciles a node.
pub(crate) fn reconcile(view: &View<'_>, node: &Object) -> Plan {
    if node.is_deleting() {
        return Plan::default();
    }
    let mut plan = if annotations::is_down(node) { silent(view, node) } else { alive(view, node) };
    evict(view, node, &mut plan);
    plan
}

fn alive(view: &View<'_>, node: &Object) -> Plan {
    let mut plan = Plan::of(register(view, node));
    if !plan.writes.is_empty() {
        return plan;
    }
    let mut conditions = Conditions::of(node, Custom::Exact, view.now);
    for (type_, reason, message) in PRESSURES {
        conditions.set(Condition { type_, status: "False", reason, message });
    }
    conditions.set(Condition {
        type_: "Ready",
        status: "True",
        reason: "KubeletReady",
        message: "kubelet is posting ready status",
    });
    let mut status = node.status();
    let capacity = view.settings.capacity_of(&node.key.name);
    let reported = node.data.pointer("/status/allocatable").is_some_and(Value::is_object);
    if let Some(capacity) = capacity.or((!reported).then_some(&view.settings.default_capacity)) {
        capacity.put(&mut status);
    }
    if status.get("nodeInfo").is_none() {
        status["nodeInfo"] = json!({
            "architecture": "amd64", "operatingSystem": "linux", "kubeletVersion": "v1.33.0",
            "osImage": "Atoll Simulator", "kernelVersion": "0.0.0", "containerRuntimeVersion": "simulator://0",
            "machineID": node.uid, "systemUUID": node.uid, "bootID": node.uid, "kubeProxyVersion": "",
        });
    }
    if status.get("addresses").is_none() {
        let internal = addresses::of_node(node).to_string();
        status["addresses"] = json!([
            {"type": "InternalIP", "address": internal},
            {"type": "Hostname", "address": node.key.name},
        ]);
    }
    status["conditions"] = conditions.into_value();
    let beat = last_heartbeat(node);
    let due = beat.map(|beat| beat + HEARTBEAT);
    let changed = Write::status(node, status.clone()).is_some();
    if changed || due.is_none_or(|due| due <= view.now) {
        for condition in status["conditions"].as_array_mut().into_iter().flatten() {
            condition["lastHeartbeatTime"] = stamp(view.now);
        }
        plan.push(Write::status(node, status));
        plan.again_at(view.now + HEARTBEAT);
    } else if let Some(due) = due {
        plan.again_at(due);
    }
    plan
}

/// Everything but the status: the labels that kubelets set, a range of Pod addresses, no leftover taint of a new or
/// silent node, and a time on every NoExecute taint, from which tolerations are counted.
fn register(view: &View<'_>, node: &Object) -> Option<Write> {
    let mut fields = json!({"metadata": {"labels": {
        "kubernetes.io/arch": "amd64",
        "kubernetes.io/hostname": node.key.name,
        "kubernetes.io/os": "linux",
    }}});
    if node.text("/spec/podCIDR").is_none() {
        let range = addresses::free_range(view.index);
        fields["spec"] = json!({"podCIDR": range, "podCIDRs": [range]});
    }
    let taints: Vec<_> = node
        .list("/spec/taints")
        .iter()
        .filter(|taint| !matches!(text(taint, "/key"), Some(UNREACHABLE | NOT_READY)))
        .cloned()
        .map(|mut taint| {
            if text(&taint, "/effect") == Some("NoExecute") && taint.get("timeAdded").is_none() {
                taint["timeAdded"] = stamp(view.now);
            }
            taint
        })
        .collect();
    if taints != node.list("/spec/taints") {
        fields["spec"]["taints"] = json!(taints);
    }
    Write::fields(node, fields)
}

fn last_heartbeat(node: &Object) -> Option<Timestamp> {
    list(&node.data, "/status/conditions")
        .iter()
        .filter(|condition| text(condition, "/type") == Some("Ready"))
        .find_map(|condition| time(condition, "/lastHeartbeatTime"))
}

/// A node that is switched off: after the grace period its conditions become Unknown, it is tainted, and its Pods are
/// marked as not ready.
fn silent(view: &View<'_>, node: &Object) -> Plan {
    let mut plan = Plan::default();
    let due = view.memory.down_since(&node.key.name) + MONITOR_GRACE;
    let mut conditions = Conditions::of(node, Custom::Exact, view.now);
    if due > view.now && !conditions.is("Ready", "Unknown") {
        plan.again_at(due);
        return plan;
    }
    for type_ in PRESSURES.iter().map(|(type_, ..)| *type_).chain(["Ready"]) {
        conditions.set(Condition {
            type_,
            status: "Unknown",
            reason: "NodeStatusUnknown",
            message: "Kubelet stopped posting node status.",
        });
    }
    let mut status = node.status();
    status["conditions"] = conditions.into_value();
    plan.push(Write::status(node, status));
    if !plan.writes.is_empty() {
        return plan;
    }
    let mut taints = node.list("/spec/taints").to_vec();
    for effect in ["NoSchedule", "NoExecute"] {
        let is_it = |taint: &Value| {
            text(taint, "/key") == Some(UNREACHABLE) && text(taint, "/effect") == Some(effect)
        };
        if !taints.iter().any(is_it) {
            taints
                .push(json!({"key": UNREACHABLE, "effect": effect, "timeAdded": stamp(view.now)}));
        }
    }
    plan.push(Write::fields(node, json!({"spec": {"taints": taints}})));
    for pod in view.index.on_node(&node.key.name) {
        plan.push(not_ready(view, pod));
    }
    plan
}

fn not_ready(view: &View<'_>, pod: &Arc<Object>) -> Option<Write> {
    let mut conditions = Conditions::of(pod, Custom::Exact, view.now);
    if !conditions.is("Ready", "True") {
        return None;
    }
    conditions.set(Condition {
        type_: "Ready",
        status: "False",
        reason: "NodeNotReady",
        message: "Node is not ready",
    });
    let mut status = pod.status();
    status["conditions"] = conditions.into_value();
    Write::status(pod, status)
}

/// Deletes Pods that do not tolerate a NoExecute taint or whose toleration has expired.
fn evict(view: &View<'_>, node: &Object, plan: &mut Plan) {
    for pod in view.index.on_node(&node.key.name) {
        if pod.is_deleting() || pod.pod().is_finished() {
            continue;
        }
        let due = taints::evicting(&pod.data["spec"], node)
            .into_iter()
            .map(|(taint, seconds)| {
                let added = taint.added.and_then(|added| added.parse().ok()).unwrap_or(view.now);
                clock::after(added, Duration::from_secs(u64::try_from(seconds).unwrap_or(0)))
            })
            .min();
        match due {
            Some(due) if due <= view.now => plan.push([Write::delete(pod)]),
            Some(due) => plan.again_at(due),
            None => {}
        }
    }
}

impl NodeCapacity {
    /// Writes capacity and allocatable into a node's status; nothing is reserved for the system.
    fn put(&self, status: &mut Value) {
        let all = json!({
            "cpu": self.cpu.as_str(), "memory": self.memory.as_str(), "pods": self.pods.to_string(),
            "ephemeral-storage": self.ephemeral_storage.as_str(),
        });
        for field in ["capacity", "allocatable"] {
            // Keeps extended resources that a test or a device plugin has added.
            if !status[field].is_object() {
                status[field] = json!({});
            }
            for (name, amount) in all.as_object().into_iter().flatten() {
                status[field][name] = amount.clone();
            }
        }
    }
}
