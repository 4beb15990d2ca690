//! Missing knowledge never removes an object from a member. Each case has its test here, except: an incomplete sync
//! (the agent's, `agent/tests/it/removing.rs`), a restored hub (`real.rs`), a deleted CRD (`src/tests/life.rs`).

use std::time::Duration;

use atoll_controller::members::{HealthTimes, Verdict};
use atoll_protocol::tls;
use atoll_protocol::transport;
use tokio::time::timeout;

use crate::agent::{Agent, Object, ROOM, Store, enrol, keep_alive};
use crate::rig::{Hub, Rig, eventually};

fn holds(names: &[&str]) -> Store {
    let mut store = Store::default();
    for name in names {
        let key = atoll_protocol::v1::ObjectKey {
            group: "apps".into(),
            kind: "Deployment".into(),
            namespace: "shop".into(),
            name: (*name).into(),
        };
        let (claims, uid) = (vec![(*name).to_owned()], format!("uid-{name}"));
        store.0.insert(key, Object { hash: "h1".into(), claims, uid });
    }
    store
}

#[tokio::test(start_paused = true)]
async fn empty_cache_says_nothing_to_members() {
    let hub = Hub::start().await;
    let rig = Rig::start_with(&hub, HealthTimes::default(), Some(1), |_| ()).await;
    hub.register("member1").await;
    let identity = enrol(&rig, "member1").await;
    let mut store = holds(&["web"]);
    let mut agent = Agent::welcomed(&rig, &identity, "member1", 1, &store).await;
    let _beats = keep_alive(&agent, Duration::from_secs(5));
    assert!(timeout(Duration::from_secs(60), agent.next()).await.is_err(), "not a word");
    // Not even an orphan is counted before all state is set; then the desired objects are sent.
    assert_eq!(hub.status("member1").await.orphans, None);
    rig.set("member1", "web", "h1");
    rig.complete(1);
    assert_eq!(agent.sync(&mut store).await, [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn hub_lost_and_created_again_leaves_everything_where_it_is() {
    let hub = Hub::start().await;
    let rig = Rig::start(&hub).await;
    hub.register("member1").await;
    let identity = enrol(&rig, "member1").await;
    let mut store = Store::default();
    rig.set("member1", "web", "h1");
    let mut agent = Agent::welcomed(&rig, &identity, "member1", 1, &store).await;
    agent.sync(&mut store).await;
    rig.stop().await;

    // Another hub, with another authority: the agent refuses the connection.
    let hub = Hub::start().await;
    let rig = Rig::start(&hub).await;
    hub.register("member1").await;
    rig.members.authority().await;
    let tls = tls::member_config(&identity, hub.clock.clone()).unwrap();
    assert!(transport::channel(rig.connect(ROOM).await, tls).await.is_err());
    // After a user joined it to that hub, the member has orphans, and they stay.
    let identity = enrol(&rig, "member1").await;
    let mut agent = Agent::welcomed(&rig, &identity, "member1", 1, &store).await;
    let _beats = keep_alive(&agent, Duration::from_secs(5));
    assert_eq!(agent.sync(&mut store).await, ["inventory"]);
    eventually(async || hub.status("member1").await.orphans == Some(1)).await;
    assert!(timeout(Duration::from_secs(60), agent.next()).await.is_err(), "not a word");
}

#[tokio::test(start_paused = true)]
async fn history_lost_turns_withdrawn_bindings_into_orphans() {
    let hub = Hub::start().await;
    let rig = Rig::start(&hub).await;
    hub.register("member1").await;
    let identity = enrol(&rig, "member1").await;
    // Its binding was withdrawn while the member was disconnected; the record of that is lost.
    rig.verdicts.0.lock().unwrap().insert("gone".into(), Verdict::Unknown);
    let mut store = holds(&["gone"]);
    let mut agent = Agent::welcomed(&rig, &identity, "member1", 1, &store).await;
    let _beats = keep_alive(&agent, Duration::from_secs(5));
    assert_eq!(agent.sync(&mut store).await, ["inventory"]);
    eventually(async || hub.status("member1").await.orphaned_objects.len() == 1).await;
    assert_eq!(store.0.len(), 1);
}
