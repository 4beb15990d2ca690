//! The first placement of templates that run already under another federation.

use atoll_api::binding::Trigger;
use serde_json::{Value, json};

use super::harness::{BINDING, DEPLOYMENT, Federation, SOON};
use super::triggers::{shares, until_shares};
use crate::testing::eventually;
use crate::testing::hub::Hub;

const POLICY: (&str, &str) = ("policy.atoll.dev/v1alpha1", "PropagationPolicy");

/// A policy with equal weights, by Karmada's rules; `accepts`: templates may name where they start.
async fn policy(hub: &Hub, accepts: bool) {
    let annotations = json!({"policy.atoll.dev/accepts-start": accepts.to_string()});
    let object = json!({"metadata": {"name": "all", "annotations": annotations}, "spec": {
        "resourceSelectors": [{"apiVersion": "apps/v1", "kind": "Deployment"}],
        "placement": {"replicaScheduling": {"replicaSchedulingType": "Divided",
            "replicaDivisionPreference": "Weighted"}},
        "schedulerName": "karmada",
    }});
    hub.apply(POLICY.0, POLICY.1, Some("shop"), object).await;
}

async fn deployment(hub: &Hub, name: &str, replicas: i64, start: Value) {
    let object = json!({
        "metadata": {"name": name, "annotations": {"work.atoll.dev/start": start.to_string()}},
        "spec": {
            "replicas": replicas, "selector": {"matchLabels": {"app": name}},
            "template": {
                "metadata": {"labels": {"app": name}},
                "spec": {"containers": [{"name": "c", "image": "nginx"}]},
            },
        },
    });
    hub.apply(DEPLOYMENT.0, DEPLOYMENT.1, Some("shop"), object).await;
}

fn on(clusters: &[(&str, i64)]) -> Value {
    let each = clusters.iter().map(|(name, replicas)| json!({"name": name, "replicas": replicas}));
    json!({"clusters": each.collect::<Vec<_>>()})
}

async fn until_event(federation: &Federation, part: &str) {
    eventually(part, SOON, || async {
        let (api, _) = federation.hub.api("v1", "Event", Some("shop")).await;
        let list = api.list(&Default::default()).await.unwrap();
        list.items.iter().any(|event| event.data.to_string().contains(part))
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn the_first_placement_is_the_one_that_the_template_names_and_nothing_moves_after_it() {
    let federation = Federation::start().await;
    policy(&federation.hub, true).await;
    deployment(&federation.hub, "web", 9, on(&[("m1", 7), ("m3", 2)])).await;
    federation.until_replicas(&[("m1", 7), ("m3", 2)]).await;
    federation.until_history(&[Trigger::First]).await;
    let binding = federation.hub.binding("web-deployment").await;
    let decision = &binding["spec"]["decision"];
    assert!(decision["reason"].as_str().unwrap().contains("work.atoll.dev/start"), "{decision}");
    assert_eq!(decision["outcome"], "Placed");

    // Another leader and another decision later, everything is where it was.
    let federation = federation.restart().await;
    deployment(&federation.hub, "late", 3, on(&[("m2", 3)])).await;
    until_shares(&federation, "late", &[("m2", 3)]).await;
    assert_eq!(shares(&federation, "web").await, [("m1".to_owned(), 7), ("m3".to_owned(), 2)]);
    federation.until_history(&[Trigger::First, Trigger::First]).await;

    // From here on the template's replicas are the scheduler's.
    federation.hub.deployment("web", 12).await;
    federation.until(BINDING, "web-deployment", "/spec/decision/desired", json!(12)).await;
    let now = shares(&federation, "web").await;
    assert_eq!(now.iter().map(|(_, replicas)| replicas).sum::<i64>(), 12, "{now:?}");
}

#[tokio::test(start_paused = true)]
async fn a_placement_that_does_not_fit_holds_the_template_back_and_one_without_leave_does_not_count()
 {
    let federation = Federation::start().await;
    policy(&federation.hub, true).await;
    deployment(&federation.hub, "short", 9, on(&[("m1", 7)])).await;
    deployment(&federation.hub, "lost", 1, on(&[("moon", 1)])).await;
    deployment(&federation.hub, "good", 1, on(&[("m2", 1)])).await;
    until_shares(&federation, "good", &[("m2", 1)]).await;
    until_event(&federation, "7 replicas together").await;
    until_event(&federation, "no Cluster").await;
    assert!(shares(&federation, "short").await.is_empty());
    // Corrected, it is decided.
    deployment(&federation.hub, "short", 9, on(&[("m1", 9)])).await;
    until_shares(&federation, "short", &[("m1", 9)]).await;

    policy(&federation.hub, false).await;
    deployment(&federation.hub, "free", 3, on(&[("m1", 3)])).await;
    until_shares(&federation, "free", &[("m1", 1), ("m2", 1), ("m3", 1)]).await;
}

#[tokio::test(start_paused = true)]
async fn cluster_sets_and_quotas_apply_to_the_first_placement_too() {
    let federation = Federation::start().await;
    let hub = &federation.hub;
    let cluster = ("cluster.atoll.dev/v1alpha1", "ClusterSet");
    let labels = json!({"metadata": {"name": "m1", "labels": {"team": "shop"}}});
    hub.apply(cluster.0, "Cluster", None, labels.clone()).await;
    let mut namespace = labels;
    namespace["metadata"]["name"] = json!("shop");
    hub.apply("v1", "Namespace", None, namespace).await;
    let team = json!({"matchLabels": {"team": "shop"}});
    let spec = json!({"namespaceSelector": team, "clusterSelector": team});
    hub.apply(cluster.0, cluster.1, None, json!({"metadata": {"name": "shop"}, "spec": spec}))
        .await;
    let quota =
        |pods: &str| json!({"metadata": {"name": "team"}, "spec": {"overall": {"pods": pods}}});
    let quotas = ("policy.atoll.dev/v1alpha1", "FederatedResourceQuota");
    hub.apply(quotas.0, quotas.1, Some("shop"), quota("4")).await;
    eventually("the set and the quota are in force", SOON, || async {
        let set = hub.get(cluster.0, cluster.1, None, "shop").await;
        let used = hub.get(quotas.0, quotas.1, Some("shop"), "team").await;
        set["status"]["clusters"] == 1
            && set["status"]["namespaces"] == 1
            && used["status"]["overallUsed"]["pods"] == "0"
    })
    .await;
    policy(hub, true).await;
    deployment(hub, "inside", 3, on(&[("m1", 3)])).await;
    until_shares(&federation, "inside", &[("m1", 3)]).await;
    deployment(hub, "outside", 1, on(&[("m2", 1)])).await;
    until_event(&federation, "clusters: m2").await;
    deployment(hub, "much", 2, on(&[("m1", 2)])).await;
    until_event(&federation, "FederatedResourceQuota").await;
    assert!(shares(&federation, "outside").await.is_empty());
    assert!(shares(&federation, "much").await.is_empty());
    hub.apply(quotas.0, quotas.1, Some("shop"), quota("5")).await;
    until_shares(&federation, "much", &[("m1", 2)]).await;
    assert!(shares(&federation, "outside").await.is_empty());
}
