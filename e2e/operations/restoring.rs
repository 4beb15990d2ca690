//! Backups of the hub, with the certificate authority in it, and of the history: made, destroyed, restored. Members are
//! newer than what is restored, and lose nothing.

use std::path::Path;
use std::time::Instant;

use kube::api::{Api, DynamicObject, ListParams, Patch, PatchParams};
use serde_json::{Value, json};

use crate::support::cli::run;
use crate::support::federation::{
    Federation, bindings, cluster_objects, deployments, free_ports, objects,
};
use crate::support::wait::{LIMIT, until};

/// Ports that `atoll up` takes with three members: hub, agents' address, and one a member.
const PORTS: u16 = 5;
const MEMBERS: [&str; 3] = ["member1", "member2", "member3"];
/// What a backup has: the hub's data, in which the Secret with the authority is, and the history.
const BACKED_UP: [&str; 4] = ["hub", "history.db", "history.db-wal", "history.db-shm"];

fn copy(from: &Path, to: &Path) {
    if from.is_dir() {
        std::fs::create_dir_all(to).unwrap();
        for entry in std::fs::read_dir(from).unwrap() {
            let name = entry.unwrap().file_name();
            copy(&from.join(&name), &to.join(&name));
        }
    } else if from.exists() {
        std::fs::copy(from, to).unwrap();
    }
}

fn remove(path: &Path) {
    if path.is_dir() {
        std::fs::remove_dir_all(path).unwrap();
    } else if path.exists() {
        std::fs::remove_file(path).unwrap();
    }
}

/// Makes or changes a Deployment that is divided over all members.
pub(crate) async fn create(hub: &kube::Client, name: &str, replicas: u64) {
    let policy = json!({
        "apiVersion": "policy.atoll.dev/v1alpha1", "kind": "PropagationPolicy",
        "metadata": {"name": name},
        "spec": {
            "resourceSelectors": [{"apiVersion": "apps/v1", "kind": "Deployment", "name": name}],
            "placement": {"replicaScheduling": {
                "replicaSchedulingType": "Divided", "replicaDivisionPreference": "Weighted",
            }},
        },
    });
    let template = json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name},
        "spec": {
            "replicas": replicas, "selector": {"matchLabels": {"app": name}},
            "template": {
                "metadata": {"labels": {"app": name}},
                "spec": {"containers": [{"name": "main", "image": "nginx"}]},
            },
        },
    });
    let policies = objects(hub, "policy.atoll.dev", "v1alpha1", "PropagationPolicy", "default");
    apply(&policies, name, &policy).await;
    apply(&deployments(hub, "default"), name, &template).await;
}

async fn apply(api: &Api<DynamicObject>, name: &str, object: &Value) {
    let params = PatchParams::apply("test").force();
    api.patch(name, &params, &Patch::Apply(object)).await.unwrap();
}

pub(crate) async fn until_ready(hub: &kube::Client, name: &str, replicas: u64) {
    let ready = |template: &Value| {
        template["status"]["readyReplicas"] == replicas
            && template["status"]["observedGeneration"] == template["metadata"]["generation"]
    };
    until(&deployments(hub, "default"), name, &format!("{replicas} ready"), ready).await;
}

/// uids of the members' Deployments, by member and name.
async fn on_members(federation: &Federation) -> Vec<(String, String, String)> {
    let mut all = Vec::new();
    for member in MEMBERS {
        let api = deployments(&federation.client(member).await, "default");
        for object in api.list(&ListParams::default()).await.unwrap() {
            let metadata = object.metadata;
            all.push((member.to_owned(), metadata.name.unwrap(), metadata.uid.unwrap()));
        }
    }
    all.sort();
    all
}

/// Waits until every member is Ready in a newer session than these. Its inventory may not be agreed on yet: until then,
/// its status has the orphans of the session before.
async fn until_connected(hub: &kube::Client, epochs: &[i64]) {
    for (member, before) in MEMBERS.into_iter().zip(epochs) {
        until(&cluster_objects(hub), member, "a session", |cluster| {
            cluster["status"]["conditions"][0]["status"] == "True"
                && cluster["status"]["session"]["epoch"].as_i64() > Some(*before)
        })
        .await;
    }
}

async fn until_orphans(hub: &kube::Client, count: u64) {
    for member in MEMBERS {
        until(&cluster_objects(hub), member, &format!("{count} orphans"), |cluster| {
            cluster["status"]["orphans"] == count
        })
        .await;
    }
}

