//! The real agent and the controller's `members` over TCP, TLS and a proxy, in real time.

use std::time::Duration;

use atoll_api::marks;
use atoll_controller::leader::LeaderTerm;
use atoll_controller::members::MemberEvent;
use kube::api::DeleteParams;

use crate::live::{Controller, Member, Proxy, behind, set};
use crate::rig::{Hub, eventually};

/// Joins under a name and port that no certificate has; then the agent is killed, and its successor writes nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_member_joins_through_a_plain_proxy_and_its_next_agent_writes_nothing() {
    let hub = Hub::start().await;
    let mut controller = Controller::start(&hub, Some(1), |_| ()).await;
    let proxy = Proxy::to(controller.address).await;
    let member = Member::register(&hub, &controller, "member1", proxy.address).await;
    let agent = member.agent();
    assert_eq!(controller.agreed("member1").await, (0, 0));
    set(&controller.members, "member1", "a", "1");
    set(&controller.members, "member1", "b", "1");
    let before = [member.has("a", "1").await, member.has("b", "1").await];
    // Drift is reverted, and counted.
    member.configs().delete("b", &DeleteParams::default()).await.unwrap();
    let b = member.has("b", "1").await;
    controller
        .event(
            |event| matches!(event, MemberEvent::Applied { key, drift: 1, .. } if key.name() == "b"),
        )
        .await;

    agent.kill().await;
    controller.event(|event| matches!(event, MemberEvent::Lost { .. })).await;
    let _agent = member.agent();
    assert_eq!(controller.agreed("member1").await, (2, 0));
    // By the time this arrives, any earlier write would have arrived too.
    set(&controller.members, "member1", "c", "1");
    member.has("c", "1").await;
    assert_eq!([member.has("a", "1").await, member.has("b", "1").await], [before[0].clone(), b]);
}

/// A controller that restarts, a leader that is replaced by another, and an earlier one with a lower term.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn agents_follow_the_leader_and_obey_no_earlier_one() {
    let hub = Hub::start().await;
    let mut first = Controller::start(&hub, Some(7), |_| ()).await;
    let proxy = Proxy::to(first.address).await;
    let member = Member::register(&hub, &first, "member1", proxy.address).await;
    let _agent = member.agent();
    first.agreed("member1").await;
    set(&first.members, "member1", "a", "1");
    let version = member.has("a", "1").await;

    // It stops and restarts: nothing is written.
    first.stop().await;
    let same = |members: &_| set(members, "member1", "a", "1");
    let mut second = Controller::start(&hub, Some(8), same).await;
    proxy.turn(second.address);
    assert_eq!(second.agreed("member1").await, (1, 0));
    set(&second.members, "member1", "b", "1");
    member.has("b", "1").await;
    assert_eq!(member.has("a", "1").await, version);

    // Another controller leads: the previous leader ends its sessions.
    let both = |members: &_| {
        set(members, "member1", "a", "1");
        set(members, "member1", "b", "1");
    };
    let mut third = Controller::start(&hub, Some(9), both).await;
    proxy.turn(third.address);
    second.term.send_replace(None);
    assert_eq!(third.agreed("member1").await, (2, 0));
    // The agent stores a term before it obeys its first order.
    set(&third.members, "member1", "c", "1");
    member.has("c", "1").await;
    assert_eq!(member.has("a", "1").await, version);

    // One with an earlier term returns with another desired state: it is refused, and nothing changes.
    third.stop().await;
    let mut late =
        Controller::start(&hub, Some(5), |members| set(members, "member1", "a", "old")).await;
    proxy.turn(late.address);
    eventually(async || hub.condition("member1", "TermAhead").await.is_some()).await;
    hub.annotate("member1", marks::ACCEPT_TERM, "").await;
    late.event(|event| matches!(event, MemberEvent::HigherTerm { term, .. } if term.get() == 9))
        .await;
    assert_eq!(member.has("a", "1").await, version);
    // With a higher term its orders are accepted.
    late.term.send_replace(Some(LeaderTerm::new(10)));
    late.complete(10);
    member.has("a", "old").await;
}

