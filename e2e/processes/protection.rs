//! Objects that users protect from deletion on the hub: by the manifest on a real API server, by the embedded server itself.

use std::time::Instant;

use kube::api::{DeleteParams, Patch, PatchParams};
use serde_json::json;

use crate::support::cli::root;
use crate::support::federation::objects;
use crate::support::servers::ApiServer;
use crate::support::wait::{LIMIT, until_gone};

const LABEL: &str = "resourcetemplate.atoll.dev/deletion-protected";

#[tokio::test(flavor = "multi_thread")]
async fn an_object_with_the_label_is_deleted_only_after_the_label_was_removed() {
    let folder = tempfile::tempdir().unwrap();
    let hub = ApiServer::hub(folder.path()).await;
    if atoll_envtest::assets().is_some() {
        let manifest = root().join("deploy/controller/deletion-protection.yaml");
        hub.apply(&std::fs::read_to_string(manifest).unwrap()).await;
    }
    let configs = objects(&hub.client, "", "v1", "ConfigMap", "default");
    let config = |value: &str| {
        json!({
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": "kept", "namespace": "default", "labels": {LABEL: value}},
        })
        .to_string()
    };
    let delete = DeleteParams::default();
    let started = Instant::now();
    // A real API server enforces a new policy within seconds.
    let refused = loop {
        hub.apply(&config("Always")).await;
        match configs.delete("kept", &delete).await {
            Err(error) => break error.to_string(),
            Ok(_) => assert!(started.elapsed() < LIMIT, "a protected object was deleted"),
        }
    };
    assert!(refused.contains("first remove the label"), "{refused}");
    let params = PatchParams::default();
    let without = Patch::Merge(json!({"metadata": {"labels": {LABEL: null}}}));
    configs.patch("kept", &params, &without).await.unwrap();
    configs.delete("kept", &delete).await.unwrap();
    until_gone(&configs, "kept").await;
    hub.apply(&config("Never")).await;
    configs.delete("kept", &delete).await.unwrap();
}
