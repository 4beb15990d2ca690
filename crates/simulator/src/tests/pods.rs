//! Kubelets: single Pods from binding to their end.

use serde_json::{Value, json};

use super::sandbox::Sandbox;
use crate::index::kind::Kind;

fn pod(annotations: Value, spec: Value) -> Value {
    let mut pod = json!({
        "kind": "Pod",
        "metadata": {"name": "one", "annotations": annotations},
        "spec": {"containers": [{"name": "main", "image": "image:1"}]},
    });
    json_patch::merge(&mut pod["spec"], &spec);
    pod
}

fn phase(sandbox: &Sandbox) -> String {
    sandbox.field(Kind::Pod, "one", "/status/phase").as_str().unwrap_or_default().to_owned()
}

fn is(sandbox: &Sandbox, type_: &str) -> (String, String) {
    sandbox.condition(Kind::Pod, "one", type_).unwrap()
}

fn waiting(sandbox: &Sandbox) -> Value {
    sandbox.field(Kind::Pod, "one", "/status/containerStatuses/0/state/waiting/reason")
}

fn restarts(sandbox: &Sandbox) -> Value {
    sandbox.field(Kind::Pod, "one", "/status/containerStatuses/0/restartCount")
}

#[test]
fn a_pod_starts_runs_and_gets_ready() {
    let mut sandbox = Sandbox::with_nodes(1);
    let init = json!([{"name": "prepare", "image": "i"}, {"name": "proxy", "image": "p", "restartPolicy": "Always"}]);
    sandbox.create(pod(json!({}), json!({
        "initContainers": init,
        "containers": [{"name": "main", "image": "image:1", "readinessProbe": {"initialDelaySeconds": 4}}],
    })));
    sandbox.settle();
    assert_eq!(
        (phase(&sandbox).as_str(), waiting(&sandbox)),
        ("Pending", json!("PodInitializing"))
    );
    assert_eq!(is(&sandbox, "PodScheduled").0, "True");
    assert_eq!(is(&sandbox, "Initialized"), ("False".into(), "ContainersNotInitialized".into()));
    sandbox.advance(2);
    assert_eq!(phase(&sandbox), "Running");
    assert_eq!(is(&sandbox, "Ready"), ("False".into(), "ContainersNotReady".into()));
    let init = |at: usize, state: &str| {
        sandbox.field(
            Kind::Pod,
            "one",
            &format!("/status/initContainerStatuses/{at}/state/{state}"),
        )
    };
    assert!(init(0, "terminated").is_object() && init(1, "running").is_object());
    sandbox.advance(4);
    assert_eq!(is(&sandbox, "Ready"), ("True".into(), String::new()));
    assert_eq!(sandbox.field(Kind::Pod, "one", "/status/podIP"), json!("10.128.0.2"));
    assert_eq!(sandbox.field(Kind::Pod, "one", "/status/qosClass"), json!("BestEffort"));
    sandbox.delete(Kind::Pod, "one");
    sandbox.settle();
    assert!(sandbox.get(Kind::Pod, "one").is_some(), "containers need a moment to stop");
    sandbox.advance(1);
    assert!(sandbox.get(Kind::Pod, "one").is_none());
}

#[test]
fn containers_exit_by_the_restart_policy() {
    for (policy, code, end) in
        [("Never", "0", "Succeeded"), ("Never", "3", "Failed"), ("OnFailure", "0", "Succeeded")]
    {
        let mut sandbox = Sandbox::with_nodes(1);
        let annotations =
            json!({"simulator.atoll.dev/run-for": "10s", "simulator.atoll.dev/exit-code": code});
        sandbox.create(pod(annotations, json!({"restartPolicy": policy})));
        sandbox.advance(11);
        assert_eq!(phase(&sandbox), "Running");
        sandbox.advance(2);
        assert_eq!(phase(&sandbox), end);
        assert_eq!(is(&sandbox, "Ready").0, "False");
        assert_eq!(sandbox.writes_after_restart(), Vec::<String>::new());
    }
}

