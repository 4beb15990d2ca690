//! Expressions answer, and cannot run away.

#![allow(clippy::unwrap_used)]

use std::time::{Duration, Instant};

use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::error::Limit;

fn value(text: &str, object: &Value) -> Result<Value, RuleError> {
    Expression::compile(text)?.value(object)
}

fn answer(
    text: &str,
    request: impl Fn(Arc<Value>) -> Request,
    object: &Value,
) -> Result<Response, RuleError> {
    Expression::compile(text)?.answer(&request(Arc::new(object.clone())))
}

fn object() -> Value {
    json!({
        "metadata": {"namespace": "shop", "generation": 3},
        "spec": {
            "replicas": 4, "ratio": 0.5, "names": ["a", "b", "c"],
            "template": {"spec": {"serviceAccountName": "runner", "containers": [
                {"name": "c", "resources": {"requests": {"cpu": "250m", "memory": "1Gi"}}},
            ]}},
            "roles": [{"name": "head", "count": 1}, {"name": "worker", "count": 3}],
        },
        "status": {"ready": 4, "observed": 3},
    })
}

#[test]
fn expressions_answer_all_their_operations() {
    let object = object();
    let requests = json!({"cpu": "250m", "memory": "1Gi"});
    let found = answer(
        "{'replicas': object.spec.replicas, 'podTemplate': object.spec.template}",
        Request::Replicas,
        &object,
    );
    let Ok(Response::Replicas(found)) = found else { panic!("{found:?}") };
    assert_eq!(json!(found), json!({"replicas": 4, "requirements": {"resourceRequest": requests}}));
    let found = answer(
        "object.spec.roles.map(r, {'name': r.name, 'replicas': r.count, 'podTemplate': object.spec.template})",
        Request::Components,
        &object,
    );
    let Ok(Response::Components(found)) = found else { panic!("{found:?}") };
    assert_eq!((found.len(), found[1].name.as_str(), found[1].replicas), (2, "worker", 3));
    let health = "has(object.status) && object.status.observed == object.metadata.generation \
        && object.status.ready >= object.spec.replicas";
    assert_eq!(answer(health, Request::Health, &object), Ok(Response::Healthy(true)));
    let status = answer(
        "{'ready': object.status.ready, 'names': object.spec.names.size()}",
        Request::Reflect,
        &object,
    );
    assert_eq!(status, Ok(Response::Status(json!({"ready": 4, "names": 3}))));
    let found = answer(
        "object.spec.names.map(n, {'apiVersion': 'v1', 'kind': 'ConfigMap', 'name': n}) \
         + [{'podTemplate': object.spec.template}]",
        Request::Dependencies,
        &object,
    );
    let Ok(Response::Dependencies(found)) = found else { panic!("{found:?}") };
    let names: Vec<_> = found.iter().filter_map(|d| d.name.as_deref()).collect();
    assert_eq!(names, ["a", "b", "c", "runner"]);
}

#[test]
fn an_expression_with_an_unusable_answer_says_why() {
    let object = object();
    for (text, request, part) in [
        ("'x'", Request::Replicas as fn(_) -> _, "a number or a map"),
        ("{'replicas': 1, 'pods': 2}", Request::Replicas, "pods"),
        ("-1", Request::Replicas, "-1"),
        ("1", Request::Health, "boolean"),
        ("[1]", Request::Components, "must be a map"),
        ("[{'kind': 'A'}]", Request::Dependencies, "no apiVersion"),
        ("object.missing", Request::Health, "missing"),
        ("self.x", Request::Health, "no variable self"),
        ("object.", Request::Health, "compile"),
        ("A{b: 1}", Request::Health, "compile"),
    ] {
        let error = answer(text, request, &object).unwrap_err().to_string();
        assert!(error.contains(part), "{text}: {error}");
    }
}

#[test]
fn expressions_that_run_away_are_stopped() {
    let long: Vec<_> = (0..2000).collect();
    let object = json!({"l": long, "s": "x".repeat(100_000)});
    for text in [
        "object.l.all(a, object.l.all(b, object.l.all(c, a + b + c >= 0)))",
        "object.l.map(a, object.l.map(b, object.l.map(c, c))).size() > 0",
        "object.l.exists(a, object.l.exists(b, object.l.exists(c, a + b + c < 0) || true && false))",
        "object.l.all(a, object.s + string(a) != object.s)",
        "object.l.map(a, object.l).map(b, b.map(c, object.l)).size() == 0",
        &format!("[object.s]{}.size() > 0", ".map(x, x + x)".repeat(40)),
        &format!("[[object.l]]{}.size() > 0", ".map(x, [x, x])".repeat(40)),
    ] {
        let started = Instant::now();
        let outcome = value(text, &object);
        assert!(started.elapsed() < Duration::from_secs(10), "{text} took {:?}", started.elapsed());
        assert!(
            matches!(outcome, Err(RuleError::Stopped(Limit::Steps | Limit::Time))),
            "{text}: {outcome:?}"
        );
    }
}

#[test]
fn expressions_that_are_too_long_or_too_deep_do_not_compile() {
    for text in [
        "1".repeat(LENGTH + 1),
        format!("{}1{}", "(".repeat(33), ")".repeat(33)),
        format!("1{}", "+1".repeat(OPERATORS + 1)),
        "true ? 1 : ".repeat(33) + "1",
    ] {
        assert!(matches!(Expression::compile(&text), Err(RuleError::Compile(_))));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    #[test]
    fn random_text_never_breaks_the_compiler(text in "[a-z0-9 .()\\[\\]{}:,'+?=<>!&|-]{0,60}") {
        let _either = value(&text, &json!({"a": 1}));
    }
}
