//! Losses, taints, conditions, and when each is written.

use std::time::Duration;

use atoll_api::cluster::SessionState;
use atoll_api::{ClusterName, marks};
use atoll_controller::members::{HealthTimes, LostReason, MemberEvent};
use atoll_protocol::member::MemberIdentity;
use atoll_protocol::v1;
use atoll_protocol::v1::agent_message::Message as ToController;

use crate::agent::{Agent, Store, enrol, keep_alive};
use crate::rig::{Hub, Rig, eventually};

const SECOND: Duration = Duration::from_secs(1);

async fn settled(rig: &Rig, identity: &MemberIdentity, name: &str, epoch: u64) -> Agent {
    let mut store = Store::default();
    let mut agent = Agent::welcomed(rig, identity, name, epoch, &store).await;
    agent.sync(&mut store).await;
    agent.facts(1000).await;
    agent
}

/// A federation of connected members, past the leader's grace.
async fn federation(names: &[&str]) -> (Hub, Rig, Vec<(MemberIdentity, Agent, Beats)>) {
    let hub = Hub::start().await;
    let rig = Rig::start(&hub).await;
    let mut agents = Vec::new();
    for name in names {
        hub.register(name).await;
        let identity = enrol(&rig, name).await;
        let agent = settled(&rig, &identity, name, 1).await;
        let beats = keep_alive(&agent, 5 * SECOND);
        agents.push((identity, agent, beats));
    }
    for name in names {
        eventually(async || hub.ready(name).await == "True/MemberReady").await;
    }
    tokio::time::sleep(HealthTimes::default().leader_grace).await;
    (hub, rig, agents)
}

type Beats = std::sync::Arc<tokio::task::JoinHandle<()>>;

#[tokio::test(start_paused = true)]
async fn a_silent_member_is_lost_tainted_evicted_and_comes_back() {
    let (hub, mut rig, mut agents) = federation(&["member1", "member2", "member3"]).await;
    let (identity, half_open, beats) = &mut agents[0];
    assert_eq!(hub.taints("member1").await, [""; 0]);
    // Half open: the connection is up and no data arrives any more.
    beats.abort();
    let event = rig.event(|event| matches!(event, MemberEvent::Lost { .. })).await;
    let reason = LostReason::Silent(15 * SECOND);
    assert_eq!(event, MemberEvent::Lost { cluster: "member1".into(), reason });
    eventually(async || hub.taints("member1").await == ["unreachable:NoSchedule"]).await;
    // It must reconnect: a stream that survived the silence would bring only changes, never the full state.
    assert_eq!(half_open.end().await.code(), tonic::Code::Unavailable);
    eventually(async || hub.ready("member1").await == "Unknown/SessionLost").await;
    assert!(!rig.members.is_suspicious(), "one of three is no reason");
    tokio::time::sleep(270 * SECOND).await;
    assert_eq!(hub.taints("member1").await, ["unreachable:NoSchedule"], "not before 300 s");
    tokio::time::sleep(20 * SECOND).await;
    let both = ["unreachable:NoExecute", "unreachable:NoSchedule"];
    eventually(async || hub.taints("member1").await == both).await;
    for other in ["member2", "member3"] {
        assert_eq!(hub.taints(other).await, [""; 0]);
    }

    // It returns: the taints are removed after ten healthy seconds, not at once.
    let agent = settled(&rig, identity, "member1", 1).await;
    let _beats = keep_alive(&agent, 5 * SECOND);
    tokio::time::sleep(8 * SECOND).await;
    assert_eq!(hub.taints("member1").await, both);
    tokio::time::sleep(5 * SECOND).await;
    assert_eq!(hub.taints("member1").await, [""; 0]);
    assert_eq!(hub.ready("member1").await, "True/MemberReady");
}

#[tokio::test(start_paused = true)]
async fn a_lost_session_shows_and_a_short_break_does_not() {
    let (hub, _rig, mut agents) = federation(&["member1", "member2"]).await;
    let before = hub.version("member1").await;
    let (identity, agent, beats) = agents.remove(0);
    beats.abort();
    drop(agent);
    tokio::time::sleep(12 * SECOND).await;
    let rig = &_rig;
    let agent = settled(rig, &identity, "member1", 1).await;
    let beats = keep_alive(&agent, 5 * SECOND);
    tokio::time::sleep(60 * SECOND).await;
    assert_eq!(hub.version("member1").await, before, "a break of 12 s writes nothing");

    beats.abort();
    drop(agent);
    eventually(async || hub.ready("member1").await == "Unknown/SessionLost").await;
    let session = hub.status("member1").await.session.unwrap();
    assert_eq!(session.state, SessionState::Lost);
}

