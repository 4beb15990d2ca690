//! Who gets a certificate, and which calls each certificate allows.

use std::time::Duration;

use atoll_controller::members::{REVOKED_BEFORE, TOKEN_LIFE, create_token};
use atoll_protocol::ca::CertificateAuthority;
use atoll_protocol::identity::{ClusterUid, TrustDomain};
use atoll_protocol::member::{KeyRequest, MemberIdentity};
use atoll_protocol::token::BootstrapToken;
use atoll_protocol::{tls, transport, v1};
use jiff::SignedDuration;
use kube::api::DeleteParams;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Code, Status};

use crate::agent::{Agent, ROOM, Store, client, enrol, enrol_with, hello};
use crate::rig::{Hub, Rig};

async fn token(rig: &Rig, name: &str) -> BootstrapToken {
    let cluster = rig.hub.clusters().get(name).await.unwrap();
    create_token(&rig.hub.client, &rig.hub.clock, &cluster, TOKEN_LIFE).await.unwrap()
}

fn code<T: std::fmt::Debug>(answer: Result<T, Status>) -> Code {
    answer.map_or_else(|status| status.code(), |_| Code::Ok)
}

#[tokio::test(start_paused = true)]
async fn a_token_gives_one_key_a_certificate_for_fifteen_minutes() {
    let hub = Hub::start().await;
    let rig = Rig::start(&hub).await;
    let cluster = hub.register("member1").await;
    let (one, two) = (KeyRequest::generate().unwrap(), KeyRequest::generate().unwrap());
    let first = token(&rig, "member1").await;
    let text = first.reveal();

    // An invalid token or request does not consume it.
    let other_secret =
        format!("{}.{}", first.id().as_str(), &token(&rig, "member1").await.reveal()[13..]);
    for (bad, expected) in [
        ("", Code::Unauthenticated),
        ("a.b", Code::Unauthenticated),
        (other_secret.as_str(), Code::Unauthenticated),
        (BootstrapToken::generate().unwrap().reveal().as_str(), Code::Unauthenticated),
    ] {
        assert_eq!(code(enrol_with(&rig, bad, one.csr_der(), "m1").await), expected, "{bad}");
    }
    let named = {
        let mut params = rcgen::CertificateParams::default();
        params.distinguished_name = rcgen::DistinguishedName::new();
        let uri = format!("spiffe://atoll.test/cluster/{}", cluster.metadata.uid.as_ref().unwrap());
        params.subject_alt_names = vec![rcgen::SanType::URI(uri.try_into().unwrap())];
        params.serialize_request(&rcgen::KeyPair::generate().unwrap()).unwrap()
    };
    let refused = enrol_with(&rig, &text, named.der(), "m1").await.unwrap_err();
    assert_eq!(refused.code(), Code::InvalidArgument);
    assert!(refused.message().contains("subject alternative names"), "{refused}");

    // One key can use it, and again if the reply was lost; another key cannot.
    let answer = enrol_with(&rig, &text, one.csr_der(), "m1").await.unwrap();
    assert_eq!(answer.cluster_name, "member1");
    assert_eq!(Some(&answer.cluster_uid), cluster.metadata.uid.as_ref());
    assert_eq!(code(enrol_with(&rig, &text, two.csr_der(), "m1").await), Code::PermissionDenied);
    let again = enrol_with(&rig, &text, one.csr_der(), "m1").await.unwrap();
    assert_eq!(again.cluster_uid, answer.cluster_uid);
    tokio::time::advance(Duration::from_secs(15 * 60)).await;
    assert_eq!(code(enrol_with(&rig, &text, one.csr_der(), "m1").await), Code::PermissionDenied);

    // A token of a Cluster that was deleted, or recreated under the same name.
    let stale = token(&rig, "member1").await.reveal();
    hub.clusters().delete("member1", &DeleteParams::default()).await.unwrap();
    let gone = code(enrol_with(&rig, &stale, two.csr_der(), "m1").await);
    assert!([Code::PermissionDenied, Code::Unauthenticated].contains(&gone), "{gone:?}");
    hub.gone("member1").await;
    hub.register("member1").await;
    let anew = code(enrol_with(&rig, &stale, two.csr_der(), "m1").await);
    assert!([Code::PermissionDenied, Code::Unauthenticated].contains(&anew), "{anew:?}");
}

