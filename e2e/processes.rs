//! Controller and agents as processes of their own, against API servers elsewhere: joined by the printed command, killed
//! and started again.

mod dependencies;
mod hosting;
mod installing;
mod interpreters;
mod joining;
mod kinds;
mod living;
mod protection;
mod rights;
mod taking;

use std::collections::BTreeSet;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use k8s_openapi::ByteString;
use kube::api::{Api, DynamicObject};
use serde_json::{Value, json};

use crate::support::cli::{atoll, example, fail, on_member, printed_words, root, run};
use crate::support::federation::{bindings, cluster_objects, deployments, free_ports, objects};
use crate::support::process::Process;
use crate::support::servers::ApiServer;
use crate::support::wait::until;

/// Limit of a clean stop: 5 s, plus some for a slow machine.
const QUICK: Duration = Duration::from_secs(10);

/// One federation of processes: what they are started with stays over their deaths.
struct Processes {
    folder: tempfile::TempDir,
    hub: ApiServer,
    address: String,
}

impl Processes {
    async fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let hub = ApiServer::hub(folder.path()).await;
        let rights = root().join("deploy/controller/rbac.yaml");
        hub.apply(&std::fs::read_to_string(rights).unwrap()).await;
        Self { folder, hub, address: format!("127.0.0.1:{}", free_ports(1)) }
    }

    /// A hub whose controller is ready for members to join.
    async fn started() -> (Self, Process) {
        Self::started_with(&[]).await
    }

    /// The same, with further flags of the controller.
    async fn started_with(flags: &[&str]) -> (Self, Process) {
        let federation = Self::new().await;
        let controller = federation.controller_with(flags);
        let secrets = objects(&federation.hub.client, "", "v1", "Secret", "atoll-system");
        until(&secrets, "atoll-ca", "the certificate authority", |_| true).await;
        (federation, controller)
    }

    /// A member whose agent runs with the rights of its manifest, once its Cluster lists the kinds that it serves.
    async fn joined(&self, name: &str) -> (ApiServer, Process) {
        self.joined_with(name, &[]).await
    }

    /// The same, with further flags of `atoll join`.
    async fn joined_with(&self, name: &str, flags: &[&str]) -> (ApiServer, Process) {
        let member = ApiServer::member(name, self.folder()).await;
        let agent = self.install_with(name, &member, flags).await;
        until(&cluster_objects(&self.hub.client), name, "its kinds", |cluster| {
            cluster["status"]["apiEnablements"].is_array()
        })
        .await;
        (member, agent)
    }

    fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// A verb on the hub.
    fn atoll(&self, args: &[&str]) -> Command {
        let mut command = atoll();
        command.args(args).arg("--kubeconfig").arg(&self.hub.kubeconfig);
        command
    }

    /// With the rights of its service account from its manifest.
    fn controller(&self) -> Process {
        self.controller_with(&[])
    }

    /// The same, with further flags.
    fn controller_with(&self, flags: &[&str]) -> Process {
        let mut command = atoll();
        command.args(["controller", "--listen", &self.address, "--kubeconfig"]);
        command.arg(self.hub.kubeconfig_of("atoll-system", "atoll-controller"));
        command.arg("--history").arg(self.folder().join("history.db")).args(flags);
        Process::spawn("atoll controller", command.stdin(Stdio::null()))
    }

    /// Registers a member; the words of the command that `atoll join` prints for it.
    fn join(&self, member: &str) -> Vec<String> {
        let args = ["join", member, "--address", &self.address, "-o", "json"];
        printed_words(&mut self.atoll(&args))
    }

    /// Registers a member, applies the manifest that `atoll join` prints for it, and runs its container as the kubelet
    /// would. The probe uses a port of this machine.
    async fn install(&self, name: &str, member: &ApiServer) -> Process {
        self.install_with(name, member, &[]).await
    }

    /// The same, with further flags of `atoll join`.
    async fn install_with(&self, name: &str, member: &ApiServer, flags: &[&str]) -> Process {
        let args = ["join", name, "--address", &self.address, "--region", "north", "-o", "yaml"];
        let documents = member.apply(&run(self.atoll(&args).args(flags))).await;
        let deployment = documents.last().unwrap();
        let pod = &deployment["spec"]["template"]["spec"];
        let container = &pod["containers"][0];
        let secrets = objects(&member.client, "", "v1", "Secret", "atoll-system");
        // `atoll-agent` is the program of another package; `atoll agent` takes the same flags.
        assert_eq!(container["command"], json!(["atoll-agent"]));
        let mut command = atoll();
        command.arg("agent");
        for arg in container["args"].as_array().unwrap() {
            let arg = arg.as_str().unwrap();
            command.arg(if arg.ends_with(":8080") { "127.0.0.1:0" } else { arg });
        }
        for variable in container["env"].as_array().unwrap() {
            let from = &variable["valueFrom"];
            let value = match from["secretKeyRef"]["name"].as_str() {
                Some(secret) => {
                    let secret = secrets.get(secret).await.unwrap();
                    let key = from["secretKeyRef"]["key"].as_str().unwrap();
                    let value: ByteString =
                        serde_json::from_value(secret.data["data"][key].clone()).unwrap();
                    String::from_utf8(value.0).unwrap()
                }
                None => "atoll-agent-7d5f".to_owned(),
            };
            command.env(variable["name"].as_str().unwrap(), value);
        }
        // With the rights of its service account, which are those of the manifest.
        let namespace = deployment["metadata"]["namespace"].as_str().unwrap();
        let account = pod["serviceAccountName"].as_str().unwrap();
        command.arg("--kubeconfig").arg(member.kubeconfig_of(namespace, account));
        Process::spawn("atoll agent", command.stdin(Stdio::null()))
    }

    /// Runs a printed command as it says, with the member's kubeconfig.
    fn agent(&self, words: &[String], member: &ApiServer) -> Process {
        let mut command = on_member(words, &member.kubeconfig);
        Process::spawn("atoll agent", command.stdin(Stdio::null()))
    }
}

