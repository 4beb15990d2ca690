//! Cells of pods and workloads.

use atoll_apimachinery::meta;
use jiff::Timestamp;
use serde_json::Value;

use super::{
    age::{self, NONE},
    core::{list, number, or_none, pairs, selector, text},
};

fn name(object: &Value) -> Value {
    meta::name(object).into()
}

/// Names and images of a template's containers.
fn containers(object: &Value, spec: &str) -> [Value; 2] {
    let all = list(object, &format!("{spec}.containers"));
    let column =
        |field: &str| Value::from(all.iter().map(|c| text(c, field)).collect::<Vec<_>>().join(","));
    [column("name"), column("image")]
}

fn is_true(object: &Value, path: &str) -> bool {
    meta::at(object, path) == Some(&Value::Bool(true))
}

/// The STATUS column of a pod (printers.go, printPod).
fn pod_status(pod: &Value) -> String {
    let statuses = list(pod, "status.containerStatuses");
    let init = list(pod, "status.initContainerStatuses");
    let mut reason = match text(pod, "status.reason") {
        "" => text(pod, "status.phase").to_owned(),
        reason => reason.to_owned(),
    };
    let gated = list(pod, "status.conditions")
        .iter()
        .any(|c| text(c, "type") == "PodScheduled" && text(c, "reason") == "SchedulingGated");
    if gated {
        "SchedulingGated".clone_into(&mut reason);
    }
    let ended = |status: &Value| {
        let why = text(status, "state.terminated.reason");
        if !why.is_empty() {
            return why.to_owned();
        }
        match number(status, "state.terminated.signal") {
            0 => format!("ExitCode:{}", number(status, "state.terminated.exitCode")),
            signal => format!("Signal:{signal}"),
        }
    };
    let has = |status: &Value, path: &str| meta::at(status, path).is_some();
    let mut initializing = false;
    for (n, status) in init.iter().enumerate() {
        if has(status, "state.terminated") && number(status, "state.terminated.exitCode") == 0 {
            continue;
        }
        if has(status, "state.terminated") {
            reason = format!("Init:{}", ended(status));
        } else {
            let why = text(status, "state.waiting.reason");
            reason = if !why.is_empty() && why != "PodInitializing" {
                format!("Init:{why}")
            } else {
                format!("Init:{n}/{}", list(pod, "spec.initContainers").len())
            };
        }
        initializing = true;
        break;
    }
    if !initializing {
        let mut running = false;
        for status in statuses.iter().rev() {
            let waiting = text(status, "state.waiting.reason");
            if !waiting.is_empty() {
                waiting.clone_into(&mut reason);
            } else if has(status, "state.terminated") {
                reason = ended(status);
            } else if is_true(status, "ready") && has(status, "state.running") {
                running = true;
            }
        }
        if reason == "Completed" && running {
            let ready = list(pod, "status.conditions")
                .iter()
                .any(|c| text(c, "type") == "Ready" && text(c, "status") == "True");
            reason = if ready { "Running" } else { "NotReady" }.to_owned();
        }
    }
    if meta::is_deleting(pod) {
        let finished = matches!(text(pod, "status.phase"), "Succeeded" | "Failed");
        if text(pod, "status.reason") == "NodeLost" {
            "Unknown".clone_into(&mut reason);
        } else if !finished {
            "Terminating".clone_into(&mut reason);
        }
    }
    reason
}

/// READY counts containers; RESTARTS includes the time of the last one.
pub(super) fn pod(object: &Value, now: Timestamp) -> Vec<Value> {
    let statuses = list(object, "status.containerStatuses");
    let ready = statuses.iter().filter(|s| is_true(s, "ready")).count();
    let restarts: i64 = statuses.iter().map(|s| number(s, "restartCount")).sum();
    let last = statuses
        .iter()
        .filter_map(|s| age::parse(meta::at(s, "lastState.terminated.finishedAt")))
        .max();
    let restarts = match last {
        Some(at) if restarts > 0 => {
            format!("{restarts} ({} ago)", age::human(now.as_second() - at.as_second()))
        }
        _ => restarts.to_string(),
    };
    let gates = list(object, "spec.readinessGates");
    let open = gates
        .iter()
        .filter(|gate| {
            list(object, "status.conditions").iter().any(|c| {
                text(c, "type") == text(gate, "conditionType") && text(c, "status") == "True"
            })
        })
        .count();
    let readiness =
        if gates.is_empty() { NONE.to_owned() } else { format!("{open}/{}", gates.len()) };
    vec![
        name(object),
        format!("{ready}/{}", list(object, "spec.containers").len()).into(),
        pod_status(object).into(),
        restarts.into(),
        age::of(object, now),
        or_none(text(object, "status.podIP")),
        or_none(text(object, "spec.nodeName")),
        or_none(text(object, "status.nominatedNodeName")),
        readiness.into(),
    ]
}