/// Expects one event for each of these members: suspicion because of its silence begins or ends.
async fn suspicions(rig: &mut Rig, beginning: bool, members: &[&str], why: &str) {
    let is = |event: &MemberEvent| match event {
        MemberEvent::Suspicion { cluster, begins, message } if *begins == beginning => {
            assert!(message.contains(why), "{message}");
            Some(cluster.clone())
        }
        _ => None,
    };
    let mut reported: Vec<ClusterName> = rig.seen.iter().filter_map(is).collect();
    while reported.len() < members.len() {
        reported.extend(is(&rig.event(|event| is(event).is_some()).await));
    }
    reported.sort();
    assert_eq!(reported, members);
}

#[tokio::test(start_paused = true)]
async fn all_of_them_silent_at_once_is_the_controllers_own_fault() {
    let (hub, mut rig, agents) = federation(&["member1", "member2", "member3"]).await;
    assert_eq!(rig.metric("atoll_members_suspicion"), "0");
    for (_, _, beats) in &agents {
        beats.abort();
    }
    rig.event(|event| matches!(event, MemberEvent::Lost { .. })).await;
    eventually(async || rig.members.is_suspicious()).await;
    suspicions(&mut rig, true, &["member1", "member2", "member3"], "suspects its own network")
        .await;
    tokio::time::sleep(400 * SECOND).await;
    assert_eq!(rig.metric("atoll_members_suspicion"), "1");
    assert_eq!(rig.metric("atoll_members_lost"), "3");
    for name in ["member1", "member2", "member3"] {
        assert_eq!(hub.taints(name).await, [""; 0], "no taint, however long it lasts");
    }
    let events: kube::Api<k8s_openapi::api::events::v1::Event> =
        kube::Api::namespaced(hub.client.clone(), "default");
    let events = events.list(&Default::default()).await.unwrap();
    let reasons: Vec<_> = events.iter().filter_map(|event| event.reason.clone()).collect();
    assert_eq!(reasons, ["ControllerSuspectsItself"]);

    // Two of three are back: the suspicion ends, and the third is lost. From now on, not since the silence began.
    let mut back = Vec::new();
    for ((identity, ..), name) in agents.iter().zip(["member1", "member2"]) {
        let agent = settled(&rig, identity, name, 1).await;
        back.push((keep_alive(&agent, 5 * SECOND), agent));
    }
    eventually(async || !rig.members.is_suspicious()).await;
    suspicions(&mut rig, false, &["member1", "member2", "member3"], "suspicion ends").await;
    assert_eq!(rig.metric("atoll_members_suspicion"), "0");
    assert_eq!(rig.metric("atoll_members_lost"), "1");
    eventually(async || hub.taints("member3").await == ["unreachable:NoSchedule"]).await;
    tokio::time::sleep(280 * SECOND).await;
    assert_eq!(hub.taints("member3").await, ["unreachable:NoSchedule"]);
    tokio::time::sleep(20 * SECOND).await;
    let both = ["unreachable:NoExecute", "unreachable:NoSchedule"];
    eventually(async || hub.taints("member3").await == both).await;
    assert_eq!(hub.taints("member1").await, [""; 0]);
    drop(rig);
}

/// Agents wait up to 8 s before they retry, so some return later than others after an outage of any length.
#[tokio::test(start_paused = true)]
async fn who_is_back_a_moment_after_the_others_is_not_given_up() {
    let names = ["member1", "member2", "member3"];
    let (hub, mut rig, agents) = federation(&names).await;
    for (_, _, beats) in &agents {
        beats.abort();
    }
    rig.event(|event| matches!(event, MemberEvent::Lost { .. })).await;
    eventually(async || rig.members.is_suspicious()).await;
    tokio::time::sleep(400 * SECOND).await;
    let mut back = Vec::new();
    for ((identity, ..), name) in agents.iter().zip(names) {
        let agent = settled(&rig, identity, name, 1).await;
        back.push((keep_alive(&agent, 5 * SECOND), agent));
        tokio::time::sleep(4 * SECOND).await;
    }
    let start = tokio::time::Instant::now();
    while start.elapsed() < 60 * SECOND {
        let evicts = |taint: &String| taint.ends_with("NoExecute");
        assert!(!hub.taints("member3").await.iter().any(evicts));
        tokio::time::sleep(SECOND / 5).await;
    }
    for name in names {
        assert_eq!(hub.taints(name).await, [""; 0]);
        assert_eq!(hub.ready(name).await, "True/MemberReady");
    }
    assert!(!rig.members.is_suspicious());
}

