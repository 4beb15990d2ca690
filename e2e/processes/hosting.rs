//! A member whose agent runs beside the controller, and one with its own agent; who may rejoin; and how both leave.

use std::pin::pin;
use std::process::Command;

use futures::StreamExt;
use k8s_openapi::ByteString;
use k8s_openapi::api::events::v1::Event;
use kube::Api;
use kube::api::{Patch, PatchParams};
use kube::runtime::{WatchStreamExt, watcher};
use serde_json::{Value, json};

use super::{Processes, create_example, epoch, ready_replicas};
use crate::support::cli::{fail, on_member, printed_words, run};
use crate::support::federation::{bindings, cluster_objects, deployments, objects};
use crate::support::servers::ApiServer;
use crate::support::wait::{LIMIT, until, until_gone};

impl Processes {
    /// Runs a printed command on another member, with its own identity and namespace.
    fn elsewhere(&self, words: &[String], member: &ApiServer, name: &str) -> Command {
        let mut command = on_member(words, &member.kubeconfig);
        command.arg("--identity-dir").arg(self.folder().join(name));
        command.args(["--agent-namespace", name]);
        command
    }

    /// The arguments of a new command for a member that has joined before.
    fn rejoin(&self, member: &str) -> Vec<String> {
        let args = ["rejoin", member, "--address", &self.address, "-o", "json"];
        printed_words(&mut self.atoll(&args))
    }
}

fn is_ready(cluster: &Value) -> bool {
    let conditions = cluster["status"]["conditions"].as_array();
    conditions.into_iter().flatten().any(|c| c["type"] == "Ready" && c["status"] == "True")
}

