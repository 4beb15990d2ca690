//! The index of kinds is missing or damaged: the agent still finds its objects, and reports kinds that it cannot list.

use atoll_protocol::v1::ApplyResult;
use atoll_protocol::v1::agent_message::Message as Say;
use serde_json::{Value, json};

use crate::hub::key_of;
use crate::member::{Fault, SHOP, config, config_path, deployment, deployment_path, marked};
use crate::setup::{Agent, Setup};

const INDEX: &str = "/api/v1/namespaces/atoll-system/configmaps/atoll-inventory";
/// Where objects of a kind are listed.
const DEPLOYMENTS: &str = "/apis/apps/v1/deployments";

/// A member that holds a Deployment and a ConfigMap, and whose agent has stopped.
async fn holding() -> (Setup, Value) {
    let setup = Setup::new().await;
    let agent = setup.agent();
    let mut session = setup.hub.agreed(1).await;
    session.apply(&deployment("web", "h1", 2)).await;
    session.apply(&config("shop", "settings", "h1", "a")).await;
    let index = setup.member.until(INDEX, names("ConfigMap,Deployment.apps")).await.unwrap();
    session.end();
    agent.stop().await;
    (setup, index["data"].clone())
}

fn names(kinds: &'static str) -> impl Fn(Option<&Value>) -> bool {
    move |index| index.is_some_and(|index| index["data"]["group-kinds"] == kinds)
}

async fn damage(setup: &Setup, data: Value) {
    setup.member.edit(INDEX, "somebody", json!({"data": data})).await;
}

/// Objects withdrawn meanwhile are found and removed, and the index is restored.
async fn recovers(setup: &Setup, agent: Agent, data: &Value) {
    let mut session = setup.hub.session(1).await;
    session.take_inventory().await;
    let held: Vec<_> = session.picture.keys().map(|key| key.name.as_str()).collect();
    assert_eq!(held, ["settings", "web"]);
    let key = key_of(&config("shop", "settings", "h1", "a"));
    session.remove(&key, "").await;
    session.synced().await;
    assert_eq!(session.applied(&key).await.result(), ApplyResult::Removed);
    assert_eq!(setup.member.get(&config_path("settings")).await, None);
    session.apply(&config("shop", "settings", "h1", "a")).await;
    setup.member.until(INDEX, |index| index.is_some_and(|index| index["data"] == *data)).await;
    session.end();
    agent.stop().await;
}

#[tokio::test(start_paused = true)]
async fn what_a_damaged_index_does_not_name_is_found() {
    let (setup, data) = holding().await;
    for damaged in [
        json!({"group-kinds": "ConfigMap"}),
        json!({"group-kinds": "", "namespaces": ""}),
        json!({"group-kinds": "\u{fffd}\u{1}", "namespaces": "\u{fffd}\u{1}"}),
        json!({"group-kinds": null, "namespaces": null, "checksum": null}),
        // As written by an agent without checksums.
        json!({"checksum": null}),
    ] {
        damage(&setup, damaged).await;
        recovers(&setup, setup.agent(), &data).await;
    }
}

#[tokio::test(start_paused = true)]
async fn what_an_index_named_that_is_gone_is_found() {
    let (setup, data) = holding().await;
    setup.member.delete(INDEX).await;
    recovers(&setup, setup.agent(), &data).await;
}

/// The index stays lost until all kinds were listed: an agent that dies before leaves no index that looks complete.
#[tokio::test(start_paused = true)]
async fn an_agent_that_dies_while_it_looks_is_followed_by_one_that_looks_again() {
    let (setup, data) = holding().await;
    damage(&setup, json!({"group-kinds": "ConfigMap"})).await;
    setup.member.set_fault(DEPLOYMENTS, Some(Fault::Hang));
    let damaged = setup.member.get(INDEX).await.unwrap()["data"].clone();
    let agent = setup.agent();
    let listed = || setup.member.requests().iter().any(|line| line.contains("/secrets?"));
    while !listed() {
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    }
    assert_eq!(setup.member.get(INDEX).await.unwrap()["data"], damaged);
    agent.kill().await;
    setup.member.set_fault(DEPLOYMENTS, None);
    recovers(&setup, setup.agent(), &data).await;
}

/// The first agent on a member has nothing to look for, and lists no kind that it does not need.
#[tokio::test(start_paused = true)]
async fn a_new_member_is_not_looked_through() {
    let setup = Setup::new().await;
    let agent = setup.agent();
    setup.hub.agreed(1).await;
    setup.member.until(INDEX, names("")).await;
    assert!(!setup.member.requests().iter().any(|line| line.contains("/secrets?")));
    agent.stop().await;
}

/// A kind that the agent may not list is reported and stays in the index, so that the inventory is not taken as
/// complete.
#[tokio::test(start_paused = true)]
async fn a_kind_that_may_not_be_listed_is_told_until_it_may() {
    let (setup, _) = holding().await;
    damage(&setup, json!({"group-kinds": ""})).await;
    setup.member.set_fault(DEPLOYMENTS, Some(Fault::Forbidden));
    let agent = setup.agent();
    let mut session = setup.hub.session(1).await;
    session.take_inventory().await;
    let held: Vec<_> = session.picture.keys().map(|key| key.name.as_str()).collect();
    assert_eq!(held, ["settings"]);
    session.synced().await;
    let facts = session.facts(|facts| !facts.unlisted_kinds.is_empty()).await;
    assert_eq!(facts.unlisted_kinds, ["Deployment.apps"]);
    // Everything listable was listed, and the index includes the unknown kind.
    setup.member.until(INDEX, names("ConfigMap,Deployment.apps")).await;
    session.end();
    agent.stop().await;

    // The next agent reports the same, until it gets the permission.
    let agent = setup.agent();
    let mut session = setup.hub.agreed(1).await;
    session.facts(|facts| facts.unlisted_kinds == ["Deployment.apps"]).await;
    setup.member.set_fault(DEPLOYMENTS, None);
    session.next_inventory().await;
    let held: Vec<_> = session.picture.keys().map(|key| key.name.as_str()).collect();
    assert_eq!(held, ["settings", "web"]);
    // Facts are sent before an inventory when both are ready.
    let told = session.heard.iter().rev().find_map(|said| match said {
        Say::Facts(facts) => Some(facts.unlisted_kinds.clone()),
        _ => None,
    });
    if told.is_none_or(|told| !told.is_empty()) {
        session.facts(|facts| facts.unlisted_kinds.is_empty()).await;
    }
    agent.stop().await;
}

/// Kubernetes copies labels from a Service to its EndpointSlices, and other controllers copy annotations too: marks
/// alone do not make an object ours.
#[tokio::test(start_paused = true)]
async fn what_bears_copied_marks_is_not_taken_for_ours() {
    let (setup, data) = holding().await;
    let copied = marked(
        json!({
            "apiVersion": "v1", "kind": "Secret",
            "metadata": {"name": "copied", "namespace": "shop"},
        }),
        "h1",
        "claim-1",
    );
    let secrets = SHOP.replace("configmaps", "secrets");
    setup.member.create(&secrets, "some-controller", copied).await;
    damage(&setup, json!({"group-kinds": "ConfigMap"})).await;
    recovers(&setup, setup.agent(), &data).await;
    assert!(setup.member.get(&format!("{secrets}/copied")).await.is_some());
    assert!(setup.member.get(&deployment_path("web")).await.is_some());
}
