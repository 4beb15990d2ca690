//! The agent makes only requests that its RBAC manifest allows.

use serde_json::{Value, json};

use crate::authorization::Request;
use crate::member::{config, config_path, deployment};
use crate::setup::Setup;

#[tokio::test(start_paused = true)]
async fn every_request_is_covered_by_the_rights_that_an_installation_gives() {
    let setup = Setup::new().await;
    let agent = setup.agent();
    let mut session = setup.hub.agreed(1).await;
    let web = session.apply(&deployment("web", "h1", 2)).await;
    let settings = session.apply(&config("fresh", "settings", "h1", "a")).await;
    let theirs = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "theirs", "namespace": "shop"},
    });
    setup.member.create(crate::member::SHOP, "kubectl-client-side-apply", theirs).await;
    let taken = session.upsert(&config("shop", "theirs", "h1", "a"), true).await;
    session.applied(&taken).await;
    setup.member.edit(&config_path("theirs"), "kubectl", json!({"data": {"key": "b"}})).await;
    session.applied(&taken).await;
    session.remove(&settings, "").await;
    session.applied(&settings).await;
    session.release(&web, "").await;
    session.applied(&web).await;
    agent.stop().await;
    let agent = setup.agent();
    setup.hub.agreed(1).await;
    agent.stop().await;

    let objects: Vec<Value> = serde_saphyr::from_multiple(atoll_agent::RBAC).unwrap();
    let rules = |kind: &'static str| {
        let of_kind = objects.iter().filter(move |object| object["kind"] == kind);
        of_kind.flat_map(|object| object["rules"].as_array().unwrap())
    };
    let requests = setup.member.requests();
    assert!(requests.len() > 20, "{requests:#?}");
    for line in &requests {
        let Some(asked) = Request::read(line) else { continue };
        let own = asked.namespace == "atoll-system";
        let allowed = rules("ClusterRole").any(|rule| asked.is_allowed(rule))
            || own && rules("Role").any(|rule| asked.is_allowed(rule));
        assert!(allowed, "{line}: {asked:?}");
    }
}