/// Makes the objects of an example.
async fn create_example(hub: &ApiServer, name: &str) {
    let text = std::fs::read_to_string(example(name)).unwrap();
    let documents: Vec<Value> = serde_saphyr::from_multiple(&text).unwrap();
    for document in documents {
        hub.create(document).await;
    }
}

/// Propagates a ConfigMap to the members and waits for it there: everything sent before has been applied by then.
async fn pass_through(hub: &ApiServer, name: &str, members: &[&ApiServer]) {
    hub.create(
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"a": "b"}}),
    )
    .await;
    hub.create(json!({
        "apiVersion": "policy.atoll.dev/v1alpha1",
        "kind": "PropagationPolicy",
        "metadata": {"name": name},
        "spec": {"resourceSelectors": [{"apiVersion": "v1", "kind": "ConfigMap", "name": name}]},
    }))
    .await;
    for member in members {
        until(&objects(&member.client, "", "v1", "ConfigMap", "default"), name, "its copy", |_| {
            true
        })
        .await;
    }
}

async fn ready_replicas(api: &Api<DynamicObject>, replicas: i64) -> Value {
    until(api, "nginx", &format!("{replicas} ready"), |d| d["status"]["readyReplicas"] == replicas)
        .await
}

/// Field managers of an object, ascending.
async fn managers(api: &Api<DynamicObject>, name: &str) -> Vec<String> {
    let entries = api.get(name).await.unwrap().metadata.managed_fields.unwrap_or_default();
    let names: BTreeSet<_> = entries.into_iter().filter_map(|entry| entry.manager).collect();
    names.into_iter().collect()
}

fn epoch(cluster: &Value) -> i64 {
    cluster["status"]["session"]["epoch"].as_i64().unwrap_or(0)
}

