use std::time::Duration;

use http::Method;
use serde_json::json;

use super::harness::{BINDING, DEPLOYMENT, Federation, SOON};
use crate::testing::eventually;
use crate::testing::hub::How;

/// Longer than every deferral of statuses.
const LONG: Duration = Duration::from_secs(60);

#[tokio::test(start_paused = true)]
async fn a_workload_on_three_members_costs_four_writes_and_a_restart_none() {
    let federation = Federation::start().await;
    federation.hub.policy("all", DEPLOYMENT, json!({"replicaScheduling": {}})).await;
    // The policy's own status is not the workload's.
    tokio::time::sleep(LONG).await;
    federation.spy.take_writes();

    federation.hub.deployment("web", 3).await;
    federation.until(DEPLOYMENT, "web", "/status/readyReplicas", json!(3)).await;
    tokio::time::sleep(Duration::from_secs(5)).await;
    let writes = federation.spy.take_writes();
    assert_eq!(writes.len(), 4, "{writes:#?}");
    assert!(writes[0].starts_with("POST") && writes[0].ends_with("resourcebindings"));
    let deployment = federation.hub.get("apps/v1", "Deployment", Some("shop"), "web").await;
    assert_eq!(deployment["status"]["observedGeneration"], deployment["metadata"]["generation"]);

    let metrics = federation.metrics();
    for line in [
        r#"atoll_decisions_total{trigger="First",outcome="Placed"} 1"#,
        r#"atoll_hub_writes_total{what="binding",result="written"} 1"#,
        "atoll_leader 1",
    ] {
        assert!(metrics.iter().any(|found| found == line), "{line}\n{metrics:#?}");
    }

    // The policy's figures follow at their own interval, once for all changes meanwhile.
    tokio::time::sleep(LONG).await;
    let writes = federation.spy.take_writes();
    assert!(writes.len() <= 1, "{writes:#?}");

    let federation = federation.restart().await;
    tokio::time::sleep(LONG).await;
    let writes = federation.spy.take_writes();
    assert!(writes.is_empty(), "a restart with nothing changed: {writes:#?}");
}

#[tokio::test(start_paused = true)]
async fn a_commit_whose_answer_is_lost_is_recognised_and_not_repeated() {
    let federation = Federation::start().await;
    federation.hub.policy("all", DEPLOYMENT, json!({"replicaScheduling": {}})).await;
    federation.spy.fail_next(Method::POST, "/resourcebindings", How::LoseAnswer);
    federation.hub.deployment("web", 3).await;
    federation.until(BINDING, "web-deployment", "/status/summary/ready", json!(3)).await;
    let posts = federation
        .spy
        .calls()
        .into_iter()
        .filter(|call| call.method == Method::POST && call.path.contains("/resourcebindings"));
    assert_eq!(posts.count(), 1);

    federation.spy.fail_next(Method::PATCH, "/resourcebindings/web-deployment", How::LoseRequest);
    federation.hub.deployment("web", 6).await;
    federation.until(BINDING, "web-deployment", "/status/summary/ready", json!(6)).await;
}

#[tokio::test(start_paused = true)]
async fn a_binding_has_no_managed_fields_after_its_second_commit() {
    let federation = Federation::start().await;
    federation.hub.policy("all", DEPLOYMENT, json!({"replicaScheduling": {}})).await;
    federation.hub.deployment("web", 3).await;
    federation.until(BINDING, "web-deployment", "/status/summary/ready", json!(3)).await;
    let first = federation.hub.binding("web-deployment").await;
    assert!(!first["metadata"]["managedFields"].is_null(), "the API server tracks a new object");

    federation.hub.deployment("web", 6).await;
    // The status is a later write: it must not begin to track fields again.
    federation.until(BINDING, "web-deployment", "/status/summary/ready", json!(6)).await;
    let second = federation.hub.binding("web-deployment").await;
    assert_eq!(second["metadata"].get("managedFields"), None, "{second:#}");
}

#[tokio::test(start_paused = true)]
async fn a_users_edit_of_a_binding_does_not_get_lost() {
    let federation = Federation::start().await;
    federation.hub.policy("all", DEPLOYMENT, json!({"replicaScheduling": {}})).await;
    federation.hub.deployment("web", 3).await;
    federation.until(BINDING, "web-deployment", "/spec/decision/trigger", json!("First")).await;
    // Both at once: the later write conflicts, and is decided again from the current state.
    let label = json!({"metadata": {"name": "web-deployment", "labels": {"team": "a"}}});
    tokio::join!(
        federation.hub.apply(BINDING.0, BINDING.1, Some("shop"), label),
        federation.hub.deployment("web", 6),
    );
    federation.until(BINDING, "web-deployment", "/spec/decision/trigger", json!("Scale")).await;
    federation.until(BINDING, "web-deployment", "/metadata/labels/team", json!("a")).await;
}

#[tokio::test(start_paused = true)]
async fn members_tell_nodes_apart_by_the_labels_that_placed_templates_ask_for() {
    let federation = Federation::start().await;
    federation.hub.policy("all", DEPLOYMENT, json!({"replicaScheduling": {}})).await;
    federation.hub.deployment("web", 3).await;
    federation.until(BINDING, "web-deployment", "/status/summary/ready", json!(3)).await;
    assert!(federation.members.labels().is_empty());
    let picky = json!({
        "metadata": {"name": "web"},
        "spec": {"template": {"spec": {"nodeSelector": {"disk": "ssd"}}}},
    });
    federation.hub.apply(DEPLOYMENT.0, DEPLOYMENT.1, Some("shop"), picky).await;
    eventually("the label is asked for", SOON, || async {
        federation.members.labels().into_iter().eq(["disk".to_owned()])
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_reconcile_that_changes_nothing_renders_nothing() {
    let federation = Federation::start().await;
    federation.hub.policy("all", DEPLOYMENT, json!({"replicaScheduling": {}})).await;
    federation.hub.deployment("web", 3).await;
    federation.until(DEPLOYMENT, "web", "/status/readyReplicas", json!(3)).await;
    tokio::time::sleep(LONG).await;
    let counters = federation.counters.clone();
    let (renders, avoided) = (counters.renders.get(), counters.avoided.get());
    assert_eq!(renders, 3, "one a member, whatever was reported since");

    // A cluster's label makes its bindings be checked again.
    let labelled = json!({"metadata": {"name": "m1", "labels": {"team": "a"}}});
    federation.hub.apply("cluster.atoll.dev/v1alpha1", "Cluster", None, labelled).await;
    eventually("looked at again", SOON, || async { counters.avoided.get() > avoided }).await;
    tokio::time::sleep(LONG).await;
    assert_eq!(counters.renders.get(), renders);

    // A change that the manifest shows is rendered once per member.
    let edited = json!({"metadata": {"name": "web", "annotations": {"team": "a"}}});
    federation.hub.apply(DEPLOYMENT.0, DEPLOYMENT.1, Some("shop"), edited).await;
    eventually("rendered", SOON, || async { counters.renders.get() > renders }).await;
    tokio::time::sleep(LONG).await;
    assert_eq!(counters.renders.get(), renders + 3);
}
