//! Applying objects to the member.

use std::time::Duration;

use atoll_api::ReservedNamespaces;
use atoll_protocol::v1::ApplyResult;
use serde_json::{Value, json};

use crate::hub::key_of;
use crate::member::{Fault, config, config_path, deployment, deployment_path, marked, rendered};
use crate::setup::{Agent, Setup};

#[tokio::test(start_paused = true)]
async fn objects_are_applied_server_side_and_listed_in_the_index_first() {
    let setup = Setup::new().await;
    let agent = setup.agent();
    let mut session = setup.hub.agreed(1).await;
    session.apply(&deployment("web", "h1", 2)).await;
    // A missing namespace is created.
    session.apply(&config("fresh", "settings", "h1", "a")).await;

    let web = setup.member.get(&deployment_path("web")).await.unwrap();
    let managers = web["metadata"]["managedFields"].as_array().unwrap();
    assert_eq!(managers.len(), 1, "{managers:?}");
    assert_eq!(
        (&managers[0]["manager"], &managers[0]["operation"]),
        (&json!("atoll"), &json!("Apply"))
    );
    let fresh = setup.member.get("/api/v1/namespaces/fresh").await.unwrap();
    assert_eq!(fresh["metadata"]["labels"]["atoll.dev/managed-by"], json!(null));
    let index = "/api/v1/namespaces/atoll-system/configmaps/atoll-inventory";
    let index = setup.member.get(index).await.unwrap();
    assert_eq!(index["data"]["group-kinds"], "ConfigMap,Deployment.apps");
    assert_eq!(index["data"]["namespaces"], "fresh,shop");

    // The next version drops a field.
    let mut next = config("fresh", "settings", "h2", "b");
    next["data"].as_object_mut().unwrap().remove("other");
    session.apply(&next).await;
    let settings = setup.member.get("/api/v1/namespaces/fresh/configmaps/settings").await.unwrap();
    assert_eq!(settings["data"], json!({"key": "b"}));
    agent.stop().await;
}

#[tokio::test(start_paused = true)]
async fn nothing_is_applied_in_reserved_namespaces_or_of_atolls_own_kinds_whatever_the_controller_says()
 {
    let setup = Setup::new().await;
    let mut options = setup.options();
    options.reserved = ReservedNamespaces::with(["infra"]).unwrap();
    let agent = Agent::start(options);
    let mut session = setup.hub.agreed(1).await;
    let kept = session.apply(&config("shop", "kept", "h1", "a")).await;
    let namespace =
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "kube-public"}});
    let binding = json!({
        "apiVersion": "work.atoll.dev/v1alpha1", "kind": "ResourceBinding",
        "metadata": {"name": "web-deployment", "namespace": "shop"}, "spec": {},
    });
    let refused = [
        (config("kube-system", "settings", "h1", "a"), "ReservedNamespace"),
        (config("atoll-system", "atoll-inventory", "h1", "a"), "ReservedNamespace"),
        (config("infra", "settings", "h1", "a"), "ReservedNamespace"),
        (marked(namespace, "h1", "claim-1"), "ReservedNamespace"),
        (marked(binding, "h1", "claim-1"), "OwnKind"),
    ];
    for (manifest, reason) in refused {
        let key = session.upsert(&manifest, true).await;
        let applied = session.applied(&key).await;
        assert_eq!((applied.result(), &*applied.reason), (ApplyResult::Failed, reason), "{key:?}");
        assert!(applied.message.contains("appl"), "{}", applied.message);
    }
    for namespace in ["kube-system", "infra"] {
        let path = format!("/api/v1/namespaces/{namespace}/configmaps/settings");
        assert_eq!(setup.member.get(&path).await, None, "{path}");
    }
    let index = "/api/v1/namespaces/atoll-system/configmaps/atoll-inventory";
    assert_eq!(setup.member.get(index).await.unwrap()["data"]["namespaces"], "shop");

    // A rejected object blocks nothing else: both ends still agree on the rest.
    session.synced().await;
    session.remove(&kept, "").await;
    assert_eq!(session.applied(&kept).await.result(), ApplyResult::Removed);
    agent.stop().await;
}