pub(super) fn replica_set(object: &Value, now: Timestamp) -> Vec<Value> {
    let [names, images] = containers(object, "spec.template.spec");
    // ReplicationControllers select with a plain map.
    let selected = match meta::at(object, "spec.selector") {
        Some(map) if object["kind"] == "ReplicationController" => pairs(Some(map)),
        other => selector(other),
    };
    vec![
        name(object),
        number(object, "spec.replicas").into(),
        number(object, "status.replicas").into(),
        number(object, "status.readyReplicas").into(),
        age::of(object, now),
        names,
        images,
        selected,
    ]
}

/// READY is ready over wanted.
pub(super) fn deployment(object: &Value, now: Timestamp) -> Vec<Value> {
    let [names, images] = containers(object, "spec.template.spec");
    let (ready, wanted) = (number(object, "status.readyReplicas"), number(object, "spec.replicas"));
    vec![
        name(object),
        format!("{ready}/{wanted}").into(),
        number(object, "status.updatedReplicas").into(),
        number(object, "status.availableReplicas").into(),
        age::of(object, now),
        names,
        images,
        selector(meta::at(object, "spec.selector")),
    ]
}

pub(super) fn stateful_set(object: &Value, now: Timestamp) -> Vec<Value> {
    let [names, images] = containers(object, "spec.template.spec");
    let (ready, wanted) = (number(object, "status.readyReplicas"), number(object, "spec.replicas"));
    vec![name(object), format!("{ready}/{wanted}").into(), age::of(object, now), names, images]
}

pub(super) fn daemon_set(object: &Value, now: Timestamp) -> Vec<Value> {
    let [names, images] = containers(object, "spec.template.spec");
    let status = |field: &str| Value::from(number(object, &format!("status.{field}")));
    vec![
        name(object),
        status("desiredNumberScheduled"),
        status("currentNumberScheduled"),
        status("numberReady"),
        status("updatedNumberScheduled"),
        status("numberAvailable"),
        pairs(meta::at(object, "spec.template.spec.nodeSelector")),
        age::of(object, now),
        names,
        images,
        selector(meta::at(object, "spec.selector")),
    ]
}

pub(super) fn controller_revision(object: &Value, now: Timestamp) -> Vec<Value> {
    let owner = list(object, "metadata.ownerReferences")
        .iter()
        .find(|o| is_true(o, "controller"))
        .map(|o| {
            let group = text(o, "apiVersion").split_once('/').map_or("", |(group, _)| group);
            let kind = text(o, "kind").to_lowercase();
            format!("{}/{}", atoll_apimachinery::qualified(group, &kind), text(o, "name"))
        });
    vec![
        name(object),
        or_none(owner.as_deref().unwrap_or("")),
        number(object, "revision").into(),
        age::of(object, now),
    ]
}

fn has_condition(object: &Value, kind: &str) -> bool {
    list(object, "status.conditions")
        .iter()
        .any(|c| text(c, "type") == kind && text(c, "status") == "True")
}

/// STATUS is the first terminal condition; DURATION runs until the completion.
pub(super) fn job(object: &Value, now: Timestamp) -> Vec<Value> {
    let [names, images] = containers(object, "spec.template.spec");
    let succeeded = number(object, "status.succeeded");
    let completions = match meta::at(object, "spec.completions").and_then(Value::as_i64) {
        Some(wanted) => format!("{succeeded}/{wanted}"),
        None => match number(object, "spec.parallelism") {
            0 | 1 => format!("{succeeded}/1"),
            parallel => format!("{succeeded}/1 of {parallel}"),
        },
    };
    let started = age::parse(meta::at(object, "status.startTime"));
    let ended = age::parse(meta::at(object, "status.completionTime"));
    let duration = started.map_or_else(String::new, |start| {
        age::human(ended.unwrap_or(now).as_second() - start.as_second())
    });
    let status = [
        ("Complete", "Complete"),
        ("Failed", "Failed"),
        ("Suspended", "Suspended"),
        ("FailureTarget", "FailureTarget"),
        ("SuccessCriteriaMet", "SuccessCriteriaMet"),
    ]
    .iter()
    .find(|(kind, _)| has_condition(object, kind))
    .map_or(if meta::is_deleting(object) { "Terminating" } else { "Running" }, |(_, shown)| shown);
    vec![
        name(object),
        status.into(),
        completions.into(),
        duration.into(),
        age::of(object, now),
        names,
        images,
        selector(meta::at(object, "spec.selector")),
    ]
}

