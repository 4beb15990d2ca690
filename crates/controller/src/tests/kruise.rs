//! WorkloadSpreads as they are written for OpenKruise: only the group changes.

use kube::api::{DynamicObject, Patch, PatchParams, ValidationDirective};
use serde_json::{Value, json};

use super::harness::{DEPLOYMENT, Federation};

const SPREAD: (&str, &str) = ("policy.atoll.dev/v1alpha1", "WorkloadSpread");
const ZONE: &str = "topology.kubernetes.io/zone";

fn zone(name: &str) -> Value {
    json!({"matchExpressions": [{"key": ZONE, "operator": "In", "values": [name]}]})
}

/// The situations that OpenKruise's documentation describes: fixed numbers per zone, percentages, an elastic subset
/// behind a fixed one, preferences, tolerations, and patches of pods.
fn manifests() -> Vec<(&'static str, Value)> {
    let elastic = json!({"key": "type", "operator": "In", "values": ["virtual-kubelet"]});
    vec![
        (
            "numbers per zone",
            json!({"subsets": [
                {"name": "zone-a", "requiredNodeSelectorTerm": zone("a"), "maxReplicas": 2},
                {"name": "zone-b", "requiredNodeSelectorTerm": zone("b")},
            ]}),
        ),
        (
            "percentages, the rest anywhere",
            json!({"subsets": [
                {"name": "zone-a", "requiredNodeSelectorTerm": zone("a"), "maxReplicas": "40%"},
                {"name": "zone-b", "requiredNodeSelectorTerm": zone("b"), "maxReplicas": "60%"},
            ], "scheduleStrategy": {"type": "Fixed"}}),
        ),
        (
            "own nodes first, then elastic ones",
            json!({"subsets": [
                {
                    "name": "own",
                    "requiredNodeSelectorTerm": {"matchExpressions": [
                        {"key": "type", "operator": "NotIn", "values": ["virtual-kubelet"]},
                    ]},
                    "maxReplicas": 3,
                    "patch": {"metadata": {"labels": {"subset": "own"}}},
                },
                {
                    "name": "elastic",
                    "requiredNodeSelectorTerm": {"matchExpressions": [elastic]},
                    "tolerations": [
                        {"key": "virtual-kubelet.io/provider", "operator": "Exists", "effect": "NoSchedule"},
                    ],
                },
            ], "scheduleStrategy": {"type": "Adaptive", "adaptive": {"rescheduleCriticalSeconds": 30}}}),
        ),
        (
            "preferences and a patch of resources",
            json!({"subsets": [{
                "name": "all",
                "preferredNodeSelectorTerms": [{"weight": 1, "preference": zone("a")}],
                "patch": {"spec": {"containers": [
                    {"name": "c", "resources": {"limits": {"cpu": "2", "memory": "800Mi"}}},
                ]}},
            }]}),
        ),
    ]
}

#[tokio::test(start_paused = true)]
async fn manifests_of_openkruise_are_accepted_and_in_force_after_a_change_of_group() {
    for (what, mut spec) in manifests() {
        let federation = Federation::start().await;
        federation.hub.deployment("web", 5).await;
        spec["targetRef"] =
            json!({"apiVersion": DEPLOYMENT.0, "kind": DEPLOYMENT.1, "name": "web"});
        let theirs = json!({
            "apiVersion": "apps.kruise.io/v1alpha1", "kind": SPREAD.1,
            "metadata": {"name": "web"}, "spec": spec,
        });
        let text = theirs.to_string().replace("apps.kruise.io/v1alpha1", SPREAD.0);
        let ours: DynamicObject = serde_json::from_str(&text).unwrap();
        let (api, _) = federation.hub.api(SPREAD.0, SPREAD.1, Some("shop")).await;
        let strict = PatchParams {
            field_validation: Some(ValidationDirective::Strict),
            ..PatchParams::apply("user")
        };
        let applied = api.patch("web", &strict, &Patch::Apply(&ours)).await;
        assert!(applied.is_ok(), "{what}: {applied:?}");
        federation.until(SPREAD, "web", "/status/conditions/0/status", json!("True")).await;
        federation.until(SPREAD, "web", "/status/subsets/0/name", spec_name(&ours)).await;
        let replicas: i64 = federation.members.replicas().values().sum();
        assert_eq!(replicas, 5, "{what}");
    }
}

fn spec_name(spread: &DynamicObject) -> Value {
    spread.data["spec"]["subsets"][0]["name"].clone()
}
