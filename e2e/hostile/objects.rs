//! Which users can make the controller send which object to a member.

use atoll_api::conditions;
use atoll_protocol::v1;
use atoll_protocol::v1::agent_message::Message as Say;
use atoll_protocol::v1::controller_message::Message as Hear;
use k8s_openapi::api::core::v1::Namespace;
use kube::api::{Api, DynamicObject, PostParams};
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio::time::timeout;

use super::client::{Session, hello};
use super::target::Target;
use crate::support::federation::{bindings, objects};
use crate::support::wait::{LIMIT, follow, until};

/// A forged binding with a decision in it, by a namespace user with too many rights.
fn forged(name: &str, resource: Value) -> DynamicObject {
    let binding = json!({
        "apiVersion": "work.atoll.dev/v1alpha1", "kind": "ResourceBinding",
        "metadata": {"name": name},
        "spec": {
            "resource": resource,
            "clusters": [{"name": "member1", "replicas": 0}],
            "decision": {
                "id": "0123456789abcdef", "at": "2026-01-01T00:00:00Z", "term": 1,
                "trigger": "First", "mode": "Fresh", "outcome": "Placed", "profile": "default",
            },
        },
    });
    serde_json::from_value(binding).unwrap()
}

/// Kind and name of the next object sent to the member; earlier requests are answered as by a member without any
/// objects.
async fn next_upsert(session: &mut Session) -> (String, String) {
    loop {
        match session.next().await.unwrap() {
            Hear::Upsert(upsert) => {
                let key = upsert.key.unwrap();
                return (key.kind, key.name);
            }
            Hear::InventoryRequest(_) => {
                let last = v1::Inventory { last: true, ..v1::Inventory::default() };
                assert!(session.say(Say::Inventory(last)).await);
            }
            _ => {}
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_namespaced_binding_sends_no_object_of_another_namespace_to_a_member() {
    let target = Target::start().await;
    let member = target.join("member1").await;
    let mut session = Session::open(target.agents, &member.identity, hello(&member)).await.unwrap();
    assert!(matches!(session.next().await, Ok(Hear::Welcome(_))));

    let bound = bindings(&target.hub.client, "default");
    let (tell, mut told) = mpsc::unbounded_channel();
    follow(objects(&target.hub.client, "", "v1", "Event", "default"), move |event| {
        // The test has ended.
        let _ = tell.send(event);
    });
    let secret = json!({
        "apiVersion": "v1", "kind": "Secret", "namespace": "atoll-system", "name": "atoll-ca",
    });
    for name in ["atoll-ca-secret", "anything"] {
        bound.create(&PostParams::default(), &forged(name, secret.clone())).await.unwrap();
        until(&bound, name, "FullyApplied=False, BindingRefused", is_refused).await;
        let said = async {
            while let Some(event) = told.recv().await {
                let about = &event.data["involvedObject"]["name"];
                if event.data["reason"] == "BindingRefused" && about == name {
                    return;
                }
            }
        };
        timeout(LIMIT, said).await.unwrap_or_else(|_| panic!("no Event about {name}"));
    }

    only_settings_are_sent(&target, &mut session).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_binding_in_a_reserved_namespace_sends_nothing_to_a_member() {
    let target = Target::start_with(&["--reserved-namespaces", "infra"]).await;
    let member = target.join("member1").await;
    let mut session = Session::open(target.agents, &member.identity, hello(&member)).await.unwrap();
    assert!(matches!(session.next().await, Ok(Hear::Welcome(_))));
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "infra"}});
    let namespaces = Api::<Namespace>::all(target.hub.client.clone());
    let namespace = serde_json::from_value(namespace).unwrap();
    namespaces.create(&PostParams::default(), &namespace).await.unwrap();
    for namespace in ["kube-system", "infra"] {
        let settings = json!({
            "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "settings"},
        });
        let configs = objects(&target.hub.client, "", "v1", "ConfigMap", namespace);
        let settings = serde_json::from_value(settings).unwrap();
        configs.create(&PostParams::default(), &settings).await.unwrap();
        let resource = json!({
            "apiVersion": "v1", "kind": "ConfigMap", "namespace": namespace, "name": "settings",
        });
        let bound = bindings(&target.hub.client, namespace);
        let own = forged("settings-configmap", resource);
        bound.create(&PostParams::default(), &own).await.unwrap();
        until(&bound, "settings-configmap", "BindingRefused", is_refused).await;
    }
    only_settings_are_sent(&target, &mut session).await;
}

fn is_refused(binding: &Value) -> bool {
    let conditions = binding["status"]["conditions"].as_array();
    conditions.into_iter().flatten().any(|condition| {
        condition["type"] == conditions::FULLY_APPLIED
            && condition["status"] == "False"
            && condition["reason"] == "BindingRefused"
    })
}

/// A binding in the right place is processed, and nothing was sent before it.
async fn only_settings_are_sent(target: &Target, session: &mut Session) {
    let bound = bindings(&target.hub.client, "default");
    let settings = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "settings"}, "data": {"a": "b"},
    });
    let configs = objects(&target.hub.client, "", "v1", "ConfigMap", "default");
    let settings: DynamicObject = serde_json::from_value(settings).unwrap();
    configs.create(&PostParams::default(), &settings).await.unwrap();
    let resource = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "namespace": "default", "name": "settings",
    });
    let own = forged("settings-configmap", resource);
    bound.create(&PostParams::default(), &own).await.unwrap();
    loop {
        match next_upsert(session).await {
            (kind, name) if kind == "ConfigMap" => {
                assert_eq!(name, "settings");
                break;
            }
            (kind, name) => assert_eq!((&*kind, &*name), ("Namespace", "default")),
        }
    }
}
