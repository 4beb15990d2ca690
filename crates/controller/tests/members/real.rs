//! The real agent on an embedded member: both real ends of the protocol.

use std::sync::Arc;

use atoll_agent::{AgentOptions, Connector, IdentityStore, Join, Timings};
use atoll_api::marks;
use atoll_apiserver::{Options, Server};
use atoll_controller::leader::LeaderTerm;
use atoll_controller::members::{
    ApplyResult, Arrival, MemberEvent, Proof, TOKEN_LIFE, create_token,
};
use atoll_render::Share;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use kube::api::DeleteParams;
use serde_json::json;
use tokio_util::sync::CancellationToken;

use crate::rig::{Hub, Rig, eventually};

/// A member with its agent, which connects to each controller of the test in turn.
pub(crate) struct Member {
    client: kube::Client,
    arrivals: Arc<std::sync::Mutex<tokio::sync::mpsc::Sender<Arrival>>>,
    token: CancellationToken,
}

impl Drop for Member {
    fn drop(&mut self) {
        self.token.cancel();
    }
}

impl Member {
    pub(crate) async fn join(rig: &Rig, name: &str, seed: u64) -> Self {
        let cluster = rig.hub.register(name).await;
        let clock = rig.hub.clock.clone();
        let now = clock.clone();
        let options = Options { clock: Arc::new(move || now.now()), seed, ..Options::memory() };
        let client = Server::open(options).unwrap().client();
        let token = create_token(&rig.hub.client, &clock, &cluster, TOKEN_LIFE).await.unwrap();
        let ca_hash = rig.members.authority().await.hash();
        let arrivals = Arc::new(std::sync::Mutex::new(rig.arrivals.clone()));
        let to = arrivals.clone();
        let connector = Connector::from_fn(move |_| {
            let arrivals = to.lock().unwrap().clone();
            async move {
                let (near, far) = tokio::io::duplex(64 * 1024);
                let arrival = Arrival { io: Box::new(far), identity: None };
                let sent = arrivals.send(arrival).await;
                sent.map_err(|_| std::io::Error::other("no controller"))?;
                Ok(near)
            }
        });
        let agent = AgentOptions {
            client: client.clone(),
            addresses: vec!["controller:1".into()],
            connector,
            identity: IdentityStore::Secret("atoll-agent-identity".into()),
            join: Some(Join { token, ca_hash }),
            namespace: "atoll-system".into(),
            reserved: atoll_api::ReservedNamespaces::default(),
            proxy: None,
            instance: "agent-0".into(),
            runs_on: atoll_api::RunsOn::Thread,
            clock,
            seed,
            timings: Timings::default(),
        };
        let token = CancellationToken::new();
        tokio::spawn(atoll_agent::run(agent, token.clone()));
        Self { client, arrivals, token }
    }

    fn configs(&self) -> Api<ConfigMap> {
        Api::namespaced(self.client.clone(), "shop")
    }

    async fn value(&self, name: &str) -> Option<String> {
        self.configs().get_opt(name).await.unwrap()?.data?.remove("v")
    }
}

pub(crate) fn set(rig: &Rig, name: &str, value: &str) {
    let template = json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": name, "namespace": "shop"}, "data": {"v": value},
    });
    let share =
        Share { cluster: "member1".into(), claim: format!("uid-{name}"), ..Share::default() };
    let objects = vec![
        Arc::new(atoll_render::namespace("shop", None)),
        Arc::new(atoll_render::render(&template, &share).unwrap()),
    ];
    rig.set_all("member1", &format!("uid-{name}"), objects);
}

