//! `staticAssignments`: members get their ResourceQuotas, whatever the users of the namespace write, and lose only them.

use http::Method;
use serde_json::{Value, json};

use super::harness::{BINDING, DEPLOYMENT, Federation, SOON};
use crate::testing::eventually;
use crate::testing::hub::How;

const CLUSTER: (&str, &str) = ("cluster.atoll.dev/v1alpha1", "Cluster");
const SET: (&str, &str) = ("cluster.atoll.dev/v1alpha1", "ClusterSet");
const QUOTA: (&str, &str) = ("policy.atoll.dev/v1alpha1", "FederatedResourceQuota");
const POLICY: (&str, &str) = ("policy.atoll.dev/v1alpha1", "PropagationPolicy");
const OVERRIDE: (&str, &str) = ("policy.atoll.dev/v1alpha1", "OverridePolicy");
const SPREAD: (&str, &str) = ("policy.atoll.dev/v1alpha1", "WorkloadSpread");
const MEMBER_QUOTA: (&str, &str) = ("v1", "ResourceQuota");

/// Members that serve ResourceQuotas.
async fn federation() -> Federation {
    let federation = Federation::start().await;
    for name in ["m1", "m2", "m3"] {
        let apis = json!([
            {"groupVersion": "apps/v1", "resources": [{"name": "deployments", "kind": "Deployment"}]},
            {"groupVersion": "v1", "resources": [{"name": "resourcequotas", "kind": "ResourceQuota"}]},
        ]);
        let status = json!({"apiEnablements": apis});
        federation.hub.patch_status(CLUSTER.0, CLUSTER.1, name, status).await;
    }
    federation
}

async fn assign(federation: &Federation, assignments: Value) {
    let spec = json!({"staticAssignments": assignments});
    let object = json!({"metadata": {"name": "team"}, "spec": spec});
    federation.hub.apply(QUOTA.0, QUOTA.1, Some("shop"), object).await;
}

fn cpu(cluster: &str, amount: &str) -> Value {
    json!({"clusterName": cluster, "hard": {"requests.cpu": amount, "pods": "10"}})
}

async fn until_held(federation: &Federation, cluster: &str, hard: Value) {
    let until = tokio::time::Instant::now() + 4 * SOON;
    while federation.members.manifest_of(cluster, "static-team")["spec"]["hard"] != hard {
        if until < tokio::time::Instant::now() {
            let binding = federation.hub.binding("static-team-resourcequota").await;
            let held = federation.members.manifest_of(cluster, "static-team");
            panic!("{cluster} holds {held}, wanted is {hard}: {binding:#}");
        }
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    }
}

async fn until_gone(federation: &Federation, cluster: &str) {
    eventually(&format!("{cluster} holds no ResourceQuota"), 4 * SOON, || async {
        federation.members.manifest_of(cluster, "static-team").is_null()
    })
    .await;
}

async fn condition(federation: &Federation, kind: &str) -> Value {
    let quota = federation.hub.get(QUOTA.0, QUOTA.1, Some("shop"), "team").await;
    let all = quota["status"]["conditions"].as_array().cloned().unwrap_or_default();
    all.into_iter().find(|condition| condition["type"] == kind).unwrap_or_default()
}

async fn until_condition(federation: &Federation, kind: &str, reason: &str, part: &str) {
    eventually(&format!("{kind}: {reason} {part}"), 4 * SOON, || async {
        let condition = condition(federation, kind).await;
        condition["reason"] == reason && condition["message"].as_str().unwrap().contains(part)
    })
    .await;
}

/// The ResourceQuota on the hub that carries the assignments out; null if there is none.
async fn on_hub(federation: &Federation) -> Value {
    federation.hub.get(MEMBER_QUOTA.0, MEMBER_QUOTA.1, Some("shop"), "static-team").await
}

/// Writes to it.
fn writes(federation: &Federation) -> usize {
    let calls = federation.spy.calls();
    calls.iter().filter(|call| call.counts() && call.path.ends_with("/static-team")).count()
}

