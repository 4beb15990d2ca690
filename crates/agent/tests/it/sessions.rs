//! Enrolment, terms, leases, and connecting to a controller.

use std::time::Duration;

use atoll_agent::{AgentError, EnrolError, IdentityStore, Join};
use atoll_protocol::token::BootstrapToken;
use atoll_protocol::v1::agent_message::Message as Said;
use serde_json::{Value, json};
use tokio::time::Instant;
use tonic::Status;

use crate::hub::{CLUSTER, Hub};
use crate::member::{Fault, config, config_path};
use crate::setup::{Agent, Setup};

const LEASE: &str = "/apis/coordination.k8s.io/v1/namespaces/atoll-system/leases/atoll-agent";

#[tokio::test(start_paused = true)]
async fn an_agent_enrols_once_and_keeps_its_key() {
    let setup = Setup::new().await;
    let agent = setup.agent();
    let session = setup.hub.agreed(1).await;
    assert_eq!(session.hello.cluster_uid, CLUSTER);
    let enrolled = setup.hub.enrolled();
    assert_eq!(enrolled.len(), 1);
    let kube_system = setup.member.get("/api/v1/namespaces/kube-system").await.unwrap();
    assert_eq!(enrolled[0].member_uid, kube_system["metadata"]["uid"].as_str().unwrap());
    assert_eq!(session.hello.member_uid, enrolled[0].member_uid);
    agent.stop().await;
    // The same token again: the identity that it produced is used.
    let agent = setup.agent();
    setup.hub.agreed(1).await;
    assert_eq!(setup.hub.enrolled().len(), 1);
    agent.stop().await;
    // Another token triggers a rejoin.
    let mut options = setup.options();
    options.join =
        Some(Join { token: BootstrapToken::generate().unwrap(), ca_hash: setup.hub.ca_hash });
    let agent = Agent::start(options);
    setup.hub.agreed(1).await;
    assert_eq!(setup.hub.enrolled().len(), 2);
    agent.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_lost_answer_is_asked_for_again_with_the_same_key() {
    let setup = Setup::new().await;
    setup.hub.refuse(Some(Status::unavailable("the answer is lost")));
    let agent = setup.agent();
    setup.hub.agreed(1).await;
    let enrolled = setup.hub.enrolled();
    assert_eq!(enrolled.len(), 2);
    let key = |request: &atoll_protocol::v1::EnrollRequest| request.csr_der.clone();
    // ECDSA signatures differ each time; the key is at the same offset.
    assert_eq!(key(&enrolled[0])[..90], key(&enrolled[1])[..90]);
    agent.stop().await;
}

#[tokio::test(start_paused = true)]
async fn the_token_is_shown_to_nobody_but_the_expected_authority() {
    let setup = Setup::new().await;
    let mut options = setup.options();
    options.join.as_mut().unwrap().ca_hash = Hub::start(&setup.clock).ca_hash;
    let agent = Agent::start(options);
    let dialled = async {
        while setup.hub.dialled() < 5 {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), dialled).await.expect("it goes on trying");
    assert!(setup.hub.enrolled().is_empty());
    agent.stop().await;
}

#[tokio::test(start_paused = true)]
async fn without_an_identity_or_with_a_refused_token_the_agent_says_so_and_ends() {
    let setup = Setup::new().await;
    let mut options = setup.options();
    options.join = None;
    let ended = Agent::start(options).result().await;
    assert!(matches!(ended, Err(AgentError::Enrol(EnrolError::NoToken))), "{ended:?}");

    setup.hub.refuse(Some(Status::unauthenticated("the token was used")));
    let ended = setup.agent().result().await;
    assert!(matches!(ended, Err(AgentError::Enrol(EnrolError::Refused(_)))), "{ended:?}");

    let mut options = setup.options();
    options.addresses.clear();
    let ended = Agent::start(options).result().await;
    assert!(matches!(ended, Err(AgentError::NoAddress)), "{ended:?}");
}

#[tokio::test(start_paused = true)]
async fn the_certificate_is_renewed_over_the_session() {
    let setup = Setup::new().await;
    let folder = tempfile::tempdir().unwrap();
    let mut options = setup.options();
    options.identity = IdentityStore::Folder(folder.path().join("agent"));
    options.timings.renew_after = Duration::from_secs(60 * 60);
    let agent = Agent::start(options);
    let mut session = setup.hub.agreed(1).await;
    let file = folder.path().join("agent/identity.json");
    let first = std::fs::read_to_string(&file).unwrap();
    let started = Instant::now();
    while setup.hub.renewed() == 0 {
        session.wait(|said| matches!(said, Said::Heartbeat(_)).then_some(())).await;
        assert!(started.elapsed() < Duration::from_secs(65 * 60));
    }
    assert!(started.elapsed() > Duration::from_secs(55 * 60));
    session.wait(|said| matches!(said, Said::Heartbeat(_)).then_some(())).await;
    assert_ne!(std::fs::read_to_string(&file).unwrap(), first);
    session.end();
    setup.hub.agreed(1).await;
    agent.stop().await;
}

/// Seed 1100000059 of the random histories.
#[tokio::test(start_paused = true)]
async fn a_stored_term_stays_if_the_answer_to_its_write_comes_too_late() {
    let setup = Setup::new().await;
    let agent = setup.agent();
    let mut session = setup.hub.agreed(5).await;
    session.apply(&config("shop", "settings", "h1", "a")).await;
    let term = |lease: &Value| lease["metadata"]["annotations"]["atoll.dev/term"].clone();
    setup.member.set_fault("leases", Some(Fault::LateAnswer));
    session.term = 9;
    session.upsert(&config("shop", "settings", "h2", "b"), false).await;
    let stored = setup.member.until(LEASE, |lease| lease.is_some_and(|l| term(l) == "9")).await;
    setup.member.set_fault("leases", None);
    let version = |lease: &Value| lease["metadata"]["resourceVersion"].clone();
    let before = version(&stored.unwrap());
    let renewed =
        setup.member.until(LEASE, |lease| lease.is_some_and(|l| version(l) != before)).await;
    assert_eq!(term(&renewed.unwrap()), "9");
    agent.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_lower_term_is_refused_also_after_a_restart() {
    let setup = Setup::new().await;
    let agent = setup.agent();
    let mut session = setup.hub.agreed(5).await;
    session.apply(&config("shop", "settings", "h1", "a")).await;
    session.term = 9;
    session.apply(&config("shop", "settings", "h2", "b")).await;
    // The old leader in the same session.
    session.term = 5;
    session.upsert(&config("shop", "settings", "h3", "c"), false).await;
    session.ended().await;
    agent.kill().await;

    let agent = setup.agent();
    let mut old = setup.hub.arrival(8).await;
    assert_eq!(old.hello.highest_term, 9);
    old.welcome().await;
    old.ended().await;
    let mut session = setup.hub.agreed(10).await;
    session.apply(&config("shop", "other", "h1", "a")).await;
    assert_eq!(setup.member.get(&config_path("settings")).await.unwrap()["data"]["key"], "b");
    let lease = setup.member.get(LEASE).await.unwrap();
    assert_eq!(lease["metadata"]["annotations"]["atoll.dev/term"], "10");
    agent.stop().await;
}

#[tokio::test(start_paused = true)]
async fn one_agent_acts_and_the_next_has_a_higher_epoch() {
    let setup = Setup::new().await;
    let first = setup.agent();
    let mut session = setup.hub.agreed(1).await;
    let mut options = setup.options();
    options.instance = "agent-2".into();
    let second = Agent::start(options.clone());
    // The second agent stands by for any length of time.
    let until = Instant::now() + Duration::from_secs(120);
    while Instant::now() < until {
        session.wait(|said| matches!(said, Said::Heartbeat(_)).then_some(())).await;
    }
    let epoch = session.hello.epoch;
    // After an orderly stop the Lease is free at once.
    first.stop().await;
    let stopped = Instant::now();
    let session = setup.hub.agreed(1).await;
    assert!(stopped.elapsed() < Duration::from_secs(5), "{:?}", stopped.elapsed());
    let second_epoch = session.hello.epoch;
    assert!(second_epoch > epoch);
    // After a kill the Lease has to expire; a restart under the same name continues at once.
    second.kill().await;
    let (again, killed) = (Agent::start(options), Instant::now());
    let session = setup.hub.agreed(1).await;
    assert!(killed.elapsed() < Duration::from_secs(1));
    assert!(session.hello.epoch > second_epoch);
    again.kill().await;
    let (third, killed) = (setup.agent(), Instant::now());
    setup.hub.agreed(1).await;
    assert!(killed.elapsed() > Duration::from_secs(14), "{:?}", killed.elapsed());
    third.stop().await;
}

#[tokio::test(start_paused = true)]
async fn an_agent_that_lost_its_lease_stops_acting_and_stands_by() {
    let setup = Setup::new().await;
    let agent = setup.agent();
    let mut session = setup.hub.agreed(1).await;
    let stolen = json!({"spec": {"holderIdentity": "thief"}, "metadata": {"annotations": {"atoll.dev/epoch": "9999999999"}}});
    setup.member.edit(LEASE, "thief", stolen).await;
    session.ended().await;
    // The intruder never renews: the agent returns with an epoch above it.
    let session = setup.hub.agreed(1).await;
    assert_eq!(session.hello.epoch, 10_000_000_000);
    agent.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_non_leader_costs_a_second_and_dead_addresses_are_passed_over() {
    let setup = Setup::new().await;
    let mut options = setup.options();
    options.addresses = vec!["dead:1".into(), "hub:1".into()];
    let agent = Agent::start(options);
    let mut session = setup.hub.agreed(1).await;
    setup.hub.refuse(Some(Status::unavailable("not leader")));
    session.end();
    let dialled = setup.hub.dialled();
    tokio::time::sleep(Duration::from_secs(20)).await;
    assert!(setup.hub.dialled() - dialled > 20, "both addresses, about once a second");
    setup.hub.refuse(None);
    let free = Instant::now();
    setup.hub.agreed(2).await;
    assert!(free.elapsed() <= Duration::from_secs(2), "{:?}", free.elapsed());
    agent.stop().await;
}
