//! Hostile input: any bytes get a quick answer that explains the error.

use std::time::{Duration, Instant};

use bytes::Bytes;
use http::Method;
use proptest::{collection::vec, prelude::*, sample::select};
use serde_json::{Value, json};

use crate::common::{Api, CONFIG_MAPS, config_map, deployment};

const DEPLOYMENTS: &str = "/apis/apps/v1/namespaces/default/deployments";
const CRDS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
/// Limit of one answer: milliseconds normally, seconds on a busy machine.
const SOON: Duration = Duration::from_secs(20);

fn block_on<T>(future: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(future)
}

/// Sends a request and returns the code. A client must never cause an internal error.
fn code(api: &Api, method: Method, path: &str, headers: &[(&str, &str)], body: Vec<u8>) -> u16 {
    let began = Instant::now();
    let answer = block_on(api.send(method, path, headers, Bytes::from(body)));
    assert!(began.elapsed() < SOON, "{path}: {:?}", began.elapsed());
    assert_ne!(answer.code, 500, "{path}: {answer:?}");
    answer.code
}

/// Percent-encoded, so that any bytes fit into a URI.
fn encoded(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("%{byte:02X}")).collect()
}

/// Text of characters that occur in selectors, numbers, tokens and JSON, and of others.
fn text() -> impl Strategy<Value = Vec<u8>> {
    const PARTS: [&str; 40] = [
        "app",
        "a.io/x",
        "web",
        "=",
        "==",
        "!=",
        "!",
        ",",
        "(",
        ")",
        " in ",
        " notin ",
        "<",
        ">",
        "metadata.name",
        "metadata.namespace",
        "\\",
        "\\,",
        "0",
        "-1",
        "18446744073709551615",
        "9223372036854775808",
        "1e9",
        "true",
        "\"",
        "{",
        "}",
        "[",
        "]",
        ":",
        "null",
        "\0",
        "\n",
        "é",
        "…",
        "%",
        "/",
        "All",
        "Exact",
        "eyJydiI6MX0",
    ];
    let part = prop_oneof![
        4 => select(&PARTS[..]).prop_map(|part| part.as_bytes().to_vec()),
        1 => vec(any::<u8>(), 0..4),
    ];
    vec(part, 0..12).prop_map(|parts| parts.concat())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn queries_of_any_text_are_answered(
        name in select(&[
            "labelSelector", "fieldSelector", "continue", "limit", "timeoutSeconds", "resourceVersion",
            "resourceVersionMatch", "dryRun", "fieldManager", "gracePeriodSeconds",
            "propagationPolicy", "includeObject", "sendInitialEvents",
        ][..]),
        value in text(),
    ) {
        let api = Api::new();
        let query = format!("{CONFIG_MAPS}?{name}={}", encoded(&value));
        let code_of_list = code(&api, Method::GET, &query, &[], Vec::new());
        // Upstream's answer to a version that the server has not reached.
        let ahead = name == "resourceVersion" && code_of_list == 504;
        prop_assert!(code_of_list < 500 || ahead, "{code_of_list}");
        let fixed = json!({"metadata": {"name": "a"}}).to_string().into_bytes();
        code(&api, Method::POST, &query, &[], fixed);
        code(&api, Method::DELETE, &query, &[], Vec::new());
    }

    #[test]
    fn paths_of_any_text_are_answered(parts in vec(text(), 0..6)) {
        let api = Api::new();
        let path: String = parts.iter().map(|part| format!("/{}", encoded(part))).collect();
        for root in ["", "/api/v1", "/apis/apps/v1", "/openapi/v3"] {
            let path = format!("{root}{path}/");
            prop_assert!(code(&api, Method::GET, &path, &[], Vec::new()) < 500);
        }
    }

    #[test]
    fn bodies_of_any_bytes_are_answered(
        kind in select(&[
            "", "application/json", "application/yaml", "application/vnd.kubernetes.protobuf",
            "application/json-patch+json", "application/merge-patch+json",
            "application/strategic-merge-patch+json", "application/apply-patch+yaml",
        ][..]),
        body in prop_oneof![text(), vec(any::<u8>(), 0..200), vec(any::<u8>(), 0..60).prop_map(protobuf)],
    ) {
        let api = Api::new();
        let _ = block_on(api.post(DEPLOYMENTS, &deployment("d", 1)));
        let headers = [("content-type", kind)];
        code(&api, Method::POST, DEPLOYMENTS, &headers, body.clone());
        code(&api, Method::PATCH, &format!("{DEPLOYMENTS}/d?fieldManager=x"), &headers, body.clone());
        code(&api, Method::DELETE, &format!("{DEPLOYMENTS}/d"), &headers, body);
    }

    #[test]
    fn bearer_tokens_of_any_text_are_refused(token in text()) {
        let api = Api::new();
        let token: String = String::from_utf8_lossy(&token).chars().filter(|c| (' '..='~').contains(c)).collect();
        let review = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview",
            "spec": {"token": token}});
        let path = "/apis/authentication.k8s.io/v1/tokenreviews";
        let answer = block_on(api.post(path, &review));
        prop_assert_ne!(answer.code, 500);
        prop_assert_ne!(&answer.body["status"]["authenticated"], &json!(true));
    }

    #[test]
    fn rules_of_any_text_never_end_the_server(rule in text()) {
        let api = Api::new();
        let rule = String::from_utf8_lossy(&rule).into_owned();
        code(&api, Method::POST, CRDS, &[], crd(&rule).to_string().into_bytes());
    }
}

