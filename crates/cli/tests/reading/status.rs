//! `atoll status` on one screen: what needs attention comes first, and everything fits.

use atoll_api::ResourceBinding;
use atoll_api::binding::Trigger;
use kube::api::{Api, Patch, PatchParams};
use serde_json::{Value, json};

use crate::served::{Hub, decision};

fn member(name: &str, ready: &str) -> Value {
    json!({
        "apiVersion": "cluster.atoll.dev/v1alpha1", "kind": "Cluster", "metadata": {"name": name}, "spec": {},
        "status": {"conditions": [{
            "type": "Ready", "status": ready, "reason": if ready == "True" { "MemberReady" } else { "AgentSilent" },
            "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z",
        }]},
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn what_needs_attention_comes_first_and_fits_the_screen() {
    let hub = Hub::without_history().await;
    hub.install_crds().await;
    let nothing = hub.atoll("status", &[]).await.ok();
    assert_eq!(
        nothing.trim(),
        "No controller leads: nothing is decided. No members. No workloads."
    );
    for number in 1..=24 {
        hub.create_cluster(member(&format!("m{number:02}"), "True")).await;
    }
    hub.create_cluster(member("silent", "False")).await;
    let mut held = decision("0000eeee", Trigger::First, 100, &[("m01", 2), ("silent", 3)]);
    held.record.desired = 7;
    let pending = json!([{"replicas": 2, "reason": "Insufficient cpu"}]);
    held.record.pending = serde_json::from_value(pending).unwrap();
    hub.create_binding(&held).await;
    let bindings: Api<ResourceBinding> = Api::namespaced(hub.client(), "default");
    let status = json!({"status": {"aggregatedStatus": [{
        "clusterName": "m01", "applied": true, "health": "Unhealthy", "healthReason": "ImagePullBackOff",
        "healthMessage": format!("cannot pull image {}", "registry.example.com/".repeat(20)),
        "unhealthySince": "2026-01-01T00:00:00Z",
    }]}});
    let params = PatchParams::default();
    bindings.patch_status("nginx-deployment", &params, &Patch::Merge(&status)).await.unwrap();

    let text = hub.atoll("status", &[]).await.ok();
    assert!(text.contains("25 members, 24 ready. 1 workload: 1 failing."), "{text}");
    assert!(text.lines().all(|line| line.chars().count() <= 100), "{text}");
    let at = |part: &str| text.find(part).unwrap_or_else(|| panic!("{part}: {text}"));
    assert!(at("silent  NotReady") < at("m01     Ready"), "{text}");
    assert!(at("Failing") < at("Waiting") && text.contains("5 more members: --all"), "{text}");
    assert!(!text.contains("m24"), "{text}");
    assert!(hub.atoll("status", &["--all"]).await.ok().contains("m24"));

    let status = hub.atoll("status", &["-o", "json"]).await.json();
    assert_eq!(
        status["workloads"],
        json!({"all": 1, "failing": 1, "waiting": 0, "held": 0, "moving": 0})
    );
    let concerns = status["concerns"].as_array().unwrap();
    assert_eq!(concerns[0]["since"], "2026-01-01T00:00:00Z");
    assert_eq!(concerns[0]["workload"], "default/deployment/nginx");
    assert_eq!(concerns[1]["why"], "2 of 7: Insufficient cpu");
    let silent = status["members"].as_array().unwrap().iter().find(|m| m["name"] == "silent");
    assert_eq!(silent.unwrap()["replicas"], 3);
    assert!(status["leader"].is_null());
}
