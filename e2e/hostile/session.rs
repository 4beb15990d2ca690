//! What a stolen member certificate can do inside a session: terms, epochs, sizes, numbers, and another member's uid.

use atoll_protocol::transport::INVENTORY_PAGE;
use atoll_protocol::v1;
use atoll_protocol::v1::agent_message::Message as Say;
use atoll_protocol::v1::controller_message::Message as Hear;
use serde_json::{Value, json};
use tonic::Code;

use super::client::{Session, hello};
use super::target::{StolenMember, Target};
use crate::support::federation::{bindings, cluster_objects, create, objects};
use crate::support::wait::{LIMIT, until};

/// A cluster that serves ConfigMaps.
fn facts() -> Say {
    let kind =
        v1::ApiKind { kind: "ConfigMap".into(), plural: "configmaps".into(), namespaced: true };
    Say::Facts(v1::Facts {
        kubernetes_version: "v1.33.0".into(),
        api_healthy: true,
        apis: vec![v1::ApiGroupVersion { group_version: "v1".into(), kinds: vec![kind] }],
        apis_complete: true,
        nodes_total: 1,
        nodes_ready: 1,
        taken_at_ms: 1,
        ..v1::Facts::default()
    })
}

/// Answers the controller as an agent without objects, until this object is to be applied.
async fn until_upsert(session: &mut Session, name: &str) -> v1::Upsert {
    let wait = async {
        loop {
            match session.next().await.expect("the session goes on") {
                Hear::InventoryRequest(_) => {
                    let last = v1::Inventory { entries: Vec::new(), last: true };
                    session.say(Say::Inventory(last)).await;
                }
                Hear::Upsert(upsert) if upsert.key.as_ref().is_some_and(|key| key.name == name) => {
                    return upsert;
                }
                _ => {}
            }
        }
    };
    tokio::time::timeout(LIMIT, wait).await.expect("the object is dispatched in time")
}

/// A session that has received its Welcome and reported its facts.
async fn honest(target: &Target, member: &StolenMember) -> Session {
    let mut session = Session::open(target.agents, &member.identity, hello(member)).await.unwrap();
    assert!(matches!(session.next().await, Ok(Hear::Welcome(_))));
    session.say(facts()).await;
    session
}

/// Propagates all ConfigMaps labelled `on: <member>` to it.
async fn propagate(target: &Target, member: &str) {
    let client = &target.hub.client;
    let policies = objects(client, "policy.atoll.dev", "v1alpha1", "PropagationPolicy", "default");
    let spec = json!({
        "resourceSelectors": [
            {"apiVersion": "v1", "kind": "ConfigMap", "labelSelector": {"matchLabels": {"on": member}}},
        ],
        "placement": {"clusterAffinity": {"clusterNames": [member]}},
    });
    create(
        &policies,
        json!({
            "apiVersion": "policy.atoll.dev/v1alpha1", "kind": "PropagationPolicy",
            "metadata": {"name": member, "namespace": "default"}, "spec": spec,
        }),
    )
    .await;
}

async fn config(target: &Target, name: &str, member: &str) {
    let configs = objects(&target.hub.client, "", "v1", "ConfigMap", "default");
    create(
        &configs,
        json!({
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": name, "namespace": "default", "labels": {"on": member}},
        }),
    )
    .await;
}

/// How a session with this Hello ends.
async fn refused(target: &Target, member: &StolenMember, first: v1::Hello) -> Code {
    match Session::open(target.agents, &member.identity, first).await {
        Ok(mut session) => session.end().await.code(),
        Err(status) => status.code(),
    }
}

fn reason(cluster: &Value, kind: &str) -> Option<String> {
    let conditions = cluster["status"]["conditions"].as_array()?;
    let found = conditions.iter().find(|condition| condition["type"] == kind)?;
    Some(found["reason"].as_str()?.to_owned())
}