/// A protobuf body of a Pod around arbitrary bytes.
fn protobuf(raw: Vec<u8>) -> Vec<u8> {
    let mut body = b"k8s\0\x0a\x09\x0a\x02v1\x12\x03Pod\x12".to_vec();
    body.push(u8::try_from(raw.len()).unwrap());
    body.extend(raw);
    body
}

fn crd(rule: &str) -> Value {
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "widgets.example.com"},
        "spec": {
            "group": "example.com", "scope": "Namespaced",
            "names": {"plural": "widgets", "kind": "Widget"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {
                "type": "object", "x-kubernetes-validations": [{"rule": rule}],
                "properties": {"spec": {"type": "object", "properties": {"size": {"type": "integer"}}}},
            }}}],
        },
    })
}

/// Rules are compiled and evaluated recursively: those that would exhaust the stack are refused by their size.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rules_that_would_exhaust_the_stack_are_refused() {
    let api = Api::new();
    let chain = |text: &str, times: usize| text.repeat(times);
    for (rule, part) in [
        (format!("{}true{}", chain("(", 5_000), chain(")", 5_000)), "nested"),
        (format!("{}true", chain("!", 8_000)), "operators"),
        (format!("{}1 > 0", chain("1+", 5_000)), "operators"),
        (format!("self{} == 1", chain(".a", 5_000)), "operators"),
        (format!("{}true", chain("true?false:", 1_100)), "nested"),
        (format!("'{}' == ''", chain("x", 20_000)), "longer"),
    ] {
        // On a thread of the usual size: a test's own stack may be larger.
        let answer = api.post(CRDS, &crd(&rule)).await;
        let message = answer.refused(422, "Invalid");
        assert!(message.contains(part), "{part}: {}", &message[..message.len().min(300)]);
    }
    // Rules at the limit compile and evaluate.
    for rule in [
        format!("{}true{}", chain("(", 30), chain(")", 30)),
        format!("{}1 > 0", chain("1+", 240)),
        format!("{}true", chain("!", 240)),
        format!("{}true", chain("true?true:", 30)),
    ] {
        let rule = rule.clone();
        let done = tokio::spawn(async move {
            let api = Api::new();
            let made = api.post(CRDS, &crd(&rule)).await;
            let widget = json!({"apiVersion": "example.com/v1", "kind": "Widget",
                "metadata": {"name": "w"}, "spec": {"size": 1}});
            let path = "/apis/example.com/v1/namespaces/default/widgets";
            (made.code, api.post(path, &widget).await.code)
        });
        let (made, _) = tokio::time::timeout(SOON * 4, done).await.expect("in time").unwrap();
        assert!(matches!(made, 201 | 422), "{made}");
    }
}