#[tokio::test(flavor = "multi_thread")]
async fn killed_parts_come_back_and_write_nothing() {
    let (federation, controller) = Processes::started().await;
    let hub = &federation.hub;
    let member1 = ApiServer::member("member1", federation.folder()).await;
    let member2 = ApiServer::member("member2", federation.folder()).await;
    let secrets = objects(&hub.client, "", "v1", "Secret", "atoll-system");
    let joined1 = federation.join("member1");
    let agent1 = federation.agent(&joined1, &member1);
    let agent2 = federation.install("member2", &member2).await;
    let clusters = cluster_objects(&hub.client);
    for name in ["member1", "member2"] {
        until(&clusters, name, "its kinds and capacity", |c| {
            c["status"]["resourceSummary"].is_object() && c["status"]["apiEnablements"].is_array()
        })
        .await;
    }

    // Two thirds and one third, and the status of both on the hub.
    create_example(hub, "01-nginx.yaml").await;
    let (on1, on2) =
        (deployments(&member1.client, "default"), deployments(&member2.client, "default"));
    ready_replicas(&on1, 2).await;
    ready_replicas(&on2, 1).await;
    let template = deployments(&hub.client, "default");
    ready_replicas(&template, 3).await;
    let binding = bindings(&hub.client, "default");
    until(&binding, "nginx-deployment", "3 ready", |b| b["status"]["summary"]["ready"] == 3).await;

    let table = run(&mut federation.atoll(&["get", "members"]));
    let row = table.lines().find(|line| line.starts_with("member1")).unwrap();
    let columns: Vec<_> = row.split_whitespace().collect();
    // Name, status, mode, replicas, and what is free of 3 nodes with 8 CPUs and 32 GiB each.
    assert_eq!(columns[..4], ["member1", "Ready", "Agent", "2"], "{table}");
    assert!(columns[4].ends_with("/24") && columns[5].ends_with("/96Gi"), "{table}");
    let refused =
        fail(&mut federation.atoll(&["join", "member1", "--address", &federation.address]));
    assert!(refused.contains("atoll rejoin member1"), "{refused}");

    // Every write of the controller carries its field manager.
    let leases = objects(&hub.client, "coordination.k8s.io", "v1", "Lease", "atoll-system");
    assert_eq!(managers(&leases, "atoll-controller").await, ["atoll"]);
    assert_eq!(managers(&secrets, "atoll-ca").await, ["atoll"]);
    assert_eq!(managers(&binding, "nginx-deployment").await, ["atoll", "atoll-status"]);
    assert!(managers(&template, "nginx").await.contains(&"atoll-status".to_owned()));
    assert!(!managers(&clusters, "member1").await.contains(&"unknown".to_owned()));

    // The agent is killed and restarted: it finds everything as desired.
    let versions = async || {
        let version = async |api: &Api<DynamicObject>, name: &str| {
            api.get(name).await.unwrap().metadata.resource_version.unwrap()
        };
        (
            [version(&on1, "nginx").await, version(&on2, "nginx").await],
            [version(&binding, "nginx-deployment").await, version(&template, "nginx").await],
        )
    };
    let (before_members, _) = versions().await;
    let first = epoch(&serde_json::to_value(clusters.get("member1").await.unwrap()).unwrap());
    agent1.signal("-KILL");
    let agent1 = federation.agent(&joined1, &member1);
    until(&clusters, "member1", "a later epoch", |c| epoch(c) > first).await;
    pass_through(hub, "after-agent", &[&member1, &member2]).await;
    assert_eq!(versions().await.0, before_members, "the restart of an agent wrote to its member");

    // The controller is killed and another starts: nothing changes, neither on the hub nor on the members.
    until(&binding, "nginx-deployment", "no news", |b| {
        b["status"]["observedGeneration"].is_null()
            || b["status"]["observedGeneration"] == b["metadata"]["generation"]
    })
    .await;
    let before = versions().await;
    controller.signal("-KILL");
    let controller = federation.controller();
    pass_through(hub, "after-controller", &[&member1, &member2]).await;
    assert_eq!(versions().await, before, "the restart of the controller wrote");
    let term = |cluster: &Value| cluster["status"]["conditions"][0]["status"] == "True";
    until(&clusters, "member1", "Ready", term).await;

    // On a signal each stops cleanly.
    for (name, process) in [("controller", controller), ("agent1", agent1), ("agent2", agent2)] {
        let (took, code) = process.signal("-TERM");
        assert_eq!(code, Some(0), "{name}");
        assert!(took < QUICK, "{name} took {took:?}");
    }
}
