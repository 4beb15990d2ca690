//! Output for users: tables, pictures, comparisons, and live updates.

use atoll_api::binding::Trigger;
use atoll_history::{Event, MemberEvent, MemberEventKind, Milestone, Stage};
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::served::{Hub, decision};

/// After the last decision of the hub's history.
const END: &str = "1970-01-01T00:06:00Z";

#[track_caller]
fn fits(text: &str) {
    assert!(text.lines().all(|line| line.chars().count() <= 100), "wider than 100:\n{text}");
    assert!(!text.contains('\u{1b}'), "colours, and nobody looks:\n{text}");
    assert!(text.lines().all(|line| line.trim_end() == line), "blanks at an end:\n{text}");
}

#[tokio::test(flavor = "multi_thread")]
async fn timeline_draws_members_by_time() {
    let hub = Hub::with_history().await;
    let text = hub.atoll("timeline", &["deploy/nginx", "--until", END]).await.ok();
    fits(&text);
    insta::assert_snapshot!("timeline", text);
    let zoomed =
        ["deploy/nginx", "--since", "1970-01-01T00:03:00Z", "--until", "1970-01-01T00:04:00Z"];
    let text = hub.atoll("timeline", &zoomed).await.ok();
    fits(&text);
    insta::assert_snapshot!("timeline-zoomed", text);
    let json = hub.atoll("timeline", &[&zoomed[..], &["-o", "json"]].concat()).await.json();
    assert_eq!(
        json["members"][0],
        json!({"name": "member1", "spans": [
            {"from": "1970-01-01T00:03:00Z", "until": "1970-01-01T00:03:20Z", "replicas": 2},
            {"from": "1970-01-01T00:03:20Z", "until": "1970-01-01T00:04:00Z", "replicas": 6},
        ]})
    );
    assert_eq!(json["decisions"][0]["trigger"], "Scale");
    assert_eq!(json["decisions"].as_array().unwrap().len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_long_history_fits_the_screen_too() {
    let hub = Hub::with_history().await;
    let shares = |n: i64| -> Vec<(String, i64)> {
        (0..30)
            .filter(|m| (n + m) % 3 > 0)
            .map(|m| (format!("cluster-{m:02}"), n % 7 + m))
            .collect()
    };
    let mut records = Vec::new();
    for n in 0..60 {
        let now = shares(n);
        let now: Vec<(&str, i64)> =
            now.iter().map(|(name, count)| (name.as_str(), *count)).collect();
        let trigger = if n == 0 { Trigger::First } else { Trigger::Failover };
        let mut record = decision(&format!("{n:032x}"), trigger, 1_000 + n * n, &now);
        record.workload.name = "big".to_owned();
        records.push(record);
    }
    hub.record(&records).await;
    let text = hub.atoll("timeline", &["deploy/big", "--until", "1970-01-01T02:00:00Z"]).await.ok();
    fits(&text);
    insta::assert_snapshot!("timeline-long", text);
}

#[tokio::test(flavor = "multi_thread")]
async fn diff_says_what_is_different() {
    let hub = Hub::with_history().await;
    let text = hub.atoll("diff", &["0000aaaa", "0000bbbb"]).await.ok();
    fits(&text);
    insta::assert_snapshot!("diff", text);
    let json = hub.atoll("diff", &["0000aaaa", "0000bbbb", "-o", "json"]).await.json();
    assert_eq!(json["shares"][0], json!({"of": "member1", "from": "2", "to": "6"}));
    assert_eq!(json["unknown"], json!([]));
    let partly = hub.atoll("diff", &["0000bbbb", "0000dddd"]).await.ok();
    fits(&partly);
    insta::assert_snapshot!("diff-partly-known", partly);
    let same = hub.atoll("diff", &["0000bbbb", "0000bbbb"]).await.ok();
    assert!(same.contains("No differences."), "{same}");
    let little = hub.atoll("diff", &["0000dddd", "0000dddd"]).await.ok();
    assert!(little.contains("No differences in what history has of both."), "{little}");
}

#[tokio::test(flavor = "multi_thread")]
async fn history_of_a_namespace_and_of_all() {
    let hub = Hub::with_history().await;
    let mut role = decision("eeee", Trigger::First, 150, &[("member1", 0)]);
    (role.binding.namespace, role.workload.namespace) = (None, None);
    (role.workload.kind, role.workload.name) = ("ClusterRole".to_owned(), "admin".to_owned());
    role.binding.kind = "ClusterResourceBinding".to_owned();
    let mut bank = decision("ffff", Trigger::First, 160, &[("member1", 3)]);
    bank.binding.namespace = Some("bank".to_owned());
    hub.record(&[role, bank]).await;
    let own = hub.atoll("history", &[]).await.ok();
    fits(&own);
    insta::assert_snapshot!("history-namespace", own);
    let all = hub.atoll("history", &["-A"]).await.ok();
    fits(&all);
    insta::assert_snapshot!("history-all", all);
    let wide = hub.atoll("history", &["deploy/nginx", "-o", "wide"]).await.ok();
    insta::assert_snapshot!("history-wide", wide);
    let newest = hub.atoll("history", &["-A", "--limit", "2", "-o", "json"]).await.json();
    let ids: Vec<_> =
        newest["items"].as_array().unwrap().iter().map(|i| &i["metadata"]["name"]).collect();
    assert_eq!(ids, ["cccc", "0000dddd"]);
    let none = hub.atoll("history", &["--member", "a,spec.trigger=First"]).await.failed(1);
    assert!(none.contains("there is no member a,"), "a selector was smuggled in:\n{none}");
}

#[tokio::test(flavor = "multi_thread")]
async fn history_follows_live() {
    let hub = Hub::with_history().await;
    let mut following = hub.follow(&["history", "deploy/nginx", "-w", "-o", "json"]).await;
    for id in ["0000aaaa", "0000bbbb", "0000dddd"] {
        assert_eq!(following.json().await["metadata"]["name"], id, "oldest first");
    }
    let mut other = decision("aaaa0001", Trigger::Scale, 400, &[("member1", 1)]);
    other.workload.name = "other".to_owned();
    let own = decision("aaaa0002", Trigger::Failover, 401, &[("member2", 9)]);
    hub.record(&[other, own]).await;
    let next: Value = following.json().await;
    assert_eq!(next["metadata"]["name"], "aaaa0002");
    let mut table = hub.follow(&["history", "-w"]).await;
    let mut lines = Vec::new();
    for _ in 0..6 {
        lines.push(table.line().await);
    }
    fits_a_line(&lines[5]);
    assert!(lines[5].contains("aaaa0002") && lines[5].contains("Failover"), "{lines:#?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn how_long_it_took_and_where() {
    let hub = Hub::with_history().await;
    let of = decision("0000bbbb", Trigger::Scale, 200, &[]).record;
    let step = |cluster: Option<&str>, stage, millis: i64| {
        let at = Timestamp::from_millisecond(200_000 + millis).unwrap();
        Event::Milestone(Milestone::of(&of, cluster, stage, at))
    };
    let mut events = vec![step(None, Stage::Decided, 5), step(None, Stage::Committed, 30)];
    for (member, times) in [("member1", [40, 250, 3_530]), ("member2", [41, 130, 1_030])] {
        let stages = [Stage::Dispatched, Stage::Applied, Stage::Healthy];
        let steps = stages.into_iter().zip(times);
        events.extend(steps.map(|(stage, millis)| step(Some(member), stage, millis)));
    }
    events.push(Event::Member(MemberEvent {
        cluster: "member1".into(),
        uid: None,
        at: Timestamp::from_second(220).unwrap(),
        kind: MemberEventKind::Lost,
        reason: "Silent".to_owned(),
        message: "nothing heard for 15 s".to_owned(),
    }));
    hub.note(&events).await;
    let explained = hub.atoll("explain", &["deploy/nginx", "--decision", "0000bbbb"]).await.ok();
    insta::assert_snapshot!("explain-life", explained);
    let wide = hub.atoll("history", &["deploy/nginx", "-o", "wide"]).await.ok();
    insta::assert_snapshot!("history-wide-life", wide);
    let drawn = hub.atoll("timeline", &["deploy/nginx", "--until", END]).await.ok();
    assert!(drawn.contains("Scale, healthy after 3.5s:"), "{drawn}");
    // Events of the member are listed among the decisions about it.
    let member = hub.atoll("history", &["--member", "member1"]).await.ok();
    fits(&member);
    insta::assert_snapshot!("history-member", member);
    if hub.has_kubectl() {
        let events = hub.kubectl(&["get", "memberevents"]).await.ok();
        assert!(events.contains("Lost") && events.contains("nothing heard for 15 s"), "{events}");
        let wide = hub.kubectl(&["get", "decision", "0000bbbb", "-o", "wide"]).await.ok();
        assert!(wide.contains("0.22s") && wide.contains("3.5s"), "{wide}");
    }
}

/// Consecutive lines have their columns in the same places.
fn fits_a_line(line: &str) {
    assert!(
        line.starts_with("1970-01-01T00:06:41Z  aaaa0002  Failover       Placed         "),
        "{line}"
    );
}
