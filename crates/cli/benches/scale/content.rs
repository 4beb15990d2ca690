//! Workloads and policies of the federation.

use atoll_api::PropagationPolicy;
use futures::{StreamExt, stream};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Namespace;
use kube::api::PostParams;
use kube::{Api, Client};
use serde_json::json;

/// Namespaces, each with one policy and a tenth of the workloads.
pub(crate) const NAMESPACES: usize = 10;
/// Size of a template in the hub: about 3 KB.
const BALLAST: usize = 2_400;
/// Concurrent requests while the hub is filled.
const AT_ONCE: usize = 16;

pub(crate) fn namespace(at: usize) -> String {
    format!("team-{at}")
}

/// A workload of two replicas.
pub(crate) fn deployment(name: &str) -> Deployment {
    let labels = json!({"app": name});
    let container = json!({
        "name": "main", "image": "nginx:1.27",
        "resources": {"requests": {"cpu": "10m", "memory": "16Mi"}},
    });
    serde_json::from_value(json!({
        "metadata": {"name": name, "annotations": {"ballast": "x".repeat(BALLAST)}},
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
