//! The reading verbs of the real binary, and kubectl where it is installed, against an embedded API server over TLS.

#![expect(clippy::unwrap_used, reason = "a panic is the report of a test")]
#![expect(clippy::print_stdout, reason = "what a test leaves out is for its reader")]

#[path = "../../src/decisions.rs"]
mod decisions;
mod drain;
mod karmada;
mod members;
mod pictures;
mod rebalance;
mod served;
mod status;

use serde_json::{Value, json};
use served::{Hub, decision};

use atoll_api::binding::Trigger;

fn ids(list: &Value) -> Vec<&str> {
    let items = list["items"].as_array().unwrap();
    items.iter().map(|item| item["metadata"]["name"].as_str().unwrap()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn history_lists_a_workloads_decisions_newest_first() {
    let hub = Hub::with_history().await;
    for workload in [&["deploy/nginx"][..], &["deployments.apps/nginx"], &["Deployment", "nginx"]] {
        let table = hub.atoll("history", workload).await.ok();
        let lines: Vec<_> = table.lines().collect();
        assert!(lines[0].starts_with("TIME") && lines[0].ends_with("DECISION"), "{table}");
        assert!(table.contains("  none -> member1 2, member2 1\n"), "{table}");
        assert!(lines.iter().all(|line| line.chars().count() <= 100), "{table}");
        let at = |word: &str| table.find(word).unwrap_or_else(|| panic!("no {word}:\n{table}"));
        assert!(at("EvictionDone") < at("Scale") && at("Scale") < at("First"), "{table}");
        assert!(table.contains("because of 0000aaaa"), "{table}");
    }
    let list = hub.atoll("history", &["deploy/nginx", "-o", "json"]).await.json();
    assert_eq!(list["kind"], "DecisionList");
    assert_eq!(ids(&list), ["0000dddd", "0000bbbb", "0000aaaa"]);
    assert_eq!(list["items"][1]["spec"]["before"], list["items"][2]["spec"]["after"]);
    for (flags, expected) in [
        (&["--trigger", "First"][..], &["0000aaaa"][..]),
        (&["--member", "member2", "--since", "1970-01-01T00:03:00Z"], &["0000bbbb"]),
        (&["--until", "1970-01-01T00:03:00Z"], &["0000aaaa"]),
        (&["--limit", "1"], &["0000dddd"]),
        (&["--outcome", "NoFit"], &[]),
    ] {
        let args = [&["deploy/nginx", "-o", "json"], flags].concat();
        assert_eq!(ids(&hub.atoll("history", &args).await.json()), expected, "{flags:?}");
    }
    let yaml = hub.atoll("history", &["deploy/nginx", "-o", "yaml"]).await.ok();
    assert!(yaml.starts_with("apiVersion: history.atoll.dev/v1alpha1"), "{yaml}");
}

#[tokio::test(flavor = "multi_thread")]
async fn mistakes_are_answered_with_the_flag_and_the_fix() {
    let hub = Hub::with_history().await;
    for (verb, args, code, part) in [
        ("history", &["gizmo/nginx"][..], 1, "kubectl api-resources"),
        ("history", &["nginx"], 1, "TYPE/NAME"),
        (
            "history",
            &["deploy/absent"],
            1,
            "nothing was ever decided about deployment.apps default/absent",
        ),
        ("history", &["deploy/nginx", "--trigger", "Whim"], 2, "one of `First`"),
        ("history", &["deploy/nginx", "--since", "soon"], 2, "--since"),
        ("history", &["deploy/nginx", "--context", "moon"], 1, "--context \"moon\""),
        ("history", &["deploy/nginx", "--kubeconfig", "/absent"], 1, "--kubeconfig /absent"),
        ("explain", &["deploy/nginx", "--decision", "0000"], 1, "matches several ids"),
        ("explain", &["deploy/nginx", "--decision", "ffff"], 1, "--decision ffff"),
        ("explain", &["deploy/nginx", "--decision", "xyz!"], 2, "32 hex digits"),
        ("explain", &["deploy/nginx", "--cluster", "moon"], 1, "--cluster \"moon\""),
        ("explain", &["deploy/absent"], 1, "nothing was ever decided"),
        ("history", &["-A", "deploy/nginx"], 2, "--all-namespaces"),
        ("history", &["-w", "--until", "1h"], 2, "--watch"),
        (
            "history",
            &["--since", "1970-01-02T00:00:00Z", "--until", "1970-01-01T00:00:00Z"],
            1,
            "--until 1970-01-01T00:00:00Z is not after --since",
        ),
        ("history", &["--outcome", "'; DROP TABLE decisions --"], 2, "one of `Placed`"),
        ("history", &["--member", "member9"], 1, "there is no member member9"),
        ("history", &["deploy/nginx", "--member", "member9"], 1, "there is no member member9"),
        ("timeline", &["deploy/absent"], 1, "nothing was decided"),
        ("timeline", &["deploy/nginx", "--until", "tomorrow"], 2, "--until"),
        ("timeline", &["deploy/nginx", "--since", "1h", "--until", "2h"], 1, "--until "),
        ("timeline", &[], 2, "WORKLOAD"),
        ("diff", &["0000aaaa"], 2, "ID"),
        ("diff", &["0000aaaa", "no-id"], 2, "32 hex digits"),
        ("diff", &["0000aaaa", "0000"], 1, "matches several ids"),
        (
            "diff",
            &["0000aaaa", "ffff"],
            1,
            "no decision about workloads of namespace default has an id that begins so",
        ),
    ] {
        let error = hub.atoll(verb, args).await.failed(code);
        assert!(error.contains(part), "{verb} {args:?}: {error}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn explain_says_what_is_known_of_every_cluster() {
    let hub = Hub::with_history().await;
    // By default the last decision that evaluated clusters, with what came after it.
    let text = hub.atoll("explain", &["deploy/nginx"]).await.ok();
    for part in ["EvictionDone", "member1", "member2", "member3", "not in clusterNames"] {
        assert!(text.contains(part), "{part}:\n{text}");
    }
    assert!(text.lines().all(|line| line.chars().count() <= 100), "{text}");
    let one = hub.atoll("explain", &["deploy/nginx", "--cluster", "member1"]).await.ok();
    for part in ["member1: selected", "2 -> 6", "more: 40, bounded by cpu", "Locality: 100"] {
        assert!(one.contains(part), "{part}:\n{one}");
    }
    let refused = hub.atoll("explain", &["deploy/nginx", "--cluster", "member3"]).await.ok();
    assert!(refused.contains("ClusterAffinity: not in clusterNames"), "{refused}");
    assert!(refused.contains("what would change it:\n  name it in the policy's"), "{refused}");
    let object = hub.atoll("explain", &["deploy/nginx", "-o", "json"]).await.json();
    assert_eq!(object["spec"]["detail"]["trigger"], "Scale");
    let old = hub.atoll("explain", &["deploy/nginx", "--decision", "0000d"]).await.ok();
    assert!(old.contains("EvictionDone") && old.contains("weighed no clusters"), "{old}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hub_without_history_shows_what_the_binding_holds_and_says_so() {
    let hub = Hub::without_history().await;
    hub.install_crds().await;
    hub.atoll("history", &["deploy/nginx"]).await.failed(1);
    let held = decision("0000eeee", Trigger::Failover, 100, &[("member2", 3)]);
    hub.create_binding(&held).await;
    let answer = hub.atoll("history", &["deploy/nginx", "-o", "json"]).await;
    assert!(answer.stderr.contains("does not serve history.atoll.dev"), "{}", answer.stderr);
    let list = answer.json();
    assert_eq!(ids(&list), ["0000eeee"]);
    assert_eq!(list["items"][0]["spec"]["after"], json!([{"name": "member2", "replicas": 3}]));
    let none = hub.atoll("history", &["deploy/nginx", "--trigger", "Scale"]).await.ok();
    assert!(none.contains("No decision matches"), "{none}");
    let text = hub.atoll("explain", &["deploy/nginx"]).await.ok();
    assert!(text.contains("Failover") && text.contains("unknown"), "{text}");
    let work = hub.atoll("work", &["member2"]).await.ok();
    assert!(work.contains("deployment/nginx") && work.contains("Target"), "{work}");
    let unknown = hub.atoll("work", &["member9"]).await.failed(1);
    assert!(unknown.contains("there is no member member9: `atoll get members`"), "{unknown}");
    assert!(hub.atoll("get", &["members"]).await.ok().contains("No members"));
}

#[tokio::test(flavor = "multi_thread")]
async fn kubectl_reads_decisions() {
    let hub = Hub::with_history().await;
    if !hub.has_kubectl() {
        return;
    }
    let table = hub.kubectl(&["get", "decisions"]).await.ok();
    let mut lines = table.lines();
    let header: Vec<_> = lines.next().unwrap().split_whitespace().collect();
    assert_eq!(header[..5], ["NAME", "AGE", "WORKLOAD", "TRIGGER", "OUTCOME"], "{table}");
    assert!(lines.next().unwrap().starts_with("cccc"), "newest first:\n{table}");
    let one = hub.kubectl(&["get", "dec", "0000bbbb", "-o", "json"]).await.json();
    assert_eq!(one["spec"]["detail"]["strategy"], "Static weights");
    for (flag, selector, expected) in [
        ("-l", "history.atoll.dev/trigger=Scale", &["0000bbbb"][..]),
        ("-l", "history.atoll.dev/cluster=member2", &["0000bbbb", "0000aaaa"]),
        ("--field-selector", "spec.workload.name=other", &["cccc"]),
        ("--field-selector", "since=1970-01-01T00:04:00Z", &["cccc", "0000dddd"]),
    ] {
        let list = hub.kubectl(&["get", "decisions", "-o", "json", flag, selector]).await.json();
        assert_eq!(ids(&list), expected, "{selector}");
    }
    let paged = hub.kubectl(&["get", "decisions", "--chunk-size=1", "-o", "name"]).await.ok();
    assert_eq!(paged.lines().count(), 4, "{paged}");
    let error =
        hub.kubectl(&["get", "dec", "-l", "history.atoll.dev/trigger in (Scale,First)"]).await;
    assert!(error.failed(1).contains("one value only"));
    let error = hub.kubectl(&["get", "dec", "--field-selector", "since=yesterday"]).await.failed(1);
    assert!(error.contains("RFC 3339"), "{error}");
    let described = hub.kubectl(&["describe", "decision", "0000bbbb"]).await.ok();
    assert!(described.contains("Trigger") && described.contains("Scale"), "{described}");
    let fields = hub.kubectl(&["explain", "decision.spec.outcome"]).await.ok();
    assert!(fields.contains("How it ended"), "{fields}");
    hub.kubectl(&["delete", "decision", "0000bbbb"]).await.failed(1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_certificate_of_another_authority_is_said_to_be_that() {
    let (hub, other) = (Hub::without_history().await, Hub::without_history().await);
    let text = std::fs::read_to_string(hub.kubeconfig()).unwrap();
    let mut config: Value = serde_json::from_str(&text).unwrap();
    let foreign = other.kubeconfig().with_file_name("ca.crt");
    config["clusters"][0]["cluster"]["certificate-authority"] = json!(foreign);
    let file = hub.kubeconfig().with_file_name("foreign");
    std::fs::write(&file, config.to_string()).unwrap();
    let file = file.to_str().unwrap();
    for (verb, args) in [
        ("get", &["members", "--kubeconfig", file][..]),
        ("controller", &["--kubeconfig", file, "--listen", "127.0.0.1:0", "--history", "h.db"]),
        ("agent", &["--kubeconfig", file, "--address", "127.0.0.1:1"]),
    ] {
        let error = hub.atoll(verb, args).await.failed(1);
        assert!(error.contains("certificate-authority did not sign"), "{verb}: {error}");
        assert!(error.contains(file) && error.contains("--kubeconfig"), "{verb}: {error}");
    }
}
