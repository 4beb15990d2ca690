//! Certificates: what each may open, and how one is revoked.

use std::net::SocketAddr;

use atoll_protocol::member::{KeyRequest, MemberIdentity};
use atoll_protocol::transport::answered;
use atoll_protocol::v1;
use atoll_protocol::v1::controller_message::Message as Hear;
use jiff::SignedDuration;
use kube::api::{Patch, PatchParams};
use rustls::version::{TLS12, TLS13};
use serde_json::json;
use tonic::{Code, Status};

use super::client::{self, Session, hello};
use super::target::{StolenMember, Target};
use crate::support::cli::run;
use crate::support::federation::{cluster_objects, free_ports};

/// The controller's answer to a session with this certificate.
async fn session(target: &Target, member: &StolenMember) -> Result<Session, Status> {
    let mut session = Session::open(target.agents, &member.identity, hello(member)).await?;
    match session.next().await? {
        Hear::Welcome(_) => Ok(session),
        other => panic!("{other:?}"),
    }
}

async fn refusal(target: &Target, member: &StolenMember) -> Code {
    session(target, member).await.err().expect("the session is refused").code()
}

async fn renew(
    target: &Target,
    identity: &MemberIdentity,
    key: &KeyRequest,
) -> Result<MemberIdentity, Status> {
    let mut client = client::grpc(target.agents, Some(identity)).await.unwrap();
    let message = v1::RenewRequest { csr_der: key.csr_der().to_vec(), follows_authority: true };
    let answer = client.renew(message).await?.into_inner();
    Ok(MemberIdentity::from_response(key, &answer, &target.authority.hash()).unwrap())
}

#[tokio::test(flavor = "multi_thread")]
async fn only_the_federations_own_certificate_opens_a_session() {
    let target = Target::start().await;
    let member = target.join("member1").await;
    let mut own = session(&target, &member).await.unwrap();

    let foreign = target.foreign(member.identity.cluster_uid());
    let refused = Session::open(target.agents, &foreign, hello(&member)).await;
    let refused = refused.err().expect("a certificate of another authority is refused");
    assert!(!answered(&refused), "the connection is refused before any call: {refused:?}");

    let mut nobody = client::grpc(target.agents, None).await.unwrap();
    let refused = nobody.session(tokio_stream::empty()).await.unwrap_err();
    assert_eq!(refused.code(), Code::Unauthenticated, "{refused:?}");
    // The member's session was not interrupted.
    assert!(own.next().await.is_ok());
}

/// The agents' port and the aggregated API.
#[tokio::test(flavor = "multi_thread")]
async fn no_port_speaks_tls_1_2_and_headers_without_the_front_proxys_certificate_name_nobody() {
    let api = SocketAddr::from(([127, 0, 0, 1], free_ports(1)));
    let target = Target::start_with(&["--api-address", &api.to_string()]).await;
    for address in [target.agents, api] {
        client::tls_version(address, &TLS13).await.unwrap();
        let refused = client::tls_version(address, &TLS12).await.unwrap_err();
        assert!(format!("{refused:?}").contains("ProtocolVersion"), "{address}: {refused:?}");
    }
    let requests = client::http2(api, None).await.unwrap();
    let request = http::Request::get(format!("https://{api}/apis/history.atoll.dev/v1alpha1"))
        .header("x-remote-user", "admin")
        .header("x-remote-group", "system:masters")
        .body(())
        .unwrap();
    let (answer, _) = requests.ready().await.unwrap().send_request(request, true).unwrap();
    assert_eq!(answer.await.unwrap().status(), 401);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_revocation_cannot_be_outrun_by_renewing_in_a_loop() {
    let target = Target::start().await;
    let mut member = target.join("member1").await;
    let uid = member.identity.cluster_uid().clone();
    let stolen = target.aged(&uid, SignedDuration::from_hours(2));
    let (key, other) = (KeyRequest::generate().unwrap(), KeyRequest::generate().unwrap());
    let renewed = renew(&target, &stolen, &key).await.unwrap();
    // A retry after a lost answer is allowed, and nothing else within the hour.
    renew(&target, &stolen, &key).await.unwrap();
    for (identity, what) in [(&stolen, "the renewed one"), (&renewed, "the new one")] {
        let again = renew(&target, identity, &other).await.unwrap_err();
        assert_eq!(again.code(), Code::ResourceExhausted, "{what}: {again:?}");
    }

    // The user's clock is an hour behind: the time at the controller counts.
    let clusters = cluster_objects(&target.hub.client);
    let annotate = async |value| {
        let patch = json!({"metadata": {"annotations": {"atoll.dev/revoked-before": value}}});
        let patch = Patch::Merge(patch);
        clusters.patch("member1", &PatchParams::default(), &patch).await.unwrap();
    };
    let mut open = session(&target, &member).await.unwrap();
    let past = jiff::Timestamp::now() - SignedDuration::from_hours(1);
    annotate(json!(past.to_string())).await;
    assert_eq!(open.end().await.code(), Code::PermissionDenied);
    for identity in [renewed, stolen] {
        member.identity = identity;
        assert_eq!(refusal(&target, &member).await, Code::PermissionDenied);
        let renewed = renew(&target, &member.identity, &other).await;
        assert_eq!(renewed.unwrap_err().code(), Code::PermissionDenied);
    }

    // `atoll revoke` returns once it is stored; the annotation is not needed any more.
    let said = run(&mut target.atoll(&["revoke", "member1"]));
    assert!(said.contains("atoll rejoin member1"), "{said}");
    annotate(json!(null)).await;
    assert_eq!(refusal(&target, &member).await, Code::PermissionDenied);
    let back = target.enrol("member1", &target.rejoin("member1", &[])).await;
    session(&target, &back).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rejoin_revokes_the_identity_before_it_once_the_new_agent_has_enrolled() {
    let target = Target::start().await;
    let first = target.join("member1").await;
    let mut open = session(&target, &first).await.unwrap();
    let token = target.rejoin("member1", &[]);
    session(&target, &first).await.expect("an invitation alone changes nothing");
    assert_eq!(open.end().await.code(), Code::Aborted, "another session took over");

    let mut open = session(&target, &first).await.unwrap();
    let key = KeyRequest::generate().unwrap();
    let again = KeyRequest::from_key_pem(&key.key_pem()).unwrap();
    target.enrol_key("member1", &token, key).await;
    assert_eq!(open.end().await.code(), Code::PermissionDenied);
    assert_eq!(refusal(&target, &first).await, Code::PermissionDenied);
    // The answer may be lost: the same agent asks again.
    let second = target.enrol_key("member1", &token, again).await;
    session(&target, &second).await.unwrap();

    let third = target.enrol("member1", &target.rejoin("member1", &["--keep-old"])).await;
    session(&target, &third).await.unwrap();
    session(&target, &second).await.expect("--keep-old leaves the identity valid");
}
