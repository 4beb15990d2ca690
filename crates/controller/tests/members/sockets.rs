//! The same over real sockets and real time, once.

use std::sync::Arc;
use std::time::Duration;

use atoll_api::Clock;
use atoll_controller::members::{
    HealthTimes, Incoming, MemberEvent, Members, MembersOptions, Metrics, TOKEN_LIFE, create_token,
};
use atoll_protocol::identity::TrustDomain;
use atoll_protocol::member::{KeyRequest, MemberIdentity};
use atoll_protocol::v1::agent_message::Message as Say;
use atoll_protocol::v1::controller_message::Message as Hear;
use atoll_protocol::{tls, transport, v1};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, watch};
use tokio::time::timeout;
use tokio_stream::wrappers::ReceiverStream;
use tokio_util::sync::CancellationToken;

use crate::agent::{Store, hello};
use crate::rig::{Hub, Verdicts};

const LIMIT: Duration = Duration::from_secs(30);

/// Joins and syncs through a proxy that knows nothing of TLS, under a name and port that no certificate has.
#[tokio::test]
async fn a_member_joins_and_syncs_through_a_plain_proxy() {
    let hub = Hub::start().await;
    let clock = Clock::system();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (sender, mut events) = mpsc::channel(64);
    let (_term, term) = watch::channel(Some(1));
    let token = CancellationToken::new();
    let options = MembersOptions {
        client: hub.client.clone(),
        clock: clock.clone(),
        incoming: Incoming::Tcp(listener),
        health: HealthTimes::default(),
        term,
        trust_domain: TrustDomain::new("atoll.test").unwrap(),
        metrics: Metrics::default(),
    };
    let members =
        Members::start(options, Arc::<Verdicts>::default(), sender, token.clone()).unwrap();
    let cluster = hub.register("member1").await;
    members.cluster_changed(&cluster);
    members.caches_complete();
    let hash = timeout(LIMIT, members.authority()).await.unwrap().hash();

    let proxy = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let via = proxy.local_addr().unwrap();
    let proxying = tokio::spawn(async move {
        loop {
            let (mut near, _) = proxy.accept().await.unwrap();
            let mut far = TcpStream::connect(address).await.unwrap();
            tokio::spawn(async move { tokio::io::copy_bidirectional(&mut near, &mut far).await });
        }
    });

    let bootstrap = create_token(&hub.client, &clock, &cluster, TOKEN_LIFE).await.unwrap();
    let request = KeyRequest::generate().unwrap();
    let config = tls::enrolment_config(hash, clock.clone()).unwrap();
    let io = TcpStream::connect(via).await.unwrap();
    let answer = transport::client(transport::channel(io, config).await.unwrap())
        .enroll(v1::EnrollRequest {
            token: bootstrap.reveal(),
            csr_der: request.csr_der().to_vec(),
            member_uid: "kube-system-member1".into(),
            kubernetes_version: "v1.33.0".into(),
        })
        .await
        .unwrap()
        .into_inner();
    let identity = MemberIdentity::from_response(&request, &answer, &hash).unwrap();

    let config = tls::member_config(&identity, clock).unwrap();
    let io = TcpStream::connect(via).await.unwrap();
    let mut client = transport::client(transport::channel(io, config).await.unwrap());
    let (say, said) = mpsc::channel(8);
    let first = hello(&identity, "member1", 1, &Store::default());
    say.send(v1::AgentMessage { message: Some(Say::Hello(first)) }).await.unwrap();
    let mut answers = client.session(ReceiverStream::new(said)).await.unwrap().into_inner();
    let mut heard = async || {
        let message = timeout(LIMIT, answers.message()).await.unwrap();
        message.map(|message| message.and_then(|message| message.message))
    };
    assert!(matches!(heard().await, Ok(Some(Hear::Welcome(_)))));
    // The controller expects nothing and the member has nothing: they agree.
    assert!(matches!(heard().await, Ok(Some(Hear::Synced(_)))));
    let event = timeout(LIMIT, events.recv()).await.unwrap();
    assert!(matches!(event, Some(MemberEvent::Connected { .. })), "{event:?}");

    token.cancel();
    timeout(LIMIT, members.stopped()).await.expect("all tasks end");
    proxying.abort();
}
