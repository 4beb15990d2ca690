//! The kind Widget: its definition, and the customization that tells its meaning.

use atoll_api::customization::ResourceInterpreterCustomization;
use kube::Api;
use kube::api::PostParams;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::builder;

/// Installs the kind.
pub(super) async fn install(client: &kube::Client) {
    builder::install(client, vec![read(definition())]).await;
}

/// Installs the kind and its customization.
pub(super) async fn install_on_hub(client: &kube::Client) {
    install(client).await;
    let customizations: Api<ResourceInterpreterCustomization> = Api::all(client.clone());
    let created = customizations.create(&PostParams::default(), &read(customization())).await;
    builder::must("create the customization of Widgets", created);
}

fn definition() -> Value {
    json!({
        "metadata": {"name": "widgets.example.com"},
        "spec": {
            "group": "example.com", "scope": "Namespaced",
            "names": {"plural": "widgets", "singular": "widget", "kind": "Widget"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {
                "type": "object",
                "properties": {"spec": {"type": "object", "properties": {"size": {"type": "integer"}}}},
            }}}],
        },
    })
}

/// Its replicas are in `spec.size`, and it is healthy as soon as it exists.
fn customization() -> Value {
    json!({
        "metadata": {"name": "widget"},
        "spec": {
            "target": {"apiVersion": "example.com/v1", "kind": "Widget"},
            "customizations": {
                "replicaResource": {"luaScript":
                    "function GetReplicas(object) return object.spec.size, {} end"},
                "replicaRevision": {"luaScript":
                    "function ReviseReplica(object, n) object.spec.size = n return object end"},
                "healthInterpretation": {"cel": "true"},
            },
        },
    })
}

fn read<T: DeserializeOwned>(object: Value) -> T {
    builder::must("read an object of the World", serde_json::from_value(object))
}
