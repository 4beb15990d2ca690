//! Rules of users on the agent: health, status and retained fields of custom kinds.

use std::time::Duration;

use atoll_api::hex;
use atoll_protocol::v1::agent_message::Message as Said;
use atoll_protocol::v1::controller_message::Message;
use atoll_protocol::v1::{self, ApplyResult, Health, RuleOperation};
use serde_json::{Value, json};

use crate::hub::{Session, key_of};
use crate::member::{config, config_path, marked};
use crate::setup::Setup;

const CRDS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const ENDLESS: &str = "while true do end";

fn path(name: &str) -> String {
    format!("/apis/apps.example.io/v1/namespaces/shop/webapps/{name}")
}

/// A member with the custom kind.
async fn setup() -> Setup {
    let setup = Setup::new().await;
    let definition = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "webapps.apps.example.io"},
        "spec": {
            "group": "apps.example.io", "scope": "Namespaced",
            "names": {"plural": "webapps", "singular": "webapp", "kind": "WebApp"},
            "versions": [{
                "name": "v1", "served": true, "storage": true, "subresources": {"status": {}},
                "schema": {"openAPIV3Schema": {
                    "type": "object", "x-kubernetes-preserve-unknown-fields": true,
                }},
            }],
        },
    });
    setup.member.create(CRDS, "admin", definition).await;
    let served = |crd: Option<&Value>| {
        let conditions = crd.map(|crd| crd["status"]["conditions"].clone()).unwrap_or_default();
        let mut conditions = conditions.as_array().into_iter().flatten();
        conditions.any(|condition| condition["type"] == "Established")
    };
    setup.member.until(&format!("{CRDS}/webapps.apps.example.io"), served).await;
    setup
}

fn web_app(name: &str, hash: &str, size: i64) -> Value {
    let app = json!({
        "apiVersion": "apps.example.io/v1", "kind": "WebApp",
        "metadata": {"name": name, "namespace": "shop"},
        "spec": {"size": size, "window": "from the hub"},
    });
    marked(app, hash, "claim-1")
}

fn hash(text: &[u8]) -> String {
    let digest = ring::digest::digest(&ring::digest::SHA256, text);
    hex::encode(digest.as_ref())
}

/// Sends one customization of WebApp, or none. Returns its hash.
async fn customize(session: &Session, rules: &Value) -> String {
    let mut list = v1::Customizations::default();
    let spec = json!({
        "target": {"apiVersion": "apps.example.io/v1", "kind": "WebApp"}, "customizations": rules,
    });
    let text = spec.to_string();
    let hash = hash(text.as_bytes());
    if !rules.is_null() {
        let text = v1::RuleText { hash: hash.clone(), spec_json: text.into() };
        session.say(Message::RuleText(text)).await;
        list.entries.push(entry(&hash));
    }
    session.say(Message::Customizations(list)).await;
    hash
}

fn entry(hash: &str) -> v1::Customization {
    v1::Customization {
        name: "webapp".into(),
        hash: hash.into(),
        api_version: "apps.example.io/v1".into(),
        kind: "WebApp".into(),
    }
}

fn reported(status: &v1::Status) -> Value {
    serde_json::from_slice(&status.status_json).unwrap_or_default()
}

/// The failure of a rule with this hash, among the messages received so far or the next ones.
async fn rule_failure(session: &mut Session, hash: &str) -> v1::RuleFailure {
    let is_it = |said: &Said| match said {
        Said::RuleFailure(failure) if failure.hash == hash => Some(failure.clone()),
        _ => None,
    };
    match session.heard.iter().find_map(is_it) {
        Some(failure) => failure,
        None => session.wait(is_it).await,
    }
}

