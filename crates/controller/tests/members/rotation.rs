//! The certificate authority is replaced while members are connected; another member takes over a Cluster.

use atoll_controller::members::{
    TOKEN_LIFE, create_rebuilt_token, create_replacing_token, load, rotate,
};
use atoll_protocol::ca::PublicKeyHash;
use atoll_protocol::member::{KeyRequest, MemberIdentity};
use atoll_protocol::v1;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::Code;

use crate::agent::{Agent, Store, client, enrol, enrol_with, hello};
use crate::real::Member;
use crate::rig::{Hub, Rig, eventually};

async fn recorded(hub: &Hub, name: &str) -> Option<String> {
    hub.status(name).await.session?.authority
}

async fn trusted(hub: &Hub) -> Vec<PublicKeyHash> {
    let authorities = load(&hub.client).await.unwrap().unwrap();
    authorities.all().map(|authority| authority.hash()).collect()
}

#[tokio::test(start_paused = true)]
async fn a_rotation_ends_when_every_member_has_connected_with_a_new_certificate() {
    let hub = Hub::start().await;
    let rig = Rig::start(&hub).await;
    let _real = Member::join(&rig, "member1", 7).await;
    eventually(async || hub.ready("member1").await == "True/MemberReady").await;
    // An agent of an earlier version: it ignores the request to renew, and checks no endorsements.
    hub.register("early").await;
    let early = enrol(&rig, "early").await;
    let mut store = Store::default();
    let mut session = Agent::welcomed(&rig, &early, "early", 1, &store).await;
    let beats = crate::agent::keep_alive(&session, std::time::Duration::from_secs(5));
    session.sync(&mut store).await;
    let old = early.authority_hash().unwrap();
    eventually(async || recorded(&hub, "early").await == Some(old.to_string())).await;
    eventually(async || recorded(&hub, "member1").await == Some(old.to_string())).await;

    let (both, changed) = rotate(&hub.client, &hub.clock, false).await.unwrap().unwrap();
    let new = both.signing().hash();
    assert!(changed && new != old);
    let (again, changed) = rotate(&hub.client, &hub.clock, false).await.unwrap().unwrap();
    assert!(!changed && again.signing().hash() == new, "one rotation at a time");
    eventually(async || recorded(&hub, "member1").await == Some(new.to_string())).await;
    assert_eq!(rig.members.authority().await.hash(), new);

    // The early agent renews as usual, within its own authority, and keeps the rotation open.
    tokio::time::sleep(std::time::Duration::from_secs(2 * 3_600)).await;
    let request = KeyRequest::generate().unwrap();
    let csr_der = request.csr_der().to_vec();
    let renewal = v1::RenewRequest { csr_der, follows_authority: false };
    let answer = client(&rig, &early, crate::agent::ROOM).await.renew(renewal).await.unwrap();
    let renewed = MemberIdentity::from_response(&request, answer.get_ref(), &old).unwrap();
    assert_eq!(renewed.authority_hash().unwrap(), old);
    assert_eq!(trusted(&hub).await, [old, new]);
    assert_eq!(recorded(&hub, "early").await, Some(old.to_string()));

    // Upgraded, it follows: with the endorsement it trusts the new authority, and nobody needs the old one any more.
    let request = KeyRequest::generate().unwrap();
    let csr_der = request.csr_der().to_vec();
    let renewal = v1::RenewRequest { csr_der, follows_authority: true };
    let answer = client(&rig, &renewed, crate::agent::ROOM).await.renew(renewal).await.unwrap();
    let followed = MemberIdentity::from_response(&request, answer.get_ref(), &old).unwrap();
    assert_eq!(followed.authority_hash().unwrap(), new);
    assert_eq!(trusted(&hub).await, [old, new], "it has not connected with it yet");
    drop((beats, session));
    let _upgraded = Agent::welcomed(&rig, &followed, "early", 2, &store).await;
    eventually(async || trusted(&hub).await == [new]).await;
    assert_eq!(hub.ready("member1").await, "True/MemberReady");
    let refused = rig.connect(crate::agent::ROOM).await;
    let tls = atoll_protocol::tls::member_config(&renewed, hub.clock.clone()).unwrap();
    assert!(atoll_protocol::transport::channel(refused, tls).await.is_err());
}

#[tokio::test(start_paused = true)]
async fn a_session_that_waits_for_its_hello_does_not_outlive_the_trust_in_its_authority() {
    let hub = Hub::start().await;
    let rig = Rig::start(&hub).await;
    hub.register("member1").await;
    let identity = enrol(&rig, "member1").await;
    let mut authorities = rig.members.authorities();
    authorities.mark_unchanged();
    // A Hello may take as long as the controller takes to read the authority again: the call must begin later.
    tokio::time::sleep(std::time::Duration::from_secs(1)).await;
    rotate(&hub.client, &hub.clock, true).await.unwrap().unwrap();
    // The controller has not read the new authority yet: the call is authorised, and holds its Hello back.
    let mut client = client(&rig, &identity, crate::agent::ROOM).await;
    let (messages, stream) = mpsc::channel(1);
    let call = client.session(ReceiverStream::new(stream)).await;
    let mut inbound = call.expect("it is authorised").into_inner();
    assert!(!authorities.has_changed().unwrap(), "too late for this test");
    authorities.changed().await.unwrap();
    let greeting = hello(&identity, "member1", 1, &Store::default());
    let message = Some(v1::agent_message::Message::Hello(greeting));
    messages.send(v1::AgentMessage { message }).await.unwrap();
    let refused = inbound.message().await.unwrap_err();
    assert_eq!(refused.code(), Code::Unauthenticated, "{refused}");
    assert!(refused.message().contains("no longer trusted"), "{refused}");
}

