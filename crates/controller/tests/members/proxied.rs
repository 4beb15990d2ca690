//! Users' requests to members, with real agents over TCP and TLS.

use std::sync::Arc;
use std::time::Duration;

use atoll_access::identity::User;
use atoll_access::path::MemberPath;
use atoll_agent::Passed;
use atoll_controller::leader::LeaderTerm;
use atoll_controller::members::{MemberAnswer, MemberRequest, ProxyError};
use atoll_protocol::ca::CertificateAuthority;
use atoll_protocol::member::{KeyRequest, MemberIdentity};
use atoll_protocol::tunnel::{self, FORWARD_STREAMS};
use atoll_protocol::v1;
use atoll_protocol::v1::tunnel_request::Message as Sent;
use atoll_protocol::{tls, transport};
use futures::StreamExt;
use http::{HeaderMap, Method};
use rustls::ClientConfig;
use serde_json::Value;
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::live::{Controller, LIMIT, Member, set};
use crate::rig::{Hub, metric};

/// Delay between two attempts. Without it, the attempts alone reach the limit of a user's rate on a busy machine.
const AGAIN: Duration = Duration::from_millis(10);

/// A request of the user jane.
fn request(path: &str) -> MemberRequest {
    let groups = vec!["system:authenticated".to_owned()];
    MemberRequest {
        user: User { name: "jane".to_owned(), groups, ..User::default() },
        method: Method::GET,
        path: MemberPath::parse(path).unwrap(),
        headers: HeaderMap::new(),
        upgrade: None,
        body: futures::stream::empty().boxed(),
        base: "/base".to_owned(),
    }
}

/// The answer, once the member's tunnel is there.
async fn answered(controller: &Controller, member: &str, path: &str) -> MemberAnswer {
    let attempts = async {
        loop {
            match controller.members.proxy(member, request(path)).await {
                Ok(answer) => return answer,
                Err(_) => tokio::time::sleep(AGAIN).await,
            }
        }
    };
    timeout(LIMIT, attempts).await.expect("the member answers")
}

