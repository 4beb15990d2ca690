//! Customizations: their status, and what the controller does with their rules.

use serde_json::{Value, json};

use super::harness::{DEPLOYMENT, Federation, SOON};
use crate::testing::eventually;

pub(super) const CUSTOMIZATION: (&str, &str) =
    ("config.atoll.dev/v1alpha1", "ResourceInterpreterCustomization");

/// Creates a customization of the kind `apps.example.io/v1 WebApp`, or replaces its rules.
async fn customize(federation: &Federation, name: &str, rules: Value) {
    let spec = json!({
        "target": {"apiVersion": "apps.example.io/v1", "kind": "WebApp"}, "customizations": rules,
    });
    let object = json!({"metadata": {"name": name}, "spec": spec});
    federation.hub.apply(CUSTOMIZATION.0, CUSTOMIZATION.1, None, object).await;
}

async fn status(federation: &Federation, name: &str) -> Value {
    let object = federation.hub.get(CUSTOMIZATION.0, CUSTOMIZATION.1, None, name).await;
    object["status"].clone()
}

/// Waits until a path of a customization's status has a value.
pub(super) async fn until_status(federation: &Federation, name: &str, path: &str, value: Value) {
    eventually(&format!("{name} {path} = {value}"), 2 * SOON, || async {
        status(federation, name).await.pointer(path) == Some(&value)
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_rule_that_does_not_compile_is_shown_with_its_field_until_it_is_mended() {
    let federation = Federation::start().await;
    let rules = |cel: &str| {
        json!({
            "healthInterpretation": {"cel": cel},
            "replicaResource": {"luaScript": "function GetReplicas(object) return 1 end"},
        })
    };
    customize(&federation, "web", rules("object.status. >= 1")).await;
    until_status(&federation, "web", "/conditions/0/reason", json!("DoesNotCompile")).await;
    let shown = status(&federation, "web").await;
    assert_eq!(shown["conditions"][0]["status"], "False");
    let message = shown["conditions"][0]["message"].as_str().unwrap();
    assert!(message.starts_with("spec.customizations.healthInterpretation: "), "{message}");
    let uses = json!([
        {"operation": "InterpretReplica", "used": true},
        {"operation": "InterpretHealth", "used": false},
    ]);
    assert_eq!(shown["usedFor"], uses);
    customize(&federation, "web", rules("object.status.ready >= 1")).await;
    until_status(&federation, "web", "/observedGeneration", json!(2)).await;
    let shown = status(&federation, "web").await;
    assert_eq!(shown["conditions"][0]["status"], "True", "{shown}");
    assert_eq!(shown["conditions"][1]["type"], "Failing");
    assert_eq!(shown["conditions"][1]["status"], "False");
    assert_eq!(shown["usedFor"][1]["used"], true);
}

#[tokio::test(start_paused = true)]
async fn the_first_customization_by_name_answers_and_the_others_show_it() {
    let federation = Federation::start().await;
    customize(&federation, "b", json!({"healthInterpretation": {"cel": "true"}})).await;
    until_status(&federation, "b", "/usedFor/0/used", json!(true)).await;
    customize(&federation, "a", json!({"healthInterpretation": {"cel": "false"}})).await;
    until_status(&federation, "b", "/usedFor/0/overruledBy", json!("a")).await;
    until_status(&federation, "a", "/usedFor/0/used", json!(true)).await;
    federation.hub.delete(CUSTOMIZATION.0, CUSTOMIZATION.1, None, "a").await;
    until_status(&federation, "b", "/usedFor/0/used", json!(true)).await;
    // The next leader has nothing to write.
    let before = federation.hub.get(CUSTOMIZATION.0, CUSTOMIZATION.1, None, "b").await;
    let federation = federation.restart().await;
    tokio::time::sleep(SOON).await;
    let after = federation.hub.get(CUSTOMIZATION.0, CUSTOMIZATION.1, None, "b").await;
    assert_eq!(before, after);
}

/// A Deployment on two members whose status a rule computes.
async fn aggregating(federation: &Federation, lua: &str) {
    let spec = json!({
        "target": {"apiVersion": DEPLOYMENT.0, "kind": DEPLOYMENT.1},
        "customizations": {"statusAggregation": {"luaScript": lua}},
    });
    let object = json!({"metadata": {"name": "sum"}, "spec": spec});
    federation.hub.apply(CUSTOMIZATION.0, CUSTOMIZATION.1, None, object).await;
}

#[tokio::test(start_paused = true)]
async fn a_rule_aggregates_the_status_and_one_that_fails_leaves_it_to_the_built_in_rule() {
    let federation = Federation::start().await;
    let sum = "function AggregateStatus(object, items)
        local sum = 0
        for i = 1, #items do sum = sum + items[i].status.readyReplicas end
        object.status = {readyReplicas = 10 * sum}
        object.spec.replicas = 77
        return object
    end";
    aggregating(&federation, sum).await;
    let placement = json!({"clusterAffinity": {"clusterNames": ["m1", "m2"]}});
    federation.hub.policy("all", DEPLOYMENT, placement).await;
    federation.hub.deployment("web", 2).await;
    federation.until(DEPLOYMENT, "web", "/status/readyReplicas", json!(40)).await;
    let web = federation.hub.get(DEPLOYMENT.0, DEPLOYMENT.1, Some("shop"), "web").await;
    assert_eq!(web["spec"]["replicas"], 2, "a rule changes only the status");
    // It fails for two objects: the built-in rule answers, and one write shows it.
    federation.spy.take_writes();
    aggregating(&federation, "function AggregateStatus(object, items) error('no sum') end").await;
    federation.hub.deployment("web", 3).await;
    federation.hub.deployment("api", 3).await;
    federation.until(DEPLOYMENT, "web", "/status/readyReplicas", json!(6)).await;
    until_status(&federation, "sum", "/conditions/1/status", json!("True")).await;
    federation.until(DEPLOYMENT, "api", "/status/readyReplicas", json!(6)).await;
    tokio::time::sleep(SOON).await;
    let shown = status(&federation, "sum").await;
    assert_eq!(shown["conditions"][1]["reason"], "RuleFailed");
    let message = shown["conditions"][1]["message"].as_str().unwrap();
    for part in ["spec.customizations.statusAggregation: ", "no sum", "object shop/"] {
        assert!(message.contains(part), "{message}");
    }
    assert_eq!(shown["lastError"]["operation"], "AggregateStatus");
    let writes = federation.spy.take_writes();
    let to_sum = writes.iter().filter(|write| write.ends_with("/sum/status")).count();
    assert!(to_sum <= 3, "one for each new spec and one for the failure: {writes:?}");
    // A rule that never ends stops nothing else, and a mended one is used again.
    aggregating(&federation, "function AggregateStatus(object, items) while true do end end").await;
    federation.hub.deployment("web", 4).await;
    federation.until(DEPLOYMENT, "web", "/status/readyReplicas", json!(8)).await;
    until_status(&federation, "sum", "/conditions/1/status", json!("True")).await;
    aggregating(&federation, sum).await;
    federation.hub.deployment("web", 5).await;
    federation.until(DEPLOYMENT, "web", "/status/readyReplicas", json!(100)).await;
    until_status(&federation, "sum", "/conditions/1/status", json!("False")).await;
    assert_eq!(status(&federation, "sum").await.get("lastError"), None);
}

#[tokio::test(start_paused = true)]
async fn agents_get_the_rules_that_they_use_and_their_failures_are_shown() {
    let federation = Federation::start().await;
    customize(&federation, "web", json!({"healthInterpretation": {"cel": "object.ready"}})).await;
    customize(&federation, "replicas", json!({"replicaResource": {"cel": "1"}})).await;
    until_status(&federation, "replicas", "/usedFor/0/used", json!(true)).await;
    until_status(&federation, "web", "/usedFor/0/used", json!(true)).await;
    let names = || -> Vec<_> {
        federation.members.customizations().into_iter().map(|(name, _)| name).collect()
    };
    assert_eq!(names(), ["web"]);
    federation.spy.take_writes();
    for _ in 0..100 {
        federation.members.fail_rule("m1", "web", "failed: no such key").await;
    }
    until_status(&federation, "web", "/lastError/cluster", json!("m1")).await;
    let shown = status(&federation, "web").await;
    let message = shown["conditions"][1]["message"].as_str().unwrap();
    for part in ["spec.customizations.healthInterpretation: ", "no such key", "shop/web on m1"] {
        assert!(message.contains(part), "{message}");
    }
    tokio::time::sleep(SOON).await;
    let writes = federation.spy.take_writes();
    let shown = writes.iter().filter(|write| write.ends_with("/web/status")).count();
    assert_eq!(shown, 1, "{writes:?}");

    // A mended rule is not failing, and a deleted one is taken from the agents.
    customize(&federation, "web", json!({"healthInterpretation": {"cel": "true"}})).await;
    until_status(&federation, "web", "/conditions/1/status", json!("False")).await;
    federation.hub.delete(CUSTOMIZATION.0, CUSTOMIZATION.1, None, "web").await;
    eventually("agents have no customization", SOON, || async { names().is_empty() }).await;
}
