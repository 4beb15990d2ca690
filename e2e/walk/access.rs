//! Members' APIs through the hub, with kubectl where it is installed.

use std::process::Command;

use kube::config::{Config, KubeConfigOptions, Kubeconfig};
use serde_json::{Value, json};

use super::PORTS;
use crate::support::cli::{fail, has_kubectl, root, run};
use crate::support::federation::{Federation, free_ports};

/// The members' contexts through the hub, in a file of their own.
fn kubeconfig(federation: &Federation, folder: &std::path::Path) -> std::path::PathBuf {
    let file = folder.join("members");
    run(&mut federation.atoll(&["kubeconfig", "--merge", file.to_str().unwrap()]));
    file
}

#[tokio::test(flavor = "multi_thread")]
async fn kubectl_works_on_members_through_the_hub() {
    let data = tempfile::tempdir().unwrap();
    let federation = Federation::start(&data.path().join("atoll"), free_ports(PORTS));
    let file = kubeconfig(&federation, data.path());
    let options = KubeConfigOptions { context: Some("member1".into()), ..Default::default() };
    let config = Kubeconfig::read_from(&file).unwrap();
    let mut config = Config::from_custom_kubeconfig(config, &options).await.unwrap();
    // Each answer is looked at.
    config.default_retry = false;
    let client = kube::Client::try_from(config).unwrap();
    let get = |path: &str| http::Request::get(path).body(Vec::new()).unwrap();
    let nodes: Value = client.request(get("/api/v1/nodes")).await.unwrap();
    let direct = federation.client("member1").await;
    let known: Value = direct.request(get("/api/v1/nodes")).await.unwrap();
    let names = |list: &Value| -> Vec<Value> {
        list["items"]
            .as_array()
            .unwrap()
            .iter()
            .map(|node| node["metadata"]["name"].clone())
            .collect()
    };
    assert_eq!(names(&nodes), names(&known));
    assert!(!names(&nodes).is_empty());
    let refused = client.request::<Value>(get("/api/v1/nodes/%2e%2e/x")).await.unwrap_err();
    assert!(refused.to_string().contains("must not have"), "{refused}");
    let whoami = http::Request::post("/apis/authentication.k8s.io/v1/selfsubjectreviews");
    let review = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"});
    let whoami = whoami.header("content-type", "application/json");
    let user: Value =
        client.request(whoami.body(review.to_string().into()).unwrap()).await.unwrap();
    // An administrator of the hub is an ordinary user on members.
    let expected = json!({"username": "admin", "groups": ["system:authenticated"]});
    assert_eq!(user["status"]["userInfo"]["username"], expected["username"]);
    let groups = user["status"]["userInfo"]["groups"].as_array().unwrap();
    assert!(groups.iter().all(|group| group == "system:authenticated"), "{groups:?}");

    clients_start(&direct, &client).await;

    if has_kubectl() {
        with_kubectl(&federation, &file, data.path());
    } else {
        println!("kubectl is not installed: its part of this test was left out");
    }

    // Objects of all members in one table, and a member that is down costs its own lines only.
    let nodes = run(&mut federation.atoll(&["get", "nodes"]));
    assert!(nodes.starts_with("CLUSTER"), "{nodes}");
    for member in ["member1", "member2", "member3"] {
        assert!(nodes.lines().any(|line| line.starts_with(member)), "{nodes}");
    }
    let listed =
        run(&mut federation.atoll(&["get", "ns", "default", "--cluster", "member2", "-o", "json"]));
    let listed: Value = serde_json::from_str(&listed).unwrap();
    let names = &listed["items"][0]["metadata"]["annotations"]["cluster.atoll.dev/name"];
    assert_eq!((listed["items"].as_array().unwrap().len(), names), (1, &json!("member2")));

    // A member that is down costs its own requests only, at once.
    run(&mut federation.sim(&["stop", "member1"]));
    let began = std::time::Instant::now();
    let down = client.request::<Value>(get("/api/v1/nodes")).await.unwrap_err().to_string();
    assert!(down.contains("member1"), "{down}");
    assert!(began.elapsed() < std::time::Duration::from_secs(3));
    let nodes = run(&mut federation.atoll(&["get", "nodes"]));
    assert!(nodes.contains("member2") && !nodes.contains("member1"), "{nodes}");
}

/// A request of tests/kubectl/clients.txt.
#[derive(Debug, Default)]
struct Start {
    method: String,
    path: String,
    accept: String,
    send: String,
    kind: Option<String>,
}

