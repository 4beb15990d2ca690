//! Events for history, in addition to decisions.

use std::time::Duration;

use atoll_history::{Fault, Filter, MemberFilter, Milestone, Record, Store};
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
        self.store.milestones(&[id.into()]).await.unwrap()
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
        let filter = MemberFilter { cluster: Some(cluster.into()), ..MemberFilter::default() };
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
    // In order of occurrence, with the delays of the fake members.
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
    // Its author and inputs.
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
    // No report shows an unhealthy member as healthy. The next leader keeps waiting, and sees the recovery.
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
    federation.until_steps(&second, &all).await;
}

/// All steps of an earlier leader end up in history, whichever was the last that it recorded: with `rests` it continues
/// without history until everything is done, otherwise it ends at once.
async fn ends_after(steps: usize, rests: bool) {
    let case = format!("after {steps} steps, rests: {rests}");
    let federation = Federation::start().await;
    federation.hub.policy("all", DEPLOYMENT, json!({"replicaScheduling": {}})).await;
    federation.hub.deployment("web", 3).await;
    federation.until(BINDING, "web-deployment", "/status/summary/ready", json!(3)).await;
    let first = federation.newest().await.record.id;
    eventually("the first is told", SOON, || async { federation.steps(&first).await.len() == 11 })
        .await;
    if steps == 0 {
        federation.store.set_fault(Fault::ReadOnly);
    }
    federation.hub.deployment("web", 6).await;
    let id = async || {
        let binding =
            federation.hub.get(BINDING.0, BINDING.1, Some("shop"), "web-deployment").await;
        let decision = &binding["spec"]["decision"];
        (decision["desired"] == 6).then(|| decision["id"].as_str().unwrap().to_owned())
    };
    eventually("the second is committed", SOON, async || id().await.is_some()).await;
    let second = id().await.unwrap();
    eventually(&case, SOON, async || federation.steps(&second).await.len() >= steps).await;
    federation.store.set_fault(Fault::ReadOnly);
    let noted = federation.steps(&second).await;
    let made = federation.hub.clock.now();
    if rests {
        federation.until(BINDING, "web-deployment", "/status/summary/ready", json!(6)).await;
    }
    let federation = federation.restart().await;
    federation.store.set_fault(Fault::None);
    federation.until(BINDING, "web-deployment", "/status/summary/ready", json!(6)).await;
    let ended = federation.hub.clock.now();
    // Between the commit and the member's report, no object shows when a member was sent its order; and that it had
    // applied this one shows only if the status had shown in between that it had not.
    let expected = |step: &String| match step.split(' ').next().unwrap() {
        "Dispatched" | "Applied" => noted.contains(step) || !rests,
        _ => true,
    };
    let all: Vec<String> = federation.steps(&first).await;
    assert!(all.contains(&"Superseded".to_owned()) || noted.is_empty(), "{case}: {all:?}");
    eventually(&format!("{case}: every step that can be known"), SOON, async || {
        let known = federation.steps(&second).await;
        let first = federation.steps(&first).await;
        let told = |applied: &String| known.contains(&applied.replace("Applied", "Dispatched"));
        first.contains(&"Superseded".to_owned())
            && known.iter().filter(|step| step.starts_with("Applied")).all(told)
            && first.iter().filter(|s| *s != "Superseded" && expected(s)).all(|s| known.contains(s))
    })
    .await;
    // Recovered steps have plausible times: not before the decision, not after the next leader saw them.
    let record = federation.newest().await;
    assert_eq!(record.record.id, second, "{case}");
    for step in federation.milestones(&second).await {
        let range = record.decided_at()..=ended;
        assert!(range.contains(&step.at), "{case}: {step:?} is not in {range:?}");
        if rests && step.stage.as_str() == "Healthy" {
            // Members are healthy a second after they have applied it.
            let took = step.at.duration_since(made);
            assert!(took.as_secs() <= 2, "{case}: {step:?} came {took} after {made}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_leader_that_dies_between_any_two_steps_leaves_them_to_be_read_again() {
    for steps in 0..=11 {
        ends_after(steps, true).await;
        ends_after(steps, false).await;
    }
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
    // The controller's self-suspicion is recorded for each member, and its end too.
    federation.members.suspect("m1", true).await;
    let suspected = [&uncordoned[..], &["Suspected ControllerSuspectsItself"]].concat();
    told(&federation, &suspected).await;
    federation.members.suspect("m1", false).await;
    let cleared = [&suspected[..], &["Cleared ControllerSuspectsItself"]].concat();
    told(&federation, &cleared).await;
    federation.hub.delete(CLUSTER.0, CLUSTER.1, None, "m1").await;
    told(&federation, &[&cleared[..], &["Left Deleted"]].concat()).await;
}

#[tokio::test(start_paused = true)]
async fn what_happened_to_members_and_was_not_told_the_next_leader_tells() {
    let federation = Federation::start().await;
    let taints = json!([{"key": "cluster.atoll.dev/cordoned", "effect": "NoSchedule"}]);
    let object = json!({"metadata": {"name": "m1"}, "spec": {"taints": taints}});
    federation.hub.apply(CLUSTER.0, CLUSTER.1, None, object).await;
    eventually("it is told", SOON, || async {
        federation.happened("m1").await.len() == 2 && federation.happened("m2").await.len() == 1
    })
    .await;
    federation.store.set_fault(Fault::ReadOnly);
    let object = json!({"metadata": {"name": "m1"}, "spec": {"taints": []}});
    federation.hub.apply(CLUSTER.0, CLUSTER.1, None, object).await;
    federation.hub.delete(CLUSTER.0, CLUSTER.1, None, "m2").await;
    let mut federation = federation;
    for _ in 0..2 {
        // The leader after the next adds nothing.
        federation = federation.restart().await;
        federation.store.set_fault(Fault::None);
        eventually("it is told by the next", SOON, || async {
            let (one, two) = (federation.happened("m1").await, federation.happened("m2").await);
            one[1..]
                == [
                    "Cordoned cluster.atoll.dev/cordoned",
                    "Uncordoned NoticedLater: cluster.atoll.dev/cordoned",
                ]
                && two[1..] == ["Left NoticedLater"]
        })
        .await;
    }
}
