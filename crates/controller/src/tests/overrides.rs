//! Override policies: members get what the policies in force say, and one that cannot be applied holds back its member
//! only.

use serde_json::{Value, json};

use std::time::Duration;

use atoll_history::{MemberEventKind, MemberFilter, Store};
use tokio::time::Instant;

use super::harness::{BINDING, DEPLOYMENT, Federation, SOON};
use crate::lifecycle::pace::PaceLimits;
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
    federation_with(PaceLimits::default()).await
}

async fn federation_with(limits: PaceLimits) -> Federation {
    let federation = Federation::start_with(limits).await;
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

#[tokio::test(start_paused = true)]
async fn changed_overrides_roll_out_at_a_bounded_rate_and_history_has_the_cause() {
    let limits = PaceLimits { rollouts_per_second: 1, ..PaceLimits::NONE };
    let federation = federation_with(limits).await;
    let names = ["web", "a", "b", "c"];
    for name in &names[1..] {
        federation.hub.deployment(name, 2).await;
        let binding = format!("{name}-deployment");
        federation.until(BINDING, &binding, "/status/summary/applied", json!(2)).await;
    }
    registry(&federation, "eu.example").await;
    status(&federation, OVERRIDE, "/matched", json!(4)).await;
    let waiting = || federation.metrics().contains(&"atoll_rollouts_waiting 0".to_owned());
    assert!(waiting(), "no manifest changes before a cluster has the label");

    let start = Instant::now();
    label(&federation, "m1", "north").await;
    let image = |name: &str| {
        let manifest = federation.members.manifest_of("m1", name);
        manifest["spec"]["template"]["spec"]["containers"][0]["image"].clone()
    };
    eventually("others wait", SOON, || async { !waiting() }).await;
    // A change of the template is not an override's: it takes the overrides along at once.
    federation.hub.deployment("c", 3).await;
    eventually("c follows its template", SOON, || async { image("c") == "eu.example/nginx" }).await;
    eventually("all have the registry", 10 * SOON, || async {
        names.iter().all(|name| image(name) == "eu.example/nginx")
    })
    .await;
    assert!(start.elapsed() >= Duration::from_secs(2), "too fast: {:?}", start.elapsed());
    eventually("nothing waits", SOON, || async { waiting() }).await;

    let filter = MemberFilter::default();
    eventually("history has the cause", 10 * SOON, || async {
        let page = federation.store.member_events(&filter, 100, None).await.unwrap();
        let mut rows = page.events.iter().filter(|row| row.kind == MemberEventKind::Rerendered);
        rows.any(|row| {
            row.cluster.as_str() == "m1"
                && row.reason == "ClusterChanged"
                && row.message.contains("shop/web-deployment")
                && row.message.ends_with("override policies: OverridePolicy registry")
        })
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_policy_waits_for_the_override_policies_that_it_depends_on() {
    let federation = Federation::start().await;
    let spec = json!({
        "resourceSelectors": [{"apiVersion": DEPLOYMENT.0, "kind": DEPLOYMENT.1}],
        "placement": {"clusterAffinity": {"clusterNames": ["m1", "m2"]}},
        "dependentOverrides": ["registry"],
    });
    let policy = json!({"metadata": {"name": "all"}, "spec": spec});
    let kind = ("policy.atoll.dev/v1alpha1", "PropagationPolicy");
    federation.hub.apply(kind.0, kind.1, Some("shop"), policy).await;
    federation.hub.deployment("web", 2).await;
    eventually("an Event says what is missing", SOON, || async {
        let events = federation.told("shop", "web", "SchedulingGated").await;
        events.iter().any(|event| event.contains("OverridePolicy registry missing"))
    })
    .await;
    assert!(federation.hub.binding("web-deployment").await.is_null(), "nothing was decided");
    label(&federation, "m1", "north").await;
    registry(&federation, "eu.example").await;
    until_image(&federation, "m1", "eu.example/nginx").await;
    // Decided once, it is scaled without them.
    federation.hub.delete(OVERRIDE.0, OVERRIDE.1, Some("shop"), "registry").await;
    federation.hub.deployment("web", 3).await;
    federation.until(BINDING, "web-deployment", "/status/summary/ready", json!(6)).await;
}
