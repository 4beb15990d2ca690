//! Objects that a template refers to go where it goes: before it, and they leave after it.

use serde_json::{Value, json};

use super::harness::{BINDING, DEPLOYMENT, Federation, SOON, Setup};
use crate::testing::eventually;
use crate::testing::hub::Hub;

const POLICY: (&str, &str) = ("policy.atoll.dev/v1alpha1", "PropagationPolicy");
const CONFIG: (&str, &str) = ("v1", "ConfigMap");
const SETTINGS: &str = "settings-configmap";

/// A policy for all Deployments, or the one of this name.
async fn policy(federation: &Federation, name: &str, workload: Option<&str>, clusters: &[&str]) {
    let mut selector = json!({"apiVersion": DEPLOYMENT.0, "kind": DEPLOYMENT.1});
    if let Some(workload) = workload {
        selector["name"] = json!(workload);
    }
    let spec = json!({
        "resourceSelectors": [selector], "propagateDeps": true,
        "placement": {"clusterAffinity": {"clusterNames": clusters}},
    });
    let object = json!({"metadata": {"name": name}, "spec": spec});
    federation.hub.apply(POLICY.0, POLICY.1, Some("shop"), object).await;
}

/// A Deployment that refers to this ConfigMap.
async fn deployment(federation: &Federation, name: &str, config: &str) {
    let object = json!({"metadata": {"name": name}, "spec": {
        "replicas": 2, "selector": {"matchLabels": {"app": name}},
        "template": {
            "metadata": {"labels": {"app": name}},
            "spec": {"containers": [{"name": "c", "image": "nginx",
                "envFrom": [{"configMapRef": {"name": config}}]}]},
        },
    }});
    federation.hub.apply(DEPLOYMENT.0, DEPLOYMENT.1, Some("shop"), object).await;
}

async fn config(federation: &Federation, name: &str, labels: Value) {
    let object = json!({"metadata": {"name": name, "labels": labels}, "data": {"colour": "blue"}});
    federation.hub.apply(CONFIG.0, CONFIG.1, Some("shop"), object).await;
}

async fn until_held(federation: &Federation, expected: &[(&str, &[&str])]) {
    eventually(&format!("members hold {expected:?}"), SOON, || async {
        expected.iter().all(|(cluster, objects)| {
            federation
                .members
                .objects(cluster)
                .iter()
                .map(String::as_str)
                .eq(objects.iter().copied())
        })
    })
    .await;
}

async fn until_condition(federation: &Federation, binding: &str, reason: &str) -> String {
    let find = async || {
        let binding = federation.hub.binding(binding).await;
        let conditions = binding["status"]["conditions"].as_array().cloned().unwrap_or_default();
        conditions.into_iter().find(|held| held["type"] == "DependenciesPropagated")
    };
    eventually(&format!("DependenciesPropagated is {reason}"), SOON, || async {
        find().await.is_some_and(|held| held["reason"] == reason)
    })
    .await;
    find().await.unwrap()["message"].as_str().unwrap_or_default().to_owned()
}

