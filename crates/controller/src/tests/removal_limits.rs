//! A hub that may be older than history.

use std::time::Duration;

use atoll_api::BindingUid;
use atoll_history::{
    Event, Fault, Filter, MemberEvent, MemberEventKind as Kind, MemberFilter, Store,
};
use jiff::SignedDuration;
use serde_json::json;

use super::harness::{BINDING, DEPLOYMENT, Federation, SOON, Setup};
use crate::members::LimitReason;
use crate::testing::eventually;
use crate::testing::hub::Hub;

impl Federation {
    async fn placed(&self, replicas: i64) -> BindingUid {
        self.until(BINDING, "web-deployment", "/status/summary/ready", json!(replicas)).await;
        let binding = self.hub.get(BINDING.0, BINDING.1, Some("shop"), "web-deployment").await;
        binding["metadata"]["uid"].as_str().unwrap().into()
    }

    async fn until_limit(&self, uid: &BindingUid, expected: Option<LimitReason>) {
        eventually(&format!("removals are limited by {expected:?}"), SOON, || async {
            self.members.limit(uid) == expected
        })
        .await;
    }

    async fn until_rows(&self, count: usize) {
        eventually(&format!("{count} rows"), SOON, || async {
            self.store
                .page(&Filter::default(), 100, None)
                .await
                .is_ok_and(|page| page.rows.len() >= count)
        })
        .await;
    }
}

async fn federation() -> Federation {
    let federation = Federation::start().await;
    federation
        .hub
        .policy(
            "all",
            DEPLOYMENT,
            json!({"replicaScheduling": {
                "replicaSchedulingType": "Divided", "replicaDivisionPreference": "Weighted",
            }}),
        )
        .await;
    federation.hub.deployment("web", 3).await;
    federation
}

#[tokio::test(start_paused = true)]
async fn removals_by_the_newest_decisions_are_not_limited_whichever_leader_made_them() {
    let federation = federation().await;
    let uid = federation.placed(3).await;
    federation.until_limit(&uid, None).await;
    federation.until_rows(1).await;
    let federation = federation.restart().await;
    federation.until_limit(&uid, None).await;
}

#[tokio::test(start_paused = true)]
async fn removals_are_limited_on_a_hub_that_was_restored_from_an_older_backup() {
    let federation = federation().await;
    let uid = federation.placed(3).await;
    let backup = federation.hub.copy();
    federation.hub.deployment("web", 6).await;
    federation.placed(6).await;
    federation.until_rows(2).await;
    let federation = federation.restart_on(backup).await;
    federation.until_limit(&uid, Some(LimitReason::HubOlderThanHistory)).await;
    // Decisions of this leader on the old hub do not remove the doubt.
    federation.hub.deployment("web", 9).await;
    federation.placed(9).await;
    tokio::time::sleep(Duration::from_secs(300)).await;
    assert_eq!(federation.members.limit(&uid), Some(LimitReason::HubOlderThanHistory));
}

#[tokio::test(start_paused = true)]
async fn removals_are_limited_while_the_history_database_is_unreachable() {
    let federation = federation().await;
    let uid = federation.placed(3).await;
    federation.until_rows(1).await;
    federation.store.set_fault(Fault::Unreachable);
    let federation = federation.restart().await;
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(federation.members.limit(&uid), Some(LimitReason::HistoryUnreachable));
    federation.store.set_fault(Fault::None);
    federation.until_limit(&uid, None).await;
    // Unreachable again while this leader has decisions to record.
    federation.store.set_fault(Fault::Unreachable);
    federation.hub.deployment("web", 6).await;
    federation.until_limit(&uid, Some(LimitReason::HistoryUnreachable)).await;
}

/// Member events are read back for the whole retention, here a year.
#[tokio::test(start_paused = true)]
async fn what_happened_to_members_is_read_back_for_the_whole_retention() {
    let year = Duration::from_secs(365 * 86_400);
    let setup = Setup { retention: Some(year), ..Setup::default() };
    let federation = Federation::start_on(Hub::open().await, setup).await;
    let cluster = federation.hub.get("cluster.atoll.dev/v1alpha1", "Cluster", None, "m1").await;
    let cordoned = MemberEvent {
        cluster: "m1".into(),
        uid: cluster["metadata"]["uid"].as_str().map(str::to_owned),
        at: federation.hub.clock.now() - SignedDuration::from_hours(24 * 200),
        kind: Kind::Tainted,
        reason: "example.com/maintenance:NoSchedule".to_owned(),
        message: "example.com/maintenance:NoSchedule".to_owned(),
    };
    federation.store.note(&[Event::Member(cordoned)]).await.unwrap();
    let federation = federation.restart().await;
    eventually("the end of the taint is noticed", SOON, || async {
        let filter = MemberFilter { cluster: Some("m1".into()), ..MemberFilter::default() };
        let page = federation.store.member_events(&filter, 100, None).await.unwrap();
        page.events.iter().any(|event| event.kind == Kind::Untainted)
    })
    .await;
}
