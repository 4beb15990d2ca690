//! Leaving clusters: the pace, purge modes, failover of an application, and state that survives a restart.

use std::time::Duration;

use atoll_api::binding::Trigger;
use atoll_history::{Filter, Store};
use jiff::Timestamp;
use serde_json::{Value, json};

use super::harness::{BINDING, DEPLOYMENT, Federation, RECOVER_AFTER, SOON};
use crate::lifecycle::emptying::Emptying;
use crate::lifecycle::pace::PaceLimits;
use crate::testing::eventually;
use crate::testing::members::Order;

const CLUSTER: (&str, &str) = ("cluster.atoll.dev/v1alpha1", "Cluster");
const LONG: Duration = Duration::from_secs(900);

/// This many replicas of each of these on m1, which may move to m2 under a policy with this failover behaviour.
async fn on_m1(
    limits: PaceLimits,
    names: &[&str],
    clusters: &[&str],
    failover: Value,
) -> Federation {
    let federation = Federation::start_with(limits).await;
    let spec = json!({
        "resourceSelectors": [{"apiVersion": DEPLOYMENT.0, "kind": DEPLOYMENT.1}],
        "placement": {
            "clusterAffinity": {"clusterNames": clusters},
            "replicaScheduling": {"replicaSchedulingType": "Divided"},
        },
        "failover": failover,
    });
    let object = json!({"metadata": {"name": "all"}, "spec": spec});
    let kind = ("policy.atoll.dev/v1alpha1", "PropagationPolicy");
    federation.hub.apply(kind.0, kind.1, Some("shop"), object).await;
    taint(&federation, "m2", Some("NoSchedule")).await;
    for name in names {
        federation.hub.deployment(name, 4).await;
    }
    for name in names {
        let binding = format!("{name}-deployment");
        federation.until(BINDING, &binding, "/status/summary/ready", json!(4)).await;
    }
    taint(&federation, "m2", None).await;
    federation
}

async fn taint(federation: &Federation, name: &str, effect: Option<&str>) {
    let taint = effect.map(|effect| {
        json!({"key": "cluster.atoll.dev/drain", "effect": effect,
            "timeAdded": "2026-01-01T00:00:00Z"})
    });
    let taints: Vec<Value> = taint.into_iter().collect();
    let object = json!({"metadata": {"name": name}, "spec": {"taints": taints}});
    federation.hub.apply(CLUSTER.0, CLUSTER.1, None, object).await;
}

async fn until_on(federation: &Federation, cluster: &str) {
    eventually(&format!("web is decided for {cluster}"), LONG, || async {
        let binding = federation.hub.binding("web-deployment").await;
        binding["spec"]["clusters"] == json!([{"name": cluster, "replicas": 4}])
    })
    .await;
}

/// When the decisions with this trigger were made, oldest first: waits for at least one, which may not be recorded yet.
async fn made(federation: &Federation, trigger: Trigger) -> Vec<Timestamp> {
    eventually(&format!("{trigger:?} is in history"), SOON, || async {
        federation.history().await.contains(&trigger)
    })
    .await;
    let page = federation.store.page(&Filter::default(), 1000, None).await.unwrap();
    let records = page.rows.iter().rev().map(|row| row.entry.record().unwrap().record.clone());
    records.filter(|record| record.trigger == trigger).map(|record| record.at.0).collect()
}

async fn until_said(federation: &Federation, expected: &str) -> String {
    let said = || match federation.members.emptying("m1") {
        Emptying::Yes { reason, message, .. } => (reason, message),
        Emptying::Unknown | Emptying::No => ("", String::new()),
    };
    eventually(&format!("m1 says {expected}"), LONG, || async { said().0 == expected }).await;
    said().1
}