#[tokio::test(start_paused = true)]
async fn what_a_template_refers_to_comes_before_it_and_leaves_after_it() {
    let federation = Federation::start().await;
    config(&federation, "settings", json!({})).await;
    policy(&federation, "all", None, &["m1"]).await;
    deployment(&federation, "web", "settings").await;
    until_held(&federation, &[("m1", &["ConfigMap/settings", "Deployment/web"])]).await;
    let came = ["m1 +ConfigMap/settings", "m1 +Deployment/web"];
    assert_eq!(federation.members.take_moves(), came);
    until_condition(&federation, "web-deployment", "Propagated").await;
    federation.until(BINDING, SETTINGS, "/status/summary/applied", json!(1)).await;
    let binding = federation.hub.binding(SETTINGS).await;
    let required =
        json!([{"namespace": "shop", "name": "web-deployment", "clusters": [{"name": "m1"}]}]);
    assert_eq!(binding["spec"]["requiredBy"], required);
    assert_eq!(binding["spec"]["decision"], Value::Null, "nothing was decided for it");

    policy(&federation, "all", None, &["m2"]).await;
    until_held(&federation, &[("m1", &[]), ("m2", &["ConfigMap/settings", "Deployment/web"])])
        .await;
    let moved = [
        "m2 +ConfigMap/settings",
        "m2 +Deployment/web",
        "m1 -Deployment/web",
        "m1 -ConfigMap/settings",
    ];
    assert_eq!(federation.members.take_moves(), moved);

    federation.hub.delete(DEPLOYMENT.0, DEPLOYMENT.1, Some("shop"), "web").await;
    until_held(&federation, &[("m1", &[]), ("m2", &[])]).await;
    let left = ["m2 -Deployment/web", "m2 -ConfigMap/settings"];
    assert_eq!(federation.members.take_moves(), left);
    eventually("its binding is gone", SOON, || async {
        federation.hub.binding(SETTINGS).await.is_null()
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn what_another_parent_needs_stays() {
    let federation = Federation::start().await;
    config(&federation, "settings", json!({})).await;
    policy(&federation, "web", Some("web"), &["m1", "m2"]).await;
    policy(&federation, "api", Some("api"), &["m1"]).await;
    for name in ["web", "api"] {
        deployment(&federation, name, "settings").await;
    }
    let both: &[&str] = &["ConfigMap/settings", "Deployment/api", "Deployment/web"];
    until_held(&federation, &[("m1", both), ("m2", &["ConfigMap/settings", "Deployment/web"])])
        .await;
    // No longer referred to by one of them.
    config(&federation, "other", json!({})).await;
    deployment(&federation, "web", "other").await;
    let apart: &[&str] =
        &["ConfigMap/other", "ConfigMap/settings", "Deployment/api", "Deployment/web"];
    until_held(&federation, &[("m1", apart), ("m2", &["ConfigMap/other", "Deployment/web"])]).await;
    federation.members.take_moves();
    // The next leader removes nothing.
    let federation = federation.restart().await;
    tokio::time::sleep(SOON).await;
    until_held(&federation, &[("m1", apart), ("m2", &["ConfigMap/other", "Deployment/web"])]).await;
    assert_eq!(federation.members.take_moves(), [""; 0]);
    federation.hub.delete(DEPLOYMENT.0, DEPLOYMENT.1, Some("shop"), "api").await;
    until_held(&federation, &[("m1", &["ConfigMap/other", "Deployment/web"])]).await;
}

#[tokio::test(start_paused = true)]
async fn what_the_hub_lacks_holds_nothing_back_and_is_named() {
    let federation = Federation::start().await;
    policy(&federation, "all", None, &["m1"]).await;
    deployment(&federation, "web", "settings").await;
    until_held(&federation, &[("m1", &["Deployment/web"])]).await;
    let message = until_condition(&federation, "web-deployment", "NotFound").await;
    assert_eq!(message, "ConfigMap shop/settings is not on the hub");
    config(&federation, "settings", json!({})).await;
    until_held(&federation, &[("m1", &["ConfigMap/settings", "Deployment/web"])]).await;
    until_condition(&federation, "web-deployment", "Propagated").await;
    // Deleted on the hub while the parent runs: members keep it.
    federation.hub.delete(CONFIG.0, CONFIG.1, Some("shop"), "settings").await;
    until_condition(&federation, "web-deployment", "NotFound").await;
    tokio::time::sleep(SOON).await;
    until_held(&federation, &[("m1", &["ConfigMap/settings", "Deployment/web"])]).await;
    // A new object of the same name takes its place.
    config(&federation, "settings", json!({"made": "again"})).await;
    eventually("the new one is there", SOON, || async {
        federation.members.manifest_of("m1", "settings")["metadata"]["labels"]["made"] == "again"
    })
    .await;
    federation.hub.delete(DEPLOYMENT.0, DEPLOYMENT.1, Some("shop"), "web").await;
    until_held(&federation, &[("m1", &[])]).await;
}

#[tokio::test(start_paused = true)]
async fn secrets_that_may_not_be_read_hold_nothing_back_and_are_named() {
    let setup = Setup { forbidden: vec!["/secrets"], ..Setup::default() };
    let federation = Federation::start_on(Hub::open().await, setup).await;
    policy(&federation, "all", None, &["m1"]).await;
    deployment(&federation, "web", "settings").await;
    config(&federation, "settings", json!({})).await;
    let pull = json!([{"name": "pull"}]);
    let spec = json!({"template": {"spec": {"imagePullSecrets": pull}}});
    let object = json!({"metadata": {"name": "web"}, "spec": spec});
    federation.hub.apply(DEPLOYMENT.0, DEPLOYMENT.1, Some("shop"), object).await;
    let message = until_condition(&federation, "web-deployment", "SecretsNotReadable").await;
    assert!(message.contains("shop/pull") && message.contains("secrets.yaml"), "{message}");
    until_held(&federation, &[("m1", &["ConfigMap/settings", "Deployment/web"])]).await;
}

#[tokio::test(start_paused = true)]
async fn a_dependency_with_a_policy_of_its_own_is_in_both_places() {
    let federation = Federation::start().await;
    config(&federation, "settings", json!({})).await;
    let placement = json!({"clusterAffinity": {"clusterNames": ["m3"]}});
    federation.hub.policy("configs", CONFIG, placement).await;
    policy(&federation, "all", None, &["m1"]).await;
    deployment(&federation, "web", "settings").await;
    let everywhere: [(&str, &[&str]); 2] =
        [("m1", &["ConfigMap/settings", "Deployment/web"]), ("m3", &["ConfigMap/settings"])];
    until_held(&federation, &everywhere).await;
    let binding = federation.hub.binding(SETTINGS).await;
    assert_eq!(binding["spec"]["clusters"], json!([{"name": "m3", "replicas": 0}]));
    federation.hub.delete(DEPLOYMENT.0, DEPLOYMENT.1, Some("shop"), "web").await;
    until_held(&federation, &[("m1", &[]), ("m3", &["ConfigMap/settings"])]).await;
}

#[tokio::test(start_paused = true)]
async fn an_object_with_the_skip_label_stays_on_the_hub() {
    let federation = Federation::start().await;
    let skip = json!({"resourcetemplate.atoll.dev/skip-dependency": "true"});
    config(&federation, "settings", skip).await;
    policy(&federation, "all", None, &["m1"]).await;
    deployment(&federation, "web", "settings").await;
    until_held(&federation, &[("m1", &["Deployment/web"])]).await;
    tokio::time::sleep(SOON).await;
    assert_eq!(federation.hub.binding(SETTINGS).await, Value::Null);
}

async fn taint(federation: &Federation, name: &str, effect: Option<&str>) {
    let taints: Vec<Value> = effect
        .map(|effect| json!({"key": "cluster.atoll.dev/drain", "effect": effect}))
        .into_iter()
        .collect();
    let object = json!({"metadata": {"name": name}, "spec": {"taints": taints}});
    federation.hub.apply("cluster.atoll.dev/v1alpha1", "Cluster", None, object).await;
}

/// Aim: when a cluster is lost, the binding of an object that 1,000 Deployments share is rewritten at most 20 times.
/// With 1,000 parents it was 12 times; 200 take less time.
#[tokio::test(start_paused = true)]
async fn parents_that_move_together_cause_few_writes() {
    const PARENTS: usize = 200;
    let federation = Federation::start().await;
    config(&federation, "settings", json!({})).await;
    let placement = json!({
        "clusterAffinity": {"clusterNames": ["m1", "m2"]},
        "replicaScheduling": {"replicaSchedulingType": "Divided"},
    });
    let selector = json!({"apiVersion": DEPLOYMENT.0, "kind": DEPLOYMENT.1});
    let spec = json!({
        "resourceSelectors": [selector], "propagateDeps": true, "placement": placement,
    });
    let object = json!({"metadata": {"name": "all"}, "spec": spec});
    taint(&federation, "m2", Some("NoSchedule")).await;
    federation.hub.apply(POLICY.0, POLICY.1, Some("shop"), object).await;
    for number in 0..PARENTS {
        deployment(&federation, &format!("web-{number}"), "settings").await;
    }
    let count = |cluster| federation.members.objects(cluster).len();
    eventually("all run", 10 * SOON, || async { count("m1") == PARENTS + 1 }).await;
    federation.spy.take_writes();
    taint(&federation, "m2", None).await;
    taint(&federation, "m1", Some("NoExecute")).await;
    eventually("all have moved", 20 * SOON, || async {
        count("m2") == PARENTS + 1 && count("m1") == 0
    })
    .await;
    let path =
        format!("PATCH /apis/work.atoll.dev/v1alpha1/namespaces/shop/resourcebindings/{SETTINGS}");
    let writes = federation.spy.take_writes().into_iter().filter(|write| *write == path).count();
    assert!((2..=20).contains(&writes), "{writes} writes");
}