#[tokio::test(start_paused = true)]
async fn each_member_gets_its_amounts_and_loses_them_with_the_assignment() {
    let federation = federation().await;
    assign(&federation, json!([cpu("m1", "4"), cpu("m2", "8")])).await;
    until_held(&federation, "m1", json!({"requests.cpu": "4", "pods": "10"})).await;
    until_held(&federation, "m2", json!({"requests.cpu": "8", "pods": "10"})).await;
    until_gone(&federation, "m3").await;
    until_condition(&federation, "Assigned", "Assigned", "").await;
    until_condition(&federation, "PodsAdmitted", "PodsAdmitted", "").await;
    // Nothing more is written while nothing changes.
    tokio::time::sleep(4 * SOON).await;
    let before = writes(&federation);
    tokio::time::sleep(4 * SOON).await;
    assert_eq!(writes(&federation), before);
    // An amount changes, a member is exchanged.
    assign(&federation, json!([cpu("m1", "5"), cpu("m3", "1")])).await;
    until_held(&federation, "m1", json!({"requests.cpu": "5", "pods": "10"})).await;
    until_held(&federation, "m3", json!({"requests.cpu": "1", "pods": "10"})).await;
    until_gone(&federation, "m2").await;
    assign(&federation, json!([])).await;
    until_gone(&federation, "m1").await;
    until_gone(&federation, "m3").await;
    eventually("nothing is left", 4 * SOON, || async { on_hub(&federation).await.is_null() }).await;
    eventually("no condition is left", 4 * SOON, || async {
        condition(&federation, "Assigned").await.is_null()
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn the_status_has_what_the_members_report_next_to_what_is_decided() {
    let federation = federation().await;
    assign(&federation, json!([cpu("m1", "4"), cpu("m2", "8")])).await;
    until_held(&federation, "m1", json!({"requests.cpu": "4", "pods": "10"})).await;
    until_held(&federation, "m2", json!({"requests.cpu": "8", "pods": "10"})).await;
    let status = || async {
        let quota = federation.hub.get(QUOTA.0, QUOTA.1, Some("shop"), "team").await;
        quota["status"]["aggregatedStatus"].clone()
    };
    let placement = json!({"clusterAffinity": {"clusterNames": ["m1"]}});
    federation.hub.policy("web", DEPLOYMENT, placement).await;
    federation.hub.deployment("web", 2).await;
    // Another program uses the namespace of m1 too. What cannot be read is left out.
    let used = json!({
        "requests.cpu": "3500m", "pods": "5", "services": ["9"], "secrets": "abc", ("n".repeat(400)): "1",
    });
    federation.members.use_quotas("m1", used);
    let m1 = json!({
        "clusterName": "m1", "used": {"pods": "2", "requests.cpu": "0"},
        "hard": {"requests.cpu": "4", "pods": "10"},
        "memberUsed": {"requests.cpu": "3500m", "pods": "5"},
    });
    eventually("the use that m1 reports", 4 * SOON, || async { status().await[0] == m1 }).await;
    let m2 = status().await[1].clone();
    assert_eq!(m2["clusterName"], "m2");
    let reported = ["hard", "memberUsed"].map(|field| m2[field].as_object().map_or(0, |l| l.len()));
    assert_eq!(reported, [0, 0], "m2 has not reported any: {m2}");
    // The member's figures follow.
    let used = json!({"requests.cpu": "1", "pods": "2"});
    federation.members.use_quotas("m1", used.clone());
    eventually("the use falls", 4 * SOON, || async { status().await[0]["memberUsed"] == used })
        .await;
}

#[tokio::test(start_paused = true)]
async fn a_leader_that_dies_between_two_writes_leaves_work_that_the_next_one_finishes() {
    for how in [How::LoseRequest, How::LoseAnswer] {
        let federation = federation().await;
        federation.spy.fail_next(Method::POST, "resourcequotas", how);
        assign(&federation, json!([cpu("m1", "4")])).await;
        // The write is lost with the leader, before it tries again.
        tokio::time::sleep(std::time::Duration::from_secs(1)).await;
        let federation = federation.restart().await;
        until_held(&federation, "m1", json!({"requests.cpu": "4", "pods": "10"})).await;
        // The quota is deleted while no process leads.
        federation.spy.cut(true);
        federation.hub.delete(QUOTA.0, QUOTA.1, Some("shop"), "team").await;
        let federation = federation.restart().await;
        until_gone(&federation, "m1").await;
        eventually("nothing is left", 4 * SOON, || async { on_hub(&federation).await.is_null() })
            .await;
    }
}

#[tokio::test(start_paused = true)]
async fn users_of_the_namespace_change_nothing_of_it() {
    let federation = federation().await;
    let selectors = json!([{"apiVersion": "v1", "kind": "ResourceQuota"}]);
    let elsewhere = json!({
        "resourceSelectors": selectors, "priority": 2_147_483_647, "preemption": "Always",
        "placement": {"clusterAffinity": {"clusterNames": ["m3"]}},
    });
    let object = json!({"metadata": {"name": "a"}, "spec": elsewhere});
    federation.hub.apply(POLICY.0, POLICY.1, Some("shop"), object).await;
    let plaintext = json!([{"path": "/spec/hard/pods", "operator": "replace", "value": "1000"}]);
    let more = json!({
        "resourceSelectors": [{"apiVersion": "v1", "kind": "ResourceQuota", "name": "static-team"}],
        "overrideRules": [{"overriders": {"plaintext": plaintext}}],
    });
    let object = json!({"metadata": {"name": "z"}, "spec": more.clone()});
    federation.hub.apply(OVERRIDE.0, OVERRIDE.1, Some("shop"), object).await;
    assign(&federation, json!([cpu("m1", "4")])).await;
    let hard = json!({"requests.cpu": "4", "pods": "10"});
    until_held(&federation, "m1", hard.clone()).await;
    // Policies with the name of the ResourceQuota, and a spread that cannot be rendered for it.
    let spec = json!({
        "resourceSelectors": [{"apiVersion": "v1", "kind": "ResourceQuota", "name": "static-team"}],
        "placement": {"clusterAffinity": {"clusterNames": ["m3"]}}, "priority": 2_147_483_647,
    });
    let object = json!({"metadata": {"name": "static-team"}, "spec": spec});
    federation.hub.apply(POLICY.0, POLICY.1, Some("shop"), object).await;
    let object = json!({"metadata": {"name": "static-team"}, "spec": more});
    federation.hub.apply(OVERRIDE.0, OVERRIDE.1, Some("shop"), object).await;
    let spec = json!({
        "targetRef": {"apiVersion": "v1", "kind": "ResourceQuota", "name": "static-team"},
        "subsets": [{"name": "all", "patch": {"metadata": {"labels": {"a": "b"}}}}],
    });
    let object = json!({"metadata": {"name": "static-team"}, "spec": spec});
    federation.hub.apply(SPREAD.0, SPREAD.1, Some("shop"), object).await;
    assign(&federation, json!([cpu("m1", "3")])).await;
    until_held(&federation, "m1", json!({"requests.cpu": "3", "pods": "10"})).await;
    assign(&federation, json!([cpu("m1", "4")])).await;
    until_held(&federation, "m1", hard.clone()).await;
    until_gone(&federation, "m3").await;
    // The ResourceQuota itself is restored.
    federation.hub.delete(MEMBER_QUOTA.0, MEMBER_QUOTA.1, Some("shop"), "static-team").await;
    let object = json!({"metadata": {"name": "static-team"}, "spec": {"hard": {"pods": "999"}}});
    federation.hub.apply(MEMBER_QUOTA.0, MEMBER_QUOTA.1, Some("shop"), object).await;
    until_condition(&federation, "Assigned", "NameTaken", "ResourceQuota static-team exists").await;
    federation.hub.delete(MEMBER_QUOTA.0, MEMBER_QUOTA.1, Some("shop"), "static-team").await;
    until_held(&federation, "m1", hard.clone()).await;
    until_condition(&federation, "Assigned", "Assigned", "").await;
    let labels = json!({"policy.atoll.dev/static-assignment": null});
    let object = json!({"metadata": {"name": "static-team", "labels": labels}});
    federation.hub.apply(MEMBER_QUOTA.0, MEMBER_QUOTA.1, Some("shop"), object).await;
    eventually("the label is back", 2 * SOON, || async {
        let object = on_hub(&federation).await;
        object["metadata"]["labels"]["policy.atoll.dev/static-assignment"] == "true"
    })
    .await;
    until_held(&federation, "m1", hard).await;
    until_gone(&federation, "m3").await;
}

#[tokio::test(start_paused = true)]
async fn unknown_members_members_of_others_and_pods_without_requests_are_named() {
    let federation = federation().await;
    assign(&federation, json!([cpu("m1", "4"), cpu("berlin", "1")])).await;
    until_condition(&federation, "Assigned", "UnknownCluster", "berlin").await;
    until_held(&federation, "m1", json!({"requests.cpu": "4", "pods": "10"})).await;
    let here = json!({"matchLabels": {"kubernetes.io/metadata.name": "shop"}});
    for name in ["m1", "m2"] {
        let object = json!({"metadata": {"name": name, "labels": {"site": "north"}}});
        federation.hub.apply(CLUSTER.0, CLUSTER.1, None, object).await;
    }
    let labels = json!({"kubernetes.io/metadata.name": "shop"});
    let object = json!({"metadata": {"name": "shop", "labels": labels}});
    federation.hub.apply("v1", "Namespace", None, object).await;
    let spec = json!({
        "namespaceSelector": here, "clusterSelector": {"matchLabels": {"site": "north"}},
    });
    let object = json!({"metadata": {"name": "north"}, "spec": spec});
    federation.hub.apply(SET.0, SET.1, None, object).await;
    assign(&federation, json!([cpu("m1", "4"), cpu("m3", "1")])).await;
    until_condition(&federation, "Assigned", "OutsideClusterSet", "m3").await;
    until_gone(&federation, "m3").await;
    // The pods of a workload without requests are refused on the member.
    assign(&federation, json!([cpu("m1", "4")])).await;
    let placement = json!({"clusterAffinity": {"clusterNames": ["m1"]}});
    federation.hub.policy("web", DEPLOYMENT, placement).await;
    federation.hub.deployment("web", 2).await;
    let message = "Deployment web on m1: container c has no resources.requests.cpu";
    until_condition(&federation, "PodsAdmitted", "RequestsMissing", message).await;
    eventually("an Event", 4 * SOON, || async {
        let (events, _) = federation.hub.api("v1", "Event", Some("shop")).await;
        let all = events.list(&Default::default()).await.unwrap();
        all.items.iter().any(|event| {
            event.data["reason"] == "RequestsMissing"
                && event.data["type"] == "Warning"
                && event.data["involvedObject"]["kind"] == "FederatedResourceQuota"
        })
    })
    .await;
    let container = json!({"name": "c", "image": "nginx", "resources": {"limits": {"cpu": "1"}}});
    let template = json!({"spec": {"containers": [container]}});
    let object = json!({"metadata": {"name": "web"}, "spec": {"template": template}});
    federation.hub.apply(DEPLOYMENT.0, DEPLOYMENT.1, Some("shop"), object).await;
    until_condition(&federation, "PodsAdmitted", "PodsAdmitted", "").await;
    federation.until(BINDING, "web-deployment", "/spec/clusters/0/name", json!("m1")).await;
    let quota = federation.hub.get(QUOTA.0, QUOTA.1, Some("shop"), "team").await;
    let member = &quota["status"]["aggregatedStatus"][0];
    assert_eq!(member["clusterName"], "m1", "{member}");
    eventually("the use of the member", 2 * SOON, || async {
        let quota = federation.hub.get(QUOTA.0, QUOTA.1, Some("shop"), "team").await;
        quota["status"]["aggregatedStatus"][0]["used"] == json!({"pods": "2", "requests.cpu": "2"})
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_resource_quota_of_the_hub_that_has_the_name_is_not_sent_to_members() {
    let federation = federation().await;
    let own = json!({"metadata": {"name": "static-team"}, "spec": {"hard": {"pods": "3"}}});
    federation.hub.apply(MEMBER_QUOTA.0, MEMBER_QUOTA.1, Some("shop"), own).await;
    assign(&federation, json!([cpu("m1", "4")])).await;
    until_condition(&federation, "Assigned", "NameTaken", "ResourceQuota static-team exists").await;
    tokio::time::sleep(2 * SOON).await;
    assert!(federation.members.manifest_of("m1", "static-team").is_null());
    assert_eq!(on_hub(&federation).await["spec"]["hard"], json!({"pods": "3"}));
}
