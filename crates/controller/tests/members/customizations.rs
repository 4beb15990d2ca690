//! Rules of users on their way to agents, and their failures on the way back.

use std::collections::BTreeSet;
use std::sync::Arc;

use atoll_api::customization::{Operation, ResourceInterpreterCustomizationSpec};
use atoll_controller::members::{AgentCustomizations, MemberEvent};
use atoll_protocol::v1;
use atoll_protocol::v1::agent_message::Message as ToController;
use serde_json::{Value, json};

use crate::agent::{Agent, Store, enrol, keep_alive};
use crate::real::{Member, set};
use crate::rig::{Hub, Rig};

const BEAT: std::time::Duration = std::time::Duration::from_secs(5);

/// One customization of ConfigMaps, or none. Its spec has the hash `SPEC`.
fn customizations(rules: &Value) -> Arc<AgentCustomizations> {
    let spec =
        json!({"target": {"apiVersion": "v1", "kind": "ConfigMap"}, "customizations": rules});
    let spec: Arc<ResourceInterpreterCustomizationSpec> = match rules {
        Value::Null => return Arc::default(),
        _ => Arc::new(serde_json::from_value(spec).unwrap()),
    };
    let hash: Arc<str> = "SPEC".into();
    let none = AgentCustomizations::default();
    Arc::new(AgentCustomizations::of(
        &none,
        [("settings", &spec, &hash)].into_iter(),
        BTreeSet::new(),
    ))
}

async fn next(agent: &mut Agent, store: &mut Store) -> String {
    let mut log = Vec::new();
    while log.is_empty() {
        let message = agent.next().await.unwrap();
        agent.follow(message, store, &mut log).await;
    }
    log.remove(0)
}

#[tokio::test(start_paused = true)]
async fn rules_come_before_manifests_and_changes_of_them_at_once() {
    let hub = Hub::start().await;
    let mut rig = Rig::start(&hub).await;
    hub.register("member1").await;
    let identity = enrol(&rig, "member1").await;
    let mut store = Store::default();
    rig.members.set_customizations(customizations(&json!({"retention": {"paths": ["/data"]}})));
    rig.set("member1", "a", "h1");
    let mut agent = Agent::welcomed(&rig, &identity, "member1", 1, &store).await;
    let _beats = keep_alive(&agent, BEAT);
    let log = agent.sync(&mut store).await;
    let hash = log[1].strip_prefix("text ").unwrap().to_owned();
    assert_eq!(log[2..], [format!("settings={hash}"), "upsert a h1".to_owned()], "{log:?}");

    // In a session that waits, for labels too.
    rig.members.watch_labels(&BTreeSet::from(["zone".to_owned()]));
    assert_eq!(next(&mut agent, &mut store).await, "labels zone");
    rig.members
        .set_customizations(customizations(&json!({"healthInterpretation": {"cel": "true"}})));
    let text = next(&mut agent, &mut store).await;
    let newer = text.strip_prefix("text ").unwrap().to_owned();
    assert_eq!(next(&mut agent, &mut store).await, format!("settings={newer}"));

    // A failure counts only for the rules that are in force.
    let failed = |hash: &str, operation: v1::RuleOperation| {
        ToController::RuleFailure(v1::RuleFailure {
            customization: "settings".to_owned(),
            hash: hash.to_owned(),
            operation: operation.into(),
            key: store.0.keys().next().cloned(),
            message: format!("no\u{1b}[2J{}", "x".repeat(5000)),
        })
    };
    agent.send(failed(&hash, v1::RuleOperation::Retention)).await;
    agent.send(failed(&newer, v1::RuleOperation::Unspecified)).await;
    agent.send(failed(&newer, v1::RuleOperation::HealthInterpretation)).await;
    let event = rig.event(|event| matches!(event, MemberEvent::RuleFailed { .. })).await;
    let MemberEvent::RuleFailed { cluster, failed } = event else { unreachable!() };
    assert_eq!((cluster.as_str(), &*failed.spec_hash), ("member1", "SPEC"));
    assert_eq!((failed.operation, failed.key.name()), (Operation::InterpretHealth, "a"));
    assert!(failed.message.starts_with("no[2Jx") && failed.message.len() <= 1024);
    rig.members.set_customizations(customizations(&Value::Null));
    assert_eq!(next(&mut agent, &mut store).await, "");
}

#[tokio::test(start_paused = true)]
async fn a_real_agent_uses_the_rules_and_reports_those_that_fail() {
    let hub = Hub::start().await;
    let mut rig = Rig::start(&hub).await;
    let script = |body: &str| {
        let text = format!("function InterpretHealth(object) {body} end");
        customizations(&json!({"healthInterpretation": {"luaScript": text}}))
    };
    rig.members.set_customizations(script("return object.metadata.name == 'other'"));
    let _member = Member::join(&rig, "member1", 7).await;
    set(&rig, "a", "1");
    let unhealthy = |event: &MemberEvent| matches!(event, MemberEvent::Status { report, .. } if report.health.reason == "HealthInterpretation");
    rig.event(unhealthy).await;
    rig.members.set_customizations(script("while true do end"));
    let event = rig.event(|event| matches!(event, MemberEvent::RuleFailed { .. })).await;
    let MemberEvent::RuleFailed { failed, .. } = event else { unreachable!() };
    assert!(failed.message.starts_with("stopped: "), "{}", failed.message);
    assert_eq!((failed.customization.as_str(), failed.key.name()), ("settings", "a"));
}
