//! Users' requests to members, with real agents over TCP and TLS.

use std::time::Duration;

use atoll_access::identity::User;
use atoll_access::path::MemberPath;
use atoll_agent::Passed;
use atoll_controller::leader::LeaderTerm;
use atoll_controller::members::{MemberAnswer, MemberRequest, ProxyError};
use futures::StreamExt;
use http::{HeaderMap, Method};
use serde_json::Value;
use tokio::time::timeout;

use crate::live::{Controller, LIMIT, Member, set};
use crate::rig::Hub;

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
                Err(_) => tokio::task::yield_now().await,
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
                Err(_) => tokio::task::yield_now().await,
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
    assert!(matches!(end, Some(Err(ProxyError::Lost { .. }))), "{end:?}");
    let refused = controller.members.proxy("one", request("/version")).await.err();
    assert_eq!(refused, Some(ProxyError::NotLeader));

    // The next term serves again once its members have connected.
    controller.term.send_replace(Some(LeaderTerm::new(4)));
    controller.complete(4);
    assert!(answered(&controller, "one", "/version").await.status.is_success());
}
