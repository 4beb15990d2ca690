//! Terms in the hub itself: an older hub was restored, or a binding was edited.

use serde_json::{Value, json};

use super::harness::{BINDING, DEPLOYMENT, Federation, SOON};
use crate::testing::eventually;
use crate::testing::members::Order;

async fn set_term(federation: &Federation, name: &str, term: i64) {
    let change = json!({"metadata": {"name": name}, "spec": {"decision": {"term": term}}});
    federation.hub.apply(BINDING.0, BINDING.1, Some("shop"), change).await;
}

async fn running() -> Federation {
    let federation = Federation::start().await;
    federation.hub.policy("all", DEPLOYMENT, json!({"replicaScheduling": {}})).await;
    for name in ["web", "api"] {
        federation.hub.deployment(name, 3).await;
        let binding = format!("{name}-deployment");
        federation.until(BINDING, &binding, "/status/summary/ready", json!(3)).await;
    }
    federation
}

#[tokio::test(start_paused = true)]
async fn a_bindings_higher_term_is_outdone_and_everything_is_dispatched_anew() {
    let federation = running().await;
    let before = federation.members.orders().len();
    set_term(&federation, "web-deployment", 50).await;
    eventually("all orders were given again", SOON, || async {
        let orders = federation.members.orders();
        let sets = orders[before..].iter().filter(|order| matches!(order, Order::Set { .. }));
        sets.count() == 6 && federation.members.is_complete()
    })
    .await;
    federation.hub.deployment("web", 6).await;
    federation.until(BINDING, "web-deployment", "/status/summary/ready", json!(6)).await;
    federation.until(BINDING, "web-deployment", "/spec/decision/term", json!(51)).await;
}

#[tokio::test(start_paused = true)]
async fn a_bindings_term_out_of_range_is_reported_and_stops_nothing_else() {
    let federation = running().await;
    set_term(&federation, "web-deployment", 1 << 40).await;
    federation.hub.deployment("web", 6).await;
    eventually("TermOutOfRange", SOON, || async {
        let binding = federation.hub.binding("web-deployment").await;
        let conditions = binding["status"]["conditions"].as_array().cloned().unwrap_or_default();
        conditions.iter().any(|c: &Value| c["reason"] == "TermOutOfRange")
    })
    .await;
    federation.hub.deployment("api", 6).await;
    federation.until(BINDING, "api-deployment", "/status/summary/ready", json!(6)).await;
    federation.until(BINDING, "api-deployment", "/spec/decision/term", json!(1)).await;
}
