//! ClusterPropagationPolicies with a namespaceSelector: namespaces join and leave by their labels.

use serde_json::{Value, json};

use super::harness::{DEPLOYMENT, Federation, SOON};
use crate::testing::eventually;

const CLUSTER_POLICY: (&str, &str) = ("policy.atoll.dev/v1alpha1", "ClusterPropagationPolicy");
const POLICY: (&str, &str) = ("policy.atoll.dev/v1alpha1", "PropagationPolicy");

fn spec() -> Value {
    json!({
        "resourceSelectors": [
            {"apiVersion": DEPLOYMENT.0, "kind": DEPLOYMENT.1}, {"apiVersion": "v1", "kind": "ConfigMap"},
        ],
        "namespaceSelector": {"matchLabels": {"team": "shop"}},
        "placement": {"clusterAffinity": {"clusterNames": ["m1"]}},
    })
}

async fn namespace(federation: &Federation, name: &str, team: &str) {
    let object = json!({"metadata": {"name": name, "labels": {"team": team}}});
    federation.hub.apply("v1", "Namespace", None, object).await;
}

async fn until_on_m1(federation: &Federation, expected: &[&str]) {
    eventually(&format!("m1 has {expected:?}"), SOON, || async {
        federation.members.objects("m1").iter().map(String::as_str).eq(expected.iter().copied())
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_policy_follows_the_labels_of_namespaces() {
    let federation = Federation::start().await;
    namespace(&federation, "other", "bank").await;
    let config = json!({"metadata": {"name": "settings"}, "data": {"a": "b"}});
    federation.hub.apply("v1", "ConfigMap", Some("other"), config).await;
    federation.hub.deployment("web", 2).await;
    let object = json!({"metadata": {"name": "team"}, "spec": spec()});
    federation.hub.apply(CLUSTER_POLICY.0, CLUSTER_POLICY.1, None, object).await;
    tokio::time::sleep(SOON).await;
    assert!(federation.members.objects("m1").is_empty(), "no namespace has the label");
    namespace(&federation, "shop", "shop").await;
    until_on_m1(&federation, &["Deployment/web"]).await;
    namespace(&federation, "other", "shop").await;
    until_on_m1(&federation, &["ConfigMap/settings", "Deployment/web"]).await;
    let matched = |policy: Value| policy["status"]["matched"].clone();
    eventually("the policy counts them", 2 * SOON, || async {
        let get = federation.hub.get(CLUSTER_POLICY.0, CLUSTER_POLICY.1, None, "team");
        matched(get.await) == 2
    })
    .await;
    // What was placed stays, as when a policy is deleted.
    namespace(&federation, "other", "bank").await;
    tokio::time::sleep(SOON).await;
    until_on_m1(&federation, &["ConfigMap/settings", "Deployment/web"]).await;
}

#[tokio::test(start_paused = true)]
async fn a_namespaced_policy_with_a_namespace_selector_is_not_accepted() {
    let federation = Federation::start().await;
    namespace(&federation, "shop", "shop").await;
    federation.hub.deployment("web", 2).await;
    let object = json!({"metadata": {"name": "team"}, "spec": spec()});
    federation.hub.apply(POLICY.0, POLICY.1, Some("shop"), object).await;
    federation.until(POLICY, "team", "/status/conditions/0/reason", json!("Invalid")).await;
    let policy = federation.hub.get(POLICY.0, POLICY.1, Some("shop"), "team").await;
    let message = policy["status"]["conditions"][0]["message"].as_str().unwrap();
    assert!(message.contains("spec.namespaceSelector"), "{message}");
    assert!(federation.members.objects("m1").is_empty());
}
