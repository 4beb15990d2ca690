//! Skew that is mended in the background.

use std::time::Duration;

use atoll_api::binding::Trigger;
use atoll_history::{Filter, Store};
use atoll_scheduler::{Profiles, SchedulerConfiguration};
use serde_json::{Value, json};

use super::harness::{BINDING, DEPLOYMENT, Federation, SOON, Setup};
use crate::lifecycle::pace::PaceLimits;
use crate::testing::eventually;
use crate::testing::hub::Hub;

const CLUSTER: (&str, &str) = ("cluster.atoll.dev/v1alpha1", "Cluster");
const MINUTE: Duration = Duration::from_secs(60);

async fn zone(federation: &Federation, cluster: &str, zone: &str) {
    let object = json!({"metadata": {"name": cluster, "labels": {"zone": zone}}});
    federation.hub.apply(CLUSTER.0, CLUSTER.1, None, object).await;
}

async fn shares(federation: &Federation, name: &str) -> Value {
    let binding = format!("{name}-deployment");
    let object = federation.hub.get(BINDING.0, BINDING.1, Some("shop"), &binding).await;
    let clusters = object["spec"]["clusters"].as_array().cloned().unwrap_or_default();
    clusters.iter().map(|target| target["replicas"].clone()).collect()
}

async fn mended(federation: &Federation) -> usize {
    let history = federation.history().await;
    history.iter().filter(|trigger| **trigger == Trigger::Rebalance).count()
}

/// Two workloads with four replicas each in zones a and b, when zone c joins: two replicas of each are to move.
async fn uneven(replicas_per_minute: u32) -> Federation {
    let pace = PaceLimits { mended_replicas_per_minute: replicas_per_minute, ..PaceLimits::NONE };
    let federation = Federation::start_with(pace).await;
    zone(&federation, "m1", "a").await;
    zone(&federation, "m2", "b").await;
    let placement = json!({
        "topologySpreadConstraints": [{"maxSkew": 1, "topologyKey": "zone"}],
        "replicaScheduling": {"replicaSchedulingType": "Divided"},
    });
    federation.hub.policy("all", DEPLOYMENT, placement).await;
    for name in ["api", "web"] {
        federation.hub.deployment(name, 8).await;
        let binding = format!("{name}-deployment");
        federation.until(BINDING, &binding, "/spec/clusters/1/replicas", json!(4)).await;
    }
    zone(&federation, "m3", "c").await;
    federation
}

#[tokio::test(start_paused = true)]
async fn skew_is_mended_within_the_budget_and_what_holds_stays() {
    let federation = uneven(2).await;
    let first = 2 * MINUTE;
    eventually("the first is mended", first, || async { mended(&federation).await == 1 }).await;
    assert_eq!(shares(&federation, "api").await, json!([3, 3, 2]));
    assert_eq!(shares(&federation, "web").await, json!([4, 4]), "the budget is used up");
    tokio::time::sleep(SOON).await;
    assert_eq!(mended(&federation).await, 1);
    eventually("the second is mended", MINUTE, || async { mended(&federation).await == 2 }).await;
    assert_eq!(shares(&federation, "web").await, json!([3, 3, 2]));
    let decisions = federation.history().await.len();
    tokio::time::sleep(10 * MINUTE).await;
    assert_eq!(mended(&federation).await, 2, "nothing moves while the skew holds");
    let all = federation.history().await;
    let ended = all[decisions..].iter().filter(|trigger| **trigger != Trigger::EvictionDone);
    assert_eq!(ended.count(), 0, "and nothing is decided: {all:?}");
}

#[tokio::test(start_paused = true)]
async fn constraints_of_the_profile_are_mended_too_and_history_says_why() {
    let text = "apiVersion: config.atoll.dev/v1alpha1\nkind: SchedulerConfiguration\nprofiles:\n- schedulerName: even\n  \
                pluginConfig: [{name: TopologySpread, args: {defaultConstraints: [{maxSkew: 1, topologyKey: zone}]}}]\n";
    let profiles = Profiles::read(&SchedulerConfiguration::read(text).unwrap()).unwrap();
    let pace = PaceLimits { mended_replicas_per_minute: 4, ..PaceLimits::NONE };
    let setup = Setup { pace, profiles, ..Setup::default() };
    let federation = Federation::start_on(Hub::open().await, setup).await;
    zone(&federation, "m1", "a").await;
    zone(&federation, "m2", "b").await;
    let placement = json!({"replicaScheduling": {"replicaSchedulingType": "Divided"}});
    let selectors = json!([{"apiVersion": DEPLOYMENT.0, "kind": DEPLOYMENT.1}]);
    let spec = json!({
        "resourceSelectors": selectors, "placement": placement, "schedulerName": "even",
    });
    let policy = ("policy.atoll.dev/v1alpha1", "PropagationPolicy");
    let object = json!({"metadata": {"name": "all"}, "spec": spec});
    federation.hub.apply(policy.0, policy.1, Some("shop"), object).await;
    federation.hub.deployment("api", 8).await;
    federation.until(BINDING, "api-deployment", "/spec/clusters/1/replicas", json!(4)).await;
    zone(&federation, "m3", "c").await;
    eventually("it is mended", 3 * MINUTE, || async { mended(&federation).await == 1 }).await;
    assert_eq!(shares(&federation, "api").await, json!([3, 3, 2]));
    let page = federation.store.page(&Filter::default(), 1000, None).await.unwrap();
    let records = page.rows.iter().filter_map(|row| row.entry.record());
    let reasons: Vec<String> = records
        .filter(|record| record.record.trigger == Trigger::Rebalance)
        .filter_map(|record| record.reason.clone())
        .collect();
    assert!(reasons.iter().any(|why| why.contains("mended in the background")), "{reasons:?}");
}

#[tokio::test(start_paused = true)]
async fn by_default_running_replicas_stay() {
    let federation = uneven(0).await;
    tokio::time::sleep(10 * MINUTE).await;
    assert_eq!(mended(&federation).await, 0);
    assert_eq!(shares(&federation, "api").await, json!([4, 4]));
}