#[tokio::test(start_paused = true)]
async fn a_real_agent_joins_applies_removes_and_survives_controllers() {
    let hub = Hub::start().await;
    let mut rig = Rig::start(&hub).await;
    let member = Member::join(&rig, "member1", 7).await;
    eventually(async || hub.ready("member1").await == "True/MemberReady").await;
    eventually(async || !hub.status("member1").await.api_enablements.is_empty()).await;
    assert!(hub.status("member1").await.cluster_id.is_some());

    set(&rig, "a", "1");
    set(&rig, "b", "1");
    eventually(async || member.value("a").await.is_some() && member.value("b").await.is_some())
        .await;
    rig.event(|event| {
        matches!(event, MemberEvent::Applied { result: ApplyResult::Applied, current: true, .. })
    })
    .await;
    set(&rig, "a", "2");
    eventually(async || member.value("a").await.as_deref() == Some("2")).await;
    // Deleted on the member: it is created again.
    member.configs().delete("a", &DeleteParams::default()).await.unwrap();
    eventually(async || member.value("a").await.as_deref() == Some("2")).await;

    rig.withdraw("member1", "uid-b", Proof::NotTargeted);
    rig.event(|event| matches!(event, MemberEvent::Withdrawn { claim, .. } if claim == "uid-b"))
        .await;
    assert_eq!(member.value("b").await, None);

    // A restart without a change: no write to the member's object, none to the Cluster.
    tokio::time::sleep(std::time::Duration::from_secs(400)).await;
    let object = member.configs().get("a").await.unwrap().metadata.resource_version;
    let cluster = hub.clusters().get("member1").await.unwrap();
    rig.stop().await;
    let mut rig = Rig::start_with(&hub, Default::default(), Some(2), |_| ()).await;
    set(&rig, "a", "2");
    rig.complete(2);
    *member.arrivals.lock().unwrap() = rig.arrivals.clone();
    let event = rig.event(|event| matches!(event, MemberEvent::Inventory { .. })).await;
    let MemberEvent::Inventory { held, orphans, .. } = event else { unreachable!() };
    assert_eq!((held.len(), held[0].current, orphans), (1, true, 0));
    rig.event(|event| matches!(event, MemberEvent::Status { .. } | MemberEvent::Facts { .. }))
        .await;
    tokio::time::sleep(std::time::Duration::from_secs(60)).await;
    assert_eq!(member.configs().get("a").await.unwrap().metadata.resource_version, object);
    assert_eq!(hub.clusters().get("member1").await.unwrap(), cluster);

    // A controller without state (a hub restored from an earlier backup): everything stays, and is counted.
    rig.stop().await;
    let mut rig = Rig::start_with(&hub, Default::default(), Some(3), |_| ()).await;
    rig.complete(3);
    *member.arrivals.lock().unwrap() = rig.arrivals.clone();
    rig.event(|event| matches!(event, MemberEvent::Inventory { orphans: 1, .. })).await;
    eventually(async || hub.status("member1").await.orphans == Some(1)).await;
    assert_eq!(member.value("a").await.as_deref(), Some("2"));
    // With a proof it is removed.
    rig.withdraw("member1", "uid-a", Proof::Recorded);
    eventually(async || member.value("a").await.is_none()).await;
    eventually(async || hub.status("member1").await.orphans == Some(0)).await;
}

#[tokio::test(start_paused = true)]
async fn an_old_controller_with_a_lower_term_is_not_obeyed() {
    let hub = Hub::start().await;
    let rig = Rig::start_with(&hub, Default::default(), Some(9), |_| ()).await;
    rig.complete(9);
    let member = Member::join(&rig, "member1", 8).await;
    set(&rig, "a", "1");
    eventually(async || member.value("a").await.is_some()).await;
    rig.stop().await;
    let mut old = Rig::start_with(&hub, Default::default(), Some(5), |_| ()).await;
    set(&old, "a", "old");
    old.complete(5);
    *member.arrivals.lock().unwrap() = old.arrivals.clone();
    // One member alone is not believed: a user confirms it.
    eventually(async || hub.condition("member1", "TermAhead").await.is_some()).await;
    assert!(old.seen.iter().all(|event| !matches!(event, MemberEvent::HigherTerm { .. })));
    hub.annotate("member1", marks::ACCEPT_TERM, "").await;
    old.event(|event| matches!(event, MemberEvent::HigherTerm { term, .. } if term.get() == 9))
        .await;
    tokio::time::sleep(std::time::Duration::from_secs(60)).await;
    assert_eq!(member.value("a").await.as_deref(), Some("1"));
    // It raises its own term above that, and its orders are accepted again.
    old.term.send_replace(Some(LeaderTerm::new(10)));
    old.complete(10);
    eventually(async || member.value("a").await.as_deref() == Some("old")).await;
    eventually(async || hub.annotation("member1", marks::ACCEPT_TERM).await.is_none()).await;
    eventually(async || hub.condition("member1", "TermAhead").await.is_none()).await;
}
