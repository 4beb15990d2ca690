//! Which peers pass the handshake, over in-memory streams with a test clock.
#![allow(clippy::unwrap_used, reason = "helpers of tests: a panic is the report")]

use std::sync::Arc;

use atoll_api::Clock;
use atoll_protocol::authorities::Authorities;
use atoll_protocol::ca::{CertificateAuthority, CertificateFacts, MEMBER_LIFE, PublicKeyHash};
use atoll_protocol::identity::{ClusterUid, SpiffeId, TrustDomain};
use atoll_protocol::member::{KeyRequest, MemberIdentity};
use atoll_protocol::tls::{self, ServerCertificate};
use atoll_protocol::v1::CertificateResponse;
use jiff::{SignedDuration, Timestamp};
use rustls::{ClientConfig, ServerConfig};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio_rustls::{TlsAcceptor, TlsConnector};

fn now() -> Timestamp {
    Timestamp::from_second(1_700_000_000).unwrap()
}

fn clock(after: SignedDuration) -> Clock {
    Clock::from_fn(move || now().checked_add(after).unwrap())
}

fn authority(domain: &str) -> CertificateAuthority {
    CertificateAuthority::create(&TrustDomain::new(domain).unwrap(), now()).unwrap()
}

fn member(ca: &CertificateAuthority, uid: &str) -> MemberIdentity {
    let request = KeyRequest::generate().unwrap();
    let uid = ClusterUid::new(uid).unwrap();
    let issued = ca.sign_member(request.csr_der(), &uid, now()).unwrap();
    let response = CertificateResponse {
        chain_der: issued.chain.iter().map(|der| der.to_vec()).collect(),
        cluster_uid: uid.to_string(),
        cluster_name: String::new(),
        trust_domain: ca.trust_domain().to_string(),
        authority_change: None,
    };
    MemberIdentity::from_response(&request, &response, &ca.hash()).unwrap()
}

fn server(ca: &CertificateAuthority, after: SignedDuration) -> Arc<ServerConfig> {
    let (issued, key) = ca.issue_controller(now()).unwrap();
    let certificate = ServerCertificate::new(issued.chain, key).unwrap();
    tls::server_config(&[ca.certificate()], certificate, clock(after)).unwrap()
}

/// The client's identity as the server sees it after a full exchange; the error of the end that refused first.
async fn meet(
    server: Arc<ServerConfig>,
    client: Arc<ClientConfig>,
) -> Result<Option<CertificateFacts>, String> {
    let (near, far) = tokio::io::duplex(16 * 1024);
    let serve = async move {
        let mut stream = TlsAcceptor::from(server).accept(far).await.map_err(|e| e.to_string())?;
        let peer = tls::peer(stream.get_ref().1).map_err(|e| e.to_string())?;
        stream.write_all(b"!").await.map_err(|e| e.to_string())?;
        Ok::<_, String>(peer)
    };
    let call = async move {
        let name = "proxy.example".try_into().unwrap();
        let connector = TlsConnector::from(client);
        let mut stream = connector.connect(name, near).await.map_err(|e| e.to_string())?;
        stream.read_u8().await.map_err(|e| e.to_string())
    };
    let (served, called) = tokio::join!(serve, call);
    match (served, called) {
        (Ok(peer), Ok(_)) => Ok(peer),
        (_, Err(client)) if client.contains("the server") => Err(client),
        (Err(server), _) => Err(server),
        (_, Err(client)) => Err(client),
    }
}

#[tokio::test]
async fn the_handshake_lets_exactly_the_right_ones_through() {
    let (ca, foreign) = (authority("atoll.local"), authority("atoll.local"));
    let zero = SignedDuration::ZERO;
    let enrol = |hash: PublicKeyHash| tls::enrolment_config(hash, clock(zero)).unwrap();
    let session =
        |identity: &MemberIdentity, after| tls::member_config(identity, clock(after)).unwrap();
    let one = member(&ca, "u-1");

    // Enrolment: no certificate, and the authority's key must match the given hash.
    assert_eq!(meet(server(&ca, zero), enrol(ca.hash())).await, Ok(None));
    let refused = meet(server(&foreign, zero), enrol(ca.hash())).await.unwrap_err();
    assert!(refused.contains("ca-hash"), "{refused}");

    // After enrolment.
    let peer = meet(server(&ca, zero), session(&one, zero)).await.unwrap().unwrap();
    let uid = ClusterUid::new("u-1").unwrap();
    assert_eq!(peer.id, SpiffeId::Cluster(ca.trust_domain().clone(), uid));
    assert_eq!(&peer, one.facts());

    // A certificate of another authority, with the same names, on either end.
    assert!(meet(server(&foreign, zero), session(&one, zero)).await.is_err());
    let impostor = member(&foreign, "u-1");
    let pinned = MemberIdentity::from_pem(&impostor.chain_pem(), impostor.key_pem()).unwrap();
    assert!(meet(server(&ca, zero), session(&pinned, zero)).await.is_err());

    // An expired one, by the server's clock; a client's clock that is behind does not matter.
    assert!(
        meet(server(&ca, MEMBER_LIFE + SignedDuration::from_mins(1)), session(&one, zero))
            .await
            .is_err()
    );
    let behind = session(&one, SignedDuration::from_hours(-24 * 365));
    assert!(meet(server(&ca, zero), behind).await.unwrap().is_some());
}