async fn json(answer: MemberAnswer) -> Value {
    assert_eq!(answer.status, 200);
    let chunks: Vec<_> = answer.body.map(|chunk| chunk.unwrap()).collect().await;
    serde_json::from_slice(&chunks.concat()).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_reaches_its_member_alone_and_a_change_of_the_leader_ends_streams_with_an_error()
{
    let hub = Hub::start().await;
    let controller = Controller::start(&hub, Some(3), |_| ()).await;
    let passes = |options: &mut atoll_agent::AgentOptions| {
        options.proxy = Some(Passed::default());
    };
    let one = Member::register(&hub, &controller, "one", controller.address).await;
    let two = Member::register(&hub, &controller, "two", controller.address).await;
    let three = Member::register(&hub, &controller, "three", controller.address).await;
    let _agents = [one.agent_with(passes), two.agent_with(passes), three.agent()];
    set(&controller.members, "one", "only-here", "1");
    one.has("only-here", "1").await;

    // Each member answers for itself, by its certificate.
    let configs = "/api/v1/namespaces/default/configmaps/only-here";
    assert_eq!(json(answered(&controller, "one", configs).await).await["data"]["v"], "1");
    assert_eq!(answered(&controller, "two", configs).await.status, 404);

    // Its administrator did not allow it.
    let refused = async {
        loop {
            match controller.members.proxy("three", request("/version")).await {
                Err(ProxyError::NotAllowed(member)) => return member,
                Err(_) => tokio::time::sleep(AGAIN).await,
                Ok(_) => panic!("reached"),
            }
        }
    };
    assert_eq!(timeout(LIMIT, refused).await.unwrap(), "three");
    let unknown = controller.members.proxy("four", request("/version")).await.err();
    assert_eq!(unknown, Some(ProxyError::Unknown("four".to_owned())));

    // A watch goes on until the leadership ends, and then fails rather than ends.
    let watch = "/api/v1/namespaces/default/configmaps?watch=true";
    let mut events = answered(&controller, "one", watch).await.body;
    let first = timeout(LIMIT, events.next()).await.unwrap().unwrap().unwrap();
    assert!(String::from_utf8_lossy(&first).contains("ADDED"));
    controller.term.send_replace(None);
    controller.members.stepped_down();
    let rest = async {
        loop {
            match events.next().await {
                Some(Ok(_)) => {}
                other => return other,
            }
        }
    };
    let end = timeout(Duration::from_secs(10), rest).await.expect("the stream ends at once");
    assert!(matches!(end, Some(Err(ProxyError::LeaderChanged))), "{end:?}");
    let refused = controller.members.proxy("one", request("/version")).await.err();
    assert_eq!(refused, Some(ProxyError::NotLeader));

    // The next term serves again once its members have connected.
    controller.term.send_replace(Some(LeaderTerm::new(4)));
    controller.complete(4);
    assert!(answered(&controller, "one", "/version").await.status.is_success());
}

#[tokio::test(flavor = "multi_thread")]
async fn any_controller_passes_requests_on_to_the_leader_and_its_change_ends_streams_with_an_error()
{
    let hub = Hub::start().await;
    let leader = Controller::start(&hub, Some(3), |_| ()).await;
    let follower = Controller::start(&hub, None, |_| ()).await;
    let passes = |options: &mut atoll_agent::AgentOptions| {
        options.proxy = Some(Passed::default());
    };
    let one = Member::register(&hub, &leader, "one", leader.address).await;
    let _agent = one.agent_with(passes);
    set(&leader.members, "one", "here", "1");
    one.has("here", "1").await;
    let configs = "/api/v1/namespaces/default/configmaps/here";
    answered(&leader, "one", configs).await;

    // It knows no leader yet, then one that does not answer, then the right one.
    let refused = follower.members.proxy("one", request(configs)).await.err();
    assert_eq!(refused, Some(ProxyError::NotLeader));
    let closed = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    follower.other_leader.send_replace(Some(closed.to_string()));
    let refused = follower.members.proxy("one", request(configs)).await.err();
    assert_eq!(refused, Some(ProxyError::NotLeader));
    follower.other_leader.send_replace(Some(leader.address.to_string()));
    assert_eq!(json(answered(&follower, "one", configs).await).await["data"]["v"], "1");
    let unknown = follower.members.proxy("two", request(configs)).await.err();
    assert_eq!(unknown, Some(ProxyError::Unknown("two".to_owned())));
    let big = vec![Ok(vec![b'x'; 5 << 20].into())];
    let large = MemberRequest {
        method: Method::POST,
        body: futures::stream::iter(big).boxed(),
        ..request("/api/v1/namespaces/default/configmaps")
    };
    let refused = follower.members.proxy("one", large).await.err();
    assert!(matches!(refused, Some(ProxyError::TooLarge(_))), "{refused:?}");

    // The leader steps down: a stream fails rather than ends, and new requests are told to try again.
    let watch = "/api/v1/namespaces/default/configmaps?watch=true";
    let mut events = answered(&follower, "one", watch).await.body;
    let first = timeout(LIMIT, events.next()).await.unwrap().unwrap().unwrap();
    assert!(String::from_utf8_lossy(&first).contains("ADDED"));
    leader.term.send_replace(None);
    leader.members.stepped_down();
    let end = timeout(LIMIT, last(&mut events)).await.expect("the stream ends at once");
    assert!(matches!(end, Some(Err(ProxyError::LeaderChanged))), "{end:?}");
    let refused = follower.members.proxy("one", request("/version")).await.err();
    assert_eq!(refused, Some(ProxyError::NotLeader));
    leader.term.send_replace(Some(LeaderTerm::new(4)));
    leader.complete(4);

    // The leader vanishes without a word: the Lease of another one ends the streams to it.
    let mut events = answered(&follower, "one", watch).await.body;
    timeout(LIMIT, events.next()).await.unwrap().unwrap().unwrap();
    follower.other_leader.send_replace(Some(closed.to_string()));
    let end = timeout(LIMIT, last(&mut events)).await.expect("the stream ends at once");
    assert!(matches!(end, Some(Err(ProxyError::LeaderChanged))), "{end:?}");
}

/// How a stream ends, after whatever it still has.
async fn last(
    events: &mut atoll_controller::members::Chunks<ProxyError>,
) -> Option<Result<bytes::Bytes, ProxyError>> {
    loop {
        match events.next().await {
            Some(Ok(_)) => {}
            other => return other,
        }
    }
}

/// Sends a request for member `one` as jane over a connection for forwarded requests with this identity.
async fn forged(controller: &Controller, config: Arc<ClientConfig>) -> Result<(), String> {
    let tcp = TcpStream::connect(controller.address).await.unwrap();
    let io = transport::secured(tcp, config).await.map_err(|error| error.to_string())?;
    let mut client = tunnel::client(io, FORWARD_STREAMS).await.map_err(|e| e.to_string())?;
    let head = v1::ProxyRequest {
        method: "GET".to_owned(),
        path: "/version".to_owned(),
        user: Some(v1::ProxyUser { name: "jane".to_owned(), ..Default::default() }),
        member: "one".to_owned(),
        ..Default::default()
    };
    let messages = [v1::TunnelRequest { message: Some(Sent::Head(head)) }];
    let answer = client.tunnel(futures::stream::iter(messages)).await;
    answer.map(drop).map_err(|status| status.to_string())
}

/// Connections that the listener closed because of who opened them, and for what.
fn refused_connections(controller: &Controller) -> u64 {
    let name = r#"atoll_members_refused_total{reason="connections"}"#;
    metric(&controller.metrics, name).map_or(0, |count| count.parse().unwrap())
}

#[tokio::test(flavor = "multi_thread")]
async fn only_a_controller_may_pass_requests_on() {
    let hub = Hub::start().await;
    let leader = Controller::start(&hub, Some(3), |_| ()).await;
    let member = Member::register(&hub, &leader, "one", leader.address).await;
    let passes = |options: &mut atoll_agent::AgentOptions| {
        options.proxy = Some(Passed::default());
    };
    let _agent = member.agent_with(passes);
    answered(&leader, "one", "/version").await;
    let authority = leader.members.authority().await;
    let config = tls::forward_config(&authority, hub.clock.clone()).unwrap();
    assert_eq!(forged(&leader, config).await, Ok(()), "a controller may");

    // A member's certificate on the same kind of connection.
    let now = hub.clock.now();
    let uid = hub.clusters().get("one").await.unwrap().metadata.uid.unwrap();
    let key = KeyRequest::generate().unwrap();
    let uid = atoll_protocol::identity::ClusterUid::new(uid).unwrap();
    let issued = authority.sign_member(key.csr_der(), &uid, now).unwrap();
    let response = v1::CertificateResponse {
        chain_der: issued.chain.iter().map(|der| der.to_vec()).collect(),
        cluster_uid: uid.to_string(),
        cluster_name: "one".to_owned(),
        trust_domain: authority.trust_domain().to_string(),
        authority_change: None,
    };
    let identity = MemberIdentity::from_response(&key, &response, &authority.hash()).unwrap();
    let with_protocol = |config: Arc<ClientConfig>| {
        let mut config = Arc::unwrap_or_clone(config);
        config.alpn_protocols = vec![b"atoll-forward/1".to_vec()];
        Arc::new(config)
    };
    let config = with_protocol(tls::tunnel_config(&identity, hub.clock.clone()).unwrap());
    assert!(forged(&leader, config).await.is_err(), "a member may not");
    assert_eq!(refused_connections(&leader), 1);

    // No certificate.
    let config = with_protocol(tls::enrolment_config(authority.hash(), hub.clock.clone()).unwrap());
    assert!(forged(&leader, config).await.is_err(), "nobody without a certificate may");
    assert_eq!(refused_connections(&leader), 2);

    // The controller's identity from another authority; and its identity on a member's tunnel.
    let foreign = CertificateAuthority::create(authority.trust_domain(), now).unwrap();
    let config = tls::forward_config(&foreign, hub.clock.clone()).unwrap();
    assert!(forged(&leader, config).await.is_err(), "the authority is another one");
    assert_eq!(refused_connections(&leader), 2, "its handshake failed");
    let config = tls::forward_config(&authority, hub.clock.clone()).unwrap();
    let mut config = Arc::unwrap_or_clone(config);
    config.alpn_protocols = vec![b"atoll-tunnel/1".to_vec()];
    assert!(forged(&leader, Arc::new(config)).await.is_err(), "it is no member");
    assert_eq!(refused_connections(&leader), 3);
    answered(&leader, "one", "/version").await;
}
