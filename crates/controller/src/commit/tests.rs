use http::Method;
use serde_json::json;

use super::*;
use crate::testing::hub::{How, Hub};

fn key() -> BindingKey {
    BindingKey::of(Some("shop"), "web-deployment")
}

fn decision(id: &str, term: i64) -> Value {
    json!({
        "id": id, "trigger": "First", "mode": "Steady", "outcome": "Placed",
        "at": "2026-01-01T00:00:00Z", "term": term,
    })
}

fn create(id: &str, term: i64) -> Write {
    let body = json!({
        "apiVersion": "work.atoll.dev/v1alpha1", "kind": "ResourceBinding",
        "metadata": {"namespace": "shop", "name": "web-deployment"},
        "spec": {
            "resource": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
            "decision": decision(id, term),
        },
    });
    Write { key: key(), action: Action::Create(body), decision: Some(id.into()) }
}

fn patch(version: &str, id: &str, term: i64) -> Write {
    let body = json!({
        "metadata": {"resourceVersion": version}, "spec": {"decision": decision(id, term)},
    });
    Write { key: key(), action: Action::Patch(body), decision: Some(id.into()) }
}

fn written(ended: Ended) -> Binding {
    match ended {
        Ended::Written(object) => object.row().unwrap().clone(),
        other => panic!("not written: {other:?}"),
    }
}

#[tokio::test(start_paused = true)]
async fn a_taken_name_is_ours_only_with_our_decision_in_it() {
    let hub = Hub::open().await;
    let (client, _) = hub.spied();
    written(perform(&client, &create("one", 1)).await);
    written(perform(&client, &create("one", 1)).await);
    assert_eq!(perform(&client, &create("two", 1)).await, Ended::Conflict);
}

#[tokio::test(start_paused = true)]
async fn a_lost_answer_is_looked_up_and_a_lost_request_is_not_taken_for_written() {
    let hub = Hub::open().await;
    let (client, spy) = hub.spied();
    spy.fail_next(Method::POST, "resourcebindings", How::LoseRequest);
    assert!(matches!(perform(&client, &create("one", 1)).await, Ended::Unanswered(_)));
    spy.fail_next(Method::POST, "resourcebindings", How::LoseAnswer);
    let object = written(perform(&client, &create("one", 1)).await);
    let version = object.resource_version();
    spy.fail_next(Method::PATCH, "resourcebindings", How::LoseRequest);
    assert!(matches!(perform(&client, &patch(version, "two", 1)).await, Ended::Unanswered(_)));
    spy.fail_next(Method::PATCH, "resourcebindings", How::LoseAnswer);
    let object = written(perform(&client, &patch(version, "two", 1)).await);
    assert_eq!(object.decision_id(), Some("two"));
}

#[tokio::test(start_paused = true)]
async fn a_decision_on_an_older_version_is_dropped() {
    let hub = Hub::open().await;
    let (client, _) = hub.spied();
    let old = written(perform(&client, &create("one", 1)).await);
    let version = old.resource_version();
    written(perform(&client, &patch(version, "two", 1)).await);
    assert_eq!(perform(&client, &patch(version, "three", 1)).await, Ended::Conflict);
}

#[tokio::test(start_paused = true)]
async fn the_hub_refuses_the_decision_of_an_earlier_term() {
    let hub = Hub::open().await;
    let (client, _) = hub.spied();
    let object = written(perform(&client, &create("one", 7)).await);
    let version = object.resource_version();
    // Without a term it is of the first one.
    let mut without = patch(version, "two", 6);
    let Action::Patch(body) = &mut without.action else { panic!("a patch") };
    body["spec"]["decision"]["term"] = Value::Null;
    for late in [patch(version, "two", 6), without] {
        let Ended::Refused(why) = perform(&client, &late).await else {
            panic!("a late leader's decision was taken")
        };
        assert!(why.contains("spec.decision.term"), "{why}");
    }
    written(perform(&client, &patch(version, "two", 8)).await);
}

#[tokio::test(start_paused = true)]
async fn only_the_binding_that_is_meant_is_deleted() {
    let hub = Hub::open().await;
    let (client, spy) = hub.spied();
    let object = written(perform(&client, &create("one", 1)).await);
    let delete = |uid: &str| Write {
        key: key(),
        action: Action::Delete { uid: uid.into() },
        decision: None,
    };
    let ended = perform(&client, &delete("another")).await;
    assert!(matches!(ended, Ended::Conflict | Ended::Gone), "{ended:?}");
    assert!(!hub.binding("web-deployment").await.is_null());
    spy.fail_next(Method::DELETE, "resourcebindings", How::LoseAnswer);
    assert_eq!(perform(&client, &delete(&object.uid)).await, Ended::Gone);
}
