//! ChangeGuards: what people change moves nothing beyond a guard, and everything else goes on.

use atoll_api::binding::Trigger;
use serde_json::{Value, json};

use super::harness::{BINDING, DEPLOYMENT, Federation, SOON};
use crate::guards::approve::{self, ApproveError};
use crate::testing::eventually;
use crate::testing::hub::How;

const GUARD: (&str, &str) = ("policy.atoll.dev/v1alpha1", "ChangeGuard");

async fn guard(federation: &Federation, name: &str, spec: Value) {
    let object = json!({"metadata": {"name": name}, "spec": spec});
    federation.hub.apply(GUARD.0, GUARD.1, None, object).await;
    federation
        .until_guard(name, "is accepted", |guard| {
            let status = &guard["status"];
            status["observedGeneration"] == guard["metadata"]["generation"]
        })
        .await;
}

impl Federation {
    async fn until_guard(&self, name: &str, what: &str, holds: impl Fn(&Value) -> bool) -> Value {
        eventually(&format!("ChangeGuard {name} {what}"), 4 * SOON, || async {
            holds(&self.hub.get(GUARD.0, GUARD.1, None, name).await)
        })
        .await;
        self.hub.get(GUARD.0, GUARD.1, None, name).await
    }

    /// The plan that a guard holds, once it has this number of workloads and replicas.
    async fn until_held(&self, name: &str, workloads: i64, replicas: i64) -> String {
        let what = format!("holds {replicas} replicas of {workloads} workloads");
        let guard = self
            .until_guard(name, &what, |guard| {
                let status = &guard["status"];
                status["heldWorkloads"] == workloads
                    && status["heldReplicas"] == replicas
                    && (workloads == 0) == status["held"].is_null()
            })
            .await;
        guard["status"]["held"][0]["plan"].as_str().unwrap_or_default().to_owned()
    }

    async fn approve(&self, plan: &str) -> Result<approve::Approval, ApproveError> {
        let clock = self.hub.clock.clone();
        approve::approve(&self.hub.client, plan, "jane", move || clock.now_seconds()).await
    }

    async fn shares(&self, workload: &str) -> Vec<(String, i64)> {
        let binding = self.hub.binding(&format!("{workload}-deployment")).await;
        let shares = binding["spec"]["clusters"].as_array().into_iter().flatten();
        shares
            .map(|share| {
                (share["name"].as_str().unwrap().to_owned(), share["replicas"].as_i64().unwrap())
            })
            .collect()
    }

    async fn until_on(&self, workload: &str, on: &[(&str, i64)]) {
        let on: Vec<(String, i64)> =
            on.iter().map(|(name, replicas)| ((*name).to_owned(), *replicas)).collect();
        eventually(&format!("{workload} is on {on:?}"), 4 * SOON, || async {
            self.shares(workload).await == on
        })
        .await;
    }
}

async fn place(federation: &Federation, clusters: &[&str]) {
    let placement = json!({
        "clusterAffinity": {"clusterNames": clusters},
        "replicaScheduling": {"replicaSchedulingType": "Divided"},
    });
    federation.hub.policy("all", DEPLOYMENT, placement).await;
}

/// Three workloads of four replicas each, on `m1`.
async fn federation() -> Federation {
    let federation = Federation::start().await;
    place(&federation, &["m1"]).await;
    for name in ["a", "b", "c"] {
        federation.hub.deployment(name, 4).await;
    }
    for name in ["a", "b", "c"] {
        federation.until_on(name, &[("m1", 4)]).await;
    }
    federation
}

