//! Verbs over the members of `atoll up`, on the real binary, with kubectl where it is installed: the way goes from the
//! hub through the leader and the member's tunnel to the agent and the member's API server.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::support::cli::{fail, has_kubectl, run};
use crate::support::federation::{Federation, deployments, free_ports, objects};
use crate::support::lines::Lines;
use crate::support::wait::until;

/// Ports that `atoll up` takes with three members: hub, agents' address, and one a member.
const PORTS: u16 = 5;

/// A Deployment with one pod on each of three members, which write a line a second, and its policy.
fn application() -> [Value; 2] {
    let deployment = json!({
        "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"name": "web", "namespace": "default"},
        "spec": {
            "replicas": 3,
            "selector": {"matchLabels": {"app": "web"}},
            "template": {
                "metadata": {"labels": {"app": "web"}, "annotations": {
                    "simulator.atoll.dev/log": "visit {n} of {pod}",
                    "simulator.atoll.dev/log-every": "1s",
                }},
                "spec": {"containers": [{"name": "main", "image": "nginx",
                    "env": [{"name": "GREETING", "value": "hello"}],
                    "resources": {"requests": {"cpu": "500m", "memory": "256Mi"}}}]},
            },
        },
    });
    let policy = json!({
        "apiVersion": "policy.atoll.dev/v1alpha1", "kind": "PropagationPolicy",
        "metadata": {"name": "web", "namespace": "default"},
        "spec": {
            "resourceSelectors": [{"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}],
            "placement": {"replicaScheduling": {
                "replicaSchedulingType": "Divided", "replicaDivisionPreference": "Weighted",
                "weightPreference": {"staticWeightList": [
                    {"targetCluster": {"clusterNames": ["member1", "member2", "member3"]}, "weight": 1},
                ]},
            }},
        },
    });
    [deployment, policy]
}

async fn create(federation: &Federation) {
    let hub = federation.client("hub").await;
    for object in application() {
        let (group, version) = object["apiVersion"].as_str().unwrap().split_once('/').unwrap();
        let api = objects(&hub, group, version, object["kind"].as_str().unwrap(), "default");
        let object = serde_json::from_value(object.clone()).unwrap();
        api.create(&Default::default(), &object).await.unwrap();
    }
    until(&deployments(&hub, "default"), "web", "3 of 3 ready", |d| {
        d["status"]["readyReplicas"] == 3
    })
    .await;
}

/// The name of the pod on each member.
async fn pods(federation: &Federation) -> Vec<(&'static str, String)> {
    let mut found = Vec::new();
    for member in ["member1", "member2", "member3"] {
        let api = objects(&federation.client(member).await, "", "v1", "Pod", "default");
        let mut list = api.list(&Default::default()).await.unwrap();
        // A rollout is complete while old pods still end.
        list.items.retain(|pod| pod.metadata.deletion_timestamp.is_none());
        assert_eq!(list.items.len(), 1, "{member}");
        found.push((member, list.items[0].metadata.name.clone().unwrap()));
    }
    found
}

/// The members' contexts through the hub.
fn contexts(federation: &Federation, folder: &Path) -> PathBuf {
    let file = folder.join("members");
    run(&mut federation.atoll(&["kubeconfig", "--merge", file.to_str().unwrap()]));
    file
}

/// `kubectl` on member1 through the hub.
fn kubectl(file: &Path, args: &[&str]) -> Command {
    let mut command = Command::new("kubectl");
    command.arg("--kubeconfig").arg(file).args(["--context", "member1", "--cache-dir"]);
    command.arg(file.with_extension("cache")).args(args);
    command
}

#[tokio::test(flavor = "multi_thread")]
async fn verbs_reach_the_pods_of_all_members() {
    let data = tempfile::tempdir().unwrap();
    let federation = Federation::start(&data.path().join("atoll"), free_ports(PORTS));
    create(&federation).await;
    let pods = pods(&federation).await;
    let file = contexts(&federation, data.path());
    logs(&federation, &pods);
    top_events_and_changes(&federation, &pods).await;
    if has_kubectl() {
        kubectl_reads_logs_and_metrics(&file, &pods[0].1);
        sessions(&federation, &file, &pods);
        copies(&federation, data.path(), &pods[0].1);
        all_members_at_once(&federation, &file, &pods);
    }
    rollout(&federation);
    let pods = self::pods(&federation).await;
    a_dead_member_costs_its_own_lines(&federation, &pods).await;
}

fn logs(federation: &Federation, pods: &[(&str, String)]) {
    let follower = federation.atoll(&["logs", "deploy/web", "-f", "--tail", "0"]);
    let follower = Lines::of("atoll logs -f", follower);
    let all = run(&mut federation.atoll(&["logs", "deploy/web", "--timestamps"]));
    for (member, pod) in pods {
        assert!(all.lines().any(|l| l.contains(member) && l.contains("starts on node")), "{all}");
        let line = follower.until(&[&format!("[{member}/{pod}] visit "), &format!(" of {pod}")]);
        assert!(!line.contains('\u{1b}'), "colours where no terminal is: {line}");
    }
    let times: Vec<&str> = all.lines().map(|line| line.split(' ').nth(1).unwrap()).collect();
    assert!(times.is_sorted(), "{all}");
    let tail = run(&mut federation.atoll(&["logs", "deploy/web", "--tail", "1"]));
    assert_eq!(tail.lines().count(), 3, "{tail}");
    let one = ["logs", &pods[1].1, "--since", "1h", "-c", "main"];
    let one = run(&mut federation.atoll(&one));
    assert!(one.lines().all(|line| line.starts_with("[member2/")), "{one}");
    let labels = ["logs", "-l", "app=web", "--cluster", "member3", "--tail", "2"];
    let labels = run(&mut federation.atoll(&labels));
    assert_eq!(labels.lines().filter(|line| line.starts_with("[member3/")).count(), 2, "{labels}");
    for (args, part) in [
        (&["logs", "deploy/nothing"][..], "there are no pods"),
        (&["logs", "deploy/web", "-c", "other"], "--container other"),
        (&["logs", "nosuchtype/web"], "does not serve"),
        (&["logs", "deploy/web", "--cluster", "moon"], "moon"),
        (&["logs"], "WORKLOAD"),
    ] {
        let refused = fail(&mut federation.atoll(args));
        assert!(refused.contains(part), "{args:?}: {refused}");
    }
}

fn kubectl_reads_logs_and_metrics(file: &Path, pod: &str) {
    let log = run(&mut kubectl(file, &["logs", pod, "--tail=2"]));
    assert_eq!(log.lines().count(), 2, "{log}");
    let refused = fail(&mut kubectl(file, &["logs", pod, "--previous"]));
    assert!(refused.contains("previous terminated container"), "{refused}");
    let follower = Lines::of("kubectl logs -f", kubectl(file, &["logs", "-f", "deploy/web"]));
    follower.until(&["visit", pod]);
    let top = run(&mut kubectl(file, &["top", "pods"]));
    let cpu = top.lines().find(|line| line.starts_with(pod)).unwrap();
    let cpu = cpu.split_whitespace().nth(1).unwrap().trim_end_matches('m');
    assert!((350..=475).contains(&cpu.parse::<u32>().unwrap()), "{top}");
    assert!(run(&mut kubectl(file, &["top", "nodes"])).contains("CPU"));
}

async fn top_events_and_changes(federation: &Federation, pods: &[(&str, String)]) {
    let top = run(&mut federation.atoll(&["top", "pods", "--sort-by", "memory"]));
    let nodes = run(&mut federation.atoll(&["top", "nodes"]));
    for (member, pod) in pods {
        assert!(top.lines().any(|line| line.starts_with(member) && line.contains(pod)), "{top}");
        assert!(
            nodes.lines().any(|line| line.starts_with(member) && line.contains('%')),
            "{nodes}"
        );
    }
    let member2 = federation.client("member2").await;
    let event = json!({"metadata": {"name": "e", "namespace": "default"}, "reason": "Tested", "type": "Normal",
        "message": "by hand", "lastTimestamp": "2026-01-01T00:00:00Z",
        "involvedObject": {"kind": "Pod", "namespace": "default", "name": pods[1].1}});
    let events = objects(&member2, "", "v1", "Event", "default");
    events.create(&Default::default(), &serde_json::from_value(event).unwrap()).await.unwrap();
    let about = format!("pod/{}", pods[1].1);
    let listed = run(&mut federation.atoll(&["events", "--for", &about]));
    assert!(listed.contains("member2") && listed.contains("Tested"), "{listed}");
    let listed = run(&mut federation.atoll(&["events", "--for", "pod/other"]));
    assert!(listed.contains("No events"), "{listed}");

    let table = Lines::of("atoll get -w", federation.atoll(&["get", "configmaps", "-w"]));
    table.until(&["CLUSTER", "NAME"]);
    let lines = federation.atoll(&["get", "cm", "-w", "-o", "json", "--cluster", "member2"]);
    let lines = Lines::of("atoll get -w -o json", lines);
    let maps = objects(&member2, "", "v1", "ConfigMap", "default");
    let map = json!({"metadata": {"name": "seen"}, "data": {"a": "b"}});
    maps.create(&Default::default(), &serde_json::from_value(map).unwrap()).await.unwrap();
    table.until(&["member2", "seen", "1"]);
    let line: Value = serde_json::from_str(&lines.until(&["seen"])).unwrap();
    assert_eq!(line["metadata"]["annotations"]["cluster.atoll.dev/name"], "member2");
}

/// exec, attach and describe, the way through the tunnel included.
fn sessions(federation: &Federation, file: &Path, pods: &[(&str, String)]) {
    let pod = pods[0].1.as_str();
    let env = run(&mut kubectl(file, &["exec", pod, "--", "env"]));
    assert!(env.contains("GREETING=hello"), "{env}");
    assert_eq!(
        piped(&mut kubectl(file, &["exec", "-i", pod, "--", "cat"]), "one\ntwo\n"),
        "one\ntwo\n"
    );
    // More than one window of the tunnel and more than one message.
    let long = "0123456789abcdef".repeat(64 << 10);
    let echoed = piped(&mut kubectl(file, &["exec", "-i", pod, "--", "cat"]), &long);
    assert!(echoed == long, "{} of {} bytes came back", echoed.len(), long.len());
    let shell =
        piped(&mut kubectl(file, &["exec", "-i", pod, "--", "sh"]), "echo $HOSTNAME\nexit 0\n");
    assert_eq!(shell.trim(), pod);
    let attached = Lines::of("kubectl attach", kubectl(file, &["attach", pod]));
    attached.until(&["visit", pod]);

    // The verbs find the member by themselves, for a pod of each.
    for (_, pod) in pods {
        let hostname = run(&mut exec(federation, pod, &["cat", "/etc/hostname"]));
        assert_eq!(hostname.trim(), pod);
    }
    let failed = exec(federation, pod, &["sh", "-c", "exit 7"]).output().unwrap();
    assert_eq!(failed.status.code(), Some(7), "{failed:?}");
    let described = run(&mut federation.atoll(&["describe", &pods[2].1]));
    assert!(described.contains("nginx") && described.contains(&pods[2].1), "{described}");
    let several = fail(&mut federation.atoll(&["describe", "deploy/web"]));
    assert!(
        several.contains("--cluster") && several.contains("member1, member2, member3"),
        "{several}"
    );
    run(&mut federation.atoll(&["describe", "deploy/web", "--cluster", "member3"]));
    let missing = fail(&mut exec(federation, "nothing", &["ls"]));
    assert!(missing.contains("no member has pod default/nothing"), "{missing}");
    let no_kubectl = fail(exec(federation, pod, &["ls"]).env("PATH", "/nowhere"));
    assert!(no_kubectl.contains("kubectl is not in $PATH"), "{no_kubectl}");
    let moon = fail(&mut federation.atoll(&["attach", pod, "--cluster", "moon"]));
    assert!(moon.contains("moon"), "{moon}");
    let temporary = tempfile::tempdir().unwrap();
    run(exec(federation, pod, &["true"]).env("TMPDIR", temporary.path()));
    fail(exec(federation, pod, &["false"]).env("TMPDIR", temporary.path()));
    let left: Vec<_> = std::fs::read_dir(temporary.path()).unwrap().collect();
    assert!(left.is_empty(), "{left:?}");
}

/// Files go into a container and come back, and history has the sessions.
fn copies(federation: &Federation, folder: &Path, pod: &str) {
    let (here, back) = (folder.join("here"), folder.join("back"));
    let content: Vec<u8> = (0..200_000_u32).map(|at| (at % 251) as u8).collect();
    std::fs::write(&here, &content).unwrap();
    let inside = format!("{pod}:/tmp/data");
    run(federation.atoll(&["cp"]).arg(&here).arg(&inside));
    run(federation.atoll(&["cp", &inside]).arg(&back));
    assert!(std::fs::read(&back).unwrap() == content, "the file changed on its way");
    assert_eq!(run(&mut exec(federation, pod, &["ls", "/tmp"])), "data\n");
    let large = folder.join("large");
    std::fs::write(&large, vec![0; 5 << 20]).unwrap();
    let full = fail(federation.atoll(&["cp"]).arg(&large).arg(&inside));
    assert!(full.contains("No space left"), "{full}");
    // kubectl prints what tar says on its standard output.
    fail(federation.atoll(&["cp", &format!("{pod}:/nothing")]).arg(&back));

    let place = format!("pod default/{pod}: HTTP 101");
    let rows = Lines::of(
        "atoll history",
        federation.atoll(&["history", "--member", "member1", "--since", "1h", "--watch"]),
    );
    rows.until(&["Exec", "Opened", &place]);
}

/// `fleet/all/proxy`: one answer of all members, also as a server of kubectl's.
fn all_members_at_once(federation: &Federation, file: &Path, pods: &[(&str, String)]) {
    let fleet = "/apis/proxy.atoll.dev/v1alpha1/fleet/all/proxy";
    let path = format!("{fleet}/api/v1/namespaces/default/pods?labelSelector=app%3Dweb");
    let raw = run(federation.kubectl("hub").args(["get", "--raw", &path]));
    let list: Value = serde_json::from_str(&raw).unwrap();
    let mut found: Vec<(String, String)> = list["items"]
        .as_array()
        .unwrap()
        .iter()
        .map(|pod| {
            let cluster = &pod["metadata"]["annotations"]["cluster.atoll.dev/name"];
            let text = |value: &Value| value.as_str().unwrap().to_owned();
            (text(cluster), text(&pod["metadata"]["name"]))
        })
        .collect();
    let mut expected: Vec<(String, String)> =
        pods.iter().map(|(member, pod)| ((*member).to_owned(), pod.clone())).collect();
    found.sort();
    expected.sort();
    assert_eq!(found, expected);
    let server = format!("https://127.0.0.1:{}{fleet}", federation.port);
    let table = run(&mut kubectl(file, &["--server", &server, "get", "pods", "-l", "app=web"]));
    let header: Vec<&str> = table.lines().next().unwrap().split_whitespace().collect();
    assert_eq!(header[..2], ["CLUSTER", "NAME"], "{table}");
    assert!(pods.iter().all(|(_, pod)| table.contains(pod.as_str())), "{table}");
    // Pages of one.
    let paged =
        ["--server", &server, "get", "pods", "-l", "app=web", "--chunk-size=1", "-o", "name"];
    assert_eq!(run(&mut kubectl(file, &paged)).lines().count(), pods.len());
    let refused = fail(&mut kubectl(file, &["--server", &server, "delete", "pod", &pods[0].1]));
    assert!(!refused.is_empty());
}

/// `atoll exec` on this federation.
fn exec(federation: &Federation, pod: &str, words: &[&str]) -> Command {
    let mut command = federation.atoll(&["exec", pod]);
    command.arg("--").args(words);
    command
}

/// Runs a command with this input; its output.
fn piped(command: &mut Command, input: &str) -> String {
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::inherit())
        .spawn()
        .unwrap();
    let (mut stdin, input) = (child.stdin.take().unwrap(), input.to_owned());
    let writing = std::thread::spawn(move || stdin.write_all(input.as_bytes()));
    let output = child.wait_with_output().unwrap();
    writing.join().unwrap().unwrap();
    assert!(output.status.success(), "{command:?}: {:?}", output.status);
    String::from_utf8(output.stdout).unwrap()
}

fn rollout(federation: &Federation) {
    let status = ["rollout", "status", "deploy/web", "--timeout", "60"];
    let before = run(&mut federation.atoll(&status));
    for member in ["member1", "member2", "member3"] {
        let done = |line: &str| line.starts_with(member) && line.contains("complete: 1 of 1");
        assert!(before.lines().any(done), "{before}");
    }
    run(&mut federation.atoll(&["rollout", "restart", "deploy/web"]));
    let after = run(&mut federation.atoll(&status));
    assert!(after.lines().count() > 3, "each member waits, then is complete: {after}");
    let refused = fail(&mut federation.atoll(&["rollout", "restart", "cm/kube-root-ca.crt"]));
    assert!(refused.contains("has no rollout"), "{refused}");
}

async fn a_dead_member_costs_its_own_lines(federation: &Federation, pods: &[(&str, String)]) {
    run(&mut federation.sim(&["stop", "member1"]));
    let began = Instant::now();
    let output = federation.atoll(&["logs", "deploy/web"]).output().unwrap();
    // One wait of 3 s, and the start of the program.
    assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
    let (out, err) =
        (String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap());
    assert!(!output.status.success());
    assert!(err.contains("member1"), "{err}");
    for (member, pod) in &pods[1..] {
        assert!(out.contains(&format!("[{member}/{pod}]")), "{out}");
    }
    run(&mut federation.sim(&["start", "member1"]));
}