#[tokio::test(start_paused = true)]
async fn somebody_elses_object_is_left_alone_or_taken_over_whole() {
    let setup = Setup::new().await;
    let theirs = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "settings", "namespace": "shop"},
        "data": {"key": "theirs", "extra": "theirs"},
    });
    let path = config_path("settings");
    let theirs =
        setup.member.create(crate::member::SHOP, "kubectl-client-side-apply", theirs).await;
    let agent = setup.agent();
    let mut session = setup.hub.agreed(1).await;
    let manifest = config("shop", "settings", "h1", "ours");
    let key = session.upsert(&manifest, false).await;
    let applied = session.applied(&key).await;
    assert_eq!(applied.result(), ApplyResult::Conflict);
    assert_eq!(applied.object_uid, theirs["metadata"]["uid"].as_str().unwrap());
    assert_eq!(setup.member.get(&path).await.unwrap(), theirs);

    session.upsert(&manifest, true).await;
    assert_eq!(session.applied(&key).await.result(), ApplyResult::Applied);
    let ours = setup.member.get(&path).await.unwrap();
    assert_eq!(ours["metadata"]["uid"], theirs["metadata"]["uid"]);
    assert_eq!(
        ours["data"],
        json!({"key": "ours", "other": "constant"}),
        "`extra` went with its owner"
    );
    agent.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_namespace_that_is_there_serves_as_it_is() {
    let setup = Setup::new().await;
    let agent = setup.agent();
    let mut session = setup.hub.agreed(1).await;
    let namespace = |name: &str| {
        let bare = json!({
            "apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": {"team": "a"}},
        });
        marked(bare, "h1", "")
    };
    for (name, team) in [("shop", json!(null)), ("fresh", json!("a"))] {
        let mut upsert = crate::hub::upsert(&namespace(name), false);
        upsert.if_absent = true;
        let key = upsert.key.clone().unwrap();
        session.say(atoll_protocol::v1::controller_message::Message::Upsert(upsert)).await;
        assert_eq!(session.applied(&key).await.result(), ApplyResult::Applied);
        let found = setup.member.get(&format!("/api/v1/namespaces/{name}")).await.unwrap();
        assert_eq!(found["metadata"]["labels"]["team"], team);
    }
    // It has no claims, so it is not part of the inventory, and changes by others are not reverted.
    session.take_inventory().await;
    assert!(session.picture.is_empty());
    agent.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_restart_with_equal_hashes_writes_nothing() {
    let setup = Setup::new().await;
    let agent = setup.agent();
    let mut session = setup.hub.agreed(1).await;
    let manifests =
        [rendered(deployment("web", "", 2)), rendered(config("shop", "settings", "", "a"))];
    for manifest in &manifests {
        session.apply(manifest).await;
    }
    session.take_inventory().await;
    let before = session.digest().to_vec();
    agent.kill().await;
    setup.member.writes();

    let agent = setup.agent();
    let mut session = setup.hub.session(1).await;
    assert_eq!(session.hello.inventory_digest, before, "nothing has to be said");
    // A controller without state sends all objects again.
    for manifest in &manifests {
        session.apply(manifest).await;
    }
    assert_eq!(setup.member.writes(), Vec::<String>::new());
    // The status of what is ordered again is repeated: the controller may not have taken in the first one.
    let key = session.apply(&manifests[0]).await;
    session.status(&key, |_| true).await;
    session.heard.clear();
    session.apply(&manifests[0]).await;
    let hash = &manifests[0]["metadata"]["annotations"]["atoll.dev/hash"];
    session.status(&key, |status| *hash == status.hash.as_str()).await;
    agent.stop().await;
}

