//! The messages of a session, and which session is the current one.

use std::time::Duration;

use atoll_controller::leader::LeaderTerm;
use atoll_controller::members::{
    ApplyResult, HealthTimes, MemberEvent, Proof, REVOKED_BEFORE, Verdict,
};
use atoll_protocol::v1;
use atoll_protocol::v1::agent_message::Message as ToController;
use kube::api::DeleteParams;
use tokio::time::{Instant, timeout};
use tonic::Code;

use crate::agent::{Agent, Object, ROOM, Store, client, enrol, hello, keep_alive};
use crate::rig::{Hub, LIMIT, Rig, eventually, rendered};

const BEAT: Duration = Duration::from_secs(5);

#[tokio::test(start_paused = true)]
async fn the_first_wave_then_differences_then_nothing_after_a_restart() {
    let hub = Hub::start().await;
    let mut rig = Rig::start(&hub).await;
    hub.register("member1").await;
    let identity = enrol(&rig, "member1").await;
    let mut store = Store::default();
    rig.set("member1", "a", "h1");
    rig.set("member1", "b", "h1");

    let mut agent = Agent::welcomed(&rig, &identity, "member1", 1, &store).await;
    let beats = keep_alive(&agent, BEAT);
    assert_eq!(agent.sync(&mut store).await, ["inventory", "upsert a h1", "upsert b h1"]);
    for name in ["a", "b"] {
        rig.event(|event| {
            matches!(event, MemberEvent::Applied { claims, result: ApplyResult::Applied, current: true, .. }
                if claims == &[name.to_owned()])
        })
        .await;
    }
    rig.set("member1", "b", "h2");
    let mut log = Vec::new();
    let message = agent.next().await.unwrap();
    agent.follow(message, &mut store, &mut log).await;
    assert_eq!(log, ["upsert b h2"]);

    // A report under another hash than the desired one is not current.
    let report = |hash: &str| {
        ToController::Status(v1::Status {
            key: store.0.keys().nth(1).cloned(),
            hash: hash.into(),
            ready: Some(1),
            replicas: Some(1),
            status_json: br#"{"readyReplicas":1}"#.as_slice().into(),
            ..v1::Status::default()
        })
    };
    for (hash, current) in [("h1", false), ("h2", true)] {
        agent.send(report(hash)).await;
        let event = rig.event(|event| matches!(event, MemberEvent::Status { .. })).await;
        let MemberEvent::Status { report, claims, .. } = event else { unreachable!() };
        assert_eq!((report.current, claims), (current, vec!["b".into()]));
        assert_eq!(report.status.unwrap()["readyReplicas"], 1);
    }
    agent.facts(1000).await;
    eventually(async || hub.ready("member1").await == "True/MemberReady").await;
    beats.abort();

    // The controller restarts without a change: no inventory, no upsert, no write.
    rig.stop().await;
    let before = hub.clusters().get("member1").await.unwrap();
    let mut rig = Rig::start_with(&hub, HealthTimes::default(), Some(2), |_| ()).await;
    rig.set("member1", "a", "h1");
    rig.set("member1", "b", "h2");
    let mut agent = Agent::welcomed(&rig, &identity, "member1", 1, &store).await;
    let _beats = keep_alive(&agent, BEAT);
    assert!(
        timeout(Duration::from_secs(3), agent.next()).await.is_err(),
        "no order before all desired state is set"
    );
    rig.complete(2);
    assert_eq!(agent.sync(&mut store).await, [""; 0]);
    let event = rig.event(|event| matches!(event, MemberEvent::Inventory { .. })).await;
    let MemberEvent::Inventory { held, orphans, .. } = event else { unreachable!() };
    assert_eq!((held.iter().filter(|object| object.current).count(), orphans), (2, 0));
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(hub.clusters().get("member1").await.unwrap(), before, "a restart writes nothing");
}

