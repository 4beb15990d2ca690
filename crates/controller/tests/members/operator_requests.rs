//! User requests to members by their Clusters: leave, prune orphans, confirm held removals; and what is removed without
//! a request.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use atoll_api::marks;
use atoll_controller::members::{Proof, TOKEN_LIFE, Verdict, create_token, list_tokens};
use atoll_protocol::member::MemberIdentity;
use atoll_protocol::v1;
use k8s_openapi::api::events::v1::Event;
use kube::Api;
use tonic::{Code, Status};

use crate::agent::{Agent, Object, Store, client, enrol, keep_alive, obey};
use crate::rig::{Hub, Rig, eventually};

const BEAT: Duration = Duration::from_secs(5);

/// A member that carries out its orders.
struct Member {
    identity: MemberIdentity,
    store: Arc<Mutex<Store>>,
    session: Session,
}

/// A session with heartbeats.
struct Session {
    obeying: tokio::task::JoinHandle<(Status, Vec<String>)>,
    beats: Arc<tokio::task::JoinHandle<()>>,
}

impl Session {
    /// The agent dies.
    fn kill(&self) {
        self.obeying.abort();
        self.beats.abort();
    }
}

impl Member {
    /// Joins; the member already holds these objects, each with a claim of its name.
    async fn join(rig: &Rig, name: &str, holds: &[&str]) -> Self {
        rig.hub.register(name).await;
        let identity = enrol(rig, name).await;
        let mut store = Store::default();
        for object in holds {
            let (claims, uid) = (vec![(*object).to_owned()], format!("uid-{object}"));
            store.0.insert(key(object), Object { hash: "h1".into(), claims, uid });
        }
        let store = Arc::new(Mutex::new(store));
        let session = Self::connect(rig, name, &identity, &store).await;
        Self { identity, store, session }
    }

    async fn connect(
        rig: &Rig,
        name: &str,
        identity: &MemberIdentity,
        store: &Arc<Mutex<Store>>,
    ) -> Session {
        let held = store.lock().unwrap().clone();
        let agent = Agent::welcomed(rig, identity, name, 1, &held).await;
        let beats = keep_alive(&agent, BEAT);
        agent.facts(1000).await;
        Session { obeying: obey(agent, store), beats }
    }

    fn holds(&self) -> Vec<String> {
        self.store.lock().unwrap().0.keys().map(|key| key.name.clone()).collect()
    }

    /// How the session ended, and the orders in it, in short form and sorted.
    async fn ended(&mut self) -> (Code, Vec<String>) {
        let (status, mut log) = (&mut self.session.obeying).await.unwrap();
        log.retain(|line| line.starts_with("remove") || line.starts_with("release"));
        log.sort();
        (status.code(), log)
    }
}

fn key(name: &str) -> v1::ObjectKey {
    let (group, kind) = ("apps".to_owned(), "Deployment".to_owned());
    v1::ObjectKey { group, kind, namespace: "shop".into(), name: name.into() }
}

async fn leaving(hub: &Hub, name: &str, reason: &str) -> String {
    let is = async || hub.condition(name, "Leaving").await.is_some_and(|c| c.0 == reason);
    eventually(is).await;
    hub.condition(name, "Leaving").await.unwrap().1
}

#[tokio::test(start_paused = true)]
async fn a_member_is_emptied_before_its_cluster_goes() {
    let hub = Hub::start().await;
    let rig = Rig::start(&hub).await;
    rig.set("member1", "web", "h1");
    rig.verdicts.0.lock().unwrap().insert("frozen".into(), Verdict::Frozen);
    let mut member = Member::join(&rig, "member1", &["frozen", "orphan", "web"]).await;
    eventually(async || hub.status("member1").await.orphans == Some(1)).await;

    // While a decision holds something there, everything stays.
    hub.delete("member1").await;
    let message = leaving(&hub, "member1", "WorkMovesAway").await;
    assert!(message.contains("Deployment.apps/shop/web"), "{message}");
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(member.holds(), ["frozen", "orphan", "web"]);

    // It moved: its copy is removed with that proof, and objects without a proof become unmanaged.
    rig.withdraw("member1", "web", Proof::NotTargeted);
    hub.gone("member1").await;
    let (code, log) = member.ended().await;
    assert_eq!(
        log,
        ["release frozen uid-frozen", "release orphan uid-orphan", "remove web uid-web"]
    );
    assert_eq!(code, Code::PermissionDenied);
    let csr_der = atoll_protocol::member::KeyRequest::generate().unwrap().csr_der().to_vec();
    let mut client = client(&rig, &member.identity, crate::agent::ROOM).await;
    let renewed = client.renew(v1::RenewRequest { csr_der, follows_authority: true });
    assert_eq!(renewed.await.unwrap_err().code(), Code::PermissionDenied);
}

