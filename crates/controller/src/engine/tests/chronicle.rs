//! What history is told besides decisions.

use std::time::Duration;

use atoll_history::{Filter, MemberFilter, Milestone, Record, Store};
use serde_json::json;

use super::harness::{BINDING, DEPLOYMENT, Federation, SOON};
use crate::testing::eventually;

const CLUSTER: (&str, &str) = ("cluster.atoll.dev/v1alpha1", "Cluster");

impl Federation {
    /// The newest decision.
    async fn newest(&self) -> Record {
        let page = self.store.page(&Filter::default(), 1, None).await.unwrap();
        page.rows[0].entry.record().unwrap().clone()
    }

    async fn milestones(&self, id: &str) -> Vec<Milestone> {
        self.store.milestones(&[id.to_owned()]).await.unwrap()
    }

    /// Steps of a decision, as `stage cluster`.
    async fn steps(&self, id: &str) -> Vec<String> {
        let steps = self.milestones(id).await;
        let words =
            steps.iter().map(|s| format!("{} {}", s.stage, s.cluster.as_deref().unwrap_or("")));
        let mut words: Vec<_> = words.map(|step| step.trim().to_owned()).collect();
        words.sort();
        words
    }

    async fn until_steps(&self, id: &str, expected: &[&str]) {
        eventually(&format!("steps {expected:?}"), SOON, || async {
            self.steps(id).await == expected
        })
        .await;
    }

    /// Events of members, as `kind reason`, oldest first.
    async fn happened(&self, cluster: &str) -> Vec<String> {
        let filter = MemberFilter { cluster: Some(cluster.to_owned()), ..MemberFilter::default() };
        let page = self.store.member_events(&filter, 100, None).await.unwrap();
        page.events.iter().rev().map(|e| format!("{} {}", e.kind, e.reason)).collect()
    }
}

#[tokio::test(start_paused = true)]
async fn the_life_of_a_decision_is_told_and_costs_the_hub_nothing() {
    let federation = Federation::start().await;
    federation.hub.policy("all", DEPLOYMENT, json!({"replicaScheduling": {}})).await;
    federation.hub.deployment("web", 3).await;
    federation.until(BINDING, "web-deployment", "/status/summary/ready", json!(3)).await;
    let first = federation.newest().await;
    let id = first.record.id.clone();
    let all = [
        "Applied m1",
        "Applied m2",
        "Applied m3",
        "Committed",
        "Decided",
        "Dispatched m1",
        "Dispatched m2",
        "Dispatched m3",
        "Healthy m1",
        "Healthy m2",
        "Healthy m3",
    ];
    federation.until_steps(&id, &all).await;
    // In the order in which they happened, with the time that the fake members take.
    let steps = federation.milestones(&id).await;
    let at = |stage: &str, cluster: Option<&str>| {
        let found =
            steps.iter().find(|s| s.stage.as_str() == stage && s.cluster.as_deref() == cluster);
        found.unwrap().at
    };
    let committed = at("Committed", None);
    assert!(at("Decided", None) <= committed && committed <= at("Dispatched", Some("m1")));
    let applied = at("Applied", Some("m1")).duration_since(at("Dispatched", Some("m1")));
    assert_eq!(Duration::try_from(applied).unwrap(), Duration::from_millis(30));
    let healthy = at("Healthy", Some("m1")).duration_since(at("Applied", Some("m1")));
    assert_eq!(Duration::try_from(healthy).unwrap(), Duration::from_secs(1));
    // Who made it, from what.
    let provenance = first.provenance.unwrap();
    assert_eq!(
        (provenance.version.as_str(), provenance.profile.as_str()),
        (env!("CARGO_PKG_VERSION"), "default")
    );
    let sources: Vec<_> = provenance
        .sources
        .iter()
        .map(|s| (s.kind.as_str(), s.name.as_str(), s.generation))
        .collect();
    assert_eq!(sources, [("Deployment", "web", Some(1)), ("PropagationPolicy", "all", Some(1))]);
    let changed = provenance.sources.iter().map(|s| s.changed.as_ref().expect("it was created"));
    assert!(
        changed.into_iter().all(|c| !c.manager.is_empty() && c.at.is_some()),
        "{:?}",
        provenance.sources
    );
    // A member that is not well: the time when it is remains missing, nobody makes it up, also not the next leader.
    federation.members.make_sick("m3", true);
    federation.hub.deployment("web", 6).await;
    eventually("scaled", SOON, || async { federation.newest().await.record.desired == 6 }).await;
    let second = federation.newest().await.record.id;
    let without_m3: Vec<&str> = all.into_iter().filter(|step| *step != "Healthy m3").collect();
    federation.until_steps(&second, &without_m3).await;
    assert!(federation.steps(&id).await.contains(&"Superseded".to_owned()));
    let writes = federation.spy.take_writes();
    let expected = ["resourcebindings", "deployments", "events", "leases", "propagationpolicies"];
    let usual = |write: &String| expected.iter().any(|kind| write.contains(kind));
    assert!(writes.iter().all(usual), "only what is written anyway: {writes:?}");
    let federation = federation.restart().await;
    federation.members.make_sick("m3", false);
    federation.until(BINDING, "web-deployment", "/status/summary/ready", json!(6)).await;
    assert_eq!(federation.newest().await.record.id, second);
    assert_eq!(federation.steps(&second).await, without_m3);
}

#[tokio::test(start_paused = true)]
async fn what_happens_to_members_is_told_once() {
    let federation = Federation::start().await;
    let told = async |federation: &Federation, expected: &[&str]| {
        eventually(&format!("events {expected:?}"), SOON, || async {
            federation.happened("m1").await == expected
        })
        .await;
    };
    told(&federation, &["Ready Ok"]).await;
    let taints = json!([{"key": "cluster.atoll.dev/cordoned", "effect": "NoSchedule"}]);
    let object = json!({"metadata": {"name": "m1"}, "spec": {"taints": taints}});
    federation.hub.apply(CLUSTER.0, CLUSTER.1, None, object).await;
    let cordoned = ["Ready Ok", "Cordoned cluster.atoll.dev/cordoned"];
    told(&federation, &cordoned).await;
    // A new leader sees every Cluster for the first time.
    let federation = federation.restart().await;
    let object = json!({"metadata": {"name": "m1"}, "spec": {"taints": []}});
    federation.hub.apply(CLUSTER.0, CLUSTER.1, None, object).await;
    let uncordoned = [cordoned[0], cordoned[1], "Uncordoned cluster.atoll.dev/cordoned"];
    told(&federation, &uncordoned).await;
    federation.hub.delete(CLUSTER.0, CLUSTER.1, None, "m1").await;
    told(&federation, &[uncordoned[0], uncordoned[1], uncordoned[2], "Left Deleted"]).await;
}