#[tokio::test(start_paused = true)]
async fn nothing_leaves_without_proof_and_removals_come_before_synced() {
    let hub = Hub::start().await;
    let mut rig = Rig::start(&hub).await;
    hub.register("member1").await;
    let identity = enrol(&rig, "member1").await;
    // A member's objects after a restore of the hub: the controller knows `kept`, has a record of `gone`, and has no
    // trace of `orphan`; `frozen` cannot be rendered now.
    let mut store = Store::default();
    for name in ["frozen", "gone", "kept", "orphan", "released"] {
        let (group, kind) = ("apps".to_owned(), "Deployment".to_owned());
        let key = v1::ObjectKey { group, kind, namespace: "shop".into(), name: name.into() };
        let (claims, uid) = (vec![name.to_owned()], format!("uid-{name}"));
        store.0.insert(key, Object { hash: "h1".into(), claims, uid });
    }
    rig.set("member1", "kept", "h1");
    rig.verdicts.0.lock().unwrap().extend([
        ("gone".into(), Verdict::Remove(Proof::Recorded)),
        ("released".into(), Verdict::Release(Proof::BindingDeleted)),
        ("frozen".into(), Verdict::Frozen),
    ]);
    let mut agent = Agent::welcomed(&rig, &identity, "member1", 1, &store).await;
    let _beats = keep_alive(&agent, BEAT);
    let log = agent.sync(&mut store).await;
    assert_eq!(log, ["inventory", "remove gone uid-gone", "release released uid-released"]);
    for claim in ["gone", "released"] {
        rig.event(|event| matches!(event, MemberEvent::Withdrawn { claim: c, .. } if c == claim))
            .await;
    }
    assert_eq!(rig.members.orphans()["member1"].len(), 1);
    eventually(async || hub.status("member1").await.orphans == Some(1)).await;

    // An empty desired set is no proof; a withdrawal is, and is confirmed when the member reports the removal.
    rig.set_all("member1", "kept", Vec::new());
    rig.withdraw("member1", "orphan", Proof::Recorded);
    let mut log = Vec::new();
    let message = agent.next().await.unwrap();
    agent.follow(message, &mut store, &mut log).await;
    assert_eq!(log, ["remove orphan uid-orphan"]);
    rig.event(|event| matches!(event, MemberEvent::Withdrawn { claim, .. } if claim == "orphan"))
        .await;
    let names: Vec<_> = store.0.keys().map(|key| key.name.as_str()).collect();
    assert_eq!(names, ["frozen", "kept"]);
}

#[tokio::test(start_paused = true)]
async fn of_two_claims_that_differ_the_second_hears_of_a_conflict() {
    let hub = Hub::start().await;
    let mut rig = Rig::start(&hub).await;
    hub.register("member1").await;
    let identity = enrol(&rig, "member1").await;
    for (claim, hash) in [("a", "h1"), ("b", "h2"), ("c", "h1")] {
        let objects = vec![rendered("shared", claim, hash, 0)];
        rig.set_all("member1", claim, objects);
    }
    let mut store = Store::default();
    let mut agent = Agent::welcomed(&rig, &identity, "member1", 1, &store).await;
    assert_eq!(agent.sync(&mut store).await, ["inventory", "upsert shared h1"]);
    let mut heard = Vec::new();
    for _ in 0..2 {
        let event = rig.event(|event| matches!(event, MemberEvent::Applied { .. })).await;
        let MemberEvent::Applied { claims, result, reason, .. } = event else { unreachable!() };
        heard.push((claims.join(","), result, reason));
    }
    let conflict = ("b".to_owned(), ApplyResult::Conflict, "AnotherBinding".to_owned());
    assert_eq!(heard, [conflict, ("a,c".to_owned(), ApplyResult::Applied, String::new())]);
}

#[tokio::test(start_paused = true)]
async fn an_agent_that_does_not_agree_is_asked_again_but_not_forever() {
    let hub = Hub::start().await;
    let rig = Rig::start(&hub).await;
    hub.register("member1").await;
    let identity = enrol(&rig, "member1").await;
    rig.set("member1", "a", "h1");
    let mut store = Store::default();
    let mut agent = Agent::welcomed(&rig, &identity, "member1", 1, &store).await;
    agent.sync(&mut store).await;
    // It reports the object as missing: another wave restores it.
    store.0.clear();
    agent.inventory(&store).await;
    assert_eq!(agent.sync(&mut store).await, ["upsert a h1"]);
    for _ in 0..5 {
        agent.inventory(&store).await;
    }
    assert_eq!(agent.end().await.code(), Code::Aborted);
}

