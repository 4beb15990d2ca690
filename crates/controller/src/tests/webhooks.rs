//! A kind that only a webhook knows. Real time and a real server: each test takes some seconds.

use std::time::Duration;

use k8s_openapi::ByteString;
use serde_json::{Value, json};

use super::customized_kinds::{WEB_APP, app, policy, serve, until_sizes, web};
use super::harness::{BINDING, Federation, SOON, Setup};
use crate::interpret::webhooks::WebhookTimes;
use crate::testing::eventually;
use crate::testing::hub::Hub;
use crate::testing::webhook::{Reply, Webhook};

const CONFIGURATION: (&str, &str) =
    ("config.atoll.dev/v1alpha1", "ResourceInterpreterWebhookConfiguration");
const TIMES: WebhookTimes =
    WebhookTimes { pause: Duration::from_millis(200), again: Duration::from_millis(500) };

/// Replicas are `spec.size` times `factor`; the aggregated status counts members.
fn meaning(question: &Value, factor: i64) -> Reply {
    let patch = |path: &str, value: Value| {
        let operations = json!([{"op": "add", "path": path, "value": value}]).to_string();
        json!({"patchType": "JSONPatch", "patch": ByteString(operations.into_bytes())})
    };
    let size = question["object"]["spec"]["size"].as_i64().unwrap();
    Reply::Answer(match question["operation"].as_str().unwrap() {
        "InterpretReplica" => json!({"replicas": size * factor}),
        "ReviseReplica" => patch("/spec/size", question["replicas"].clone()),
        "AggregateStatus" => {
            let members = question["aggregatedStatus"].as_array().unwrap().len();
            patch("/status", json!({"members": members}))
        }
        "InterpretStatus" => json!({"rawStatus": {"size": size}}),
        "InterpretHealth" => json!({"healthy": size < 5}),
        _ => json!({}),
    })
}

async fn federation(webhook: &Webhook) -> Federation {
    let setup = Setup { webhooks: Some(TIMES), ..Setup::default() };
    let federation = Federation::start_on(Hub::open().await, setup).await;
    serve(&federation).await;
    configure(&federation, webhook.entry()).await;
    policy(&federation).await;
    federation
}

async fn configure(federation: &Federation, entry: Value) {
    let object = json!({"metadata": {"name": "apps"}, "webhooks": [entry]});
    federation.hub.apply(CONFIGURATION.0, CONFIGURATION.1, None, object).await;
}

async fn condition(federation: &Federation, kind: &str) -> Value {
    let object = federation.hub.get(CONFIGURATION.0, CONFIGURATION.1, None, "apps").await;
    let conditions = object["status"]["conditions"].as_array().cloned().unwrap_or_default();
    conditions.into_iter().find(|held| held["type"] == kind).unwrap_or_default()
}

async fn until_condition(federation: &Federation, kind: &str, reason: &str) {
    eventually(&format!("{kind} {reason}"), 2 * SOON, || async {
        condition(federation, kind).await["reason"] == reason
    })
    .await;
}

/// Waits until the binding shows this health on both members.
async fn until_health(federation: &Federation, health: &str) {
    eventually(&format!("both {health}"), SOON, || async {
        let binding = federation.hub.binding(&web()).await;
        let items = binding["status"]["aggregatedStatus"].as_array().cloned().unwrap_or_default();
        items.len() == 2 && items.iter().all(|item| item["health"] == health)
    })
    .await;
}

#[tokio::test]
async fn a_webhook_decides_divides_judges_and_sums_up() {
    let webhook = Webhook::start(|question| meaning(question, 1)).await;
    let federation = federation(&webhook).await;
    app(&federation, json!(4), "blue").await;
    until_sizes(&federation, [2, 2]).await;
    until_health(&federation, "Healthy").await;
    let items = "/status/aggregatedStatus/0/status/size";
    federation.until(BINDING, &web(), items, json!(2)).await;
    federation.until(WEB_APP, "web", "/status/members", json!(2)).await;
    let names: Vec<_> = federation.members.customizations().into_iter().map(|(n, _)| n).collect();
    assert_eq!(names, ["webhooks:apps.example.io/v1/WebApp"]);
    // What it says about health is what counts.
    app(&federation, json!(12), "blue").await;
    until_sizes(&federation, [6, 6]).await;
    let reason = "/status/aggregatedStatus/0/healthReason";
    federation.until(BINDING, &web(), reason, json!("HealthInterpretation")).await;
    federation
        .until(BINDING, &web(), "/status/aggregatedStatus/0/health", json!("Unhealthy"))
        .await;

    until_condition(&federation, "Valid", "Valid").await;
    let object = federation.hub.get(CONFIGURATION.0, CONFIGURATION.1, None, "apps").await;
    let uses = object["status"]["webhooks"][0]["usedFor"].as_array().unwrap().clone();
    assert_eq!(uses.len(), 8);
    let unused: Vec<_> = uses.iter().filter(|entry| entry["used"] == false).collect();
    assert_eq!(unused[0]["operation"], "Retain");
    assert_eq!((unused.len(), &unused[0]["reason"]), (1, &json!("NotSupported")));
    let metrics = federation.metrics();
    let called = "atoll_interpreter_webhook_calls_total{configuration=\"apps\",webhook=\"meaning\",\
                  operation=\"ReviseReplica\",result=\"answered\"}";
    assert!(metrics.iter().any(|line| line.starts_with(called)), "{metrics:?}");

    // A change of the configuration asks again.
    webhook.reply(|question| meaning(question, 2));
    let mut entry = webhook.entry();
    entry["timeoutSeconds"] = json!(2);
    configure(&federation, entry).await;
    federation.until(BINDING, &web(), "/spec/replicas", json!(24)).await;
    until_sizes(&federation, [12, 12]).await;
}