#[tokio::test(start_paused = true)]
async fn an_edit_above_the_guard_waits_as_a_whole_until_it_is_approved() {
    let federation = federation().await;
    guard(&federation, "prod", json!({"maxMovedReplicas": 10, "window": "1h"})).await;
    place(&federation, &["m2"]).await;
    let plan = federation.until_held("prod", 3, 12).await;
    for name in ["a", "b", "c"] {
        assert_eq!(federation.shares(name).await, [("m1".to_owned(), 4)], "nothing leaks");
    }
    let held = json!("True");
    let condition = |object: &Value| {
        let conditions = object["status"]["conditions"].as_array().unwrap();
        conditions.iter().find(|one| one["type"] == "Held").cloned().unwrap_or_default()
    };
    eventually("the binding says so", SOON, || async {
        let found = condition(&federation.hub.binding("a-deployment").await);
        found["status"] == held && found["message"].as_str().unwrap().contains(&plan)
    })
    .await;
    let binding = federation.hub.binding("a-deployment").await;
    let kept = &binding["spec"]["placement"]["clusterAffinity"]["clusterNames"];
    assert_eq!(*kept, json!(["m1"]), "the last committed placement stays");
    // Scaling goes on with it, and changes what is planned for this workload.
    federation.hub.deployment("a", 12).await;
    federation.until_on("a", &[("m1", 12)]).await;
    federation.until_held("prod", 3, 20).await;
    let guard = federation
        .until_guard("prod", "has a plan for each", |guard| {
            guard["status"]["held"].as_array().is_some_and(|held| held.len() == 2)
        })
        .await;
    for name in ["b", "c"] {
        let on = federation.shares(name).await;
        assert_eq!(on, [("m1".to_owned(), 4)], "the rest would fit, but does not go without a");
    }
    let plans = guard["status"]["held"].as_array().unwrap().clone();
    let first = plans.iter().find(|one| one["plan"] == json!(plan)).unwrap();
    assert_eq!((&first["workloads"], &first["replicas"]), (&json!(2), &json!(8)));
    assert_eq!(first["causes"], json!(["PropagationPolicy shop/all"]));
    let wrong = federation.approve("0000").await.unwrap_err().to_string();
    assert!(wrong.contains("no ChangeGuard holds plan 0000: waiting: "), "{wrong}");
    let approval = federation.approve(&plan).await.unwrap();
    assert_eq!((approval.workloads, approval.replicas), (2, 8));
    federation.until_on("b", &[("m2", 4)]).await;
    federation.until_on("c", &[("m2", 4)]).await;
    assert_eq!(federation.shares("a").await, [("m1".to_owned(), 12)], "it changed since");
    let other = plans.iter().find(|one| one["plan"] != json!(plan)).unwrap();
    federation.approve(other["plan"].as_str().unwrap()).await.unwrap();
    federation.until_on("a", &[("m2", 12)]).await;
    federation.until_held("prod", 0, 0).await;
    let binding = federation.hub.binding("a-deployment").await;
    assert!(binding["spec"]["held"].is_null(), "{binding}");
    eventually("the condition goes", SOON, || async {
        condition(&federation.hub.binding("a-deployment").await).is_null()
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn an_edit_that_is_taken_back_uses_nothing_of_the_window() {
    let federation = federation().await;
    guard(&federation, "prod", json!({"maxMovedReplicas": 10, "window": "1h"})).await;
    place(&federation, &["m2"]).await;
    federation.until_held("prod", 3, 12).await;
    // The first workload that is decided leaves a rest that would fit.
    place(&federation, &["m1"]).await;
    federation.until_held("prod", 0, 0).await;
    let guard = federation.hub.get(GUARD.0, GUARD.1, None, "prod").await;
    assert!(guard["status"]["released"].is_null(), "{guard}");
    assert_eq!(guard["status"]["movedReplicas"], 0, "{guard}");
    assert_eq!(federation.shares("a").await, [("m1".to_owned(), 4)]);
}

#[tokio::test(start_paused = true)]
async fn edits_that_fit_go_and_count_until_the_window_ends_also_under_the_next_leader() {
    let federation = federation().await;
    guard(&federation, "prod", json!({"maxMovedReplicas": 15, "window": "10m"})).await;
    place(&federation, &["m2"]).await;
    for name in ["a", "b", "c"] {
        federation.until_on(name, &[("m2", 4)]).await;
    }
    federation
        .until_guard("prod", "counts them", |guard| guard["status"]["movedReplicas"] == 12)
        .await;
    let federation = federation.restart().await;
    place(&federation, &["m3"]).await;
    federation.until_held("prod", 3, 12).await;
    tokio::time::sleep(8 * 60 * std::time::Duration::from_secs(1)).await;
    assert_eq!(federation.shares("a").await, [("m2".to_owned(), 4)], "the window is not over");
    for name in ["a", "b", "c"] {
        federation.until_on(name, &[("m3", 4)]).await;
    }
    federation.until_held("prod", 0, 0).await;
    let moves = federation.history().await;
    let moves = moves.iter().filter(|trigger| **trigger == Trigger::Reconcile).count();
    assert_eq!(moves, 6, "each workload moved twice");
}

#[tokio::test(start_paused = true)]
async fn failover_of_held_workloads_goes_on_and_an_approval_works_in_a_freeze() {
    let federation = federation().await;
    let freeze = json!([{"schedule": "0 0 1 1 *", "duration": "240h"}]);
    guard(&federation, "year-end", json!({"freeze": freeze})).await;
    federation
        .until_guard("year-end", "is frozen", |guard| guard["status"]["frozenUntil"].is_string())
        .await;
    place(&federation, &["m1", "m2"]).await;
    // Only the edit asks for m2: a division by equal weights moves half of them.
    let plan = federation.until_held("year-end", 3, 6).await;
    // First placements are not held.
    federation.hub.deployment("new", 2).await;
    federation.until_on("new", &[("m1", 1), ("m2", 1)]).await;
    let federation = federation.restart().await;
    assert_eq!(federation.until_held("year-end", 3, 6).await, plan, "the next leader has it, too");
    federation.approve(&plan).await.unwrap();
    federation.until_on("a", &[("m1", 2), ("m2", 2)]).await;
    federation.until_held("year-end", 0, 0).await;
    // A policy for m2 and m3, and m1 fails meanwhile.
    place(&federation, &["m2", "m3"]).await;
    federation.until_held("year-end", 4, 7).await;
    let taints = json!([{"key": "test", "effect": "NoExecute"}]);
    let object = json!({"metadata": {"name": "m1"}, "spec": {"taints": taints}});
    federation.hub.apply("cluster.atoll.dev/v1alpha1", "Cluster", None, object).await;
    for name in ["a", "b", "c"] {
        federation.until_on(name, &[("m2", 4)]).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_release_whose_answer_is_lost_is_not_counted_twice() {
    let federation = federation().await;
    guard(&federation, "prod", json!({"maxMovedReplicas": 12, "window": "1h"})).await;
    federation.spy.fail_next(http::Method::PATCH, "changeguards/prod/status", How::LoseAnswer);
    place(&federation, &["m2"]).await;
    for name in ["a", "b", "c"] {
        federation.until_on(name, &[("m2", 4)]).await;
    }
    let guard = federation
        .until_guard("prod", "counts once", |guard| guard["status"]["movedReplicas"] == 12)
        .await;
    assert_eq!(guard["status"]["released"].as_array().unwrap().len(), 1, "{guard}");
}

#[tokio::test(start_paused = true)]
async fn what_a_guard_does_not_select_moves_and_so_does_what_waits_when_it_goes() {
    let federation = federation().await;
    let other = json!({"names": ["shop/other"]});
    guard(&federation, "other", json!({"maxWorkloads": 0, "policies": other})).await;
    guard(&federation, "broken", json!({"maxWorkloads": 0, "window": "soon"})).await;
    place(&federation, &["m2"]).await;
    federation.until_on("a", &[("m2", 4)]).await;
    let all = json!({"names": ["shop/all"]});
    guard(&federation, "all", json!({"maxMovedPercent": 50, "policies": all})).await;
    place(&federation, &["m3"]).await;
    federation.until_held("all", 3, 12).await;
    federation.hub.delete(GUARD.0, GUARD.1, None, "all").await;
    for name in ["a", "b", "c"] {
        federation.until_on(name, &[("m3", 4)]).await;
    }
    federation.until(BINDING, "a-deployment", "/spec/decision/trigger", json!("Reconcile")).await;
}
