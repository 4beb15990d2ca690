//! An object leaves a member only after an explicit order, agreement on the inventory, and with the right uid.

use atoll_protocol::v1::controller_message::Message;
use atoll_protocol::v1::{ApplyResult, Synced};
use serde_json::json;

use crate::hub::key_of;
use crate::member::{config, config_path, deployment, deployment_path, marked};
use crate::setup::Setup;

#[tokio::test(start_paused = true)]
async fn removals_wait_until_both_ends_agree() {
    let setup = Setup::new().await;
    let agent = setup.agent();
    let mut session = setup.hub.agreed(1).await;
    let key = session.apply(&config("shop", "settings", "h1", "a")).await;
    let kept = session.apply(&config("shop", "kept", "h1", "a")).await;
    session.end();

    // A new session: a remove, and an inventory that differs from the agent's.
    let mut session = setup.hub.session(1).await;
    session.take_inventory().await;
    assert_eq!(session.picture.len(), 2);
    session.remove(&key, "").await;
    session.say(Message::Synced(Synced { digest: b"another".to_vec() })).await;
    session.next_inventory().await;
    assert_eq!(session.picture.len(), 2, "it is still there");
    assert!(setup.member.get(&config_path("settings")).await.is_some());

    // The controller repeats the order, and now both agree.
    session.remove(&key, "").await;
    session.synced().await;
    assert_eq!(session.applied(&key).await.result(), ApplyResult::Removed);
    assert_eq!(setup.member.get(&config_path("settings")).await, None);
    assert!(setup.member.get(&config_path("kept")).await.is_some());

    // From then on a remove is carried out at once; also one of an object that is gone.
    session.remove(&kept, "").await;
    assert_eq!(session.applied(&kept).await.result(), ApplyResult::Removed);
    session.remove(&kept, "").await;
    assert_eq!(session.applied(&kept).await.result(), ApplyResult::Removed);
    agent.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_removal_that_was_held_dies_with_its_session() {
    let setup = Setup::new().await;
    let agent = setup.agent();
    let mut session = setup.hub.agreed(1).await;
    let key = session.apply(&config("shop", "settings", "h1", "a")).await;
    session.end();
    let mut session = setup.hub.session(1).await;
    session.take_inventory().await;
    session.remove(&key, "").await;
    session.end();
    // The next controller does not mention it, and agrees.
    let mut session = setup.hub.agreed(2).await;
    assert!(session.picture.contains_key(&key));
    session.apply(&config("shop", "other", "h1", "a")).await;
    assert!(setup.member.get(&config_path("settings")).await.is_some());
    agent.stop().await;
}

#[tokio::test(start_paused = true)]
async fn another_objects_uid_protects_it() {
    let setup = Setup::new().await;
    let agent = setup.agent();
    let mut session = setup.hub.agreed(1).await;
    let key = session.apply(&config("shop", "settings", "h1", "a")).await;
    session.remove(&key, "another").await;
    assert_eq!(session.applied(&key).await.result(), ApplyResult::NotOurs);
    assert!(setup.member.get(&config_path("settings")).await.is_some());

    // An unmanaged object under a name that Atoll never applied.
    let theirs = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "theirs", "namespace": "shop"},
    });
    setup.member.create(crate::member::SHOP, "admin", theirs.clone()).await;
    session.remove(&key_of(&theirs), "").await;
    assert_eq!(session.applied(&key_of(&theirs)).await.result(), ApplyResult::NotOurs);
    assert!(setup.member.get(&config_path("theirs")).await.is_some());
    agent.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_removal_waits_for_finalizers_before_it_is_confirmed() {
    let setup = Setup::new().await;
    let agent = setup.agent();
    let mut session = setup.hub.agreed(1).await;
    let key = session.apply(&config("shop", "settings", "h1", "a")).await;
    let path = config_path("settings");
    let held = json!({"metadata": {"finalizers": ["example.io/hold"]}});
    setup.member.edit(&path, "somebody", held).await;
    session.remove(&key, "").await;
    assert_eq!(session.applied(&key).await.result(), ApplyResult::Waiting);
    setup.member.edit(&path, "somebody", json!({"metadata": {"finalizers": null}})).await;
    assert_eq!(session.applied(&key).await.result(), ApplyResult::Removed);
    agent.stop().await;
}