#[tokio::test(start_paused = true)]
async fn what_is_released_runs_on_and_the_window_does_not_hold_a_member_that_leaves() {
    let hub = Hub::start().await;
    let rig = Rig::start(&hub).await;
    let names: Vec<String> = (0..150).map(|n| format!("web-{n:03}")).collect();
    for name in &names {
        rig.set("member1", name, "h1");
        rig.set("member2", name, "h1");
    }
    let list: Vec<&str> = names.iter().map(String::as_str).collect();
    let (one, two) =
        (Member::join(&rig, "member1", &list).await, Member::join(&rig, "member2", &list).await);
    hub.annotate("member1", marks::UNJOIN, "release").await;
    for name in ["member1", "member2"] {
        eventually(async || hub.ready(name).await == "True/MemberReady").await;
        hub.delete(name).await;
        leaving(&hub, name, "WorkMovesAway").await;
        for claim in &names {
            rig.withdraw(name, claim, Proof::NotTargeted);
        }
    }
    for (mut member, name, word) in
        [(one, "member1", "release web-"), (two, "member2", "remove web-")]
    {
        hub.gone(name).await;
        let (_, log) = member.ended().await;
        assert_eq!(log.iter().filter(|line| line.starts_with(word)).count(), 150, "{log:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_member_that_cannot_be_reached_goes_by_force_and_what_it_holds_is_said() {
    let hub = Hub::start().await;
    let rig = Rig::start(&hub).await;
    rig.set("member1", "web", "h1");
    let member = Member::join(&rig, "member1", &["orphan", "web"]).await;
    eventually(async || hub.status("member1").await.orphans == Some(1)).await;
    member.session.kill();
    hub.delete("member1").await;
    let message = leaving(&hub, "member1", "MemberUnreachable").await;
    assert!(message.contains("2 objects") && message.contains("--force"), "{message}");
    tokio::time::sleep(Duration::from_secs(3600)).await;
    assert!(hub.clusters().get_opt("member1").await.unwrap().is_some(), "it waits for its agent");

    // Watchers of the Cluster see the list before it is deleted; the event stays.
    let seen = Arc::new(Mutex::new(Vec::new()));
    let (watching, clusters) = (seen.clone(), hub.clusters());
    let watch = tokio::spawn(async move {
        let mut stream = std::pin::pin!(kube::runtime::watcher(clusters, Default::default()));
        while let Some(Ok(event)) = futures::StreamExt::next(&mut stream).await {
            if let kube::runtime::watcher::Event::Apply(cluster) = event {
                let named = cluster.status.unwrap_or_default().orphaned_objects;
                watching
                    .lock()
                    .unwrap()
                    .push(named.iter().map(ToString::to_string).collect::<Vec<_>>());
            }
        }
    });
    eventually(async || {
        hub.annotate("member1", "example.com/touched", "yes").await;
        !seen.lock().unwrap().is_empty()
    })
    .await;
    hub.annotate("member1", marks::UNJOIN, "force").await;
    hub.gone("member1").await;
    watch.abort();
    let last = seen.lock().unwrap().last().cloned().unwrap();
    assert_eq!(last, ["Deployment.apps/shop/orphan", "Deployment.apps/shop/web"]);
    let events: Api<Event> = Api::namespaced(hub.client.clone(), "default");
    eventually(async || {
        let events = events.list(&Default::default()).await.unwrap();
        let left = |event: &&Event| event.reason.as_deref() == Some("LeftBehind");
        let found = events.iter().find(left).and_then(|event| event.note.clone());
        found.is_some_and(|note| note.contains("Deployment.apps/shop/web"))
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn by_force_a_member_that_is_reached_is_released_as_it_is() {
    let hub = Hub::start().await;
    let rig = Rig::start(&hub).await;
    rig.set("member1", "stuck", "h1");
    let mut member = Member::join(&rig, "member1", &["stuck"]).await;
    eventually(async || hub.ready("member1").await == "True/MemberReady").await;
    hub.delete("member1").await;
    leaving(&hub, "member1", "WorkMovesAway").await;
    hub.annotate("member1", marks::UNJOIN, "force").await;
    hub.gone("member1").await;
    assert_eq!(member.ended().await.1, ["release stuck "], "the one that was applied");
}

#[tokio::test(start_paused = true)]
async fn a_cluster_that_no_agent_joined_goes_at_once_and_the_next_of_its_name_stays() {
    let hub = Hub::start().await;
    let rig = Rig::start(&hub).await;
    hub.register("member1").await;
    let finalizers = async || hub.clusters().get("member1").await.unwrap().metadata.finalizers;
    eventually(async || finalizers().await.is_some_and(|f| f == [marks::CLUSTER_FINALIZER])).await;
    hub.delete("member1").await;
    hub.gone("member1").await;
    rig.set("member1", "web", "h1");
    let member = Member::join(&rig, "member1", &[]).await;
    eventually(async || member.holds() == ["web"]).await;
}

#[tokio::test(start_paused = true)]
async fn orphans_are_named_and_only_those_that_a_person_names_go() {
    let hub = Hub::start().await;
    let rig = Rig::start(&hub).await;
    rig.set("member1", "web", "h1");
    let member = Member::join(&rig, "member1", &["one", "two", "web"]).await;
    let orphans = async || {
        let named = hub.status("member1").await.orphaned_objects;
        named.iter().map(|object| object.name.clone()).collect::<Vec<_>>()
    };
    eventually(async || orphans().await == ["one", "two"]).await;

    // An object that is not an orphan is not removed even if named, and an invalid entry names nothing.
    let requested = "Deployment.apps/shop/one, Deployment.apps/shop/web,,nonsense";
    hub.annotate("member1", marks::PRUNE, requested).await;
    eventually(async || hub.annotation("member1", marks::PRUNE).await.is_none()).await;
    assert_eq!(member.holds(), ["two", "web"]);
    eventually(async || orphans().await == ["two"]).await;

    // Requested while the member is disconnected, it is removed when the member returns, also by the next controller.
    member.session.kill();
    eventually(async || hub.ready("member1").await == "Unknown/SessionLost").await;
    hub.annotate("member1", marks::PRUNE, "Deployment.apps/shop/two").await;
    tokio::time::sleep(Duration::from_secs(30)).await;
    assert!(hub.annotation("member1", marks::PRUNE).await.is_some());
    rig.stop().await;
    let rig = Rig::start(&hub).await;
    rig.set("member1", "web", "h1");
    let _session = Member::connect(&rig, "member1", &member.identity, &member.store).await;
    eventually(async || hub.annotation("member1", marks::PRUNE).await.is_none()).await;
    assert_eq!(member.holds(), ["web"]);
    eventually(async || hub.status("member1").await.orphans == Some(0)).await;
}

#[tokio::test(start_paused = true)]
async fn removals_over_the_limit_are_held_until_a_person_confirms_them() {
    let hub = Hub::start().await;
    let rig = Rig::start(&hub).await;
    let names: Vec<String> = (0..150).map(|n| format!("web-{n:03}")).collect();
    for name in &names {
        rig.set("member1", name, "h1");
    }
    let list: Vec<&str> = names.iter().map(String::as_str).collect();
    let member = Member::join(&rig, "member1", &list).await;
    eventually(async || hub.ready("member1").await == "True/MemberReady").await;
    for claim in &names {
        rig.withdraw("member1", claim, Proof::NotTargeted);
    }
    eventually(async || hub.condition("member1", "PruneHeld").await.is_some()).await;
    assert_eq!(member.holds().len(), 50, "the larger of 100 objects and 30 %");
    // The condition shows why, how many and which ones, and so does an Event.
    let (reason, message) = hub.condition("member1", "PruneHeld").await.unwrap();
    assert_eq!(reason, "DecisionNotNewest");
    assert!(message.contains("atoll prune --confirm member1"), "{message}");
    eventually(async || hub.status("member1").await.removals_held == Some(50)).await;
    let named = hub.status("member1").await.held_objects;
    let named: Vec<&str> = named.iter().map(|object| object.name.as_str()).collect();
    assert_eq!(named, member.holds());
    let events: Api<Event> = Api::namespaced(hub.client.clone(), "default");
    eventually(async || {
        let events = events.list(&Default::default()).await.unwrap().items;
        events.iter().any(|event| event.reason.as_deref() == Some("RemovalsHeld"))
    })
    .await;
    hub.annotate("member1", marks::CONFIRM_PRUNE, "by alice").await;
    eventually(async || member.holds().is_empty()).await;
    eventually(async || hub.condition("member1", "PruneHeld").await.is_none()).await;
    assert_eq!(hub.annotation("member1", marks::CONFIRM_PRUNE).await, None);
}

#[tokio::test(start_paused = true)]
async fn tokens_that_ended_are_swept_an_hour_later() {
    let hub = Hub::start().await;
    let _rig = Rig::start(&hub).await;
    let cluster = hub.register("member1").await;
    let token = async |life| create_token(&hub.client, &hub.clock, &cluster, life).await.unwrap();
    token(TOKEN_LIFE).await;
    let long = token(jiff::SignedDuration::from_hours(24)).await;
    tokio::time::sleep(Duration::from_secs(65 * 60)).await;
    assert_eq!(list_tokens(&hub.client).await.unwrap().len(), 2, "a late agent gets the reason");
    tokio::time::sleep(Duration::from_secs(21 * 60)).await;
    let left = list_tokens(&hub.client).await.unwrap();
    let ids: Vec<_> = left.iter().map(|token| token.id.as_str()).collect();
    assert_eq!(ids, [long.id().as_str()]);
}