#[tokio::test(start_paused = true)]
async fn a_script_judges_the_health_and_an_expression_picks_the_status() {
    let setup = setup().await;
    let agent = setup.agent();
    let mut session = setup.hub.agreed(1).await;
    let rules = json!({
        "healthInterpretation": {"luaScript":
            "function InterpretHealth(object) return object.status ~= nil and object.status.phase == 'Up' end"},
        "statusReflection": {"cel": "has(object.status) ? {'phase': object.status.phase} : {}"},
    });
    customize(&session, &rules).await;
    let key = session.apply(&web_app("web", "h1", 2)).await;
    let down = session.status(&key, |status| status.health() == Health::Unhealthy).await;
    assert_eq!((down.health_reason.as_str(), down.failing), ("HealthInterpretation", false));
    let up = json!({"status": {"phase": "Up", "details": ["many"], "replicas": 2}});
    setup.member.edit(&format!("{}/status", path("web")), "operator", up.clone()).await;
    let healthy = session.status(&key, |status| status.health() == Health::Healthy).await;
    assert_eq!(reported(&healthy), json!({"phase": "Up"}));
    assert_eq!((healthy.hash.as_str(), healthy.replicas), ("h1", Some(2)));

    // Other rules are used at once, for objects that do not change.
    let other = json!({"statusReflection": {"cel": "{'count': size(object.status.details)}"}});
    customize(&session, &other).await;
    let counted = session.status(&key, |status| reported(status)["count"] == 1).await;
    assert_ne!(counted.health_reason, "HealthInterpretation", "the built-in rules judge it");

    // Without the text of the rules, the raw status is reported; without rules, the built-in ones answer.
    let list = v1::Customizations { entries: vec![entry("another hash")] };
    session.say(Message::Customizations(list)).await;
    session.status(&key, |status| reported(status) == up["status"]).await;
    customize(&session, &rules).await;
    session.status(&key, |status| reported(status) == json!({"phase": "Up"})).await;
    customize(&session, &Value::Null).await;
    session.status(&key, |status| reported(status) == up["status"]).await;
    agent.stop().await;
}

