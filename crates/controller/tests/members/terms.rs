//! Changes of the leader's term, and which of them one member, several, or a user can cause.

use std::time::Duration;

use atoll_api::marks;
use atoll_controller::leader::LeaderTerm;
use atoll_controller::members::MemberEvent;
use atoll_protocol::member::MemberIdentity;
use tokio::time::timeout;
use tonic::Code;

use crate::agent::{Agent, ROOM, Store, enrol, hello};
use crate::rig::{Hub, LIMIT, Rig, eventually};

/// Sends a Hello with this term; returns how the session is refused.
async fn refused(rig: &Rig, identity: &MemberIdentity, name: &str, term: u64) -> Code {
    let mut first = hello(identity, name, 1, &Store::default());
    first.highest_term = term;
    let mut agent = Agent::open(rig, identity, first, ROOM).await.unwrap();
    agent.end().await.code()
}

fn raises(rig: &Rig) -> usize {
    rig.seen.iter().filter(|event| matches!(event, MemberEvent::HigherTerm { .. })).count()
}

/// Handles the available events.
async fn settle(rig: &mut Rig) {
    let nothing = rig.event(|_| false);
    assert!(timeout(Duration::from_secs(5), nothing).await.is_err());
}

#[tokio::test(start_paused = true)]
async fn sessions_end_with_the_term_also_when_the_same_controller_leads_on() {
    let hub = Hub::start().await;
    let rig = Rig::start(&hub).await;
    hub.register("member1").await;
    let identity = enrol(&rig, "member1").await;
    let mut store = Store::default();
    rig.set("member1", "a", "h1");
    let mut agent = Agent::welcomed(&rig, &identity, "member1", 1, &store).await;
    agent.sync(&mut store).await;

    // In either order: the sessions see the term before all desired state was set anew, or after it.
    for term in [2, 3] {
        if term == 2 {
            rig.term.send_replace(Some(LeaderTerm::new(term)));
            assert_eq!(agent.end().await.code(), Code::Unavailable);
            agent = Agent::welcomed(&rig, &identity, "member1", 1, &store).await;
        }
        rig.members.stepped_down();
        rig.set("member1", "a", "h1");
        rig.set("member1", "b", &format!("h{term}"));
        rig.complete(term);
        if term == 3 {
            rig.term.send_replace(Some(LeaderTerm::new(term)));
            assert_eq!(agent.end().await.code(), Code::Unavailable);
            agent = Agent::welcomed(&rig, &identity, "member1", 1, &store).await;
        }
        let log = agent.sync(&mut store).await;
        assert_eq!(log, ["inventory".to_owned(), format!("upsert b h{term}")]);
    }
    // Dispatch goes on.
    rig.set("member1", "c", "h1");
    let (mut log, message) = (Vec::new(), agent.next().await.unwrap());
    agent.follow(message, &mut store, &mut log).await;
    assert_eq!(log, ["upsert c h1"]);
}

#[tokio::test(start_paused = true)]
async fn one_member_of_three_is_not_believed_and_stops_nothing_and_two_are() {
    let hub = Hub::start().await;
    let mut rig = Rig::start(&hub).await;
    let mut identities = Vec::new();
    for name in ["member1", "member2", "member3"] {
        hub.register(name).await;
        identities.push(enrol(&rig, name).await);
    }
    let mut sessions = Vec::new();
    for (n, identity) in identities.iter().enumerate() {
        let (name, mut store) = (format!("member{}", n + 1), Store::default());
        let mut agent = Agent::welcomed(&rig, identity, &name, 1, &store).await;
        agent.sync(&mut store).await;
        sessions.push((agent, store));
    }
    for _ in 0..20 {
        assert_eq!(refused(&rig, &identities[0], "member1", 9).await, Code::Unavailable);
    }
    settle(&mut rig).await;
    assert_eq!(raises(&rig), 0);
    let (reason, message) = hub.condition("member1", "TermAhead").await.unwrap();
    assert_eq!(reason, "NeedsSecondSource");
    assert!(message.contains("`atoll accept-term member1`"), "{message}");
    // The others are not affected.
    rig.set("member2", "a", "h1");
    let (agent, store) = &mut sessions[1];
    let (mut log, message) = (Vec::new(), agent.next().await.unwrap());
    agent.follow(message, store, &mut log).await;
    assert_eq!(log, ["upsert a h1"]);

    // A second one makes it two of three. A higher term from the first alone is not believed.
    assert_eq!(refused(&rig, &identities[0], "member1", 900).await, Code::Unavailable);
    assert_eq!(refused(&rig, &identities[1], "member2", 9).await, Code::Unavailable);
    let event = rig.event(|event| matches!(event, MemberEvent::HigherTerm { .. })).await;
    assert!(matches!(event, MemberEvent::HigherTerm { term, .. } if term.get() == 9), "{event:?}");
    rig.term.send_replace(Some(LeaderTerm::new(10)));
    rig.members.stepped_down();
    rig.complete(10);
    let mut second = hello(&identities[1], "member2", 1, &Store::default());
    second.highest_term = 9;
    let mut agent = Agent::open(&rig, &identities[1], second, ROOM).await.unwrap();
    agent.next().await.unwrap();
    eventually(async || hub.condition("member2", "TermAhead").await.is_none()).await;
    assert_eq!(refused(&rig, &identities[0], "member1", 900).await, Code::Unavailable);
}

