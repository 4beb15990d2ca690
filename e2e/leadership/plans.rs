//! Plans of a user whom RBAC limits, through the controller that leads and through one that does not.

use http::Request;
use k8s_openapi::api::rbac::v1::ClusterRole;
use kube::api::{Patch, PatchParams};
use kube::{Api, Client};
use serde_json::{Value, json};

use super::ARRIVES;
use super::members::{allow, front_proxy, jane};
use crate::support::plane::Plane;
use crate::support::wait::LIMIT;

const REVIEW: &str = "/apis/review.atoll.dev/v1alpha1";

/// Posts a Plan; the code and the message of a refusal.
async fn plan(client: &Client, spec: Value) -> Result<Value, (u16, String)> {
    let plan = json!({"apiVersion": "review.atoll.dev/v1alpha1", "kind": "Plan", "spec": spec});
    let request = Request::post(format!("{REVIEW}/plans"))
        .header("content-type", "application/json")
        .body(plan.to_string().into_bytes())
        .unwrap();
    client.request(request).await.map_err(|error| match error {
        kube::Error::Api(status) => (status.code, status.message.clone()),
        error => (0, error.to_string()),
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn a_plan_shows_what_its_user_may_read_whichever_controller_is_asked() {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let plane = Plane::start(2, 2, &[]).await;
    let front = front_proxy(&plane).await;
    plane.create("web", 4).await;
    plane.until_ready("web", 4, ARRIVES).await;
    let mut clients = Vec::new();
    for number in 0..2 {
        let client = jane(&plane, &front, plane.api(number)).await;
        let refused = plan(&client, json!({})).await;
        assert!(refused.is_err(), "jane may not plan: {refused:?}");
        clients.push(client);
    }
    let rule =
        json!({"apiGroups": ["review.atoll.dev"], "resources": ["plans"], "verbs": ["create"]});
    allow(&plane.hub.client, json!([rule])).await;
    let without = json!({"assumed": {"without": ["member1"]}});
    let mut snapshots = Vec::new();
    for client in &clients {
        let seen = planned(client, &without, |_| true).await;
        let of = &seen["status"]["plan"];
        assert_eq!(
            (&of["hidden"], &of["summary"]["workloads"]),
            (&json!(1), &json!(1)),
            "{seen:#}"
        );
        assert_eq!(of["changes"], json!([]), "{seen:#}");
        assert_eq!(seen["status"]["manifests"], json!([]), "{seen:#}");
        assert!(!seen.to_string().contains("default/web"), "{seen:#}");
        snapshots.push(of["snapshot"].clone());

        // Objects that jane may not write, those that nobody may, unknown members and fields.
        let policy = json!({"apiVersion": "policy.atoll.dev/v1alpha1", "kind": "PropagationPolicy",
            "metadata": {"name": "web", "namespace": "default"}, "spec": {"resourceSelectors": []}});
        let (code, why) = plan(client, json!({"objects": [policy]})).await.unwrap_err();
        assert_eq!(code, 403, "{why}");
        assert!(why.contains("propagationpolicies default/web"), "{why}");
        let (code, why) = plan(client, json!({"assumed": {"drain": ["moon"]}})).await.unwrap_err();
        assert_eq!(code, 400, "{why}");
        assert!(why.contains("--drain moon: there is no member of that name"), "{why}");
        let (code, why) = plan(client, json!({"object": []})).await.unwrap_err();
        assert_eq!(code, 400, "{why}");
        assert!(why.contains("unknown field `object`"), "{why}");
        let large = "x".repeat(4 * 1024 * 1024);
        let (code, why) = plan(client, json!({"schedulerConfiguration": large})).await.unwrap_err();
        assert!([400, 413].contains(&code), "{code} {why}");
    }
    assert_eq!(snapshots[0], snapshots[1], "the leader plans for both");

    let rules =
        json!([rule, {"apiGroups": ["apps"], "resources": ["deployments"], "verbs": ["get"]}]);
    let params = PatchParams::default();
    let patch = Patch::Merge(json!({"rules": rules}));
    let roles: Api<ClusterRole> = Api::all(plane.hub.client.clone());
    roles.patch("jane", &params, &patch).await.unwrap();
    for client in &clients {
        let seen =
            planned(client, &without, |seen| seen["status"]["plan"]["hidden"].is_null()).await;
        let change = &seen["status"]["plan"]["changes"][0];
        assert_eq!(change["object"], "Deployment.apps default/web", "{seen:#}");
        assert_eq!(change["after"], json!([{"name": "member2", "replicas": 4}]), "{seen:#}");
    }
}

/// The plan, once it is one that `holds`: rights reach a controller after a while, and a plan may have to wait.
async fn planned(client: &Client, spec: &Value, holds: impl Fn(&Value) -> bool) -> Value {
    let attempts = async {
        loop {
            match plan(client, spec.clone()).await {
                Ok(seen) if holds(&seen) => return seen,
                Ok(_) => {}
                // 0: the listener is not there yet.
                Err((code, why)) => {
                    assert!([0, 401, 403, 429, 503].contains(&code), "{code}: {why}");
                }
            }
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(LIMIT, attempts).await.expect("a plan")
}
