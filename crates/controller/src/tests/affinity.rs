//! `placement.workloadAffinity`: decisions made one after the other see each other before they are durable, and a group
//! that changes is shown.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::harness::{DEPLOYMENT, Federation, SOON, Setup};
use crate::testing::eventually;
use crate::testing::hub::Hub;

const POLICY: (&str, &str) = ("policy.atoll.dev/v1alpha1", "PropagationPolicy");

async fn policy(hub: &Hub, rules: Value) {
    let spec = json!({
        "resourceSelectors": [{"apiVersion": "apps/v1", "kind": "Deployment"}],
        "placement": {
            "replicaScheduling": {},
            "spreadConstraints": [{"spreadByField": "cluster", "maxGroups": 1}],
            "workloadAffinity": rules,
        },
    });
    let object = json!({"metadata": {"name": "all"}, "spec": spec});
    hub.apply(POLICY.0, POLICY.1, Some("shop"), object).await;
}

async fn deployment(hub: &Hub, name: &str, stack: &str) {
    let labels = json!({"stack": stack});
    let object = json!({"metadata": {"name": name, "labels": labels}, "spec": {"replicas": 1,
        "selector": {"matchLabels": {"app": name}},
        "template": {"metadata": {"labels": {"app": name}},
            "spec": {"containers": [{"name": "main", "image": "main:1"}]}}}});
    hub.apply(DEPLOYMENT.0, DEPLOYMENT.1, Some("shop"), object).await;
}

async fn clusters(federation: &Federation, name: &str) -> Vec<String> {
    let binding = federation.hub.binding(&format!("{name}-deployment")).await;
    let clusters = binding["spec"]["clusters"].as_array().cloned().unwrap_or_default();
    clusters.iter().map(|share| share["name"].as_str().unwrap().to_owned()).collect()
}

async fn affinity_condition(federation: &Federation, name: &str) -> (String, String) {
    let binding = federation.hub.binding(&format!("{name}-deployment")).await;
    let conditions = binding["status"]["conditions"].as_array().cloned().unwrap_or_default();
    let found = conditions.iter().find(|c| c["type"] == "WorkloadAffinitySatisfied");
    let text = |field: &str| {
        let condition = found.and_then(|condition| condition[field].as_str());
        condition.unwrap_or_default().to_owned()
    };
    (text("status"), text("message"))
}

#[tokio::test(start_paused = true)]
async fn workloads_of_one_batch_see_each_other_and_one_that_waits_takes_the_place_of_one_that_goes()
{
    let hub = Hub::open().await;
    for name in ["one", "two", "three", "four"] {
        deployment(&hub, name, "db").await;
    }
    policy(&hub, json!({"antiAffinity": {"groupByLabelKey": "stack"}})).await;
    let federation = Federation::start_on(hub, Setup::default()).await;
    let names = ["one", "two", "three", "four"];
    let placed = async || {
        let mut placed = Vec::new();
        for name in names {
            placed.extend(clusters(&federation, name).await.into_iter().map(|on| (name, on)));
        }
        placed
    };
    eventually("three are placed", SOON, || async { placed().await.len() == 3 }).await;
    let all = placed().await;
    let used: BTreeSet<&str> = all.iter().map(|(_, on)| on.as_str()).collect();
    assert_eq!(used, BTreeSet::from(["m1", "m2", "m3"]), "each on a cluster of its own");
    let waits =
        names.into_iter().find(|name| all.iter().all(|(placed, _)| placed != name)).unwrap();
    let (goes, freed) = all[0].clone();
    federation.hub.delete(DEPLOYMENT.0, DEPLOYMENT.1, Some("shop"), goes).await;
    eventually("the fourth takes its place", SOON, || async {
        clusters(&federation, waits).await == [freed.clone()]
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_group_that_changes_is_shown_on_the_bindings_that_violate_the_rule() {
    let federation = Federation::start().await;
    let hub = &federation.hub;
    policy(hub, json!({"affinity": {"groupByLabelKey": "stack"}})).await;
    deployment(hub, "web", "front").await;
    deployment(hub, "api", "front").await;
    let together = || async {
        let (web, api) = (clusters(&federation, "web").await, clusters(&federation, "api").await);
        !web.is_empty() && web == api
    };
    eventually("they run together", SOON, together).await;
    let home = clusters(&federation, "web").await;
    let satisfied = (String::from("True"), String::new());
    eventually("the rule holds", SOON, || async {
        affinity_condition(&federation, "web").await == satisfied
    })
    .await;
    // A workload that runs elsewhere joins the group by its label.
    let mut names = Vec::new();
    for n in 0..12 {
        let name = format!("other-{n}");
        deployment(hub, &name, &format!("stack-{n}")).await;
        names.push(name);
    }
    let elsewhere = async || {
        for name in &names {
            let on = clusters(&federation, name).await;
            if !on.is_empty() && on != home {
                return Some((name.clone(), on));
            }
        }
        None
    };
    eventually("one runs elsewhere", SOON, || async { elsewhere().await.is_some() }).await;
    let (other, on) = elsewhere().await.unwrap();
    deployment(hub, &other, "front").await;
    let message =
        format!("shop/{other}-deployment of group stack=front does not run on {}", home[0]);
    let violated = (String::from("False"), message);
    eventually("the violation is shown", SOON, || async {
        affinity_condition(&federation, "web").await == violated
            && affinity_condition(&federation, &other).await.0 == "False"
    })
    .await;
    assert_eq!(clusters(&federation, &other).await, on, "nothing is evicted");
    assert_eq!(clusters(&federation, "web").await, home);
}