#[tokio::test(flavor = "multi_thread")]
async fn members_are_hosted_join_again_and_leave() {
    let (federation, _controller) = Processes::started().await;
    let hub = &federation.hub;
    let member1 = ApiServer::member("member1", federation.folder()).await;
    let member2 = ApiServer::member("member2", federation.folder()).await;
    let stranger = ApiServer::member("stranger", federation.folder()).await;
    let secrets = objects(&hub.client, "", "v1", "Secret", "atoll-system");

    // Hosted: the controller gets the member's kubeconfig, and no agent has to be started.
    let join = ["join", "member1", "--mode", "hosted"];
    let refused = fail(&mut federation.atoll(&join));
    assert!(refused.contains("--member-kubeconfig"), "{refused}");
    let mut command = federation.atoll(&join);
    command.arg("--member-kubeconfig").arg(&member1.kubeconfig);
    command.args(["--provider", "acme", "--region", "north", "--zones", "a,b"]);
    run(command.args(["--labels", "tier=1", "--taints", "gpu=only:PreferNoSchedule"]));
    let clusters = cluster_objects(&hub.client);
    let cluster = until(&clusters, "member1", "Ready", is_ready).await;
    let spec = &cluster["spec"];
    let told = json!([spec["mode"], spec["provider"], spec["region"], spec["zones"]]);
    assert_eq!(told, json!(["Hosted", "acme", "north", ["a", "b"]]));
    assert_eq!(cluster["metadata"]["labels"], json!({"tier": "1"}));
    assert!(spec["taints"].as_array().unwrap().iter().any(|taint| taint["key"] == "gpu"));
    let secret = secrets.get("member1-kubeconfig").await.unwrap();
    let owners = secret.metadata.owner_references.unwrap();
    assert_eq!(Some(owners[0].uid.as_str()), cluster["metadata"]["uid"].as_str());

    let agent2 = federation.agent(&federation.join("member2"), &member2);
    for name in ["member1", "member2"] {
        until(&clusters, name, "its kinds and capacity", |c| {
            c["status"]["resourceSummary"].is_object() && c["status"]["apiEnablements"].is_array()
        })
        .await;
    }
    create_example(hub, "01-nginx.yaml").await;
    let (on1, on2) =
        (deployments(&member1.client, "default"), deployments(&member2.client, "default"));
    ready_replicas(&on1, 2).await;
    ready_replicas(&on2, 1).await;
    let table = run(&mut federation.atoll(&["get", "members"]));
    let row = table.lines().find(|line| line.starts_with("member1")).unwrap();
    assert_eq!(row.split_whitespace().collect::<Vec<_>>()[1..3], ["Ready", "Hosted"], "{table}");

    // A kubeconfig that runs a command starts nothing and is said on the Cluster; the next good one is taken at once.
    let good = secrets.get("member1-kubeconfig").await.unwrap().data["data"].clone();
    let bad = ByteString(b"{users: [{name: a, user: {exec: {command: sh}}}]}".to_vec());
    let before = epoch(&serde_json::to_value(clusters.get("member1").await.unwrap()).unwrap());
    let store = async |data: Value| {
        let patch = Patch::Merge(json!({"data": data}));
        secrets.patch("member1-kubeconfig", &PatchParams::default(), &patch).await.unwrap();
    };
    store(json!({"kubeconfig": bad})).await;
    let events: Api<Event> = Api::namespaced(hub.client.clone(), "default");
    let mut seen = pin!(watcher(events, watcher::Config::default()).applied_objects());
    let said = async {
        loop {
            let event = seen.next().await.unwrap().unwrap();
            if event.reason.as_deref() == Some("HostedAgentFailed") {
                return event.note.unwrap();
            }
        }
    };
    let note = tokio::time::timeout(LIMIT, said).await.unwrap();
    assert!(note.contains("exec") && note.contains("member1-kubeconfig"), "{note}");
    store(good).await;
    until(&clusters, "member1", "a later epoch", |c| epoch(c) > before).await;

    // Joining again: a new token for the same Cluster, and only for the same member.
    let cluster_id = |c: &Value| c["status"]["clusterId"].as_str().map(str::to_owned);
    let known = serde_json::to_value(clusters.get("member2").await.unwrap()).unwrap();
    let words = federation.rejoin("member2");
    let refused = fail(&mut federation.elsewhere(&words, &stranger, "stranger"));
    assert!(refused.contains("IdentityChanged"), "{refused}");
    agent2.signal("-KILL");
    let agent2 = federation.agent(&words, &member2);
    let again = until(&clusters, "member2", "a later epoch", |c| epoch(c) > epoch(&known)).await;
    assert_eq!(cluster_id(&again), cluster_id(&known));
    assert_eq!(again["metadata"]["uid"], known["metadata"]["uid"]);
    let words = federation.join("west");
    let refused = fail(&mut federation.elsewhere(&words, &member2, "west"));
    assert!(refused.contains("DuplicateCluster"), "{refused}");
    run(&mut federation.atoll(&["unjoin", "west"]));

    // Leaving: work moves first, then the member is emptied, then its Cluster goes.
    ready_replicas(&on2, 1).await;
    let said = run(&mut federation.atoll(&["unjoin", "member2"]));
    assert!(said.contains("member2 has left the federation."), "{said}");
    until_gone(&clusters, "member2").await;
    until_gone(&on2, "nginx").await;
    ready_replicas(&on1, 3).await;
    let binding = until(&bindings(&hub.client, "default"), "nginx-deployment", "3 ready", |b| {
        b["status"]["summary"]["ready"] == 3
    })
    .await;
    assert_eq!(binding["spec"]["clusters"], json!([{"name": "member1", "replicas": 3}]));
    assert!(agent2.signal("-TERM").1 == Some(0), "it goes on asking until it is told to end");

    // There is no other place for the rest: released, it runs on without Atoll.
    let said = run(&mut federation.atoll(&["unjoin", "member1", "--release", "--force"]));
    assert!(said.contains("member1 has left the federation."), "{said}");
    let left = until(&on1, "nginx", "no marks", |d| {
        d["metadata"]["labels"]["atoll.dev/managed-by"].is_null()
    })
    .await;
    assert_eq!(left["status"]["readyReplicas"], 3);
    assert!(fail(&mut federation.atoll(&["unjoin", "member1"])).contains("atoll get members"));
}
