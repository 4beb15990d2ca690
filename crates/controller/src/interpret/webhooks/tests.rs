//! Real calls over TLS on loopback: good answers, and every bad one.

use std::sync::Arc;
use std::time::Duration;

use atoll_api::{Clock, RunsOn};
use atoll_customize::{Request, Response};
use k8s_openapi::ByteString;
use serde_json::{Value, json};

use super::{WebhookCaller, WebhookTimes};
use crate::index::{Index, Source};
use crate::interpret::{Answer, Interpreter, RuleNews};
use crate::testing::webhook::{Reply, Webhook};

const TIMES: WebhookTimes =
    WebhookTimes { pause: Duration::from_millis(300), again: Duration::from_secs(1) };

struct Asking {
    index: Index,
    interpreter: Interpreter,
}

fn asking(entry: Value) -> Asking {
    let mut index = Index::default();
    let configuration = json!({
        "apiVersion": "config.atoll.dev/v1alpha1", "kind": "ResourceInterpreterWebhookConfiguration",
        "metadata": {"name": "apps", "uid": "1", "generation": 1}, "webhooks": [entry],
    });
    let touched = index.apply(&Source::Webhooks, Arc::new(configuration));
    assert!(touched.unreadable.is_empty(), "{:?}", touched.unreadable);
    let caller = WebhookCaller::new(TIMES, super::WebhookMetrics::default());
    Asking { index, interpreter: Interpreter::new(Clock::system(), RunsOn::Thread, caller) }
}

impl Asking {
    async fn ask(&self, request: Request) -> Answer {
        self.interpreter.ask(self.index.rules(), request).await
    }

    /// The message of a question that fails.
    async fn failure(&self, request: Request) -> (String, bool) {
        let answer = self.ask(request).await;
        assert_eq!(answer.response, None);
        let failed = answer.news.into_iter().find_map(|news| match news {
            RuleNews::Failed(failed) => Some(failed),
            RuleNews::Reached(..) => None,
        });
        let failed = failed.unwrap();
        assert_eq!(failed.unreachable, answer.unreachable);
        (failed.failure.message, failed.unreachable)
    }
}

fn object() -> Arc<Value> {
    Arc::new(json!({
        "apiVersion": "apps.example.io/v1", "kind": "WebApp",
        "metadata": {"name": "web", "namespace": "shop"}, "spec": {"size": 3},
    }))
}

fn patch(operations: &Value) -> Value {
    json!({"patchType": "JSONPatch", "patch": ByteString(operations.to_string().into_bytes())})
}

#[tokio::test]
async fn every_operation_is_asked_over_tls_and_retention_is_not() {
    let webhook = Webhook::start(|question| {
        Reply::Answer(match question["operation"].as_str().unwrap() {
            "InterpretReplica" => json!({"replicas": question["object"]["spec"]["size"]}),
            "InterpretComponent" => json!({"components": [{"name": "a", "replicas": 1}]}),
            "InterpretDependency" => json!({"dependencies": [
                {"apiVersion": "v1", "kind": "Secret", "namespace": "shop", "name": "db"}]}),
            "ReviseReplica" => patch(&json!([
                {"op": "replace", "path": "/spec/size", "value": question["replicas"]}])),
            "AggregateStatus" => patch(&json!([
                {"op": "add", "path": "/status", "value": {"members": question["aggregatedStatus"]}}])),
            "InterpretStatus" => json!({"rawStatus": {"size": 3}}),
            "InterpretHealth" => json!({"healthy": true}),
            other => panic!("{other}"),
        })
    })
    .await;
    let asking = asking(webhook.entry());
    let items = Arc::new(json!([{"clusterName": "m1"}]));
    let requests = [
        Request::Replicas(object()),
        Request::Components(object()),
        Request::Dependencies(object()),
        Request::Revise { object: object(), replicas: 2 },
        Request::Aggregate { object: object(), items },
        Request::Reflect(object()),
        Request::Health(object()),
    ];
    let mut answers = Vec::new();
    for request in requests {
        answers.push(asking.ask(request).await.response.unwrap().to_json());
    }
    assert_eq!(answers[0]["replicas"], 3);
    assert_eq!(answers[1]["components"][0]["name"], "a");
    assert_eq!(answers[2]["dependencies"][0]["name"], "db");
    assert_eq!(answers[3]["object"]["spec"]["size"], 2);
    assert_eq!(answers[4]["object"]["status"]["members"][0]["clusterName"], "m1");
    assert_eq!(answers[5]["status"]["size"], 3);
    assert_eq!(answers[6]["healthy"], true);
    let retain = Request::Retain { desired: object(), observed: object() };
    assert_eq!(asking.ask(retain).await.response, None);
    let questions = webhook.take_questions();
    assert_eq!(questions.len(), 7);
    assert_ne!(questions[0]["uid"], questions[1]["uid"]);
}

