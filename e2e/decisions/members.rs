//! Members' APIs and `atoll promote` through a real kube-apiserver, which asks a controller that does not lead.

use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};

use super::{Aggregated, Kubectl, join_with};
use crate::support::aggregation::manifest;
use crate::support::cli::{atoll, has_kubectl, root, run};
use crate::support::federation::{
    cluster_objects, cluster_scoped, create, deployments, free_ports, objects,
};
use crate::support::plane::holder;
use crate::support::servers::ApiServer;
use crate::support::wait::until;

const API_SERVICE: &str = "v1alpha1.proxy.atoll.dev";
const FLEET: &str = "/apis/proxy.atoll.dev/v1alpha1/fleet/all/proxy";

/// A Deployment that the member had before.
fn deployment() -> Value {
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"name": "old", "namespace": "default"},
        "spec": {
            "replicas": 2, "selector": {"matchLabels": {"app": "old"}},
            "template": {
                "metadata": {"labels": {"app": "old"}},
                "spec": {"containers": [{"name": "main", "image": "nginx"}]},
            },
        },
    })
}

/// Lets a user do everything on a member: impersonated users have the rights that it gives them.
async fn admin_on(member: &ApiServer, user: &str) {
    let binding = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
        "metadata": {"name": "hub-admin"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user}],
    });
    let group = "rbac.authorization.k8s.io";
    let bindings = cluster_scoped(&member.client, group, "v1", "ClusterRoleBinding");
    create(&bindings, binding).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn members_are_reached_and_promoted_through_kube_apiserver_and_a_follower() {
    if atoll_envtest::assets().is_none() || !has_kubectl() {
        println!("no kube-apiserver (KUBEBUILDER_ASSETS) or no kubectl: aggregation is left out");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let hub = ApiServer::hub(folder.path()).await;
    hub.apply(&std::fs::read_to_string(root().join("deploy/controller/rbac.yaml")).unwrap()).await;
    let member = ApiServer::member("member1", folder.path()).await;
    let plane = Aggregated { hub, folder: folder.path().to_owned(), port: free_ports(4) };
    let hub = &plane.hub;
    let first = plane.controller(0);
    let leases = objects(&hub.client, "coordination.k8s.io", "v1", "Lease", "atoll-system");
    until(&leases, "atoll-controller", "a leader", |lease| holder(lease) == Some(0)).await;
    let secrets = objects(&hub.client, "", "v1", "Secret", "atoll-system");
    until(&secrets, "atoll-ca", "the certificate authority", |_| true).await;
    let agent = join_with(&plane, &member, &["--proxy"]);
    until(&cluster_objects(&hub.client), "member1", "its kinds and capacity", |cluster| {
        cluster["status"]["resourceSummary"].is_object()
            && cluster["status"]["apiEnablements"].is_array()
    })
    .await;
    let follower = plane.controller(1);
    hub.apply(&manifest()).await;
    let services = plane.api_services();
    let patch = json!({"spec": {"service": {"port": plane.port(1, true)}}});
    let params = PatchParams::default();
    services.patch(API_SERVICE, &params, &Patch::Merge(&patch)).await.unwrap();
    until(&services, API_SERVICE, "Available", |service| {
        let conditions = service["status"]["conditions"].as_array();
        let is = |c: &Value| c["type"] == "Available" && c["status"] == "True";
        conditions.is_some_and(|conditions| conditions.iter().any(is))
    })
    .await;
    admin_on(&member, "admin").await;

    // kubectl on the member, through the hub and the follower.
    let file = folder.path().join("members");
    let atoll = |args: &[&str]| {
        let mut command = atoll();
        command.args(args).arg("--kubeconfig").arg(&hub.kubeconfig);
        run(&mut command)
    };
    atoll(&["kubeconfig", "--merge", file.to_str().unwrap()]);
    let cache = folder.path().join("cache");
    let kubectl = Kubectl { kubeconfig: file, context: "member1", cache: cache.clone() };
    let nodes = kubectl.names(&["get", "nodes"]);
    assert!(!nodes.is_empty());
    kubectl.run(&["create", "configmap", "greeting", "--from-literal=text=hello"]);
    kubectl.run(&["wait", "--for=jsonpath={.data.text}=hello", "configmap/greeting"]);
    kubectl.run(&["delete", "configmap", "greeting"]);
    let jane = kubectl.fail(&["get", "nodes", "--as", "jane"]);
    assert!(jane.contains("Forbidden") || jane.contains("forbidden"), "{jane}");
    assert!(atoll(&["get", "nodes"]).contains(&nodes[0]));
    let on_hub = Kubectl { kubeconfig: hub.kubeconfig.clone(), context: "hub", cache };
    let raw = on_hub.run(&["get", "--raw", &format!("{FLEET}/api/v1/nodes")]);
    let list: Value = serde_json::from_str(&raw).unwrap();
    assert_eq!(list["items"].as_array().unwrap().len(), nodes.len());

    // What the member has becomes the hub's, and its pods run on.
    let there = deployments(&member.client, "default");
    create(&there, deployment()).await;
    until(&there, "old", "2 of 2 ready", |d| d["status"]["readyReplicas"] == 2).await;
    let before = kubectl.names(&["get", "pods", "-l", "app=old"]);
    assert_eq!(before.len(), 2);
    atoll(&["promote", "deploy/old", "--from", "member1"]);
    until(&deployments(&hub.client, "default"), "old", "the member's status on the hub", |d| {
        d["status"]["readyReplicas"] == 2
    })
    .await;
    until(&there, "old", "Atoll's label", |d| {
        d["metadata"]["labels"]["atoll.dev/managed-by"] == "atoll"
    })
    .await;
    assert_eq!(kubectl.names(&["get", "pods", "-l", "app=old"]), before);
    drop((first, follower, agent));
}