#[tokio::test]
async fn a_member_cannot_pose_as_the_controller() {
    let ca = authority("atoll.local");
    let (one, two) = (member(&ca, "u-1"), member(&ca, "u-2"));
    // A listener with a member's certificate, signed by the right authority.
    let certificate = ServerCertificate::new(one.chain().to_vec(), one.key().unwrap()).unwrap();
    let posing =
        tls::server_config(&[ca.certificate()], certificate, clock(SignedDuration::ZERO)).unwrap();
    for client in [
        tls::enrolment_config(ca.hash(), clock(SignedDuration::ZERO)).unwrap(),
        tls::member_config(&two, clock(SignedDuration::ZERO)).unwrap(),
    ] {
        assert!(meet(posing.clone(), client).await.is_err());
    }
}

#[tokio::test]
async fn a_replaced_certificate_is_used_by_the_next_handshake() {
    let ca = authority("atoll.local");
    let (first, key) = ca.issue_controller(now()).unwrap();
    let certificate = ServerCertificate::new(first.chain, key).unwrap();
    // After 100 days the first certificate has expired.
    let later = SignedDuration::from_hours(100 * 24);
    let at = clock(later).now();
    let config =
        tls::server_config(&[ca.certificate()], certificate.clone(), clock(later)).unwrap();
    let client = tls::enrolment_config(ca.hash(), clock(later)).unwrap();
    assert!(meet(config.clone(), client.clone()).await.is_err());
    let (second, key) = ca.issue_controller(at).unwrap();
    let (_, other_key) = ca.issue_controller(at).unwrap();
    assert!(
        certificate.replace(vec![(second.chain.clone(), other_key)]).is_err(),
        "keys must match"
    );
    certificate.replace(vec![(second.chain, key)]).unwrap();
    assert_eq!(meet(config, client).await, Ok(None));
}

/// While one authority replaces another, each member meets a certificate of the one that it trusts.
#[tokio::test]
async fn two_authorities_serve_the_members_of_both() {
    let (zero, domain) = (SignedDuration::ZERO, "atoll.local");
    let old = Authorities::of(authority(domain));
    let both = old.succeeded(now()).unwrap().unwrap();
    let roots: Vec<_> = both.all().map(|one| one.certificate()).collect();
    let issue = |authority: &Arc<CertificateAuthority>| {
        let (issued, key) = authority.issue_controller(now()).unwrap();
        (issued.chain, key)
    };
    let certificate = ServerCertificate::of_each(both.all().map(issue).collect()).unwrap();
    let config = tls::server_config(&roots, certificate.clone(), clock(zero)).unwrap();
    for authority in both.all() {
        let enrols = tls::enrolment_config(authority.hash(), clock(zero)).unwrap();
        assert_eq!(meet(config.clone(), enrols).await, Ok(None));
        let member = member(authority, "u-1");
        let joined = tls::member_config(&member, clock(zero)).unwrap();
        let seen = meet(config.clone(), joined).await.unwrap().unwrap();
        assert_eq!(seen.public_key, member.facts().public_key);
    }
    // An agent of an earlier version does not say whom it trusts: it meets the oldest.
    let silent = |authority: &CertificateAuthority| {
        let config = tls::enrolment_config(authority.hash(), clock(zero)).unwrap();
        let mut config = ClientConfig::clone(&config);
        config.alpn_protocols.truncate(1);
        Arc::new(config)
    };
    assert_eq!(meet(config.clone(), silent(both.predecessor().unwrap())).await, Ok(None));
    assert!(meet(config, silent(both.signing())).await.is_err());

    // Afterwards the old authority's members are strangers.
    let alone = both.alone();
    certificate.replace(alone.all().map(issue).collect()).unwrap();
    let roots: Vec<_> = alone.all().map(|one| one.certificate()).collect();
    let config = tls::server_config(&roots, certificate, clock(zero)).unwrap();
    let late = member(both.predecessor().unwrap(), "u-1");
    let late = tls::member_config(&late, clock(zero)).unwrap();
    assert!(meet(config.clone(), late).await.is_err());
    let renewed = tls::member_config(&member(both.signing(), "u-1"), clock(zero)).unwrap();
    assert!(meet(config, renewed).await.unwrap().is_some());
}
