//! Override policies: members get what the policies in force say, and one that cannot be applied holds back its member
//! only.

use serde_json::{Value, json};

use super::harness::{BINDING, DEPLOYMENT, Federation, SOON};
use crate::testing::eventually;

const OVERRIDE: (&str, &str) = ("policy.atoll.dev/v1alpha1", "OverridePolicy");
const CLUSTER_OVERRIDE: (&str, &str) = ("policy.atoll.dev/v1alpha1", "ClusterOverridePolicy");
const CLUSTER: (&str, &str) = ("cluster.atoll.dev/v1alpha1", "Cluster");

/// A policy that sets the registry of images on the clusters with label `site: north`.
async fn registry(federation: &Federation, value: &str) {
    let rule = json!({
        "targetCluster": {"labelSelector": {"matchLabels": {"site": "north"}}},
        "overriders": {"imageOverrider": [
            {"component": "Registry", "operator": "add", "value": value},
        ]},
    });
    let policy = json!({"metadata": {"name": "registry"}, "spec": {
        "resourceSelectors": [{"apiVersion": DEPLOYMENT.0, "kind": DEPLOYMENT.1}],
        "overrideRules": [rule],
    }});
    federation.hub.apply(OVERRIDE.0, OVERRIDE.1, Some("shop"), policy).await;
}

async fn label(federation: &Federation, cluster: &str, site: &str) {
    let object = json!({"metadata": {"name": cluster, "labels": {"site": site}}});
    federation.hub.apply(CLUSTER.0, CLUSTER.1, None, object).await;
}

async fn federation() -> Federation {
    let federation = Federation::start().await;
    let placement = json!({"clusterAffinity": {"clusterNames": ["m1", "m2"]}});
    federation.hub.policy("all", DEPLOYMENT, placement).await;
    federation.hub.deployment("web", 2).await;
    federation.until(BINDING, "web-deployment", "/status/summary/applied", json!(2)).await;
    federation
}

async fn until_image(federation: &Federation, cluster: &str, image: &str) {
    eventually(&format!("{cluster} runs {image}"), SOON, || async {
        let manifest = federation.members.manifest_of(cluster, "web");
        manifest["spec"]["template"]["spec"]["containers"][0]["image"] == image
    })
    .await;
}

async fn status(federation: &Federation, kind: (&str, &str), path: &str, value: Value) {
    let namespace = (kind == OVERRIDE).then_some("shop");
    eventually(&format!("{} {path} = {value}", kind.1), 2 * SOON, || async {
        let policy = federation.hub.get(kind.0, kind.1, namespace, "registry").await;
        policy["status"].pointer(path) == Some(&value)
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn members_follow_override_policies_and_the_labels_of_clusters() {
    let federation = federation().await;
    label(&federation, "m1", "north").await;
    registry(&federation, "eu.example").await;
    until_image(&federation, "m1", "eu.example/nginx").await;
    until_image(&federation, "m2", "nginx").await;
    status(&federation, OVERRIDE, "/matched", json!(1)).await;
    status(&federation, OVERRIDE, "/applied", json!(1)).await;
    status(&federation, OVERRIDE, "/conditions/0/status", json!("True")).await;
    // The policy changes, then a label.
    registry(&federation, "us.example").await;
    until_image(&federation, "m1", "us.example/nginx").await;
    label(&federation, "m2", "north").await;
    until_image(&federation, "m2", "us.example/nginx").await;
    label(&federation, "m1", "south").await;
    until_image(&federation, "m1", "nginx").await;
    // The next leader sends nothing else.
    let federation = federation.restart().await;
    tokio::time::sleep(SOON).await;
    until_image(&federation, "m1", "nginx").await;
    until_image(&federation, "m2", "us.example/nginx").await;
    federation.hub.delete(OVERRIDE.0, OVERRIDE.1, Some("shop"), "registry").await;
    until_image(&federation, "m2", "nginx").await;
}

#[tokio::test(start_paused = true)]
async fn an_override_that_cannot_be_applied_holds_back_its_member_only() {
    let federation = federation().await;
    let rule = |path: &str| {
        json!({
            "targetCluster": {"clusterNames": ["m2"]},
            "overriders": {"plaintext": [
                {"path": path, "operator": "replace", "value": "Always"},
            ]},
        })
    };
    let policy = |path: &str| json!({"metadata": {"name": "registry"}, "spec": {"overrideRules": [rule(path)]}});
    let missing = "/spec/template/spec/containers/7/imagePullPolicy";
    federation.hub.apply(CLUSTER_OVERRIDE.0, CLUSTER_OVERRIDE.1, None, policy(missing)).await;
    federation
        .until(BINDING, "web-deployment", "/status/conditions/1/reason", json!("CannotRender"))
        .await;
    let binding = federation.hub.binding("web-deployment").await;
    let condition = &binding["status"]["conditions"][1];
    assert_eq!(condition["status"], "False", "{condition}");
    let message = condition["message"].as_str().unwrap();
    for part in ["m2: ClusterOverridePolicy registry", "spec.overrideRules[0]", "plaintext[0].path"]
    {
        assert!(message.contains(part), "{message}");
    }
    status(&federation, CLUSTER_OVERRIDE, "/failing", json!(1)).await;
    status(&federation, CLUSTER_OVERRIDE, "/failures/0/cluster", json!("m2")).await;
    let events = federation.told("shop", "web", "CannotRender").await;
    assert_eq!(events.len(), 1, "{events:?}");
    // The other member follows the template; this one keeps what it has.
    federation.hub.deployment("web", 3).await;
    eventually("m1 has 3", SOON, || async {
        federation.members.manifest_of("m1", "web")["spec"]["replicas"] == 3
    })
    .await;
    assert_eq!(federation.members.manifest_of("m2", "web")["spec"]["replicas"], 2);
    // Mended, it follows at once.
    let present = "/spec/template/spec/containers/0/image";
    federation.hub.apply(CLUSTER_OVERRIDE.0, CLUSTER_OVERRIDE.1, None, policy(present)).await;
    until_image(&federation, "m2", "Always").await;
    assert_eq!(federation.members.manifest_of("m2", "web")["spec"]["replicas"], 3);
    status(&federation, CLUSTER_OVERRIDE, "/failing", json!(0)).await;
}

#[tokio::test(start_paused = true)]
async fn an_invalid_override_policy_says_what_is_wrong() {
    let federation = federation().await;
    let rule = json!({"overriders": {"plaintext": [{"path": "no-slash", "operator": "remove"}]}});
    let policy = json!({"metadata": {"name": "registry"}, "spec": {
        "resourceSelectors": [{"apiVersion": "v1", "kind": "ConfigMap"}], "overrideRules": [rule],
    }});
    federation.hub.apply(OVERRIDE.0, OVERRIDE.1, Some("shop"), policy).await;
    status(&federation, OVERRIDE, "/conditions/0/reason", json!("Invalid")).await;
    let policy = federation.hub.get(OVERRIDE.0, OVERRIDE.1, Some("shop"), "registry").await;
    let message = policy["status"]["conditions"][0]["message"].as_str().unwrap_or_default();
    assert!(message.contains("spec.overrideRules[0].overriders.plaintext[0].path"), "{message}");
}