/// The connection dies without notice to either end: a router lost its state, a machine lost power.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_half_open_connection_is_noticed_at_both_ends() {
    let hub = Hub::start().await;
    let mut controller = Controller::start(&hub, Some(1), |_| ()).await;
    let proxy = Proxy::to(controller.address).await;
    let member = Member::register(&hub, &controller, "member1", proxy.address).await;
    let _agent = member.agent();
    controller.agreed("member1").await;
    set(&controller.members, "member1", "a", "1");
    let version = member.has("a", "1").await;
    eventually(async || hub.ready("member1").await == "True/MemberReady").await;

    proxy.freeze();
    set(&controller.members, "member1", "b", "1");
    // The controller misses the heartbeats, the agent the reply to its PING.
    controller.event(|event| matches!(event, MemberEvent::Lost { .. })).await;
    assert_eq!(controller.agreed("member1").await.1, 0);
    member.has("b", "1").await;
    assert_eq!(member.has("a", "1").await, version, "what it held was not written again");
    eventually(async || hub.ready("member1").await == "True/MemberReady").await;
    eventually(async || hub.taints("member1").await.is_empty()).await;
}

/// Its line passes one byte per second to it, and everything from it: its messages arrive, and the others are not
/// affected.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_member_that_reads_a_byte_a_second_slows_no_other() {
    let hub = Hub::start().await;
    let mut controller = Controller::start(&hub, Some(1), |_| ()).await;
    let proxy = Proxy::to(controller.address).await;
    let slow = Member::register(&hub, &controller, "slow", proxy.address).await;
    let fast = Member::register(&hub, &controller, "fast", controller.address).await;
    let (_slow_agent, _fast_agent) = (slow.agent(), fast.agent());
    for _ in 0..2 {
        controller.event(|event| matches!(event, MemberEvent::Inventory { .. })).await;
    }
    proxy.trickle();
    let big = "x".repeat(100_000);
    for n in 0..50 {
        set(&controller.members, "slow", &format!("w{n}"), &big);
    }
    for n in 0..50 {
        set(&controller.members, "fast", &format!("w{n}"), "1");
    }
    for n in 0..50 {
        fast.has(&format!("w{n}"), "1").await;
    }
    assert!(
        slow.configs().get_opt("w49").await.unwrap().is_none(),
        "so many bytes cannot be there"
    );
    // Its heartbeats arrive: it is not lost. (One heartbeat after the silence limit would have passed.)
    eventually(async || hub.ready("slow").await == "True/MemberReady").await;
    // On a working line it gets its desired objects.
    proxy.freeze();
    slow.has("w49", &big).await;
}

/// Two agents of one member with one identity: one acts, the other stands by and takes over with a higher epoch.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_two_agents_with_one_identity_one_acts() {
    let hub = Hub::start().await;
    let mut controller = Controller::start(&hub, Some(1), |_| ()).await;
    let member = Member::register(&hub, &controller, "member1", controller.address).await;
    let first = member.agent();
    controller.agreed("member1").await;
    eventually(async || hub.status("member1").await.session.is_some()).await;
    let epoch = hub.status("member1").await.session.unwrap().epoch;
    let _second = member.agent_with(|options| options.instance = "agent-1".into());
    set(&controller.members, "member1", "a", "1");
    let version = member.has("a", "1").await;

    first.kill().await;
    controller.event(|event| matches!(event, MemberEvent::Lost { .. })).await;
    assert_eq!(controller.agreed("member1").await, (1, 0));
    eventually(async || {
        hub.status("member1").await.session.is_some_and(|session| session.epoch > epoch)
    })
    .await;
    assert_eq!(member.has("a", "1").await, version);
}

/// Its clock is a month behind, before the issue of its own certificate: it uses the time of issue, and works.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_agent_with_a_stale_clock_works() {
    const MONTH: Duration = Duration::from_secs(30 * 24 * 60 * 60);
    let hub = Hub::start().await;
    let mut controller = Controller::start(&hub, Some(1), |_| ()).await;
    let member = Member::register(&hub, &controller, "member1", controller.address).await;
    let agent = member.agent();
    controller.agreed("member1").await;
    set(&controller.members, "member1", "a", "1");
    let version = member.has("a", "1").await;
    agent.kill().await;
    controller.event(|event| matches!(event, MemberEvent::Lost { .. })).await;

    let _agent = member.agent_with(|options| options.clock = behind(&hub.clock, MONTH));
    assert_eq!(controller.agreed("member1").await, (1, 0));
    set(&controller.members, "member1", "b", "1");
    member.has("b", "1").await;
    assert_eq!(member.has("a", "1").await, version);
}