/// Kinds that the agent cannot list are a condition while that lasts.
#[tokio::test(start_paused = true)]
async fn kinds_that_cannot_be_listed_are_a_condition() {
    let (hub, _rig, agents) = federation(&["member1"]).await;
    assert_eq!(hub.condition("member1", "InventoryIncomplete").await, None);
    let facts = |unlisted: &[&str]| {
        let unlisted_kinds = unlisted.iter().map(|kind| (*kind).to_owned()).collect();
        ToController::Facts(v1::Facts { unlisted_kinds, ..crate::agent::facts(1000) })
    };
    let reported = async || hub.condition("member1", "InventoryIncomplete").await;
    agents[0].1.send(facts(&["Secret", "Deployment.apps"])).await;
    eventually(async || reported().await.is_some()).await;
    let (_, message) = reported().await.unwrap();
    assert!(message.contains("Deployment.apps, Secret:"), "{message}");
    agents[0].1.send(facts(&["Secret"])).await;
    eventually(async || !reported().await.unwrap().1.contains("Deployment.apps")).await;
    agents[0].1.send(facts(&[])).await;
    eventually(async || reported().await.is_none()).await;
}

#[tokio::test(start_paused = true)]
async fn a_person_may_say_that_the_losses_are_real() {
    let (hub, mut rig, agents) = federation(&["member1"]).await;
    agents[0].2.abort();
    rig.event(|event| matches!(event, MemberEvent::Lost { .. })).await;
    eventually(async || rig.members.is_suspicious()).await;
    suspicions(&mut rig, true, &["member1"], "suspects its own network").await;
    hub.annotate("member1", marks::CONFIRM_LOST, "by alice").await;
    eventually(async || !rig.members.is_suspicious()).await;
    suspicions(&mut rig, false, &["member1"], "an operator confirmed").await;
    eventually(async || hub.taints("member1").await == ["unreachable:NoSchedule"]).await;
    eventually(async || hub.annotation("member1", marks::CONFIRM_LOST).await.is_none()).await;
}

#[tokio::test(start_paused = true)]
async fn a_new_leader_waits_thirty_seconds_before_it_judges() {
    let (hub, rig, agents) = federation(&["member1", "member2", "member3"]).await;
    for (_, _, beats) in &agents {
        beats.abort();
    }
    rig.stop().await;
    drop(agents);
    let mut rig = Rig::start(&hub).await;
    let identity = enrol(&rig, "member2").await;
    let agent = settled(&rig, &identity, "member2", 1).await;
    let _beats = keep_alive(&agent, 5 * SECOND);
    let identity = enrol(&rig, "member3").await;
    let other = settled(&rig, &identity, "member3", 1).await;
    let _other_beats = keep_alive(&other, 5 * SECOND);
    tokio::time::sleep(25 * SECOND).await;
    assert_eq!(hub.taints("member1").await, [""; 0]);
    assert_eq!(hub.ready("member1").await, "True/MemberReady", "no newer state is known yet");
    rig.event(|event| matches!(event, MemberEvent::Lost { cluster, .. } if cluster == "member1"))
        .await;
    eventually(async || hub.taints("member1").await == ["unreachable:NoSchedule"]).await;

    // The next controller finds it lost, and does not restart the time.
    tokio::time::sleep(200 * SECOND).await;
    rig.stop().await;
    let rig = Rig::start(&hub).await;
    let (agent, other) = (settled(&rig, &enrol(&rig, "member2").await, "member2", 1).await, other);
    let _beats = keep_alive(&agent, 5 * SECOND);
    drop(other);
    tokio::time::sleep(25 * SECOND).await;
    assert_eq!(hub.taints("member1").await, ["unreachable:NoSchedule"]);
    let other = settled(&rig, &enrol(&rig, "member3").await, "member3", 1).await;
    let _other_beats = keep_alive(&other, 5 * SECOND);
    tokio::time::sleep(80 * SECOND).await;
    let both = ["unreachable:NoExecute", "unreachable:NoSchedule"];
    eventually(async || hub.taints("member1").await == both).await;
}