async fn term(target: &Target) -> String {
    let leases = objects(&target.hub.client, "coordination.k8s.io", "v1", "Lease", "atoll-system");
    let lease = leases.get("atoll-controller").await.unwrap();
    lease.metadata.annotations.unwrap()["atoll.dev/term"].clone()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_term_that_one_member_names_does_not_stop_dispatch_to_the_others() {
    let target = Target::start().await;
    let (thief, victim) = (target.join("thief").await, target.join("victim").await);
    propagate(&target, "victim").await;
    let mut session = honest(&target, &victim).await;
    drop(honest(&target, &thief).await);
    config(&target, "before", "victim").await;
    until_upsert(&mut session, "before").await;

    let before = term(&target).await;
    let ours: u64 = before.parse().unwrap();
    for named in [ours + 1, ours + (1 << 31), ours + 1, u64::MAX] {
        let first = v1::Hello { highest_term: named, ..hello(&thief) };
        let code = refused(&target, &thief, first).await;
        assert!(matches!(code, Code::Unavailable | Code::FailedPrecondition), "{code:?}");
    }
    let clusters = cluster_objects(&target.hub.client);
    until(&clusters, "thief", "TermAhead", |c| reason(c, "TermAhead").is_some()).await;
    // The same session, in the same term, receives later objects.
    config(&target, "after", "victim").await;
    until_upsert(&mut session, "after").await;
    assert_eq!(term(&target).await, before);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_honest_raise_is_accepted_by_a_person_and_dispatch_goes_on() {
    let target = Target::start().await;
    let member = target.join("only").await;
    propagate(&target, "only").await;
    drop(honest(&target, &member).await);
    let ours: u64 = term(&target).await.parse().unwrap();
    let ahead = v1::Hello { highest_term: ours + 4, ..hello(&member) };
    assert_eq!(refused(&target, &member, ahead.clone()).await, Code::Unavailable);
    let clusters = cluster_objects(&target.hub.client);
    until(&clusters, "only", "TermAhead", |c| reason(c, "TermAhead").is_some()).await;

    crate::support::cli::run(&mut target.atoll(&["accept-term", "only", "--yes"]));
    let leases = objects(&target.hub.client, "coordination.k8s.io", "v1", "Lease", "atoll-system");
    let raised = (ours + 5).to_string();
    until(&leases, "atoll-controller", "a higher term", |lease| {
        lease["metadata"]["annotations"]["atoll.dev/term"] == raised.as_str()
    })
    .await;
    config(&target, "after", "only").await;
    let welcome = async {
        loop {
            // Until the new term is in force, sessions are refused.
            let opened = Session::open(target.agents, &member.identity, ahead.clone()).await;
            let Ok(mut session) = opened else { continue };
            if let Ok(Hear::Welcome(_)) = session.next().await {
                return session;
            }
        }
    };
    let mut session = tokio::time::timeout(LIMIT, welcome).await.unwrap();
    session.say(facts()).await;
    until_upsert(&mut session, "after").await;
    until(&clusters, "only", "no TermAhead", |c| reason(c, "TermAhead").is_none()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_largest_epoch_locks_nobody_out() {
    let target = Target::start().await;
    let member = target.join("member").await;
    for epoch in [u64::MAX, (1 << 63) - 1, 1 << 40] {
        let first = v1::Hello { epoch, ..hello(&member) };
        assert_eq!(refused(&target, &member, first).await, Code::FailedPrecondition);
    }
    honest(&target, &member).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn inventories_and_facts_without_end_are_refused_and_take_bounded_memory() {
    let mut target = Target::start().await;
    let (thief, other) = (target.join("thief").await, target.join("other").await);
    let before = target.memory();
    let mut session = honest(&target, &thief).await;
    while !matches!(session.next().await.unwrap(), Hear::InventoryRequest(_) | Hear::Synced(_)) {}
    let entry = |n: usize| v1::InventoryEntry {
        key: Some(v1::ObjectKey {
            group: "g".repeat(1_000),
            kind: "K".into(),
            namespace: String::new(),
            name: n.to_string(),
        }),
        ..v1::InventoryEntry::default()
    };
    let outgoing = session.outgoing();
    let feed = tokio::spawn(async move {
        for first in (0..200 * INVENTORY_PAGE).step_by(INVENTORY_PAGE) {
            let entries = (first..first + INVENTORY_PAGE).map(entry).collect();
            let page = Say::Inventory(v1::Inventory { entries, last: false });
            if outgoing.send(v1::AgentMessage { message: Some(page) }).await.is_err() {
                return; // the client may notice the end of the session later than its next message
            }
        }
    });
    let ended = session.end().await;
    feed.abort();
    assert_eq!(ended.code(), Code::ResourceExhausted, "{ended}");
    let grown = target.memory().saturating_sub(before) >> 20;
    assert!(grown < 1_024, "{grown} MiB for one member's inventory");

    let kinds = vec![v1::ApiKind { kind: "K".repeat(2 << 20), ..v1::ApiKind::default() }];
    let apis = vec![v1::ApiGroupVersion { group_version: "v1".into(), kinds }];
    let mut session = honest(&target, &thief).await;
    session.say(Say::Facts(v1::Facts { apis, ..v1::Facts::default() })).await;
    assert_eq!(session.end().await.code(), Code::ResourceExhausted);
    honest(&target, &other).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_large_status_is_left_out_and_absurd_figures_are_clamped() {
    let target = Target::start().await;
    let member = target.join("member").await;
    propagate(&target, "member").await;
    let mut session = honest(&target, &member).await;
    config(&target, "web", "member").await;
    let upsert = until_upsert(&mut session, "web").await;
    let applied = v1::Applied {
        key: upsert.key.clone(),
        hash: upsert.hash.clone(),
        object_uid: "u".into(),
        result: v1::ApplyResult::Applied.into(),
        ..v1::Applied::default()
    };
    session.say(Say::Applied(applied)).await;
    let status_json = json!({"text": "x".repeat(1 << 20)}).to_string().into_bytes().into();
    let status = v1::Status {
        key: upsert.key,
        hash: upsert.hash,
        replicas: Some(i64::MAX),
        ready: Some(i64::MAX),
        unschedulable: i64::MIN,
        status_json,
        ..v1::Status::default()
    };
    session.say(Say::Status(status)).await;
    let said =
        until(&bindings(&target.hub.client, "default"), "web-configmap", "its status", |b| {
            let item = &b["status"]["aggregatedStatus"][0];
            item["appliedMessage"]
                .as_str()
                .is_some_and(|message| message.contains("status left out"))
        })
        .await;
    let item = &said["status"]["aggregatedStatus"][0];
    assert!(item.get("status").is_none_or(Value::is_null), "{item}");
    assert_eq!(item["readyReplicas"], i64::from(i32::MAX));
    assert_eq!(said["status"]["summary"]["ready"], i64::from(i32::MAX));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_member_that_reports_without_pause_delays_no_other_and_takes_bounded_memory() {
    let mut target = Target::start().await;
    let (thief, victim) = (target.join("thief").await, target.join("victim").await);
    propagate(&target, "victim").await;
    let mut session = honest(&target, &victim).await;
    let before = target.memory();
    let flood = honest(&target, &thief).await;
    let flooding = tokio::spawn(async move {
        let status_json = json!({"text": "x".repeat(32 << 10)}).to_string().into_bytes();
        for n in 0_u64.. {
            let key = v1::ObjectKey {
                kind: "ConfigMap".into(),
                namespace: "default".into(),
                name: n.to_string(),
                ..v1::ObjectKey::default()
            };
            let status = v1::Status {
                key: Some(key),
                hash: n.to_string(),
                status_json: status_json.clone().into(),
                ..v1::Status::default()
            };
            if !flood.say(Say::Status(status)).await {
                return;
            }
        }
    });
    for name in ["a", "b", "c", "d", "e"] {
        config(&target, name, "victim").await;
        until_upsert(&mut session, name).await;
    }
    let grown = target.memory().saturating_sub(before) >> 20;
    assert!(grown < 512, "{grown} MiB for one member's reports");
    flooding.abort();
}

#[tokio::test(flavor = "multi_thread")]
async fn control_characters_of_a_member_reach_neither_the_hub_nor_a_terminal() {
    let target = Target::start().await;
    let member = target.join("member").await;
    propagate(&target, "member").await;
    let mut session = honest(&target, &member).await;
    config(&target, "web", "member").await;
    let upsert = until_upsert(&mut session, "web").await;
    let hostile = "\u{1b}[2J\u{202e}\u{9b}31mowned";
    session
        .say(Say::Applied(v1::Applied {
            key: upsert.key.clone(),
            hash: upsert.hash.clone(),
            result: v1::ApplyResult::Failed.into(),
            reason: hostile.into(),
            message: hostile.into(),
            ..v1::Applied::default()
        }))
        .await;
    session
        .say(Say::Status(v1::Status {
            key: upsert.key,
            hash: upsert.hash,
            health: v1::Health::Unhealthy.into(),
            failing: true,
            health_reason: hostile.into(),
            health_message: hostile.into(),
            status_json: json!({"text": hostile}).to_string().into_bytes().into(),
            ..v1::Status::default()
        }))
        .await;
    let bound = bindings(&target.hub.client, "default");
    let binding = until(&bound, "web-configmap", "the member's message", |b| {
        let item = &b["status"]["aggregatedStatus"][0];
        item["healthMessage"].as_str().is_some_and(|message| message.contains("owned"))
    })
    .await;
    let mut texts = vec![binding["status"]["conditions"].to_string()];
    let item = &binding["status"]["aggregatedStatus"][0];
    for field in ["healthReason", "healthMessage", "appliedMessage"] {
        texts.push(item[field].as_str().unwrap_or_default().to_owned());
    }
    texts.push(item["status"]["text"].as_str().unwrap_or_default().to_owned());
    for verb in [&["work", "member"][..], &["get", "members"]] {
        texts.push(crate::support::cli::run(&mut target.atoll(verb)));
    }
    let escapes = |c: char| (c.is_control() && c != '\n') || c == '\u{202e}';
    for text in texts {
        assert!(!text.contains(escapes) && !text.contains("\\u001b"), "{text:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_new_member_cannot_take_the_uid_of_another() {
    let target = Target::start().await;
    let (known, thief) = (target.join("known").await, target.join("thief").await);
    let future = target.join("future").await;
    let mut session = honest(&target, &known).await;
    // Of a connected member, and of one that has enrolled but not connected yet.
    for taken in [&known, &future] {
        let first = v1::Hello { member_uid: taken.member_uid.clone(), ..hello(&thief) };
        assert_eq!(refused(&target, &thief, first).await, Code::FailedPrecondition);
    }
    honest(&target, &future).await;
    honest(&target, &thief).await;
    // The existing member is not affected.
    propagate(&target, "known").await;
    config(&target, "web", "known").await;
    until_upsert(&mut session, "web").await;
}