#[tokio::test(start_paused = true)]
async fn drift_is_put_right_and_counted_with_and_without_a_session() {
    let setup = Setup::new().await;
    let agent = setup.agent();
    let mut session = setup.hub.agreed(1).await;
    let key = session.apply(&config("shop", "settings", "h1", "right")).await;
    let path = config_path("settings");
    let right = |object: Option<&Value>| object.is_some_and(|o| o["data"]["key"] == "right");

    setup.member.edit(&path, "kubectl-edit", json!({"data": {"key": "wrong"}})).await;
    let applied = session.applied(&key).await;
    assert_eq!((applied.result(), applied.drift), (ApplyResult::Applied, 1));
    assert!(right(setup.member.get(&path).await.as_ref()));

    setup.member.delete(&path).await;
    assert_eq!(session.applied(&key).await.drift, 2);
    assert!(right(setup.member.get(&path).await.as_ref()));

    // Fields that we do not apply belong to others.
    setup.member.edit(&path, "kubectl-edit", json!({"data": {"theirs": "x"}})).await;
    // Removing the label hides the object from the watch; it is still the one that we applied.
    let label = json!({"metadata": {"labels": {"atoll.dev/managed-by": null}}});
    setup.member.edit(&path, "kubectl-label", label).await;
    assert_eq!(session.applied(&key).await.drift, 3);
    let object = setup.member.get(&path).await.unwrap();
    assert_eq!(object["data"]["theirs"], "x");

    // Without a session, and after a restart without a new order from the controller.
    agent.kill().await;
    session.end();
    setup.hub.refuse(Some(tonic::Status::unavailable("not leader")));
    let agent = setup.agent();
    setup.member.edit(&path, "kubectl-edit", json!({"data": {"key": "wrong"}})).await;
    setup.member.until(&path, right).await;
    agent.stop().await;
}

#[tokio::test(start_paused = true)]
async fn drift_is_put_right_whose_event_comes_before_the_answer_to_the_apply() {
    let setup = Setup::new().await;
    let agent = setup.agent();
    let mut session = setup.hub.agreed(1).await;
    // A kind is watched from its first object on.
    session.apply(&config("shop", "first", "h1", "a")).await;
    let path = config_path("settings");
    let has = |value: &'static str| {
        move |object: Option<&Value>| object.is_some_and(|o| o["data"]["key"] == value)
    };

    setup.member.set_fault("settings", Some(Fault::LateAnswer));
    let key = session.upsert(&config("shop", "settings", "h1", "right"), true).await;
    setup.member.until(&path, has("right")).await;
    setup.member.delete(&path).await;
    setup.member.set_fault("settings", None);
    let applied = session.applied(&key).await;
    assert_eq!((applied.result(), applied.drift), (ApplyResult::Applied, 1));
    assert!(has("right")(setup.member.get(&path).await.as_ref()));

    setup.member.set_fault("settings", Some(Fault::LateAnswer));
    session.upsert(&config("shop", "settings", "h2", "better"), true).await;
    setup.member.until(&path, has("better")).await;
    setup.member.edit(&path, "kubectl-edit", json!({"data": {"key": "wrong"}})).await;
    setup.member.set_fault("settings", None);
    let applied = session.applied(&key).await;
    assert_eq!((applied.result(), applied.drift), (ApplyResult::Applied, 2));
    assert!(has("better")(setup.member.get(&path).await.as_ref()));
    agent.stop().await;
}

/// An agent applies a manifest and dies; somebody edits the object, and another agent starts.
async fn edited_meanwhile(setup: &Setup, manifest: &Value, path: &str, edit: Value) -> Agent {
    let agent = setup.agent();
    setup.hub.agreed(1).await.apply(manifest).await;
    agent.kill().await;
    // Times of managed fields have whole seconds.
    tokio::time::advance(Duration::from_secs(5)).await;
    setup.member.edit(path, "kubectl-edit", edit).await;
    setup.agent()
}