#[test]
fn a_crashing_pod_backs_off_and_recovers_without_its_fault() {
    let mut sandbox = Sandbox::with_nodes(1);
    sandbox.create(pod(json!({"simulator.atoll.dev/fail": "crash"}), json!({})));
    sandbox.advance(3);
    assert_eq!((waiting(&sandbox), restarts(&sandbox)), (json!("CrashLoopBackOff"), json!(1)));
    sandbox.advance(10);
    assert_eq!(restarts(&sandbox), json!(2));
    sandbox.advance(10);
    assert_eq!(restarts(&sandbox), json!(2), "the second wait is 20 s");
    sandbox.advance(10);
    assert_eq!(restarts(&sandbox), json!(3));
    let before = sandbox.log.len();
    sandbox.advance(3600);
    assert!(sandbox.log.len() - before < 40, "at most one write in five minutes, and heartbeats");
    sandbox.patch(
        Kind::Pod,
        "one",
        json!({"metadata": {"annotations": {"simulator.atoll.dev/fail": null}}}),
    );
    sandbox.advance(300);
    assert_eq!(is(&sandbox, "Ready").0, "True");
}

#[test]
fn an_image_that_does_not_exist_is_not_run() {
    for (image, reason) in [
        ("nginx:nosuch", json!("ImagePullBackOff")),
        ("registry.invalid/web:1", json!("ImagePullBackOff")),
        ("Not An Image", json!("InvalidImageName")),
    ] {
        let mut sandbox = Sandbox::with_nodes(1);
        sandbox.create(pod(json!({}), json!({"containers": [{"name": "main", "image": image}]})));
        sandbox.advance(60);
        assert_eq!((phase(&sandbox).as_str(), waiting(&sandbox)), ("Pending", reason), "{image}");
        assert_eq!(is(&sandbox, "Ready").0, "False", "{image}");
        assert_eq!(sandbox.writes_after_restart(), Vec::<String>::new());
    }
}

#[test]
fn faults_show_as_they_would_on_a_real_node() {
    for (fault, end, reason) in [
        ("pull", "Pending", json!("ImagePullBackOff")),
        ("unready", "Running", Value::Null),
        ("exit", "Failed", Value::Null),
    ] {
        let mut sandbox = Sandbox::with_nodes(1);
        sandbox.create(pod(json!({"simulator.atoll.dev/fail": fault}), json!({})));
        sandbox.advance(60);
        assert_eq!((phase(&sandbox).as_str(), waiting(&sandbox)), (end, reason), "{fault}");
        assert_eq!(is(&sandbox, "Ready").0, "False", "{fault}");
        assert_eq!(sandbox.writes_after_restart(), Vec::<String>::new());
    }
    let mut sandbox = Sandbox::with_nodes(1);
    let elsewhere =
        json!({"simulator.atoll.dev/fail": "pull", "simulator.atoll.dev/fail-on": "member9"});
    sandbox.create(pod(elsewhere, json!({})));
    sandbox.advance(3);
    assert_eq!(is(&sandbox, "Ready").0, "True", "the fault is another member's");
}

#[test]
fn a_bad_annotation_is_named_in_the_status() {
    let mut sandbox = Sandbox::with_nodes(1);
    sandbox.create(pod(json!({"simulator.atoll.dev/run-for": "soon"}), json!({})));
    sandbox.advance(3);
    let message = sandbox.field(Kind::Pod, "one", "/status/message");
    assert!(message.as_str().unwrap().contains("simulator.atoll.dev/run-for"), "{message}");
    assert_eq!(phase(&sandbox), "Running");
}

#[test]
fn readiness_gates_wait_for_somebody_elses_word() {
    let mut sandbox = Sandbox::with_nodes(1);
    sandbox.create(pod(json!({}), json!({"readinessGates": [{"conditionType": "lb"}]})));
    sandbox.advance(3);
    assert_eq!(is(&sandbox, "Ready"), ("False".into(), "ReadinessGatesNotReady".into()));
    let mut conditions = sandbox.field(Kind::Pod, "one", "/status/conditions");
    conditions.as_array_mut().unwrap().push(json!({"type": "lb", "status": "True"}));
    sandbox.patch(Kind::Pod, "one", json!({"status": {"conditions": conditions}}));
    sandbox.settle();
    assert_eq!(is(&sandbox, "Ready").0, "True");
    assert_eq!(is(&sandbox, "lb").0, "True");
}
