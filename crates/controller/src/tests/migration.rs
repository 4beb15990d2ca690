//! Auto-migration: replicas that find no node on their member move to members with room.

use std::time::Duration;

use atoll_api::binding::Trigger;
use serde_json::json;

use super::harness::Federation;
use super::triggers::{by_room, policy, room, shares, until_shares};

/// Three members with room for ten pods each, and the Deployment `web` with three replicas on each of them. m1 runs only
/// one of them, whatever its figures say: two of nine pods are Pending.
async fn full_member() -> Federation {
    let federation = Federation::start().await;
    for name in ["m1", "m2", "m3"] {
        room(&federation.hub, name, 10).await;
    }
    federation.members.fill("m1", 1, federation.hub.clock.now());
    let mut placement = by_room();
    placement["rescheduleOn"] = json!(["ReplicasChange", "Unschedulable", "Recovery"]);
    policy(&federation.hub, "web", placement).await;
    federation.hub.deployment("web", 9).await;
    until_shares(&federation, "web", &[("m1", 3), ("m2", 3), ("m3", 3)]).await;
    federation
}

/// A member has room for so many pods, and runs so many.
async fn used(federation: &Federation, cluster: &str, allocatable: i64, allocated: i64) {
    let pods = |count: i64| json!({"pods": count.to_string()});
    let summary = json!({"resourceSummary": {
        "allocatable": pods(allocatable), "allocated": pods(allocated),
    }});
    let (api_version, kind) = ("cluster.atoll.dev/v1alpha1", "Cluster");
    federation.hub.patch_status(api_version, kind, cluster, summary).await;
}

#[tokio::test(start_paused = true)]
async fn pending_replicas_move_within_two_minutes_and_stay_away_for_an_hour() {
    let federation = full_member().await;
    let moved = [("m1", 1), ("m2", 4), ("m3", 4)];
    until_shares(&federation, "web", &moved).await;
    federation.until_history(&[Trigger::First, Trigger::Unschedulable]).await;
    tokio::time::sleep(Duration::from_secs(3600)).await;
    until_shares(&federation, "web", &moved).await;
    federation.until_history(&[Trigger::First, Trigger::Unschedulable]).await;
}

#[tokio::test(start_paused = true)]
async fn a_member_counts_as_full_for_the_next_leader_too() {
    let federation = full_member().await;
    until_shares(&federation, "web", &[("m1", 1), ("m2", 4), ("m3", 4)]).await;
    let binding = federation.hub.binding("web-deployment").await;
    assert_eq!(binding["spec"]["decision"]["fullClusters"][0]["cluster"], "m1");
    let federation = federation.restart().await;
    federation.hub.deployment("web", 13).await;
    until_shares(&federation, "web", &[("m1", 1), ("m2", 6), ("m3", 6)]).await;
}

#[tokio::test(start_paused = true)]
async fn nothing_moves_until_another_member_has_room() {
    let federation = full_member().await;
    for name in ["m2", "m3"] {
        used(&federation, name, 3, 3).await;
    }
    tokio::time::sleep(Duration::from_secs(600)).await;
    let stays = [("m1", 3), ("m2", 3), ("m3", 3)].map(|(name, n)| (name.to_owned(), n));
    assert_eq!(shares(&federation, "web").await, stays);
    used(&federation, "m3", 5, 3).await;
    until_shares(&federation, "web", &[("m1", 1), ("m2", 3), ("m3", 5)]).await;
}