#[tokio::test(start_paused = true)]
async fn what_was_edited_while_the_agent_was_away_is_asked_for_again() {
    let setup = Setup::new().await;
    let (manifest, path) = (config("shop", "settings", "h1", "right"), config_path("settings"));
    let edit = json!({"data": {"key": "wrong"}});
    let agent = edited_meanwhile(&setup, &manifest, &path, edit).await;
    let mut session = setup.hub.session(1).await;
    session.take_inventory().await;
    let held = session.picture[&key_of(&manifest)].0.clone();
    assert_eq!(held, "", "held under no hash, so that the controller sends it");
    session.apply(&manifest).await;
    assert_eq!(setup.member.get(&path).await.unwrap()["data"]["key"], "right");
    agent.stop().await;
}

/// Seed 1000001002 of the random histories.
#[tokio::test(start_paused = true)]
async fn what_was_edited_while_the_agent_was_away_is_asked_for_after_other_changes_too() {
    let setup = Setup::new().await;
    let (manifest, path) = (deployment("web", "h1", 2), deployment_path("web"));
    let edit = json!({"spec": {"minReadySeconds": 7}});
    let agent = edited_meanwhile(&setup, &manifest, &path, edit).await;
    let mut session = setup.hub.session(1).await;
    let rolled_out = json!({"metadata": {"annotations": {"example.io/seen": "yes"}}});
    let now =
        setup.member.edit(&path, "example", rolled_out).await["metadata"]["generation"].clone();
    session.status(&key_of(&manifest), |status| now == status.generation).await;
    session.take_inventory().await;
    assert_eq!(session.picture[&key_of(&manifest)].0, "");
    agent.stop().await;
}

/// `managedFields` have no trace of a removed field, and no time of its removal.
#[tokio::test(start_paused = true)]
async fn a_field_that_was_removed_while_the_agent_was_stopped_is_put_back() {
    let setup = Setup::new().await;
    let (manifest, path) =
        (rendered(config("shop", "settings", "", "right")), config_path("settings"));
    let agent = edited_meanwhile(&setup, &manifest, &path, json!({"data": {"key": null}})).await;
    assert!(setup.member.get(&path).await.unwrap()["data"].get("key").is_none());
    let mut session = setup.hub.session(1).await;
    session.take_inventory().await;
    assert_eq!(session.picture[&key_of(&manifest)].0, "");
    session.apply(&manifest).await;
    assert_eq!(setup.member.get(&path).await.unwrap()["data"]["key"], "right");
    agent.stop().await;
}

#[tokio::test(start_paused = true)]
async fn fields_that_others_add_while_the_agent_is_stopped_are_no_reason_to_ask_for_an_object() {
    let setup = Setup::new().await;
    let (manifest, path) = (rendered(deployment("web", "", 2)), deployment_path("web"));
    let theirs = json!({"metadata": {"annotations": {"example.io/seen": "yes"}}, "spec": {"minReadySeconds": 7}});
    let agent = edited_meanwhile(&setup, &manifest, &path, theirs).await;
    let mut session = setup.hub.session(1).await;
    session.take_inventory().await;
    let hash = &manifest["metadata"]["annotations"]["atoll.dev/hash"];
    assert_eq!(session.picture[&key_of(&manifest)].0.as_str(), hash);
    agent.stop().await;
}