#[tokio::test(start_paused = true)]
async fn a_single_member_needs_a_person_and_what_it_names_later_is_not_accepted() {
    let hub = Hub::start().await;
    let mut rig = Rig::start(&hub).await;
    hub.register("member1").await;
    let identity = enrol(&rig, "member1").await;
    assert_eq!(refused(&rig, &identity, "member1", 9).await, Code::Unavailable);
    settle(&mut rig).await;
    assert_eq!(raises(&rig), 0);
    hub.annotate("member1", marks::ACCEPT_TERM, "").await;
    rig.event(|event| matches!(event, MemberEvent::HigherTerm { term, .. } if term.get() == 9))
        .await;
    assert_eq!(refused(&rig, &identity, "member1", 5_000).await, Code::Unavailable);
    rig.term.send_replace(Some(LeaderTerm::new(10)));
    eventually(async || hub.annotation("member1", marks::ACCEPT_TERM).await.is_none()).await;
    settle(&mut rig).await;
    let beyond = |event: &MemberEvent| matches!(event, MemberEvent::HigherTerm { term, .. } if term.get() > 9);
    assert!(!rig.seen.iter().any(beyond), "{:?}", rig.seen);
}

#[tokio::test(start_paused = true)]
async fn a_term_out_of_range_is_refused_reported_and_cannot_be_accepted() {
    let hub = Hub::start().await;
    let mut rig = Rig::start(&hub).await;
    hub.register("member1").await;
    let identity = enrol(&rig, "member1").await;
    let absurd = 1 + (1 << 32) + 1;
    assert_eq!(refused(&rig, &identity, "member1", absurd).await, Code::FailedPrecondition);
    eventually(async || hub.condition("member1", "TermAhead").await.is_some()).await;
    let (reason, _) = hub.condition("member1", "TermAhead").await.unwrap();
    assert_eq!(reason, "TermOutOfRange");
    hub.annotate("member1", marks::ACCEPT_TERM, "").await;
    eventually(async || hub.annotation("member1", marks::ACCEPT_TERM).await.is_none()).await;
    settle(&mut rig).await;
    assert_eq!(raises(&rig), 0);
}

/// An epoch out of range is refused; one within a day of the clock is accepted, and a new enrolment resets it.
#[tokio::test(start_paused = true)]
async fn an_epoch_is_bounded_and_restarts_with_an_enrolment() {
    let hub = Hub::start().await;
    let rig = Rig::start(&hub).await;
    hub.register("member1").await;
    let stolen = enrol(&rig, "member1").await;
    let open = async |rig: &Rig, identity: &MemberIdentity, epoch| {
        let hello = hello(identity, "member1", epoch, &Store::default());
        let mut agent = Agent::open(rig, identity, hello, ROOM).await.unwrap();
        let first = agent.next().await.map_err(|status| status.code());
        first.map(|_| agent)
    };
    let refused = open(&rig, &stolen, (1 << 63) - 1).await.err();
    assert_eq!(refused, Some(Code::FailedPrecondition));
    eventually(async || hub.condition("member1", "EpochAhead").await.is_some()).await;
    let now = u64::try_from(hub.clock.now().as_second()).unwrap();
    let thief = open(&rig, &stolen, now + 86_000).await.unwrap();
    eventually(async || hub.condition("member1", "EpochAhead").await.is_none()).await;
    let epoch =
        async || hub.status("member1").await.session.map(|session| session.epoch.unsigned_abs());
    eventually(async || epoch().await == Some(now + 86_000)).await;
    assert_eq!(open(&rig, &stolen, now).await.err(), Some(Code::FailedPrecondition));
    drop(thief);

    let fresh = enrol(&rig, "member1").await;
    let _agent = open(&rig, &fresh, now + 1).await.unwrap();
    eventually(async || epoch().await == Some(now + 1)).await;
    // The next controller has it too.
    rig.stop().await;
    let rig = Rig::start(&hub).await;
    let _agent = timeout(LIMIT, open(&rig, &fresh, now + 2)).await.unwrap().unwrap();
}