#[tokio::test(start_paused = true)]
async fn a_sick_api_is_not_ready_with_the_same_timers() {
    let (hub, rig, mut agents) = federation(&["member1", "member2"]).await;
    let (_, agent, beats) = agents.remove(0);
    beats.abort();
    let outgoing = agent.session.outgoing.clone();
    let sick = tokio::spawn(async move {
        loop {
            let api_message = "connection refused".to_owned();
            let beat = v1::Heartbeat { api_healthy: false, api_message };
            let message = v1::AgentMessage { message: Some(ToController::Heartbeat(beat)) };
            if outgoing.send(message).await.is_err() {
                return;
            }
            tokio::time::sleep(5 * SECOND).await;
        }
    });
    tokio::time::sleep(10 * SECOND).await;
    assert_eq!(hub.taints("member1").await, [""; 0], "a hiccup is none");
    tokio::time::sleep(8 * SECOND).await;
    assert_eq!(hub.taints("member1").await, ["not-ready:NoSchedule"]);
    assert_eq!(hub.ready("member1").await, "False/MemberApiUnhealthy");
    tokio::time::sleep(300 * SECOND).await;
    let both = ["not-ready:NoExecute", "not-ready:NoSchedule"];
    assert_eq!(hub.taints("member1").await, both);
    sick.abort();
    let _beats = keep_alive(&agent, 5 * SECOND);
    tokio::time::sleep(13 * SECOND).await;
    assert_eq!(hub.taints("member1").await, [""; 0]);
    assert_eq!(hub.ready("member1").await, "True/MemberReady");
    drop(rig);
}

#[tokio::test(start_paused = true)]
async fn figures_are_written_when_they_matter_and_beats_are_not() {
    let (hub, rig, agents) = federation(&["member1"]).await;
    let agent = &agents[0].1;
    let status = hub.status("member1").await;
    assert_eq!(status.kubernetes_version.as_deref(), Some("v1.33.0"));
    assert_eq!(status.cluster_id.as_deref(), Some("kube-system-member1"));
    assert_eq!(status.node_summary.unwrap().ready_num, 2);
    assert_eq!(status.api_enablements[0].resources[0].name, "deployments");
    let session = status.session.unwrap();
    assert_eq!((session.state, session.epoch), (SessionState::Connected, 1));
    let allocated = async || {
        let summary = hub.status("member1").await.resource_summary.unwrap();
        summary.allocated["cpu"].milli().unwrap()
    };
    assert_eq!(allocated().await, 1000);

    let before = hub.version("member1").await;
    agent.facts(1400).await;
    tokio::time::sleep(30 * SECOND).await;
    assert_eq!(hub.version("member1").await, before, "4 % of the capacity");
    agent.facts(1600).await;
    eventually(async || allocated().await == 1600).await;
    let before = hub.version("member1").await;
    agent.facts(1601).await;
    tokio::time::sleep(60 * SECOND).await;
    assert_eq!(hub.version("member1").await, before, "beats write nothing");
    // Eventually small changes are written too.
    eventually(async || allocated().await == 1601).await;
    drop(rig);
}

#[tokio::test(start_paused = true)]
async fn taints_of_others_stay() {
    let (hub, mut rig, agents) = federation(&["member1", "member2", "member3"]).await;
    let patch = serde_json::json!({"spec": {"taints": [
        {"key": "team", "value": "a", "effect": "NoSchedule"},
    ]}});
    let params = kube::api::PatchParams::default();
    hub.clusters().patch("member1", &params, &kube::api::Patch::Merge(patch)).await.unwrap();
    agents[0].2.abort();
    rig.event(|event| matches!(event, MemberEvent::Lost { .. })).await;
    eventually(async || {
        hub.taints("member1").await == ["team:NoSchedule", "unreachable:NoSchedule"]
    })
    .await;
    let agent = settled(&rig, &agents[0].0, "member1", 1).await;
    let _beats = keep_alive(&agent, 5 * SECOND);
    eventually(async || hub.taints("member1").await == ["team:NoSchedule"]).await;
}