#[tokio::test(start_paused = true)]
async fn a_drained_member_is_emptied_within_the_pace_and_says_how_far_it_is() {
    let limits = PaceLimits { bindings_per_second: 1, ..PaceLimits::NONE };
    let names = ["a", "b", "c", "d", "e", "f"];
    let federation = on_m1(limits, &names, &["m1", "m2"], json!({})).await;
    taint(&federation, "m1", Some("NoExecute")).await;
    let message = until_said(&federation, "Paced").await;
    assert!(message.contains("waiting for the eviction rate (1 a second)"), "{message}");
    let waiting =
        federation.metrics().into_iter().find(|l| l.starts_with("atoll_evictions_waiting"));
    assert!(waiting.is_some_and(|line| !line.ends_with(" 0")));
    until_said(&federation, "Emptied").await;
    let times = made(&federation, Trigger::Failover).await;
    assert_eq!(times.len(), names.len());
    for pair in times.windows(2) {
        assert!(pair[1].duration_since(pair[0]).as_secs() >= 1, "too fast: {times:?}");
    }
    taint(&federation, "m1", None).await;
    eventually("nothing more is said", SOON, || async {
        federation.members.emptying("m1") == Emptying::No
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_controller_that_starts_goes_on_with_a_drain() {
    let limits = PaceLimits { bindings_per_second: 1, ..PaceLimits::NONE };
    let names = ["a", "b", "c", "d"];
    let federation = on_m1(limits, &names, &["m1", "m2"], json!({})).await;
    taint(&federation, "m1", Some("NoExecute")).await;
    until_said(&federation, "Paced").await;
    let federation = federation.restart().await;
    until_said(&federation, "Emptied").await;
    assert_eq!(made(&federation, Trigger::Failover).await.len(), names.len());
}

#[tokio::test(start_paused = true)]
async fn directly_withholds_the_new_copy_until_the_old_one_is_gone_also_over_a_restart() {
    let rules = json!({"cluster": {"purgeMode": "Directly"}});
    let federation = on_m1(PaceLimits::default(), &["web"], &["m1", "m2"], rules).await;
    federation.members.hold_removals("m1", true);
    taint(&federation, "m1", Some("NoExecute")).await;
    until_on(&federation, "m2").await;
    let federation = federation.restart().await;
    tokio::time::sleep(SOON).await;
    assert!(!federation.members.replicas().contains_key("m2"), "m1 still has its copy");
    federation.members.let_go("m1").await;
    federation.until_replicas(&[("m2", 4)]).await;
}

#[tokio::test(start_paused = true)]
async fn directly_waits_no_longer_for_a_member_that_is_lost() {
    let rules = json!({"cluster": {"purgeMode": "Directly"}});
    let federation = on_m1(PaceLimits::default(), &["web"], &["m1", "m2"], rules).await;
    federation.members.hold_removals("m1", true);
    taint(&federation, "m1", Some("NoExecute")).await;
    until_on(&federation, "m2").await;
    federation.members.lose("m1").await;
    federation.until_replicas(&[("m1", 4), ("m2", 4)]).await;
}

#[tokio::test(start_paused = true)]
async fn never_leaves_the_old_copy_to_its_owner() {
    let rules = json!({"cluster": {"purgeMode": "Never", "gracePeriodSeconds": 1}});
    let federation = on_m1(PaceLimits::default(), &["web"], &["m1", "m2"], rules).await;
    taint(&federation, "m1", Some("NoExecute")).await;
    federation.until_replicas(&[("m1", 4), ("m2", 4)]).await;
    tokio::time::sleep(LONG).await;
    assert_eq!(federation.members.replicas().get("m1"), Some(&4), "no time takes it");
    let message = until_said(&federation, "Emptied").await;
    assert!(message.contains("purgeMode: Never"), "{message}");
}

#[tokio::test(start_paused = true)]
async fn the_grace_period_of_the_policy_ends_the_old_copy_also_over_a_restart() {
    let rules = json!({"cluster": {"gracePeriodSeconds": 60}});
    let federation = on_m1(PaceLimits::default(), &["web"], &["m1", "m2"], rules).await;
    federation.members.make_sick("m2", true);
    taint(&federation, "m1", Some("NoExecute")).await;
    until_on(&federation, "m2").await;
    tokio::time::sleep(Duration::from_secs(20)).await;
    let federation = federation.restart().await;
    federation.until_replicas(&[("m2", 4)]).await;
    federation.until_history(&[Trigger::First, Trigger::Failover, Trigger::EvictionDone]).await;
    let (begun, ended) = (
        made(&federation, Trigger::Failover).await,
        made(&federation, Trigger::EvictionDone).await,
    );
    let took = ended[0].duration_since(begun[0]).as_secs();
    assert!((60..63).contains(&took), "{took} s");
}

#[tokio::test(start_paused = true)]
async fn a_policys_toleration_counts_from_the_taints_time_also_over_a_restart() {
    let federation = Federation::start().await;
    let placement = json!({
        "clusterAffinities": [
            {"affinityName": "first", "clusterNames": ["m1"]},
            {"affinityName": "second", "clusterNames": ["m2"]},
        ],
        "clusterTolerations": [{"key": "cluster.atoll.dev/drain", "operator": "Exists",
            "effect": "NoExecute", "tolerationSeconds": 120}],
        "replicaScheduling": {"replicaSchedulingType": "Divided"},
    });
    federation.hub.policy("all", DEPLOYMENT, placement).await;
    federation.hub.deployment("web", 4).await;
    until_on(&federation, "m1").await;
    let added = federation.hub.clock.now_seconds();
    let taints = json!([{"key": "cluster.atoll.dev/drain", "effect": "NoExecute",
        "timeAdded": added.to_string()}]);
    let object = json!({"metadata": {"name": "m1"}, "spec": {"taints": taints}});
    federation.hub.apply(CLUSTER.0, CLUSTER.1, None, object).await;
    tokio::time::sleep(Duration::from_secs(70)).await;
    let federation = federation.restart().await;
    until_on(&federation, "m2").await;
    let moved = made(&federation, Trigger::Failover).await;
    let took = moved[0].duration_since(added).as_secs();
    assert!((120..123).contains(&took), "{took} s");
}

/// Karmada's scheduler leaves its targets on tainted clusters to a taint manager: with its profile, workloads stayed
/// there.
#[tokio::test(start_paused = true)]
async fn with_profile_karmada_work_leaves_a_tainted_member_and_the_old_copy_goes() {
    let federation = Federation::start().await;
    taint(&federation, "m2", Some("NoSchedule")).await;
    let spec = json!({
        "resourceSelectors": [{"apiVersion": DEPLOYMENT.0, "kind": DEPLOYMENT.1}],
        "schedulerName": "karmada",
        "placement": {
            "clusterAffinity": {"clusterNames": ["m1", "m2"]},
            "replicaScheduling": {"replicaSchedulingType": "Divided"},
        },
    });
    let object = json!({"metadata": {"name": "all"}, "spec": spec});
    let kind = ("policy.atoll.dev/v1alpha1", "PropagationPolicy");
    federation.hub.apply(kind.0, kind.1, Some("shop"), object).await;
    federation.hub.deployment("web", 4).await;
    federation.until_replicas(&[("m1", 4)]).await;
    taint(&federation, "m2", None).await;
    taint(&federation, "m1", Some("NoExecute")).await;
    until_on(&federation, "m2").await;
    federation.until_replicas(&[("m2", 4)]).await;
    until_said(&federation, "Emptied").await;
}

/// Six replicas under a policy that places four of them: two wait forever.
#[tokio::test(start_paused = true)]
async fn a_drain_while_another_host_is_cordoned_leaks_no_copy() {
    let federation = Federation::start().await;
    for (name, domain) in [("m1", "member"), ("m2", "host"), ("m3", "host")] {
        let labels = json!({"metadata": {"name": name, "labels": {"domain": domain}}});
        federation.hub.apply(CLUSTER.0, CLUSTER.1, None, labels).await;
    }
    let kind = "policy.atoll.dev/v1alpha1";
    let policy = json!({"metadata": {"name": "split"}, "spec": {
        "topologyKey": "domain", "labelSelector": {"matchLabels": {"app": "web"}},
        "allocationPolicy": [{"name": "member", "replicas": 1}, {"name": "host", "replicas": 3}],
        "allocationType": "Required", "allocationMethod": "Fill",
    }});
    federation.hub.apply(kind, "WorkloadPolicy", Some("shop"), policy).await;
    taint(&federation, "m2", Some("NoSchedule")).await;
    federation.hub.policy("all", DEPLOYMENT, json!({})).await;
    let labels = json!({"app": "web", "policy.atoll.dev/workload-policy": "split"});
    let web = json!({"metadata": {"name": "web", "labels": labels.clone()}, "spec": {
        "replicas": 6, "selector": {"matchLabels": {"app": "web"}},
        "template": {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "c", "image": "i"}]}},
    }});
    federation.hub.apply(DEPLOYMENT.0, DEPLOYMENT.1, Some("shop"), web).await;
    federation.until_replicas(&[("m1", 1), ("m3", 3)]).await;
    taint(&federation, "m3", Some("NoExecute")).await;
    eventually("the host's replicas wait", SOON, || async {
        let binding = federation.hub.binding("web-deployment").await;
        binding["spec"]["clusters"] == json!([{"name": "m1", "replicas": 1}])
    })
    .await;
    taint(&federation, "m2", None).await;
    federation.until_replicas(&[("m1", 1), ("m2", 3)]).await;
    eventually("no task is left", SOON, || async {
        let binding = federation.hub.binding("web-deployment").await;
        binding["spec"]["gracefulEvictionTasks"].is_null()
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_deployment_that_is_scaled_to_zero_stays_on_its_member_and_comes_back() {
    let federation = on_m1(PaceLimits::default(), &["web"], &["m1"], json!({})).await;
    federation.hub.deployment("web", 0).await;
    federation.until_replicas(&[("m1", 0)]).await;
    assert_eq!(federation.members.manifest("m1")["spec"]["replicas"], 0);
    federation.until(BINDING, "web-deployment", "/status/summary/applied", json!(1)).await;
    federation.hub.deployment("web", 2).await;
    federation.until_replicas(&[("m1", 2)]).await;
    federation.until_history(&[Trigger::First, Trigger::Scale, Trigger::Scale]).await;
}

#[tokio::test(start_paused = true)]
async fn a_terminating_member_is_left_make_before_break_and_says_when_it_is_empty() {
    let federation = on_m1(PaceLimits::default(), &["web"], &["m1", "m2"], json!({})).await;
    let finalizer = json!({"metadata": {"name": "m1", "finalizers": ["atoll.dev/cluster"]}});
    federation.hub.apply(CLUSTER.0, CLUSTER.1, None, finalizer).await;
    federation.members.make_sick("m2", true);
    federation.hub.delete(CLUSTER.0, CLUSTER.1, None, "m1").await;
    until_on(&federation, "m2").await;
    let binding = federation.hub.binding("web-deployment").await;
    let task = &binding["spec"]["gracefulEvictionTasks"][0];
    assert_eq!((&task["fromCluster"], &task["keep"]), (&json!("m1"), &json!(true)));
    until_said(&federation, "WaitingForReplacements").await;
    assert_eq!(federation.members.replicas().get("m1"), Some(&4), "the old copy runs on");
    federation.members.make_sick("m2", false);
    federation.until_replicas(&[("m2", 4)]).await;
    until_said(&federation, "Emptied").await;
}

#[tokio::test(start_paused = true)]
async fn an_unhealthy_application_moves_by_a_clock_that_no_restart_sets_back() {
    let rules = json!({"application": {
        "decisionConditions": {"tolerationSeconds": 120}, "purgeMode": "Directly",
        "statePreservation": {"rules": [{"aliasLabelName": "had", "jsonPath": "{.replicas}"}]},
    }});
    let federation = on_m1(PaceLimits::default(), &["web"], &["m1", "m2"], rules).await;
    federation.members.make_sick("m1", true);
    let since = "/status/aggregatedStatus/0/unhealthySince";
    eventually("since when it is unhealthy is in the hub", SOON, || async {
        federation.hub.binding("web-deployment").await.pointer(since).is_some()
    })
    .await;
    let binding = federation.hub.binding("web-deployment").await;
    let began: Timestamp = binding.pointer(since).unwrap().as_str().unwrap().parse().unwrap();
    tokio::time::sleep(Duration::from_secs(80)).await;
    let federation = federation.restart().await;
    until_on(&federation, "m2").await;
    federation.until_replicas(&[("m2", 4)]).await;
    let moved = made(&federation, Trigger::ApplicationFailure).await;
    let took = moved[0].duration_since(began).as_secs();
    assert!((120..123).contains(&took), "{took} s");
    let binding = federation.hub.binding("web-deployment").await;
    let state = json!({"fromCluster": "m1", "clusters": ["m2"], "labels": {"had": "4"}});
    assert_eq!(binding["spec"]["preservedState"], state);
    let manifest = federation.members.manifest("m2");
    assert_eq!(manifest["metadata"]["labels"]["had"], "4");
    assert!(manifest["spec"]["template"]["metadata"]["labels"]["had"].is_null());
}

#[tokio::test(start_paused = true)]
async fn what_leaves_a_drained_cluster_takes_its_state_along() {
    let rules = json!({"cluster": {
        "statePreservation": {"rules": [{"aliasLabelName": "had", "jsonPath": "{.replicas}"}]},
    }});
    let federation = on_m1(PaceLimits::default(), &["web"], &["m1", "m2"], rules).await;
    let ready = "/status/aggregatedStatus/0/readyReplicas";
    federation.until(BINDING, "web-deployment", ready, json!(4)).await;
    taint(&federation, "m1", Some("NoExecute")).await;
    federation.until_replicas(&[("m2", 4)]).await;
    let binding = federation.hub.binding("web-deployment").await;
    let state = json!({"fromCluster": "m1", "clusters": ["m2"], "labels": {"had": "4"}});
    assert_eq!(binding["spec"]["preservedState"], state);
    assert_eq!(federation.members.manifest("m2")["metadata"]["labels"]["had"], "4");
}

#[tokio::test(start_paused = true)]
async fn what_nothing_can_take_stays_and_both_objects_say_so() {
    let federation = on_m1(PaceLimits::default(), &["web"], &["m1"], json!({})).await;
    taint(&federation, "m1", Some("NoExecute")).await;
    let message = until_said(&federation, "NothingTakes").await;
    assert!(message.contains("Deployment.apps/shop/web (none of 3 clusters fits"), "{message}");
    federation.until_replicas(&[("m1", 4)]).await;
    let scheduled = || async {
        let binding = federation.hub.binding("web-deployment").await;
        let conditions = binding["status"]["conditions"].as_array().unwrap().clone();
        conditions.into_iter().find(|c| c["type"] == "Scheduled").unwrap()
    };
    eventually("the binding says so", SOON, || async { scheduled().await["status"] == "False" })
        .await;
    let said = scheduled().await;
    assert_eq!(said["reason"], "NoFit");
    assert!(said["message"].as_str().unwrap().contains("none of 3 clusters fits"), "{said}");
}

#[tokio::test(start_paused = true)]
async fn a_drain_ends_though_configuration_has_no_other_place() {
    let federation = on_m1(PaceLimits::default(), &["web"], &["m1", "m2"], json!({})).await;
    let only = json!({"clusterAffinity": {"clusterNames": ["m1"]}});
    federation.hub.policy("settings", ("v1", "ConfigMap"), only).await;
    let settings = json!({"metadata": {"name": "settings"}, "data": {"a": "b"}});
    federation.hub.apply("v1", "ConfigMap", Some("shop"), settings).await;
    let placed = "/spec/clusters/0/name";
    federation.until(BINDING, "settings-configmap", placed, json!("m1")).await;
    taint(&federation, "m1", Some("NoExecute")).await;
    let message = until_said(&federation, "Emptied").await;
    assert!(message.contains("ConfigMap/shop/settings"), "{message}");
    until_on(&federation, "m2").await;
}

#[tokio::test(start_paused = true)]
async fn work_comes_back_when_the_member_was_well_for_long_enough_also_over_a_restart() {
    let federation = Federation::start().await;
    let placement = json!({
        "clusterAffinities": [
            {"affinityName": "first", "clusterNames": ["m1"]},
            {"affinityName": "second", "clusterNames": ["m2"]},
        ],
        "replicaScheduling": {"replicaSchedulingType": "Divided"},
        "rescheduleOn": ["ClusterFailure", "Recovery"],
    });
    federation.hub.policy("all", DEPLOYMENT, placement).await;
    federation.hub.deployment("web", 4).await;
    until_on(&federation, "m1").await;
    taint(&federation, "m1", Some("NoExecute")).await;
    until_on(&federation, "m2").await;
    federation.until_history(&[Trigger::First, Trigger::Failover, Trigger::EvictionDone]).await;
    let back = federation.hub.clock.now_seconds();
    let ready = json!({"conditions": [{"type": "Ready", "status": "True", "reason": "Ok",
        "message": "", "lastTransitionTime": back.to_string()}]});
    federation.hub.patch_status(CLUSTER.0, CLUSTER.1, "m1", ready).await;
    taint(&federation, "m1", None).await;
    tokio::time::sleep(Duration::from_secs(60)).await;
    let federation = federation.restart().await;
    until_on(&federation, "m1").await;
    let returned = made(&federation, Trigger::Recover).await;
    assert_eq!(returned.len(), 1, "{returned:?}");
    let took = returned[0].duration_since(back).as_secs();
    let least = RECOVER_AFTER.0.as_secs();
    assert!((least..least + 3).contains(&took), "{took} s");
}

/// A drain would run it again elsewhere, on the old leader and on one that has not heard from the members yet.
#[tokio::test(start_paused = true)]
async fn a_job_that_has_ended_stays_on_a_drained_member_and_does_not_hold_the_drain() {
    let federation = Federation::start().await;
    for name in ["m1", "m2", "m3"] {
        let apis = json!({"apiEnablements": [
            {"groupVersion": "batch/v1", "resources": [{"name": "jobs", "kind": "Job"}]},
        ]});
        federation.hub.patch_status(CLUSTER.0, CLUSTER.1, name, apis).await;
    }
    taint(&federation, "m2", Some("NoSchedule")).await;
    let placement = json!({
        "clusterAffinity": {"clusterNames": ["m1", "m2"]},
        "replicaScheduling": {"replicaSchedulingType": "Divided"},
    });
    federation.hub.policy("jobs", ("batch/v1", "Job"), placement).await;
    let job = json!({
        "metadata": {"name": "import"},
        "spec": {"parallelism": 1, "completions": 1, "template": {"spec": {
            "restartPolicy": "Never", "containers": [{"name": "c", "image": "nginx"}]}}},
    });
    federation.hub.apply("batch/v1", "Job", Some("shop"), job).await;
    let complete = "/status/aggregatedStatus/0/status/conditions/0/type";
    federation.until(BINDING, "import-job", complete, json!("Complete")).await;
    taint(&federation, "m2", None).await;
    let orders = federation.members.orders().len();
    taint(&federation, "m1", Some("NoExecute")).await;
    let message = until_said(&federation, "Emptied").await;
    assert!(message.contains("Job.batch/shop/import"), "{message}");
    let federation = federation.restart().await;
    until_said(&federation, "Emptied").await;
    let elsewhere = federation.members.orders().into_iter().skip(orders).filter(|order| {
        matches!(order, Order::Set { cluster, .. } if cluster != "m1")
            || matches!(order, Order::Withdraw { .. })
    });
    assert_eq!(elsewhere.collect::<Vec<_>>(), []);
    assert_eq!(federation.history().await, [Trigger::First]);
}