/// Columns of `printCronJob`.
pub(super) fn cron_job(object: &Value, now: Timestamp) -> Vec<Value> {
    let [names, images] = containers(object, "spec.jobTemplate.spec.template.spec");
    let last = match meta::at(object, "status.lastScheduleTime") {
        None => NONE.to_owned(),
        time => age::since(time, now),
    };
    let suspend = if is_true(object, "spec.suspend") { "True" } else { "False" };
    vec![
        name(object),
        text(object, "spec.schedule").into(),
        or_none(text(object, "spec.timeZone")),
        suspend.into(),
        list(object, "status.active").len().into(),
        last.into(),
        age::of(object, now),
        names,
        images,
        selector(meta::at(object, "spec.jobTemplate.spec.selector")),
    ]
}

/// One metric of an autoscaler: current over target.
fn metric(spec: &Value, current: &[Value]) -> String {
    let kind = text(spec, "type");
    let source = match kind {
        "ContainerResource" => "containerResource".to_owned(),
        other => other.to_lowercase(),
    };
    let target = |field: &str| meta::at(spec, &format!("{source}.target.{field}"));
    let now = |field: &str| {
        let found = current.iter().find(|m| {
            text(m, "type") == kind
                && text(m, &format!("{source}.name")) == text(spec, &format!("{source}.name"))
        });
        found.and_then(|m| meta::at(m, &format!("{source}.current.{field}")))
    };
    let plain = |value: Option<&Value>| match value {
        Some(Value::String(text)) => text.clone(),
        Some(other) => other.to_string(),
        None => age::UNKNOWN.to_owned(),
    };
    let name = match kind {
        "Resource" | "ContainerResource" => format!("{}: ", text(spec, &format!("{source}.name"))),
        _ => String::new(),
    };
    if let Some(wanted) = target("averageUtilization") {
        let current = now("averageUtilization");
        let current = current.map_or_else(|| age::UNKNOWN.to_owned(), |v| format!("{v}%"));
        return format!("{name}{current}/{wanted}%");
    }
    for field in ["averageValue", "value"] {
        if let Some(wanted) = target(field) {
            return format!("{name}{}/{}", plain(now(field)), plain(Some(wanted)));
        }
    }
    format!("{name}{}", age::UNKNOWN)
}

/// TARGETS shows two metrics, and the number of the rest.
pub(super) fn horizontal_pod_autoscaler(object: &Value, now: Timestamp) -> Vec<Value> {
    const SHOWN: usize = 2;
    let target = format!(
        "{}/{}",
        text(object, "spec.scaleTargetRef.kind"),
        text(object, "spec.scaleTargetRef.name")
    );
    let current = list(object, "status.currentMetrics");
    let all: Vec<String> =
        list(object, "spec.metrics").iter().map(|m| metric(m, current)).collect();
    let metrics = match all.len() {
        0 => NONE.to_owned(),
        n if n > SHOWN => format!("{} + {} more...", all[..SHOWN].join(", "), n - SHOWN),
        _ => all.join(", "),
    };
    let min = meta::at(object, "spec.minReplicas").map_or("<unset>".to_owned(), Value::to_string);
    vec![
        name(object),
        target.into(),
        metrics.into(),
        min.into(),
        number(object, "spec.maxReplicas").into(),
        number(object, "status.currentReplicas").into(),
        age::of(object, now),
    ]
}

pub(super) fn pod_disruption_budget(object: &Value, now: Timestamp) -> Vec<Value> {
    let or_na = |field: &str| match meta::at(object, &format!("spec.{field}")) {
        None => Value::from("N/A"),
        Some(Value::String(text)) => text.as_str().into(),
        Some(other) => other.to_string().into(),
    };
    vec![
        name(object),
        or_na("minAvailable"),
        or_na("maxUnavailable"),
        number(object, "status.disruptionsAllowed").into(),
        age::of(object, now),
    ]
}
