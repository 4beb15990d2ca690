//! Workloads and policies of the federation.

use atoll_api::{PropagationPolicy, hex};
use futures::{StreamExt, stream};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Namespace;
use kube::api::PostParams;
use kube::{Api, Client};
use serde_json::json;
use sha2::{Digest, Sha256};

/// Namespaces, each with one policy and a tenth of the workloads.
pub(crate) const NAMESPACES: usize = 10;
/// Environment variables of a container, which make a template of about 3 KB. Half of them have the same value in all
/// workloads, the others a random one: more than a quarter of the text has nothing in common with another template.
const VARIABLES: usize = 20;
/// Characters of a value.
const VALUE: usize = 80;
/// Concurrent requests while the hub is filled.
const AT_ONCE: usize = 16;

pub(crate) fn namespace(at: usize) -> String {
    format!("team-{at}")
}

/// A random value, the same for the same owner and variable.
fn value(owner: &str, at: usize) -> String {
    let digest = |half: usize| hex::encode(&Sha256::digest(format!("{owner}/{at}/{half}")));
    let mut value: String = (0..2).map(digest).collect();
    value.truncate(VALUE);
    value
}

/// A workload of two replicas.
pub(crate) fn deployment(name: &str) -> Deployment {
    let labels = json!({"app": name});
    let variables: Vec<_> = (0..VARIABLES)
        .map(|at| {
            let of_all = at % 2 == 0;
            let value = value(if of_all { "all" } else { name }, at);
            json!({"name": format!("SETTING_{at}"), "value": value})
        })
        .collect();
    let container = json!({
        "name": "main", "image": "nginx:1.27", "env": variables,
        "resources": {"requests": {"cpu": "10m", "memory": "16Mi"}},
    });
    serde_json::from_value(json!({
        "metadata": {"name": name},
        "spec": {
            "replicas": 2, "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": {"containers": [container]}},
        },
    }))
    .unwrap()
}

/// The policy of a namespace: replicas are divided over a tenth of the members by equal weights.
fn policy(tenth: usize) -> PropagationPolicy {
    serde_json::from_value(json!({
        "apiVersion": "policy.atoll.dev/v1alpha1", "kind": "PropagationPolicy",
        "metadata": {"name": "all"},
        "spec": {
            "resourceSelectors": [{"apiVersion": "apps/v1", "kind": "Deployment"}],
            "placement": {
                // The default, and changes of labels.
                "rescheduleOn": ["PolicyChange", "ReplicasChange", "ClusterFailure", "ClusterChange"],
                "clusterAffinity": {"labelSelector": {"matchLabels": {"tenth": tenth.to_string()}}},
                "replicaScheduling": {
                    "replicaSchedulingType": "Divided",
                    "replicaDivisionPreference": "Weighted",
                },
            },
        },
    }))
    .unwrap()
}

/// Creates namespaces, policies and workloads.
pub(crate) async fn fill(client: &Client, bindings: usize) {
    let namespaces: Api<Namespace> = Api::all(client.clone());
    let create = PostParams::default();
    for at in 0..NAMESPACES {
        let name = namespace(at);
        let object = serde_json::from_value(json!({"metadata": {"name": name}})).unwrap();
        namespaces.create(&create, &object).await.unwrap();
        let policies: Api<PropagationPolicy> = Api::namespaced(client.clone(), &name);
        policies.create(&create, &policy(at)).await.unwrap();
    }
    stream::iter(0..bindings)
        .for_each_concurrent(AT_ONCE, async |at| {
            let api: Api<Deployment> = Api::namespaced(client.clone(), &namespace(at % NAMESPACES));
            api.create(&PostParams::default(), &deployment(&format!("w{at:06}"))).await.unwrap();
        })
        .await;
}
