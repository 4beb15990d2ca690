//! The content of the hub, and what the tests wait for there.

use std::time::Duration;

use atoll_api::Cluster;
use atoll_api::cluster::ClusterSpec;
use futures::{StreamExt, stream};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::PostParams;
use kube::runtime::{conditions, wait::await_condition};
use kube::{Api, Client};
use serde_json::{Value, json};

use crate::MEMBERS;

/// Concurrent requests while the hub is filled.
const AT_ONCE: usize = 16;

pub(crate) fn name(at: usize) -> String {
    format!("m{at:02}")
}

/// Creates Atoll's kinds and the namespaces.
pub(crate) async fn prepare(client: &Client) {
    let crds: Api<CustomResourceDefinition> = Api::all(client.clone());
    for crd in atoll_api::crds::all() {
        crds.create(&PostParams::default(), &crd).await.unwrap();
        let name = crd.metadata.name.as_deref().unwrap();
        await_condition(crds.clone(), name, conditions::is_crd_established()).await.unwrap();
    }
    let namespaces: Api<Namespace> = Api::all(client.clone());
    for name in ["atoll-system", "bench", "bare"] {
        let object = serde_json::from_value(json!({"metadata": {"name": name}})).unwrap();
        namespaces.create(&PostParams::default(), &object).await.unwrap();
    }
}

/// Registers the members; names and uids.
pub(crate) async fn clusters(client: &Client) -> Vec<(String, String)> {
    let clusters: Api<Cluster> = Api::all(client.clone());
    let mut made = Vec::new();
    for at in 0..MEMBERS {
        let cluster = Cluster::new(&name(at), ClusterSpec::default());
        let cluster = clusters.create(&PostParams::default(), &cluster).await.unwrap();
        made.push((name(at), cluster.metadata.uid.unwrap()));
    }
    made
}

/// Waits until all members are Ready.
pub(crate) async fn until_ready(client: &Client) {
    let clusters: Api<Cluster> = Api::all(client.clone());
    loop {
        let all = clusters.list(&Default::default()).await.unwrap();
        let ready = |cluster: &&Cluster| {
            let status = cluster.status.as_ref();
            status.is_some_and(|s| atoll_api::conditions::is_true(&s.conditions, "Ready"))
        };
        if all.iter().filter(ready).count() == MEMBERS {
            return;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// Waits until the dead member must be evacuated.
pub(crate) async fn until_evicting(client: &Client, look: Duration) {
    let clusters: Api<Cluster> = Api::all(client.clone());
    loop {
        let cluster = clusters.get(&name(0)).await.unwrap();
        if cluster.spec.taints.iter().any(|taint| taint.effect == "NoExecute") {
            return;
        }
        tokio::time::sleep(look).await;
    }
}

/// A workload of two replicas.
pub(crate) fn deployment(name: &str) -> Value {
    let labels = json!({"app": name});
    json!({
        "metadata": {"name": name},
        "spec": {
            "replicas": 2, "selector": {"matchLabels": labels},
            "template": {
                "metadata": {"labels": labels},
                "spec": {"containers": [{"name": "c", "image": "nginx:1.27"}]},
            },
        },
    })
}

/// One policy, and this many Deployments that it claims.
pub(crate) async fn fill(client: &Client, bindings: usize, placement: Value) {
    let policies: Api<atoll_api::PropagationPolicy> = Api::namespaced(client.clone(), "bench");
    let policy = serde_json::from_value(json!({
        "apiVersion": "policy.atoll.dev/v1alpha1", "kind": "PropagationPolicy",
        "metadata": {"name": "all"},
        "spec": {
            "resourceSelectors": [{"apiVersion": "apps/v1", "kind": "Deployment"}],
            "placement": placement,
        },
    }))
    .unwrap();
    policies.create(&PostParams::default(), &policy).await.unwrap();
    let deployments: &Api<Deployment> = &Api::namespaced(client.clone(), "bench");
    stream::iter(0..bindings)
        .for_each_concurrent(AT_ONCE, async |at| {
            let object = serde_json::from_value(deployment(&format!("w{at:06}"))).unwrap();
            deployments.create(&PostParams::default(), &object).await.unwrap();
        })
        .await;
}