#[tokio::test(start_paused = true)]
async fn an_object_that_is_being_removed_has_no_hash_in_the_next_inventory() {
    let setup = Setup::new().await;
    let agent = setup.agent();
    let mut session = setup.hub.agreed(1).await;
    let settings = config("shop", "settings", "h1", "a");
    let key = session.apply(&settings).await;
    let held = json!({"metadata": {"finalizers": ["example.io/hold"]}});
    setup.member.edit(&config_path("settings"), "somebody", held).await;
    session.remove(&key, "").await;
    assert_eq!(session.applied(&key).await.result(), ApplyResult::Waiting);
    session.end();

    let mut session = setup.hub.session(1).await;
    session.take_inventory().await;
    assert_eq!(session.picture[&key].0, "", "so a controller that wants it again sends it");
    session.upsert(&settings, false).await;
    let free = json!({"metadata": {"finalizers": null}});
    setup.member.edit(&config_path("settings"), "somebody", free).await;
    while session.applied(&key).await.result() != ApplyResult::Applied {}
    let object = setup.member.get(&config_path("settings")).await.unwrap();
    assert!(object["metadata"]["deletionTimestamp"].is_null(), "it is a new one");
    agent.stop().await;
}

#[tokio::test(start_paused = true)]
async fn namespaces_and_definitions_are_let_go_and_never_deleted() {
    let setup = Setup::new().await;
    let agent = setup.agent();
    let mut session = setup.hub.agreed(1).await;
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "team"}});
    let definition = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "things.x.io"},
        "spec": {
            "group": "x.io", "scope": "Namespaced",
            "names": {"kind": "Thing", "plural": "things", "singular": "thing", "listKind": "ThingList"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {
                "type": "object", "x-kubernetes-preserve-unknown-fields": true,
            }}}],
        },
    });
    let thing = json!({"apiVersion": "x.io/v1", "kind": "Thing", "metadata": {"name": "t", "namespace": "team"}});
    // Sent in the wrong order; the kind is created on the way.
    let mut keys = Vec::new();
    for object in [&thing, &namespace, &definition] {
        keys.push(session.upsert(&marked(object.clone(), "h1", "claim-1"), false).await);
    }
    let things = "/apis/x.io/v1/namespaces/team/things/t";
    setup.member.until("/api/v1/namespaces/team", |object| object.is_some()).await;
    let crd = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/things.x.io";
    setup.member.until(crd, |object| object.is_some()).await;
    setup.member.until(things, |object| object.is_some()).await;

    for key in &keys[1..] {
        session.remove(key, "").await;
        let applied = session
            .wait(|said| match said {
                atoll_protocol::v1::agent_message::Message::Applied(applied)
                    if applied.key.as_ref() == Some(key)
                        && applied.result() != ApplyResult::Applied =>
                {
                    Some(applied.clone())
                }
                _ => None,
            })
            .await;
        assert_eq!(applied.result(), ApplyResult::Released, "{applied:?}");
    }
    let team = setup.member.get("/api/v1/namespaces/team").await.unwrap();
    assert_eq!(team["metadata"]["deletionTimestamp"], json!(null));
    assert_eq!(team["metadata"]["labels"]["atoll.dev/managed-by"], json!(null));
    assert!(setup.member.get(crd).await.is_some() && setup.member.get(things).await.is_some());
    agent.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_released_object_stays_and_bears_no_trace_of_us() {
    let setup = Setup::new().await;
    let agent = setup.agent();
    let mut session = setup.hub.agreed(1).await;
    let key = session.apply(&deployment("web", "h1", 2)).await;
    session.release(&key, "").await;
    assert_eq!(session.applied(&key).await.result(), ApplyResult::Released);
    let web = setup.member.get(&deployment_path("web")).await.unwrap();
    assert_eq!(web["spec"]["replicas"], 2);
    let text = web["metadata"].to_string();
    assert!(!text.contains("atoll"), "{text}");
    // Drift of it is not reverted.
    setup.member.edit(&deployment_path("web"), "kubectl", json!({"spec": {"replicas": 5}})).await;
    session.apply(&config("shop", "other", "h1", "a")).await;
    assert_eq!(setup.member.get(&deployment_path("web")).await.unwrap()["spec"]["replicas"], 5);
    agent.stop().await;
}

#[tokio::test(start_paused = true)]
async fn an_unused_kind_leaves_the_index() {
    let setup = Setup::new().await;
    let agent = setup.agent();
    let mut session = setup.hub.agreed(1).await;
    session.apply(&deployment("web", "h1", 2)).await;
    let key = session.apply(&config("shop", "settings", "h1", "a")).await;
    session.remove(&key, "").await;
    session.applied(&key).await;
    let index = "/api/v1/namespaces/atoll-system/configmaps/atoll-inventory";
    let listed = |text: &'static str| {
        move |object: Option<&serde_json::Value>| {
            object.is_some_and(|object| object["data"]["group-kinds"] == text)
        }
    };
    setup.member.until(index, listed("Deployment.apps")).await;
    // It is followed again with its next object.
    let key = session.apply(&config("shop", "settings", "h2", "right")).await;
    setup.member.until(index, listed("ConfigMap,Deployment.apps")).await;
    let path = config_path("settings");
    setup.member.edit(&path, "kubectl-edit", json!({"data": {"key": "wrong"}})).await;
    assert_eq!(session.applied(&key).await.drift, 1);
    agent.stop().await;
}