fn starts() -> Vec<Start> {
    let text = std::fs::read_to_string(root().join("tests/kubectl/clients.txt")).unwrap();
    let mut starts: Vec<Start> = Vec::new();
    for line in text.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
        let (word, rest) = line.split_once(' ').unwrap();
        let rest = rest.to_owned();
        if ["GET", "POST"].contains(&word) {
            let (method, accept) = (word.to_owned(), "application/json".to_owned());
            starts.push(Start { method, path: rest, accept, ..Start::default() });
            continue;
        }
        let start = starts.last_mut().unwrap();
        match word {
            "accept" => start.accept = rest,
            "send" => start.send = rest,
            "kind" => start.kind = Some(rest),
            other => panic!("{other:?} begins no line of clients.txt"),
        }
    }
    starts
}

/// k9s and Argo CD can start: each of their requests has the same answer through the hub as directly.
async fn clients_start(direct: &kube::Client, through: &kube::Client) {
    let starts = starts();
    assert!(starts.len() > 20);
    for start in starts {
        let ask = async |client: &kube::Client| {
            let request = http::Request::builder()
                .method(start.method.as_str())
                .uri(&start.path)
                .header("accept", &start.accept)
                .header("content-type", "application/json")
                .body(kube::client::Body::from(start.send.clone().into_bytes()))
                .unwrap();
            let answer = client.send(request).await.unwrap();
            let kind = answer.headers().get("content-type").cloned();
            let status = answer.status();
            let body = answer.into_body().collect_bytes().await.unwrap();
            (status, kind, body)
        };
        let (expected, found) = (ask(direct).await, ask(through).await);
        assert_eq!((&expected.0, &expected.1), (&found.0, &found.1), "{start:?}");
        let json = |body: &[u8]| serde_json::from_slice::<Value>(body).unwrap_or_default();
        if let Some(kind) = &start.kind {
            assert_eq!(json(&found.2)["kind"], kind.as_str(), "{start:?}");
            let is_status = kind == "Status";
            assert_eq!(found.0.is_success(), !is_status, "{start:?}");
        }
        let is_document =
            ["/version", "/openapi"].iter().any(|start_of| start.path.starts_with(start_of))
                || ["/api", "/apis", "/api/v1", "/apis/apps/v1"].contains(&start.path.as_str());
        if is_document {
            assert!(!found.2.is_empty() && expected.2 == found.2, "{start:?}");
        }
        if start.path.contains("watch=true") {
            let first = found.2.split(|byte| *byte == b'\n').next().unwrap();
            assert_eq!(json(first)["type"], "ADDED", "{start:?}");
        }
    }
}

fn with_kubectl(federation: &Federation, file: &std::path::Path, folder: &std::path::Path) {
    let kubectl = |args: &[&str]| {
        let mut command = Command::new("kubectl");
        command.arg("--kubeconfig").arg(file).args(["--context", "member1"]);
        command.arg("--cache-dir").arg(folder.join("cache")).args(args);
        command
    };
    assert!(run(&mut kubectl(&["get", "nodes"])).contains("NAME"));
    run(&mut kubectl(&["create", "configmap", "greeting", "--from-literal=text=hello"]));
    let json = run(&mut kubectl(&["get", "configmap", "greeting", "-o", "json"]));
    let found: Value = serde_json::from_str(&json).unwrap();
    assert_eq!(found["data"], json!({"text": "hello"}));
    run(&mut kubectl(&["label", "configmap", "greeting", "app=web"]));
    let manifest = folder.join("manifest.json");
    let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "greeting"},
        "data": {"text": "goodbye"}});
    std::fs::write(&manifest, object.to_string()).unwrap();
    run(kubectl(&["apply", "--server-side", "--force-conflicts", "-f"]).arg(&manifest));
    let text = run(&mut kubectl(&["get", "configmap", "greeting", "-o", "jsonpath={.data.text}"]));
    assert_eq!(text, "goodbye");
    assert!(run(&mut kubectl(&["describe", "configmap", "greeting"])).contains("goodbye"));
    run(&mut kubectl(&["wait", "--for=jsonpath={.data.text}=goodbye", "configmap/greeting"]));
    run(&mut kubectl(&["delete", "configmap", "greeting"]));
    let missing = fail(&mut kubectl(&["get", "configmap", "greeting"]));
    assert!(missing.contains("NotFound"), "{missing}");
    // On the hub, `clusters` are still the members.
    assert!(run(federation.kubectl("hub").args(["get", "clusters"])).contains("member1"));
}