#[tokio::test(start_paused = true)]
async fn of_two_agents_with_one_identity_the_higher_epoch_counts() {
    let hub = Hub::start().await;
    let rig = Rig::start(&hub).await;
    hub.register("member1").await;
    let identity = enrol(&rig, "member1").await;
    let mut store = Store::default();
    let mut first = Agent::welcomed(&rig, &identity, "member1", 3, &store).await;
    let mut second = Agent::welcomed(&rig, &identity, "member1", 4, &store).await;
    assert_eq!(first.end().await.code(), Code::Aborted);
    // The lower one reconnects and is refused; the higher one stays.
    let hello = |epoch| hello(&identity, "member1", epoch, &Store::default());
    let mut again = Agent::open(&rig, &identity, hello(3), ROOM).await.unwrap();
    assert_eq!(again.end().await.code(), Code::FailedPrecondition);
    rig.set("member1", "a", "h1");
    second.sync(&mut store).await;
    second.beat().await;
    eventually(async || hub.status("member1").await.session.is_some_and(|s| s.epoch == 4)).await;

    // The next controller refuses it too, because the Cluster stores the epoch.
    rig.stop().await;
    let rig = Rig::start(&hub).await;
    let mut again = Agent::open(&rig, &identity, hello(3), ROOM).await.unwrap();
    assert_eq!(again.end().await.code(), Code::FailedPrecondition);
    Agent::welcomed(&rig, &identity, "member1", 4, &Store::default()).await;
}

#[tokio::test(start_paused = true)]
async fn only_the_leader_speaks() {
    let hub = Hub::start().await;
    let rig = Rig::start(&hub).await;
    hub.register("member1").await;
    let identity = enrol(&rig, "member1").await;
    let store = Store::default();
    rig.term.send_replace(Some(LeaderTerm::new(7)));
    let mut agent =
        Agent::open(&rig, &identity, hello(&identity, "member1", 1, &store), ROOM).await.unwrap();
    let message = timeout(LIMIT, agent.session.incoming.message()).await.unwrap().unwrap().unwrap();
    assert_eq!(message.term, 7);

    // The agent accepted a higher one: this leader sends nothing more.
    let mut higher = hello(&identity, "member1", 1, &store);
    higher.highest_term = 9;
    let mut refused = Agent::open(&rig, &identity, higher.clone(), ROOM).await.unwrap();
    assert_eq!(refused.end().await.code(), Code::Unavailable);
    higher.highest_term = 7 + (1 << 32) + 1;
    let mut absurd = Agent::open(&rig, &identity, higher, ROOM).await.unwrap();
    assert_eq!(absurd.end().await.code(), Code::FailedPrecondition);

    // Leadership lost: sessions end, and every call is refused at once.
    let mut agent = Agent::welcomed(&rig, &identity, "member1", 1, &store).await;
    rig.term.send_replace(None);
    assert_eq!(agent.end().await.code(), Code::Unavailable);
    let before = Instant::now();
    let hello = hello(&identity, "member1", 1, &store);
    let Err(refused) = Agent::open(&rig, &identity, hello, ROOM).await else {
        panic!("a follower has no sessions")
    };
    assert_eq!((refused.code(), refused.message()), (Code::Unavailable, "not leader"));
    let renewed = client(&rig, &identity, ROOM).await.renew(v1::RenewRequest::default()).await;
    assert_eq!(renewed.unwrap_err().code(), Code::Unavailable);
    assert!(before.elapsed() < Duration::from_secs(1));
}