/// A controller that is restored from a backup drops the first report on an object that it does not know, and orders the
/// object when it is created again.
#[tokio::test(start_paused = true)]
async fn the_status_of_an_object_that_is_found_as_ordered_is_repeated() {
    let setup = Setup::new().await;
    let (manifest, path) = (config("shop", "settings", "h1", "right"), config_path("settings"));
    let edit = json!({"data": {"theirs": "x"}});
    let agent = edited_meanwhile(&setup, &manifest, &path, edit).await;
    let mut session = setup.hub.agreed(1).await;
    session.drain().await;
    let before = setup.member.get(&path).await;
    session.apply(&manifest).await;
    session.status(&key_of(&manifest), |status| status.hash == "h1").await;
    assert_eq!(setup.member.get(&path).await, before, "nothing of ours was changed");
    agent.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_poison_object_is_reported_and_holds_nothing_else_up() {
    let setup = Setup::new().await;
    let agent = setup.agent();
    let mut session = setup.hub.agreed(1).await;
    // One is invalid, one never gets an answer, one is of a kind that is not served, one is rejected by a webhook, and
    // one is terminating and never ends.
    let mut invalid = deployment("invalid", "h1", 1);
    invalid["spec"]["template"]["metadata"]["labels"]["app"] = json!("other");
    let unknown = marked(
        json!({"apiVersion": "x.io/v1", "kind": "Thing", "metadata": {"name": "t", "namespace": "shop"}}),
        "h1",
        "claim-1",
    );
    setup.member.set_fault("configmaps/hangs", Some(Fault::Hang));
    setup.member.set_fault("configmaps/denied", Some(Fault::Denied));
    let stuck = session.apply(&config("shop", "stuck", "h1", "a")).await;
    let held = json!({"metadata": {"finalizers": ["example.io/hold"]}});
    setup.member.edit(&config_path("stuck"), "somebody", held).await;
    setup.member.delete(&config_path("stuck")).await;
    session.upsert(&config("shop", "stuck", "h2", "b"), false).await;
    let denied = session.upsert(&config("shop", "denied", "h1", "a"), false).await;
    let invalid = session.upsert(&invalid, false).await;
    let unknown = session.upsert(&unknown, false).await;
    let hangs = session.upsert(&config("shop", "hangs", "h1", "a"), false).await;
    let started = tokio::time::Instant::now();
    for n in 0..40 {
        session.upsert(&deployment(&format!("web-{n}"), "h1", 1), false).await;
    }
    for n in 0..40 {
        let path = deployment_path(&format!("web-{n}"));
        setup.member.until(&path, |object| object.is_some()).await;
    }
    assert!(started.elapsed().as_secs() < 8, "{:?}", started.elapsed());

    // Each reason is reported under its own key.
    let mut reasons = std::collections::BTreeMap::new();
    while reasons.len() < 5 {
        let (key, reason) = session
            .wait(|said| match said {
                atoll_protocol::v1::agent_message::Message::Applied(applied)
                    if matches!(applied.result(), ApplyResult::Failed | ApplyResult::Waiting) =>
                {
                    Some((applied.key.clone().unwrap(), applied.reason.clone()))
                }
                _ => None,
            })
            .await;
        reasons.insert(key, reason);
    }
    assert_eq!(reasons[&invalid], "Invalid");
    assert_eq!(reasons[&unknown], "KindNotServed");
    assert_eq!(reasons[&hangs], "Timeout");
    assert_eq!(reasons[&denied], "AdmissionDenied");
    assert_eq!(reasons[&stuck], "Terminating");

    // The agent retries until it works.
    setup.member.set_fault("configmaps/hangs", None);
    assert_eq!(session.applied(&hangs).await.result(), ApplyResult::Applied);
    agent.stop().await;
}

#[tokio::test(start_paused = true)]
async fn an_object_that_is_going_away_is_waited_for() {
    let setup = Setup::new().await;
    let agent = setup.agent();
    let mut session = setup.hub.agreed(1).await;
    let key = session.apply(&config("shop", "settings", "h1", "a")).await;
    let path = config_path("settings");
    let held = json!({"metadata": {"finalizers": ["example.io/hold"]}});
    let old = setup.member.edit(&path, "somebody", held).await;
    setup.member.delete(&path).await;
    session.upsert(&config("shop", "settings", "h2", "b"), false).await;
    let applied = session.applied(&key).await;
    assert_eq!((applied.result(), applied.reason.as_str()), (ApplyResult::Waiting, "Terminating"));

    setup.member.edit(&path, "somebody", json!({"metadata": {"finalizers": null}})).await;
    let mut applied = session.applied(&key).await;
    while applied.result() == ApplyResult::Waiting {
        applied = session.applied(&key).await;
    }
    assert_eq!((applied.result(), applied.hash.as_str()), (ApplyResult::Applied, "h2"));
    assert_ne!(applied.object_uid, old["metadata"]["uid"].as_str().unwrap());
    assert_eq!(setup.member.get(&path).await.unwrap()["data"]["key"], "b");
    agent.stop().await;
}

#[tokio::test(start_paused = true)]
async fn an_immutable_field_is_reported_and_never_answered_with_delete() {
    let setup = Setup::new().await;
    let agent = setup.agent();
    let mut session = setup.hub.agreed(1).await;
    let mut manifest = config("shop", "settings", "h1", "a");
    manifest["immutable"] = json!(true);
    let key = session.apply(&manifest).await;
    let uid = setup.member.get(&config_path("settings")).await.unwrap()["metadata"]["uid"].clone();
    let mut next = config("shop", "settings", "h2", "b");
    next["immutable"] = json!(true);
    session.upsert(&next, false).await;
    let applied = session.applied(&key).await;
    assert_eq!(applied.result(), ApplyResult::Failed);
    assert_eq!(applied.reason, "ImmutableField", "{}", applied.message);
    let object = setup.member.get(&config_path("settings")).await.unwrap();
    assert_eq!((&object["data"]["key"], &object["metadata"]["uid"]), (&json!("a"), &uid));
    agent.stop().await;
}

#[tokio::test(start_paused = true)]
async fn replicas_belong_to_an_autoscaler_once_it_took_them() {
    let setup = Setup::new().await;
    let agent = setup.agent();
    let mut session = setup.hub.agreed(1).await;
    let key = session.apply(&deployment("web", "h1", 2)).await;
    let path = deployment_path("web");
    let scale = format!("{path}/scale");

    // Scaling by a person is drift.
    setup.member.edit(&scale, "kubectl", json!({"spec": {"replicas": 7}})).await;
    assert_eq!(session.applied(&key).await.drift, 1);
    assert_eq!(setup.member.get(&path).await.unwrap()["spec"]["replicas"], 2);

    let autoscaler = json!({
        "apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": "web", "namespace": "shop"},
        "spec": {
            "maxReplicas": 10,
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
        },
    });
    let autoscalers = "/apis/autoscaling/v2/namespaces/shop/horizontalpodautoscalers";
    setup.member.create(autoscalers, "admin", autoscaler).await;
    setup.member.edit(&scale, "kube-controller-manager", json!({"spec": {"replicas": 5}})).await;
    // It is not drift, and the next version keeps the count.
    let mut next = deployment("web", "h2", 3);
    next["spec"]["template"]["spec"]["containers"][0]["image"] = json!("nginx:2");
    session.upsert(&next, false).await;
    let applied = session
        .wait(|said| match said {
            atoll_protocol::v1::agent_message::Message::Applied(applied)
                if applied.hash == "h2" =>
            {
                Some(applied.clone())
            }
            _ => None,
        })
        .await;
    assert_eq!((applied.result(), applied.drift), (ApplyResult::Applied, 1));
    let web = setup.member.get(&path).await.unwrap();
    assert_eq!(web["spec"]["replicas"], 5);
    assert_eq!(web["spec"]["template"]["spec"]["containers"][0]["image"], "nginx:2");
    agent.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_manifest_with_another_identity_than_its_key_is_refused() {
    let setup = Setup::new().await;
    let agent = setup.agent();
    let mut session = setup.hub.agreed(1).await;
    let mut upsert = crate::hub::upsert(&config("kube-system", "stolen", "h1", "a"), false);
    upsert.key = Some(crate::hub::key_of(&config("shop", "settings", "h1", "a")));
    let key = upsert.key.clone().unwrap();
    session.say(atoll_protocol::v1::controller_message::Message::Upsert(upsert)).await;
    let applied = session.applied(&key).await;
    assert_eq!((applied.result(), applied.reason.as_str()), (ApplyResult::Failed, "InvalidKey"));
    assert_eq!(setup.member.get("/api/v1/namespaces/kube-system/configmaps/stolen").await, None);
    agent.stop().await;
}