#[tokio::test]
async fn a_server_written_for_karmada_gets_its_version() {
    let webhook = Webhook::start(|_| Reply::Answer(json!({"healthy": true}))).await;
    let mut entry = webhook.entry();
    entry["interpreterContextVersions"] = json!(["v7", "config.karmada.io/v1alpha1"]);
    let answer = asking(entry).ask(Request::Health(object())).await;
    assert_eq!(answer.response, Some(Response::Healthy(true)));
    let messages = webhook.take_messages();
    assert_eq!(messages[0]["apiVersion"], "config.karmada.io/v1alpha1");
}

#[tokio::test]
async fn answers_that_cannot_be_used_are_no_answers_and_say_why() {
    let webhook = Webhook::start(|_| Reply::Nothing).await;
    let asking = asking(webhook.entry());
    let rename = patch(&json!([{"op": "replace", "path": "/metadata/name", "value": "other"}]));
    let kind = patch(&json!([{"op": "replace", "path": "/kind", "value": "Secret"}]));
    let replicas = || Request::Replicas(object());
    let revise = || Request::Revise { object: object(), replicas: 2 };
    let cases = [
        (replicas(), Reply::Answer(json!({"replicas": -1})), "number of replicas is -1"),
        (replicas(), Reply::Answer(json!({"uid": "mine", "replicas": 1})), "response.uid \"mine\""),
        (replicas(), Reply::Text("{\"kind\": ".into()), "no ResourceInterpreterContext"),
        (
            replicas(),
            Reply::Answer(json!({"successful": false, "status": {"message": "no size"}})),
            "no size",
        ),
        (revise(), Reply::Answer(rename), "metadata.name is \"other\""),
        (revise(), Reply::Answer(kind), "kind is \"Secret\""),
    ];
    for (request, reply, part) in cases {
        webhook.reply(move |_| reply.clone());
        let (message, unreachable) = asking.failure(request).await;
        assert!(message.contains(part) && !unreachable, "{part}: {message}");
    }
}

#[tokio::test]
async fn a_server_that_is_slow_endless_or_not_trusted_is_unreachable_and_says_why() {
    let webhook = Webhook::start(|_| Reply::Nothing).await;
    let other = Webhook::start(|_| Reply::Answer(json!({"replicas": 1}))).await;
    let mut strange = other.entry();
    strange["clientConfig"]["caBundle"] = webhook.entry()["clientConfig"]["caBundle"].clone();
    let mut away = webhook.entry();
    away["clientConfig"]["url"] = json!("https://localhost:1/ask");
    let cases = [
        (webhook.entry(), Reply::Nothing, "no answer within 1 s"),
        (webhook.entry(), Reply::Endless, "more than 4194304 bytes"),
        (webhook.entry(), Reply::Status(503), "HTTP status 503: no"),
        (strange, Reply::Nothing, "invalid peer certificate"),
        (away, Reply::Nothing, "tcp connect error"),
    ];
    for (entry, reply, part) in cases {
        webhook.reply(move |_| reply.clone());
        let (message, unreachable) = asking(entry).failure(Request::Replicas(object())).await;
        assert!(message.contains(part) && unreachable, "{part}: {message}");
    }
    assert_eq!(other.take_questions().len(), 0);
}

#[tokio::test]
async fn calls_stop_after_failures_in_a_row_and_go_on_when_one_is_answered() {
    let webhook = Webhook::start(|_| Reply::Status(500)).await;
    let asking = asking(webhook.entry());
    for _ in 0..super::breaker::MOST_FAILED {
        asking.failure(Request::Replicas(object())).await;
    }
    assert_eq!(webhook.take_questions().len(), 5);
    let (message, unreachable) = asking.failure(Request::Replicas(object())).await;
    assert!(unreachable);
    assert!(message.contains("5 calls in a row failed") && message.contains("HTTP status 500"));
    assert_eq!(webhook.take_questions().len(), 0);
    webhook.reply(|_| Reply::Answer(json!({"replicas": 2})));
    let started = tokio::time::Instant::now();
    let answer = loop {
        let answer = asking.ask(Request::Replicas(object())).await;
        if answer.response.is_some() {
            break answer;
        }
        assert!(started.elapsed() < Duration::from_secs(20), "{answer:?}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    };
    assert!(started.elapsed() >= TIMES.pause / 2);
    assert!(matches!(&answer.news[..], [RuleNews::Reached(..)]), "{:?}", answer.news);
    assert_eq!(asking.ask(Request::Replicas(object())).await.news, []);
}

#[tokio::test]
async fn one_slow_webhook_has_a_few_calls_at_a_time_and_other_questions_come_back() {
    let webhook = Webhook::start(|_| Reply::Nothing).await;
    let asking = Arc::new(asking(webhook.entry()));
    let all = (0..10).map(|_| {
        let asking = asking.clone();
        async move { asking.ask(Request::Replicas(object())).await.is_busy }
    });
    let busy = futures::future::join_all(all).await;
    assert_eq!(busy.iter().filter(|busy| !**busy).count(), super::MOST_CALLS_TO_ONE);
}