#[test]
fn bombs_of_yaml_and_json_are_refused_in_time() {
    let api = Api::new();
    let mut laughs = "a: &a [x, x, x, x, x, x, x, x, x, x]\n".to_owned();
    for (name, before) in
        [("b", "a"), ("c", "b"), ("d", "c"), ("e", "d"), ("f", "e"), ("g", "f"), ("h", "g")]
    {
        let items = vec![format!("*{before}"); 10].join(", ");
        laughs.push_str(&format!("{name}: &{name} [{items}]\n"));
    }
    let deep =
        |open: &str, close: &str| format!("{}{}", open.repeat(100_000), close.repeat(100_000));
    let yaml = [("content-type", "application/yaml")];
    let apply = [("content-type", "application/apply-patch+yaml")];
    for body in [
        laughs,
        deep("[", "]"),
        deep("{\"a\":", "}"),
        deep("{a: ", "}"),
        deep("- ", ""),
        deep("? ", ""),
    ] {
        let bytes = body.into_bytes();
        assert_eq!(code(&api, Method::POST, CONFIG_MAPS, &yaml, bytes.clone()), 400);
        assert_eq!(code(&api, Method::POST, CONFIG_MAPS, &[], bytes.clone()), 400);
        let path = format!("{CONFIG_MAPS}/x?fieldManager=x");
        assert_eq!(code(&api, Method::PATCH, &path, &apply, bytes), 400);
    }
    let huge = vec![b' '; 4 * 1024 * 1024];
    assert_eq!(code(&api, Method::POST, CONFIG_MAPS, &[], huge), 413);
}

#[test]
fn patches_that_copy_their_copies_are_refused() {
    let api = Api::new();
    let _ = block_on(api.post(CONFIG_MAPS, &config_map("m")));
    let ops: Vec<Value> = (0..60)
        .map(|n| json!({"op": "copy", "from": "/data", "path": format!("/data/x{n}")}))
        .collect();
    let headers = [("content-type", "application/json-patch+json")];
    let path = format!("{CONFIG_MAPS}/m");
    let body = Value::from(ops).to_string().into_bytes();
    assert_eq!(code(&api, Method::PATCH, &path, &headers, body), 413);
}

/// All numbers in queries at their extremes: some of them become times and lengths.
#[tokio::test]
async fn numbers_at_their_ends_are_answered() {
    let api = Api::new();
    api.post(CONFIG_MAPS, &config_map("m")).await.ok();
    for number in [u64::MAX, u64::MAX / 2, u64::MAX / 2 + 1] {
        let mut frames = api.watch(&format!("{CONFIG_MAPS}?watch=1&timeoutSeconds={number}")).await;
        assert_eq!(frames.next().await.unwrap()["type"], "ADDED");
        for name in ["limit", "resourceVersion", "gracePeriodSeconds", "timeoutSeconds"] {
            for method in [Method::GET, Method::DELETE] {
                let path = format!("{CONFIG_MAPS}/none?{name}={number}");
                let answer = api.send(method, &path, &[], "").await;
                assert_ne!(answer.code, 500, "{path}: {answer:?}");
            }
        }
    }
    // A huge grace period gives a date in the future, not in the past.
    let pods = "/api/v1/namespaces/default/pods";
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"},
        "spec": {"nodeName": "n", "containers": [{"name": "c", "image": "i"}]}});
    api.post(pods, &pod).await.ok();
    let path = format!("{pods}/p?gracePeriodSeconds={}", i64::MAX);
    let marked = api.delete(&path).await.ok();
    let until: jiff::Timestamp =
        marked["metadata"]["deletionTimestamp"].as_str().unwrap().parse().unwrap();
    assert!(until.as_second() > crate::common::START + 3600, "{marked}");
}

/// The document is requested as by kubectl, and as by an aggregator from a server with mounted kinds.
#[tokio::test]
async fn the_second_openapi_document_is_served_in_both_forms() {
    let api = Api::new();
    let json = api.get("/openapi/v2").await.ok();
    let containers = "/definitions/io.k8s.api.core.v1.PodSpec/properties/containers";
    let containers = json.pointer(containers).unwrap();
    assert_eq!(containers["x-kubernetes-patch-merge-key"], "name");
    assert_eq!(containers["x-kubernetes-patch-strategy"], "merge");
    let target = "/definitions/io.k8s.api.core.v1.ServicePort/properties/targetPort/$ref";
    assert!(json.pointer(target).is_some_and(|to| to.as_str().unwrap().ends_with("IntOrString")));
    let accept = "application/com.github.proto-openapi.spec.v2@v1.0+protobuf";
    let protobuf = api.send(Method::GET, "/openapi/v2", &[("accept", accept)], "").await;
    assert_eq!(protobuf.code, 200);
    assert!(protobuf.body.as_str().unwrap().contains("io.k8s.api.core.v1.PodSpec"));
}