#[tokio::test(start_paused = true)]
async fn fields_that_a_rule_retains_are_not_overwritten_and_others_are() {
    for retention in [
        json!({"paths": ["/spec/window"]}),
        json!({"luaScript": "function Retain(desired, observed)
            desired.spec.window = observed.spec.window
            return desired
        end"}),
    ] {
        let setup = setup().await;
        let agent = setup.agent();
        let mut session = setup.hub.agreed(1).await;
        customize(&session, &json!({"retention": retention})).await;
        let key = session.apply(&web_app("web", "h1", 2)).await;
        let theirs = json!({"spec": {"window": "of the member"}});
        setup.member.edit(&path("web"), "operator", theirs).await;
        session.upsert(&web_app("web", "h2", 3), false).await;
        let mut applied = session.applied(&key).await;
        while applied.hash != "h2" {
            applied = session.applied(&key).await;
        }
        assert_eq!((applied.result(), applied.drift), (ApplyResult::Applied, 0));
        let web = setup.member.get(&path("web")).await.unwrap();
        assert_eq!(web["spec"], json!({"size": 3, "window": "of the member"}));

        // The rules stay in force while there is no session.
        session.end();
        setup.hub.refuse(Some(tonic::Status::unavailable("not leader")));
        let drifted = json!({"spec": {"size": 9}});
        setup.member.edit(&path("web"), "operator", drifted).await;
        let right = |web: Option<&Value>| web.is_some_and(|web| web["spec"]["size"] == 3);
        let web = setup.member.until(&path("web"), right).await.unwrap();
        assert_eq!(web["spec"]["window"], "of the member");

        // A controller that has no rules gets the field as it wants it.
        setup.hub.refuse(None);
        let _session = setup.hub.agreed(1).await;
        let ours =
            |web: Option<&Value>| web.is_some_and(|web| web["spec"]["window"] == "from the hub");
        setup.member.until(&path("web"), ours).await;
        agent.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_script_that_runs_forever_is_reported_and_holds_nothing_else_up() {
    let setup = setup().await;
    let agent = setup.agent();
    let mut session = setup.hub.agreed(1).await;
    let rules = json!({"healthInterpretation": {"luaScript":
        format!("function InterpretHealth(object) {ENDLESS} end")}});
    let hash = customize(&session, &rules).await;
    let settings = session.apply(&config("shop", "settings", "h1", "a")).await;
    for n in 0..6 {
        session.apply(&web_app(&format!("web-{n}"), "h1", n)).await;
    }
    let failure = rule_failure(&mut session, &hash).await;
    assert_eq!(failure.customization, "webapp");
    assert_eq!(failure.operation(), RuleOperation::HealthInterpretation);
    assert!(failure.key.unwrap().name.starts_with("web-"));
    assert!(failure.message.contains("stopped"), "{}", failure.message);
    // The built-in rules answer for each of them, and other kinds go on.
    for n in 0..6 {
        let key = key_of(&web_app(&format!("web-{n}"), "h1", n));
        let is_it = |said: &Said| match said {
            Said::Status(status) if status.key.as_ref() == Some(&key) => Some(status.clone()),
            _ => None,
        };
        let status = match session.heard.iter().find_map(is_it) {
            Some(status) => status,
            None => session.wait(is_it).await,
        };
        assert_ne!(status.health_reason, "HealthInterpretation");
    }
    setup
        .member
        .edit(&config_path("settings"), "kubectl-edit", json!({"data": {"key": "b"}}))
        .await;
    assert_eq!(session.applied(&settings).await.drift, 1);
    // Six failures are at most two reports, of which the second comes 10 s later.
    tokio::time::sleep(Duration::from_secs(60)).await;
    session.drain().await;
    let reports = session.heard.iter().filter(|said| matches!(said, Said::RuleFailure(_))).count();
    assert!(reports <= 2, "{reports} reports");

    // A new controller gets the failure too; with another text it is forgotten.
    session.end();
    let mut session = setup.hub.session(1).await;
    rule_failure(&mut session, &hash).await;
    let mended = json!({"healthInterpretation": {"luaScript": "function InterpretHealth() return true end"}});
    customize(&session, &mended).await;
    let key = key_of(&web_app("web-5", "h1", 5));
    session.status(&key, |status| status.health_reason == "HealthInterpretation").await;
    agent.stop().await;
}

#[tokio::test(start_paused = true)]
async fn nothing_is_applied_while_a_rule_about_retained_fields_fails() {
    let setup = setup().await;
    let agent = setup.agent();
    let mut session = setup.hub.agreed(1).await;
    let retain = |body: &str| {
        let script = format!("function Retain(desired, observed) {body} end");
        json!({"retention": {"luaScript": script}})
    };
    let keep = "desired.spec.window = observed.spec.window return desired";
    for broken in
        [ENDLESS, "return nil", "desired.metadata.name = 'other' return desired", "error('no')"]
    {
        let hash = customize(&session, &retain(broken)).await;
        // A new object has nothing to keep.
        let manifest = web_app("web", "h1", 2);
        let key = session.apply(&manifest).await;
        let theirs = json!({"spec": {"window": "of the member"}});
        setup.member.edit(&path("web"), "operator", theirs).await;
        session.upsert(&web_app("web", "h2", 3), false).await;
        let mut applied = session.applied(&key).await;
        while applied.hash != "h2" {
            applied = session.applied(&key).await;
        }
        assert_eq!((applied.result(), &*applied.reason), (ApplyResult::Failed, "RetentionFailed"));
        let web = setup.member.get(&path("web")).await.unwrap();
        assert_eq!(web["spec"], json!({"size": 2, "window": "of the member"}), "{broken}");
        let failure = rule_failure(&mut session, &hash).await;
        assert_eq!(failure.operation(), RuleOperation::Retention);

        customize(&session, &retain(keep)).await;
        while applied.result() != ApplyResult::Applied {
            applied = session.applied(&key).await;
        }
        let web = setup.member.get(&path("web")).await.unwrap();
        assert_eq!(web["spec"], json!({"size": 3, "window": "of the member"}));
        session.remove(&key, "").await;
        assert_eq!(session.applied(&key).await.result(), ApplyResult::Removed);
    }
    agent.stop().await;
}
