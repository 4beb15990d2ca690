//! What is wrong with a Pod, in text that is stable while the fault lasts: every change of it is sent to the
//! controller.

use std::collections::BTreeSet;

use serde_json::Value;

/// Longest message stored of a Pod's fault, in characters.
const MAX_MESSAGE: usize = 300;
/// Longest reason kept, in characters. Kubernetes' own have up to 30.
const MAX_REASON: usize = 64;
/// Limit of the container statuses read per Pod, of each kind.
const MAX_CONTAINERS: usize = 64;
/// Restarts from which a running container that is not ready counts as crash-looping. A single restart may be a race at
/// the start.
const RESTARTS: i64 = 2;

/// Waiting reasons of a starting container.
const STARTING: [&str; 3] = ["", "ContainerCreating", "PodInitializing"];
/// Waiting reasons that alternate while an image cannot be pulled; reported as the first one.
const PULL: [&str; 3] = ["ImagePullBackOff", "ErrImagePull", "RegistryUnavailable"];

/// Why a Pod is not working.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct PodFault {
    /// CamelCase, as the kubelet gives it; `Pending` for a Pod without a node.
    pub reason: String,
    /// Text for users.
    pub message: String,
}

/// The fault of a Pod's containers; `None` where they run, or are starting.
#[must_use]
pub(super) fn of_containers(pod: &Value) -> Option<PodFault> {
    ["initContainerStatuses", "containerStatuses"]
        .iter()
        .filter_map(|field| pod["status"][field].as_array())
        .flat_map(|statuses| statuses.iter().take(MAX_CONTAINERS))
        .find_map(of_container)
}

fn of_container(status: &Value) -> Option<PodFault> {
    let name = status["name"].as_str().unwrap_or_default();
    let restarts = status["restartCount"].as_i64().unwrap_or_default();
    let waiting = &status["state"]["waiting"];
    let reason = waiting["reason"].as_str().unwrap_or_default();
    if PULL.contains(&reason) {
        let image = status["image"].as_str().unwrap_or_default();
        return Some(fault(PULL[0], format!("container {name:?}: cannot pull image {image:?}")));
    }
    let crashes = match () {
        () if reason == "CrashLoopBackOff" => true,
        () if waiting.is_object() => false,
        () => status["ready"] == false && restarts >= RESTARTS,
    };
    if crashes {
        let last = match &status["state"]["terminated"] {
            Value::Null => &status["lastState"]["terminated"],
            now => now,
        };
        let code = last["exitCode"].as_i64().unwrap_or_default();
        let why = match last["reason"].as_str() {
            Some("OOMKilled") => " (OOMKilled)",
            _ => "",
        };
        let message = format!("container {name:?} exits with code {code}{why} and is restarted");
        return Some(fault("CrashLoopBackOff", message));
    }
    if STARTING.contains(&reason) {
        return None;
    }
    let message = waiting["message"].as_str().unwrap_or_default();
    Some(fault(reason, format!("container {name:?}: {message}")))
}

/// The fault of a Pod for which the scheduler found no node: `0/3 nodes are available: 2 Insufficient cpu, 1 node(s)
/// had untolerated taint {x}. preemption: ...` without its counts, which change with every other Pod.
#[must_use]
pub(super) fn unscheduled(message: &str) -> PodFault {
    let causes = message.split_once("nodes are available:").map_or(message, |(_, causes)| causes);
    let causes = causes.split(". preemption:").next().unwrap_or_default().trim_end_matches('.');
    let without_count = |cause: &str| {
        cause.trim().trim_start_matches(|c: char| c.is_ascii_digit()).trim().to_owned()
    };
    let causes: BTreeSet<String> =
        causes.split(", ").map(without_count).filter(|cause| !cause.is_empty()).collect();
    let causes = causes.into_iter().collect::<Vec<_>>().join(", ");
    fault("Pending", if causes.is_empty() { "no node takes it".to_owned() } else { causes })
}

fn fault(reason: &str, message: String) -> PodFault {
    PodFault {
        reason: reason.chars().take(MAX_REASON).collect(),
        message: message.chars().take(MAX_MESSAGE).collect(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn with(mut object: Value, fields: &Value) -> Value {
        for (name, value) in fields.as_object().unwrap() {
            object[name] = value.clone();
        }
        object
    }

    fn of(status: Value) -> Option<(String, String)> {
        let container =
            json!({"name": "web", "image": "nginx:1", "restartCount": 0, "ready": false});
        let container = with(container, &status);
        of_containers(&json!({"status": {"containerStatuses": [container]}}))
            .map(|fault| (fault.reason, fault.message))
    }

    fn waiting(reason: &str) -> Value {
        json!({"state": {"waiting": {"reason": reason, "message": format!("of {reason}")}}})
    }

    #[test]
    fn a_container_that_starts_or_runs_has_no_fault() {
        for status in [
            waiting("ContainerCreating"),
            waiting("PodInitializing"),
            json!({"state": {"running": {}}, "ready": true, "restartCount": 9}),
            json!({"state": {"running": {}}, "ready": false, "restartCount": 1}),
            json!({"state": {"terminated": {"exitCode": 0}}}),
        ] {
            assert_eq!(of(status.clone()), None, "{status}");
        }
    }

    #[test]
    fn the_words_stay_the_same_while_the_kubelet_goes_round_in_circles() {
        let pull = of(waiting("ErrImagePull")).unwrap();
        assert_eq!(pull.0, "ImagePullBackOff");
        assert_eq!(pull.1, "container \"web\": cannot pull image \"nginx:1\"");
        assert_eq!(of(waiting("ImagePullBackOff")), Some(pull));

        let last = json!({"lastState": {"terminated": {"exitCode": 137, "reason": "OOMKilled"}}});
        let round = |status: Value, restarts: i64| {
            of(with(with(status, &last), &json!({"restartCount": restarts})))
        };
        let crash = round(waiting("CrashLoopBackOff"), 2).unwrap();
        assert_eq!(crash.0, "CrashLoopBackOff");
        assert_eq!(crash.1, "container \"web\" exits with code 137 (OOMKilled) and is restarted");
        assert_eq!(round(json!({"state": {"running": {}}}), 3), Some(crash.clone()));
        let ended = json!({"state": {"terminated": {"exitCode": 137, "reason": "OOMKilled"}}});
        assert_eq!(round(ended, 4), Some(crash));
    }

    #[test]
    fn other_reasons_of_a_waiting_container_are_passed_on_within_bounds() {
        let config = of(waiting("CreateContainerConfigError")).unwrap();
        assert_eq!(config.0, "CreateContainerConfigError");
        assert_eq!(config.1, "container \"web\": of CreateContainerConfigError");
        let long = of(waiting(&"x".repeat(5000))).unwrap();
        assert_eq!((long.0.len(), long.1.len()), (MAX_REASON, MAX_MESSAGE));
    }

    #[test]
    fn what_the_scheduler_says_comes_without_its_counts() {
        for (message, expected) in [
            ("0/1 nodes are available: 1 Insufficient cpu.", "Insufficient cpu"),
            (
                "0/4 nodes are available: 1 node(s) had untolerated taint {a: b}, 3 Insufficient memory. \
                 preemption: 0/4 nodes are available: 4 No preemption victims found.",
                "Insufficient memory, node(s) had untolerated taint {a: b}",
            ),
            ("no nodes available to schedule pods", "no nodes available to schedule pods"),
            ("", "no node takes it"),
        ] {
            let fault = unscheduled(message);
            assert_eq!((fault.reason.as_str(), fault.message.as_str()), ("Pending", expected));
        }
    }
}
