//! The status that a kubelet writes for a Pod.

use serde_json::{Value, json};

use super::annotations::Script;
use super::containers::Containers;
use super::{addresses, main_containers};
use crate::engine::brain::View;
use crate::index::fields::{list, map, stamp, text};
use crate::index::object::Object;
use crate::index::pod::Phase;
use crate::writes::Write;
use crate::writes::conditions::{Condition, Conditions, Custom};

/// The first status on the node: the Pod is accepted, its containers are being created.
pub(super) fn admit(
    view: &View<'_>,
    pod: &Object,
    node: &Object,
    containers: &Containers,
    script: &Script,
) -> Option<Write> {
    let mut status = pod.status();
    status["startTime"] = stamp(view.now);
    let host = list(&node.data, "/status/addresses")
        .iter()
        .find(|address| text(address, "/type") == Some("InternalIP"))
        .and_then(|address| text(address, "/address"));
    if let Some(host) = host {
        status["hostIP"] = json!(host);
        status["hostIPs"] = json!([{"ip": host}]);
    }
    let own = if pod.flag("/spec/hostNetwork") {
        host.map(str::to_owned)
    } else {
        addresses::free(view.index, node).map(|address| address.to_string())
    };
    if let Some(own) = own {
        status["podIP"] = json!(own);
        status["podIPs"] = json!([{"ip": own}]);
    }
    if status.get("qosClass").is_none() {
        status["qosClass"] = json!(qos_class(pod));
    }
    Write::status(pod, filled(view, pod, status, Phase::Pending, containers, script))
}

/// The status of a Pod with these containers.
pub(super) fn write(
    view: &View<'_>,
    pod: &Object,
    phase: Phase,
    containers: &Containers,
    script: &Script,
) -> Option<Write> {
    Write::status(pod, filled(view, pod, pod.status(), phase, containers, script))
}

fn filled(
    view: &View<'_>,
    pod: &Object,
    mut status: Value,
    phase: Phase,
    containers: &Containers,
    script: &Script,
) -> Value {
    status["phase"] = json!(phase.as_str());
    status["containerStatuses"] = json!(containers.main);
    if !containers.init.is_empty() {
        status["initContainerStatuses"] = json!(containers.init);
    }
    status["message"] =
        script.complaint.as_deref().map_or(Value::Null, |complaint| json!(complaint));
    status["conditions"] = conditions(view, pod, phase, containers);
    status
}

fn conditions(view: &View<'_>, pod: &Object, phase: Phase, containers: &Containers) -> Value {
    let mut conditions = Conditions::of(pod, Custom::Exact, view.now);
    let mut set = |type_: &str, holds: bool, reason: &str, message: &str| {
        let status = if holds { "True" } else { "False" };
        conditions.set(Condition { type_, status, reason, message });
    };
    let ended = matches!(phase, Phase::Succeeded | Phase::Failed);
    let begun = containers.have_run() || phase != Phase::Pending;
    set("PodScheduled", true, "", "");
    set("PodReadyToStartContainers", begun && !ended, "", "");
    if begun || containers.init.is_empty() {
        let reason = if phase == Phase::Succeeded { "PodCompleted" } else { "" };
        set("Initialized", true, reason, "");
    } else {
        let names = containers.init.iter().filter_map(|status| text(status, "/name"));
        let names = names.collect::<Vec<_>>().join(" ");
        let message = format!("containers with incomplete status: [{names}]");
        set("Initialized", false, "ContainersNotInitialized", &message);
    }
    let unready = containers.unready();
    let (ready, reason, message) = match phase {
        Phase::Succeeded => (false, "PodCompleted", String::new()),
        Phase::Failed => (false, "PodFailed", String::new()),
        _ if !unready.is_empty() => {
            let message = format!("containers with unready status: [{}]", unready.join(" "));
            (false, "ContainersNotReady", message)
        }
        _ => (true, "", String::new()),
    };
    set("ContainersReady", ready, reason, &message);
    match open_gate(pod).filter(|_| ready) {
        Some(gate) => {
            let message =
                format!("corresponding condition of pod readiness gate \"{gate}\" is not True");
            set("Ready", false, "ReadinessGatesNotReady", &message);
        }
        None => set("Ready", ready, reason, &message),
    }
    conditions.into_value()
}

/// The first readiness gate whose condition is not True.
fn open_gate(pod: &Object) -> Option<&str> {
    let holds = |type_: &str| {
        list(&pod.data, "/status/conditions").iter().any(|condition| {
            text(condition, "/type") == Some(type_) && text(condition, "/status") == Some("True")
        })
    };
    list(&pod.data, "/spec/readinessGates")
        .iter()
        .filter_map(|gate| text(gate, "/conditionType"))
        .find(|type_| !holds(type_))
}

/// The Pod's QoS class: Guaranteed when every container's limits equal its requests for cpu and memory, BestEffort when
/// no container has requests or limits, Burstable otherwise.
fn qos_class(pod: &Object) -> &'static str {
    const COUNTED: [&str; 2] = ["cpu", "memory"];
    let containers: Vec<_> =
        main_containers(pod).iter().chain(list(&pod.data, "/spec/initContainers")).collect();
    let asks = |container: &Value, pointer: &str| {
        map(container, pointer)
            .is_some_and(|amounts| COUNTED.iter().any(|name| amounts.contains_key(*name)))
    };
    let idle = |container: &&Value| {
        !asks(container, "/resources/requests") && !asks(container, "/resources/limits")
    };
    if containers.iter().all(idle) {
        return "BestEffort";
    }
    let guaranteed = containers.iter().all(|container| {
        COUNTED.iter().all(|name| {
            let limit = container.pointer(&format!("/resources/limits/{name}"));
            let request = container.pointer(&format!("/resources/requests/{name}"));
            limit.is_some() && request.is_none_or(|request| Some(request) == limit)
        })
    });
    if guaranteed { "Guaranteed" } else { "Burstable" }
}