#[tokio::test(start_paused = true)]
async fn two_agents_with_one_token_at_once_get_one_certificate() {
    let hub = Hub::start().await;
    let rig = Rig::start(&hub).await;
    hub.register("member1").await;
    for _ in 0..8 {
        let text = token(&rig, "member1").await.reveal();
        let (one, two) = (KeyRequest::generate().unwrap(), KeyRequest::generate().unwrap());
        let (a, b) = tokio::join!(
            enrol_with(&rig, &text, one.csr_der(), "m1"),
            enrol_with(&rig, &text, two.csr_der(), "m1"),
        );
        assert_eq!(usize::from(a.is_ok()) + usize::from(b.is_ok()), 1, "{a:?} {b:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_token_whose_life_is_out_of_range_is_refused() {
    let hub = Hub::start().await;
    let cluster = hub.register("member1").await;
    for life in [SignedDuration::ZERO, SignedDuration::from_hours(25)] {
        assert!(create_token(&hub.client, &hub.clock, &cluster, life).await.is_err());
    }
}

/// Every call with every kind of identity: exactly the allowed ones go through.
#[tokio::test(start_paused = true)]
async fn every_call_with_every_identity() {
    let hub = Hub::start().await;
    let rig = Rig::start(&hub).await;
    for name in ["member1", "member2", "revoked", "deleted"] {
        hub.register(name).await;
    }
    let good = enrol(&rig, "member1").await;
    let other = enrol(&rig, "member2").await;
    let revoked = enrol(&rig, "revoked").await;
    let deleted = enrol(&rig, "deleted").await;
    let authority = rig.members.authority().await;

    // Signed by the right key for uids that only start or end like a real one.
    let near = |uid: String| {
        let request = KeyRequest::generate().unwrap();
        let uid = ClusterUid::new(uid).unwrap();
        let issued = authority.sign_member(request.csr_der(), &uid, hub.clock.now()).unwrap();
        identity(&request, issued.chain, &uid, &authority)
    };
    let uid = good.cluster_uid().as_str();
    let (longer, shorter) = (near(format!("{uid}a")), near(uid[..uid.len() - 1].to_owned()));

    // A certificate is renewed after an hour at the earliest.
    tokio::time::advance(Duration::from_secs(3_602)).await;
    hub.annotate("revoked", REVOKED_BEFORE, &hub.clock.now().to_string()).await;
    hub.clusters().delete("deleted", &DeleteParams::default()).await.unwrap();
    tokio::time::sleep(Duration::from_secs(1)).await;

    let csr = KeyRequest::generate().unwrap();
    for (what, identity, claims, renew, session) in [
        ("the member", &good, &good, Code::Ok, Code::Ok),
        ("another member's uid in Hello", &good, &other, Code::Ok, Code::PermissionDenied),
        ("revoked", &revoked, &revoked, Code::PermissionDenied, Code::PermissionDenied),
        ("deleted", &deleted, &deleted, Code::PermissionDenied, Code::PermissionDenied),
        ("a longer uid", &longer, &good, Code::PermissionDenied, Code::PermissionDenied),
        ("a shorter uid", &shorter, &good, Code::PermissionDenied, Code::PermissionDenied),
    ] {
        let mut client = client(&rig, identity, ROOM).await;
        let renewed = client
            .renew(v1::RenewRequest { csr_der: csr.csr_der().to_vec(), follows_authority: true })
            .await;
        assert_eq!(code(renewed), renew, "Renew: {what}");
        let name = if what.starts_with("another") { "member2" } else { "member1" };
        let hello = hello(claims, name, 1, &Store::default());
        let opened = match Agent::open(&rig, identity, hello, ROOM).await {
            Ok(mut agent) => agent.next().await,
            Err(status) => Err(status),
        };
        assert_eq!(code(opened), session, "Session: {what}");
    }

    // Without a certificate.
    let tls = tls::enrolment_config(authority.hash(), hub.clock.clone()).unwrap();
    let channel = transport::channel(rig.connect(ROOM).await, tls).await.unwrap();
    let mut anonymous = transport::client(channel);
    let renewed = anonymous
        .renew(v1::RenewRequest { csr_der: csr.csr_der().to_vec(), follows_authority: true })
        .await;
    assert_eq!(code(renewed), Code::Unauthenticated);
    let session = anonymous.session(ReceiverStream::new(tokio::sync::mpsc::channel(1).1)).await;
    assert_eq!(code(session), Code::Unauthenticated);

    // From another authority with the same names, and of another trust domain: the handshake fails.
    for domain in ["atoll.test", "other.test"] {
        let domain = TrustDomain::new(domain).unwrap();
        let foreign = CertificateAuthority::create(&domain, hub.clock.now()).unwrap();
        let request = KeyRequest::generate().unwrap();
        let issued =
            foreign.sign_member(request.csr_der(), good.cluster_uid(), hub.clock.now()).unwrap();
        let impostor = identity(&request, issued.chain, good.cluster_uid(), &foreign);
        let tls = tls::member_config(&impostor, hub.clock.clone()).unwrap();
        assert!(transport::channel(rig.connect(ROOM).await, tls).await.is_err(), "{domain}");
    }

    // A renewed certificate is for the same member and the new key.
    let mut renewing = client(&rig, &good, ROOM).await;
    let answer = renewing
        .renew(v1::RenewRequest { csr_der: csr.csr_der().to_vec(), follows_authority: true })
        .await;
    let next =
        MemberIdentity::from_response(&csr, &answer.unwrap().into_inner(), &authority.hash());
    assert_eq!(next.unwrap().cluster_uid(), good.cluster_uid());

    // A token created after the revocation produces a valid certificate.
    tokio::time::advance(Duration::from_secs(2)).await;
    let back = enrol(&rig, "revoked").await;
    Agent::welcomed(&rig, &back, "revoked", 1, &Store::default()).await;

    // After seven days it has expired.
    tokio::time::advance(Duration::from_secs(7 * 24 * 3600)).await;
    let tls = tls::member_config(&good, hub.clock.clone()).unwrap();
    let expired = transport::channel(rig.connect(ROOM).await, tls).await;
    let refused = match expired {
        Err(_) => true,
        Ok(channel) => {
            let csr_der = csr.csr_der().to_vec();
            let renewed = transport::client(channel)
                .renew(v1::RenewRequest { csr_der, follows_authority: true })
                .await;
            renewed.is_err_and(|status| !transport::answered(&status))
        }
    };
    assert!(refused);
}

pub(crate) fn identity(
    request: &KeyRequest,
    chain: Vec<rustls::pki_types::CertificateDer<'static>>,
    uid: &ClusterUid,
    authority: &CertificateAuthority,
) -> MemberIdentity {
    let response = v1::CertificateResponse {
        chain_der: chain.iter().map(|der| der.to_vec()).collect(),
        cluster_uid: uid.to_string(),
        cluster_name: String::new(),
        trust_domain: authority.trust_domain().to_string(),
        authority_change: None,
    };
    MemberIdentity::from_response(request, &response, &authority.hash()).unwrap()
}

#[tokio::test(start_paused = true)]
async fn another_member_cannot_take_over_a_cluster_or_join_twice() {
    let hub = Hub::start().await;
    let rig = Rig::start(&hub).await;
    hub.register("member1").await;
    hub.register("member2").await;
    let one = enrol(&rig, "member1").await;
    let two = enrol(&rig, "member2").await;
    let store = Store::default();
    let _session = Agent::welcomed(&rig, &one, "member1", 1, &store).await;

    let mut changed = hello(&one, "member1", 2, &store);
    changed.member_uid = "kube-system-other".into();
    let mut agent = Agent::open(&rig, &one, changed, ROOM).await.unwrap();
    let refused = agent.next().await.unwrap_err();
    assert_eq!(refused.code(), Code::FailedPrecondition);
    assert!(refused.message().contains("IdentityChanged"), "{refused}");

    let mut agent = Agent::open(&rig, &two, hello(&two, "member1", 1, &store), ROOM).await.unwrap();
    let refused = agent.next().await.unwrap_err();
    assert!(refused.message().contains("DuplicateCluster"), "{refused}");

    // Joining again is checked before the token is consumed.
    let text = token(&rig, "member1").await.reveal();
    let request = KeyRequest::generate().unwrap();
    let refused = enrol_with(&rig, &text, request.csr_der(), "other").await.unwrap_err();
    assert!(refused.message().contains("IdentityChanged"), "{refused}");
    assert_eq!(code(enrol_with(&rig, &text, request.csr_der(), "member1").await), Code::Ok);
}
