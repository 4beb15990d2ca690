//! Server-side apply through HTTP; the merging itself is tested in `atoll-merge`.

use kube::{
    Api as KubeApi,
    api::{DynamicObject, Patch, PatchParams},
    core::{ApiResource, GroupVersionKind},
};
use serde_json::{Value, json};

use crate::common::{Api, CONFIG_MAPS, DEPLOYMENTS, config_map, deployment, version};

fn managers(object: &Value) -> Vec<String> {
    let list = object["metadata"]["managedFields"].as_array().unwrap();
    list.iter()
        .map(|e| {
            let text = |f: &str| e[f].as_str().unwrap_or("").to_owned();
            format!("{} {} {}", text("manager"), text("operation"), text("subresource"))
                .trim_end()
                .to_owned()
        })
        .collect()
}

#[tokio::test]
async fn apply_creates_then_changes_nothing_when_nothing_changed() {
    let api = Api::new();
    let path = format!("{DEPLOYMENTS}/d?fieldManager=me");
    let first = api.apply(&path, &deployment("d", 2)).await;
    assert_eq!(first.code, 201);
    let first = first.ok();
    assert_eq!(managers(&first), ["me Apply"]);
    // No manager owns defaults.
    let owned = &first["metadata"]["managedFields"][0]["fieldsV1"]["f:spec"];
    assert!(owned.get("f:replicas").is_some() && owned.get("f:strategy").is_none());
    api.pass(100);
    let again = api.apply(&path, &deployment("d", 2)).await;
    assert_eq!((again.code, version(&again.body)), (200, version(&first)));
}

#[tokio::test]
async fn apply_conflicts_are_409_with_a_cause_for_each_field_and_force_takes_over() {
    let api = Api::new();
    api.apply(&format!("{DEPLOYMENTS}/d?fieldManager=one"), &deployment("d", 2)).await.ok();
    let other = format!("{DEPLOYMENTS}/d?fieldManager=two");
    let answer = api.apply(&other, &deployment("d", 3)).await;
    assert!(answer.refused(409, "Conflict").contains("conflict with \"one\""));
    let cause = &answer.body["details"]["causes"][0];
    assert_eq!(
        (&cause["reason"], &cause["field"]),
        (&json!("FieldManagerConflict"), &json!(".spec.replicas"))
    );
    let forced = api.apply(&format!("{other}&force=true"), &deployment("d", 3)).await.ok();
    assert_eq!((&forced["spec"]["replicas"], managers(&forced).len()), (&json!(3), 2));
}

#[tokio::test]
async fn apply_removes_what_the_manager_no_longer_applies() {
    let api = Api::new();
    let path = format!("{CONFIG_MAPS}/a?fieldManager=me");
    let mut both = config_map("a");
    both["data"] = json!({"x": "1", "y": "2"});
    api.apply(&path, &both).await.ok();
    api.merge(&format!("{CONFIG_MAPS}/a"), &json!({"data": {"z": "3"}})).await.ok();
    let mut one = config_map("a");
    one["data"] = json!({"x": "1"});
    assert_eq!(api.apply(&path, &one).await.ok()["data"], json!({"x": "1", "z": "3"}));
}

#[tokio::test]
async fn status_is_applied_through_its_subresource_under_its_own_entry() {
    let api = Api::new();
    let path = format!("{DEPLOYMENTS}/d");
    let mut applied = deployment("d", 2);
    applied["status"] = json!({"replicas": 9});
    let made = api.apply(&format!("{path}?fieldManager=me"), &applied).await.ok();
    assert_eq!(made["status"], json!({}));
    let status = json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d"},
        "spec": {"replicas": 7}, "status": {"replicas": 2}});
    let made = api.apply(&format!("{path}/status?fieldManager=me"), &status).await.ok();
    assert_eq!((&made["status"]["replicas"], &made["spec"]["replicas"]), (&json!(2), &json!(2)));
    assert_eq!(managers(&made), ["me Apply", "me Apply status"]);
    let missing = format!("{DEPLOYMENTS}/none/status?fieldManager=me");
    api.apply(&missing, &json!({"apiVersion": "apps/v1", "kind": "Deployment", "status": {}}))
        .await
        .refused(404, "NotFound");
}

#[tokio::test]
async fn apply_checks_its_preconditions_and_parameters() {
    let api = Api::new();
    let path = format!("{CONFIG_MAPS}/a?fieldManager=me");
    api.apply(&format!("{CONFIG_MAPS}/a"), &config_map("a")).await.refused(422, "Invalid");
    api.apply(&path, &config_map("b")).await.refused(400, "BadRequest");
    api.apply(&path, &json!({"data": {}})).await.refused(400, "BadRequest");
    let mut managed = config_map("a");
    managed["metadata"]["managedFields"] = json!([]);
    api.apply(&path, &managed).await.refused(400, "BadRequest");
    // resourceVersion "0" means create only.
    let mut create_only = config_map("a");
    create_only["metadata"]["resourceVersion"] = "0".into();
    let made = api.apply(&path, &create_only).await;
    assert_eq!(made.code, 201, "{made:?}");
    api.apply(&path, &create_only).await.refused(409, "Conflict");
    let mut stale = config_map("a");
    stale["metadata"]["resourceVersion"] = "1".into();
    api.apply(&path, &stale).await.refused(409, "Conflict");
    let mut other_uid = config_map("none");
    other_uid["metadata"]["uid"] = "x".into();
    let missing = format!("{CONFIG_MAPS}/none?fieldManager=me");
    api.apply(&missing, &other_uid).await.refused(409, "Conflict");
}

#[tokio::test]
async fn updates_own_what_they_change_under_the_user_agents_name() {
    let api = Api::new();
    api.apply(&format!("{DEPLOYMENTS}/d?fieldManager=me"), &deployment("d", 2)).await.ok();
    let agent =
        [("content-type", "application/merge-patch+json"), ("user-agent", "scaler/v1 (linux)")];
    let body = json!({"spec": {"replicas": 5}}).to_string();
    let path = format!("{DEPLOYMENTS}/d");
    let made = api.send(http::Method::PATCH, &path, &agent, body).await.ok();
    assert_eq!(managers(&made), ["me Apply", "scaler Update"]);
    let scale = format!("{path}/scale?fieldManager=hpa");
    api.merge(&scale, &json!({"spec": {"replicas": 6}})).await.ok();
    assert_eq!(managers(&api.get(&path).await.ok()), ["me Apply", "hpa Update scale"]);
}

#[tokio::test]
async fn a_kube_client_applies_dynamic_objects() {
    let api = Api::new();
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk("apps", "v1", "Deployment"));
    let deployments: KubeApi<DynamicObject> =
        KubeApi::default_namespaced_with(api.server.client(), &resource);
    let parameters = PatchParams::apply("atoll").force();
    let made =
        deployments.patch("d", &parameters, &Patch::Apply(deployment("d", 2))).await.unwrap();
    assert_eq!(made.data["spec"]["replicas"], 2);
    let same =
        deployments.patch("d", &parameters, &Patch::Apply(deployment("d", 2))).await.unwrap();
    assert_eq!(same.metadata.resource_version, made.metadata.resource_version);
}
