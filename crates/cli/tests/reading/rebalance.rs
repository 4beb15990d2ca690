//! `atoll rebalance`: what it would move, and what it asks for.

use atoll_api::WorkloadRebalancer;
use atoll_api::rebalancer::RebalanceMode;
use kube::Api;
use kube::api::ListParams;
use serde_json::json;

use crate::drain::{divided, federation, workload};

#[tokio::test(flavor = "multi_thread")]
async fn it_prints_the_moves_and_asks_for_the_decisions() {
    let hub = federation().await;
    let shares = [("member1", 3), ("member2", 0), ("member3", 0)];
    workload(&hub, "web", divided(json!({})), &shares, true).await;
    let api: Api<WorkloadRebalancer> = Api::all(hub.client());
    let plan = ["deploy/web", "-n", "shop", "--dry-run"];
    let text = hub.atoll("rebalance", &plan).await.ok();
    for part in ["member1 -> member2: 1", "member1 -> member3: 1", "Placed"] {
        assert!(text.contains(part), "{text}");
    }
    assert!(api.list(&ListParams::default()).await.unwrap().items.is_empty(), "only a plan");
    let go = ["deploy/web", "-n", "shop", "-o", "json"];
    let answer = hub.atoll("rebalance", &go).await.json();
    assert_eq!(answer["items"][0]["moves"][0]["from"], "member1");
    let asked = api.list(&ListParams::default()).await.unwrap().items;
    assert_eq!(asked.len(), 1);
    assert_eq!(answer["rebalancer"], json!(asked[0].metadata.name));
    let workload = &asked[0].spec.workloads[0];
    assert_eq!((workload.kind.as_str(), workload.name.as_str()), ("Deployment", "web"));
}

#[tokio::test(flavor = "multi_thread")]
async fn with_mend_skew_it_moves_only_what_the_constraints_need() {
    let hub = federation().await;
    let shares = [("member1", 4), ("member2", 0), ("member3", 1)];
    let constraint = json!([{"maxSkew": 3, "topologyKey": "zone"}]);
    let mut placement = divided(json!({}));
    placement["topologySpreadConstraints"] = constraint;
    workload(&hub, "web", placement, &shares, true).await;
    let moved = |answer: &serde_json::Value| -> i64 {
        let moves = answer["items"][0]["moves"].as_array().unwrap();
        moves.iter().map(|step| step["count"].as_i64().unwrap()).sum()
    };
    let plan = ["deploy/web", "-n", "shop", "--dry-run", "-o", "json"];
    let anew = hub.atoll("rebalance", &plan).await.json();
    let mended = hub.atoll("rebalance", &[&plan[..], &["--mend-skew"]].concat()).await.json();
    assert_eq!((moved(&anew), moved(&mended)), (2, 1), "{anew} {mended}");
    let go = ["deploy/web", "-n", "shop", "--mend-skew"];
    hub.atoll("rebalance", &go).await.ok();
    let api: Api<WorkloadRebalancer> = Api::all(hub.client());
    let asked = api.list(&ListParams::default()).await.unwrap().items;
    assert_eq!(asked[0].spec.mode, RebalanceMode::MendSkew);
}