#[tokio::test(start_paused = true)]
async fn a_rotation_waits_for_a_certificate_that_was_issued_and_not_used_yet() {
    let hub = Hub::start().await;
    let rig = Rig::start(&hub).await;
    hub.register("member1").await;
    let identity = enrol(&rig, "member1").await;
    let old = identity.authority_hash().unwrap();
    eventually(async || recorded(&hub, "member1").await == Some(old.to_string())).await;
    let (both, _) = rotate(&hub.client, &hub.clock, false).await.unwrap().unwrap();
    let new = both.signing().hash();
    eventually(async || rig.members.authority().await.hash() == new).await;
    // Longer than the leader takes to end a rotation that nobody needs.
    tokio::time::sleep(std::time::Duration::from_secs(60)).await;
    assert_eq!(trusted(&hub).await, [old, new]);
    // Its agent starts at last, and is asked to renew.
    let store = Store::default();
    let mut agent = Agent::welcomed(&rig, &identity, "member1", 1, &store).await;
    let asked = async {
        loop {
            if let v1::controller_message::Message::RenewCertificate(_) =
                agent.next().await.unwrap()
            {
                return;
            }
        }
    };
    asked.await;
}

#[tokio::test(start_paused = true)]
async fn a_rebuilt_member_takes_its_cluster_over_and_no_other_member_does() {
    let hub = Hub::start().await;
    let rig = Rig::start(&hub).await;
    hub.register("member1").await;
    hub.register("other").await;
    let (first, other) = (enrol(&rig, "member1").await, enrol(&rig, "other").await);
    let store = Store::default();
    let _first = Agent::welcomed(&rig, &first, "member1", 5, &store).await;
    let _other = Agent::welcomed(&rig, &other, "other", 1, &store).await;
    eventually(async || hub.status("member1").await.cluster_id.is_some()).await;
    eventually(async || hub.status("other").await.cluster_id.is_some()).await;

    // A usual token is for the same member, and this one not for a member that has a Cluster.
    let cluster = hub.clusters().get("member1").await.unwrap();
    let usual = create_replacing_token(&hub.client, &hub.clock, &cluster, TOKEN_LIFE).await;
    let rebuilt = create_rebuilt_token(&hub.client, &hub.clock, &cluster, TOKEN_LIFE).await;
    let (usual, rebuilt) = (usual.unwrap().reveal(), rebuilt.unwrap().reveal());
    let request = KeyRequest::generate().unwrap();
    let refused = async |token: &str, member: &str| {
        enrol_with(&rig, token, request.csr_der(), member).await.unwrap_err()
    };
    let changed = refused(&usual, "rebuilt").await;
    assert!(changed.message().contains("IdentityChanged"), "{changed}");
    assert!(changed.message().contains("--replace"), "{changed}");
    let duplicate = refused(&rebuilt, "other").await;
    assert!(duplicate.message().contains("DuplicateCluster"), "{duplicate}");

    let answer = enrol_with(&rig, &rebuilt, request.csr_der(), "rebuilt").await.unwrap();
    let hash = rig.members.authority().await.hash();
    let identity = MemberIdentity::from_response(&request, &answer, &hash).unwrap();
    // Its own count of epochs begins again.
    let mut greeting = hello(&identity, "rebuilt", 1, &store);
    greeting.member_uid = "kube-system-rebuilt".into();
    let mut agent = Agent::open(&rig, &identity, greeting, crate::agent::ROOM).await.unwrap();
    agent.next().await.unwrap();
    eventually(async || {
        hub.status("member1").await.cluster_id.as_deref() == Some("kube-system-rebuilt")
    })
    .await;
    // The old member's certificate is revoked, and its uid is free.
    let csr_der = KeyRequest::generate().unwrap().csr_der().to_vec();
    let renewal = v1::RenewRequest { csr_der, follows_authority: true };
    let late = client(&rig, &first, crate::agent::ROOM).await.renew(renewal).await.unwrap_err();
    assert_eq!(late.code(), Code::PermissionDenied, "{late}");
    hub.register("again").await;
    let again = hub.clusters().get("again").await.unwrap();
    let token =
        atoll_controller::members::create_token(&hub.client, &hub.clock, &again, TOKEN_LIFE);
    let token = token.await.unwrap().reveal();
    enrol_with(&rig, &token, KeyRequest::generate().unwrap().csr_der(), "member1").await.unwrap();
}
