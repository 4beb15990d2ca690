//! The approval of plans.

use super::*;
use crate::review_api;

/// A guard that holds plan `5f0c`.
pub(super) fn guard(state: &HubState) -> Value {
    let held = json!([{"plan": "5f0c", "reason": "too much", "workloads": 3, "replicas": 12,
        "since": "2026-01-01T00:00:00Z"}]);
    json!({
        "apiVersion": "policy.atoll.dev/v1alpha1", "kind": "ChangeGuard",
        "metadata": {"name": "prod", "resourceVersion": "7"}, "spec": {"maxMovedReplicas": 10},
        "status": {"held": held, "released": state.released.clone().unwrap_or_else(|| json!([]))},
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn a_plan_is_approved_by_the_user_of_the_request_with_the_right_to_it() {
    let serving = Serving::start().await;
    let alice = serving.user("alice");
    let approve = async |client: &Client, plan: &str, body: &str| {
        let request = Request::post(review_api::path(plan));
        let request = request.header("content-type", "application/json");
        let request = request.body(body.as_bytes().to_vec()).unwrap();
        match client.request::<Value>(request).await {
            Ok(value) => Ok(value),
            Err(kube::Error::Api(status)) => Err((status.code, status.message.clone())),
            Err(error) => Err((0, error.to_string())),
        }
    };
    let list = ready(&alice, "/apis/review.atoll.dev/v1alpha1").await.unwrap();
    assert_eq!(list["resources"][0]["name"], "plans", "{list}");
    assert_eq!(list["resources"][1]["name"], "plans/approval", "{list}");
    assert_eq!(approve(&serving.user("bob"), "5f0c", "{}").await.unwrap_err().0, 403);
    let (code, why) = approve(&alice, "beef", "{}").await.unwrap_err();
    assert_eq!(code, 404);
    assert!(why.contains("no ChangeGuard holds plan beef: waiting: 5f0c"), "{why}");
    assert_eq!(approve(&alice, "5f0c", r#"{"kind": "Pod"}"#).await.unwrap_err().0, 400);
    assert!(serving.hub.lock().unwrap().released.is_none(), "nothing was approved yet");
    let done = approve(&alice, "5f0c", "").await.unwrap();
    assert_eq!(done["status"]["by"], "alice");
    assert_eq!(done["status"]["guards"], json!(["prod"]));
    let released = serving.hub.lock().unwrap().released.clone().unwrap();
    assert_eq!((&released[0]["plan"], &released[0]["by"]), (&json!("5f0c"), &json!("alice")));
    approve(&alice, "5f0c", "{}").await.unwrap();
    let again = serving.hub.lock().unwrap().released.clone().unwrap();
    assert_eq!(again, released, "it is approved once");
    serving.stop().await;
}