async fn epochs(hub: &kube::Client) -> Vec<i64> {
    let clusters = cluster_objects(hub).list(&ListParams::default()).await.unwrap();
    let epoch =
        |cluster: &DynamicObject| cluster.data["status"]["session"]["epoch"].as_i64().unwrap_or(0);
    clusters.items.iter().map(epoch).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hub_and_history_of_yesterday_remove_nothing_from_the_members_of_today() {
    let data = tempfile::tempdir().unwrap();
    let (folder, backup) = (data.path().join("atoll"), data.path().join("backup"));
    let ports = free_ports(PORTS);
    let federation = Federation::start(&folder, ports);
    let hub = federation.client("hub").await;
    create(&hub, "web", 3).await;
    until_ready(&hub, "web", 3).await;
    let secrets = |hub: &kube::Client| objects(hub, "", "v1", "Secret", "atoll-system");
    let authority = secrets(&hub).get("atoll-ca").await.unwrap().data["data"].clone();

    // The backup.
    federation.signal("-TERM");
    std::fs::create_dir(&backup).unwrap();
    for part in BACKED_UP {
        copy(&folder.join(part), &backup.join(part));
    }

    // Work goes on: one workload is scaled, another one is new.
    let federation = Federation::start(&folder, ports);
    let hub = federation.client("hub").await;
    create(&hub, "web", 6).await;
    create(&hub, "late", 3).await;
    until_ready(&hub, "web", 6).await;
    until_ready(&hub, "late", 3).await;
    let before = on_members(&federation).await;
    let last = epochs(&hub).await;
    assert_eq!(before.len(), 6, "{before:?}");

    // The disaster, and the restore.
    federation.signal("-KILL");
    for part in BACKED_UP {
        remove(&folder.join(part));
        copy(&backup.join(part), &folder.join(part));
    }
    let federation = Federation::start(&folder, ports);
    let hub = federation.client("hub").await;
    until_connected(&hub, &last).await;
    assert_eq!(secrets(&hub).get("atoll-ca").await.unwrap().data["data"], authority);
    // The hub's 3 replicas are what counts, one on each member; the workload that it does not know runs on.
    until_orphans(&hub, 1).await;
    for member in MEMBERS {
        let api = deployments(&federation.client(member).await, "default");
        until(&api, "web", "1 replica", |web| web["spec"]["replicas"] == 1).await;
    }
    until_ready(&hub, "web", 3).await;
    assert_eq!(on_members(&federation).await, before, "an object was removed or made anew");
    let orphans = run(&mut federation.atoll(&["orphans", "member1"]));
    assert!(orphans.contains("late"), "{orphans}");

    // Applied again, from Git, it takes over what runs.
    create(&hub, "late", 3).await;
    until_ready(&hub, "late", 3).await;
    assert_eq!(on_members(&federation).await, before);
    until_orphans(&hub, 0).await;
    create(&hub, "new", 3).await;
    until_ready(&hub, "new", 3).await;
    federation.signal("-TERM");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lost_history_is_filled_again_from_the_hub_and_moves_nothing() {
    let data = tempfile::tempdir().unwrap();
    let folder = data.path().join("atoll");
    let ports = free_ports(PORTS);
    let federation = Federation::start(&folder, ports);
    let hub = federation.client("hub").await;
    create(&hub, "web", 3).await;
    until_ready(&hub, "web", 3).await;
    let decision = async |hub: &kube::Client| {
        let binding = bindings(hub, "default").get("web-deployment").await.unwrap();
        binding.data["spec"]["decision"]["id"].clone()
    };
    let (made, before) = (decision(&hub).await, on_members(&federation).await);
    let last = epochs(&hub).await;
    federation.signal("-KILL");
    for part in &BACKED_UP[1..] {
        remove(&folder.join(part));
    }

    let federation = Federation::start(&folder, ports);
    let hub = federation.client("hub").await;
    until_connected(&hub, &last).await;
    // The verb is the only sign of the row; each call takes time, so this does not spin.
    let ends = Instant::now() + LIMIT;
    loop {
        let mut history = federation.atoll(&["history", "deployment/web", "-o", "json"]);
        let output = history.output().unwrap();
        // Before the row is there, the verb may find nothing.
        let list: Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
        if list["items"][0]["metadata"]["name"] == made {
            break;
        }
        assert!(Instant::now() < ends, "history has no row for {made}: {list}");
    }
    assert_eq!(decision(&hub).await, made, "it was decided again");
    assert_eq!(on_members(&federation).await, before);
    create(&hub, "web", 6).await;
    until_ready(&hub, "web", 6).await;
    until_orphans(&hub, 0).await;
    federation.signal("-TERM");
}