#[tokio::test]
async fn while_a_webhook_does_not_answer_everything_stays_and_new_objects_wait() {
    let webhook = Webhook::start(|question| meaning(question, 1)).await;
    let federation = federation(&webhook).await;
    app(&federation, json!(4), "blue").await;
    until_sizes(&federation, [2, 2]).await;
    until_health(&federation, "Healthy").await;
    federation.until(WEB_APP, "web", "/status/members", json!(2)).await;
    federation.members.take_moves();

    webhook.reply(|_| Reply::Status(500));
    app(&federation, json!(8), "blue").await;
    let new = json!({"metadata": {"name": "new"}, "spec": {"size": 2, "config": "blue"}});
    federation.hub.apply(WEB_APP.0, WEB_APP.1, Some("shop"), new).await;
    until_condition(&federation, "Failing", "WebhookUnreachable").await;
    let message = condition(&federation, "Failing").await["message"].clone();
    assert!(message.as_str().unwrap().contains("webhook meaning, "), "{message}");
    assert!(message.as_str().unwrap().contains("HTTP status 500"), "{message}");
    until_sizes(&federation, [2, 2]).await;
    assert_eq!(federation.members.take_moves(), [""; 0]);
    let binding = federation.hub.binding(&web()).await;
    assert_eq!(binding["spec"]["replicas"], 4);
    let items = binding["status"]["aggregatedStatus"].as_array().unwrap();
    assert!(items.iter().all(|item| item["health"] == "Healthy"), "{binding}");
    let open = "atoll_interpreter_webhook_open{configuration=\"apps\",webhook=\"meaning\"} 1";
    eventually("calls have stopped", SOON, || async {
        federation.metrics().iter().any(|line| line == open)
    })
    .await;
    // The next leader moves nothing either.
    let federation = federation.restart().await;
    tokio::time::sleep(2 * TIMES.again).await;
    until_sizes(&federation, [2, 2]).await;
    assert_eq!(federation.members.take_moves(), [""; 0]);

    webhook.reply(|question| meaning(question, 1));
    until_sizes(&federation, [4, 4]).await;
    let new = atoll_api::names::binding_name("new", "WebApp", "apps.example.io");
    federation.until(BINDING, &new, "/spec/replicas", json!(2)).await;
    until_condition(&federation, "Failing", "NoFailure").await;
}

#[tokio::test]
async fn a_webhook_that_cannot_be_called_is_shown_with_its_field_and_loses_nothing() {
    let webhook = Webhook::start(|question| meaning(question, 1)).await;
    let federation = federation(&webhook).await;
    app(&federation, json!(4), "blue").await;
    until_sizes(&federation, [2, 2]).await;
    federation.members.take_moves();
    let mut entry = webhook.entry();
    entry["clientConfig"]["caBundle"] = json!("bm8gY2VydGlmaWNhdGU=");
    configure(&federation, entry).await;
    until_condition(&federation, "Valid", "InvalidWebhook").await;
    let message = condition(&federation, "Valid").await["message"].clone();
    let field = "webhooks[0].clientConfig.caBundle: ";
    assert!(message.as_str().unwrap().starts_with(field), "{message}");
    until_condition(&federation, "Failing", "WebhookFailed").await;
    until_sizes(&federation, [2, 2]).await;
    assert_eq!(federation.members.take_moves(), [""; 0]);
    configure(&federation, webhook.entry()).await;
    until_condition(&federation, "Valid", "Valid").await;
    app(&federation, json!(8), "blue").await;
    until_sizes(&federation, [4, 4]).await;
}