/// Agents and controller are upgraded one after the other, in any order.
#[tokio::test(start_paused = true)]
async fn a_newer_agent_is_heard_in_what_is_known() {
    let hub = Hub::start().await;
    let rig = Rig::start(&hub).await;
    hub.register("member1").await;
    let identity = enrol(&rig, "member1").await;
    let mut store = Store::default();
    let mut agent = Agent::welcomed(&rig, &identity, "member1", 1, &store).await;
    agent.sync(&mut store).await;
    // A message of an unknown type is ignored.
    agent.session.outgoing.send(v1::AgentMessage { message: None }).await.unwrap();
    agent.facts(1000).await;
    eventually(async || hub.ready("member1").await == "True/MemberReady").await;
    rig.set("member1", "web", "h1");
    while store.0.is_empty() {
        let message = agent.next().await.unwrap();
        agent.follow(message, &mut store, &mut Vec::new()).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_member_that_does_not_read_slows_no_other() {
    let hub = Hub::start().await;
    let rig = Rig::start(&hub).await;
    for name in ["fast", "slow"] {
        hub.register(name).await;
    }
    let (fast, slow) = (enrol(&rig, "fast").await, enrol(&rig, "slow").await);
    let mut store = Store::default();
    let mut quick = Agent::welcomed(&rig, &fast, "fast", 1, &store).await;
    quick.sync(&mut store).await;
    // A pipe of 4 KiB that is never read, and 20 MB to send over it.
    let stuck = Agent::open(&rig, &slow, hello(&slow, "slow", 1, &store), 4096).await.unwrap();
    for i in 0..200 {
        let name = format!("w{i}");
        let objects = vec![rendered(&name, &name, "h1", 100_000)];
        rig.set_all("slow", &name, objects);
    }
    let start = Instant::now();
    for i in 0..200 {
        rig.set("fast", &format!("w{i}"), "h1");
    }
    while store.0.len() < 200 {
        let message = quick.next().await.unwrap();
        quick.follow(message, &mut store, &mut Vec::new()).await;
    }
    assert!(start.elapsed() < Duration::from_secs(1), "{:?}", start.elapsed());
    // Messages of an agent that does not read are still handled, and it gets the newest state once it reads.
    stuck.facts(1000).await;
    eventually(async || hub.ready("slow").await == "True/MemberReady").await;
    for i in 0..200 {
        rig.set("slow", &format!("w{i}"), "h2");
    }
    let (mut stuck, mut held, mut log) = (stuck, Store::default(), Vec::new());
    let drain = async {
        while !(held.0.len() == 200 && held.0.values().all(|object| object.hash == "h2")) {
            let message = stuck.next().await.unwrap();
            stuck.follow(message, &mut held, &mut log).await;
        }
    };
    timeout(LIMIT, drain).await.unwrap();
    assert!(log.len() < 300, "old versions were not sent: {}", log.len());
}

#[tokio::test(start_paused = true)]
async fn revoking_and_deleting_end_the_session_and_so_does_the_certificates_end() {
    let hub = Hub::start().await;
    let mut rig = Rig::start(&hub).await;
    let store = Store::default();
    for name in ["ageing", "deleted", "revoked"] {
        hub.register(name).await;
    }
    let revoked = enrol(&rig, "revoked").await;
    let deleted = enrol(&rig, "deleted").await;
    let mut one = Agent::welcomed(&rig, &revoked, "revoked", 1, &store).await;
    let mut two = Agent::welcomed(&rig, &deleted, "deleted", 1, &store).await;
    tokio::time::advance(Duration::from_secs(2)).await;
    let start = Instant::now();
    hub.annotate("revoked", REVOKED_BEFORE, &hub.clock.now().to_string()).await;
    assert_eq!(one.end().await.code(), Code::PermissionDenied);
    hub.clusters().delete("deleted", &DeleteParams::default()).await.unwrap();
    assert_eq!(two.end().await.code(), Code::PermissionDenied);
    assert!(start.elapsed() < Duration::from_secs(10));
    for name in ["revoked", "deleted"] {
        rig.event(|event| matches!(event, MemberEvent::Lost { cluster, .. } if cluster == name))
            .await;
    }

    let ageing = enrol(&rig, "ageing").await;
    let mut three = Agent::welcomed(&rig, &ageing, "ageing", 1, &store).await;
    let _beats = keep_alive(&three, BEAT);
    let ends = ageing.facts().not_after;
    let left = ends.duration_since(hub.clock.now()).unsigned_abs();
    tokio::time::advance(left - Duration::from_secs(60)).await;
    let status = three.end().await;
    assert_eq!(status.code(), Code::Unauthenticated, "{status}");
    assert!(hub.clock.now().duration_since(ends).as_secs().abs() <= 1);
}

#[tokio::test(start_paused = true)]
async fn the_first_message_must_be_hello_and_in_time() {
    let hub = Hub::start().await;
    let rig = Rig::start(&hub).await;
    hub.register("member1").await;
    let identity = enrol(&rig, "member1").await;
    for (first, expected) in [
        (Some(ToController::Heartbeat(v1::Heartbeat::default())), Code::FailedPrecondition),
        (None, Code::DeadlineExceeded),
    ] {
        let (outgoing, messages) = tokio::sync::mpsc::channel(1);
        if let Some(message) = first {
            outgoing.send(v1::AgentMessage { message: Some(message) }).await.unwrap();
        }
        let mut client = client(&rig, &identity, ROOM).await;
        let stream = tokio_stream::wrappers::ReceiverStream::new(messages);
        let mut answers = client.session(stream).await.unwrap().into_inner();
        let status = timeout(LIMIT, answers.message()).await.unwrap().unwrap_err();
        assert_eq!(status.code(), expected, "{status}");
    }
}
