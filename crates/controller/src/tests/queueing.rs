//! Order of decisions: priorities, queue order, and gates.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

use atoll_api::binding::Trigger;
use atoll_scheduler::Profiles;
use atoll_scheduler::framework::plugin::Point;
use serde_json::{Value, json};

use super::harness::{BINDING, DEPLOYMENT, Federation, SOON, Setup};
use crate::queue::{Opening, Rank, Urgency};
use crate::schedule::extend::{Extension, Gate, Passage, Ready};
use crate::testing::eventually;
use crate::testing::hub::Hub;

const POLICY: (&str, &str) = ("policy.atoll.dev/v1alpha1", "PropagationPolicy");
const CLASS: (&str, &str) = ("scheduling.k8s.io/v1", "PriorityClass");

async fn class(hub: &Hub, name: &str, value: i64) {
    let object = json!({"metadata": {"name": name}, "value": value});
    hub.apply(CLASS.0, CLASS.1, None, object).await;
}

/// A policy for Deployments, or for one, with these fields beside its placement.
async fn policy(hub: &Hub, name: &str, only: Option<&str>, more: Value) {
    let mut spec = json!({
        "resourceSelectors": [{"apiVersion": "apps/v1", "kind": "Deployment", "name": only}],
        "placement": {"replicaScheduling": {}},
    });
    for (field, value) in more.as_object().unwrap() {
        spec[field] = value.clone();
    }
    hub.apply(POLICY.0, POLICY.1, Some("shop"), json!({"metadata": {"name": name}, "spec": spec}))
        .await;
}

fn class_of(name: &str) -> Value {
    let class = json!({"priorityClassSource": "KubePriorityClass", "priorityClassName": name});
    json!({"schedulePriority": class})
}

fn condition(object: &Value, type_: &str) -> (String, String, String) {
    let conditions = object["status"]["conditions"].as_array().cloned().unwrap_or_default();
    let found = conditions.into_iter().find(|condition| condition["type"] == type_);
    let text = |field: &str| {
        let condition = found.as_ref();
        condition.and_then(|c| c[field].as_str()).unwrap_or_default().to_owned()
    };
    (text("status"), text("reason"), text("message"))
}

async fn until_gated(federation: &Federation, how_many: usize) {
    eventually(&format!("{how_many} gated"), SOON, || async {
        let metrics = federation.metrics();
        let line = metrics.iter().find(|line| line.contains("queue_depth{place=\"gated\"}"));
        line.is_some_and(|line| line.ends_with(&format!(" {how_many}")))
    })
    .await;
}

async fn until_policy(federation: &Federation, name: &str, reason: &str) -> String {
    eventually(&format!("policy {name} is {reason}"), SOON, || async {
        let policy = federation.hub.get(POLICY.0, POLICY.1, Some("shop"), name).await;
        condition(&policy, "Accepted").1 == reason
    })
    .await;
    let policy = federation.hub.get(POLICY.0, POLICY.1, Some("shop"), name).await;
    condition(&policy, "Accepted").2
}

/// Records the order of Reserve calls; at QueueSort it ranks by name, backwards.
#[derive(Default)]
struct Witness(Mutex<Vec<String>>);

impl Extension for Witness {
    fn name(&self) -> &'static str {
        "Witness"
    }

    fn queue_sort(&self, ready: &Ready<'_>) -> Rank {
        [-i64::from(ready.key.name().as_bytes()[0]), 0]
    }

    fn reserve(&self, passage: &Passage) -> Result<(), String> {
        self.0.lock().unwrap().push(passage.write.key.name().to_owned());
        Ok(())
    }
}

/// The order in which three Deployments are decided that all exist when the controller begins to lead.
async fn order(at: &[Point]) -> Vec<String> {
    let hub = Hub::open().await;
    class(&hub, "high", 1000).await;
    class(&hub, "low", -10).await;
    policy(&hub, "all", None, json!({})).await;
    policy(&hub, "low", Some("a"), class_of("low")).await;
    policy(&hub, "high", Some("b"), class_of("high")).await;
    for name in ["a", "b", "c"] {
        hub.deployment(name, 3).await;
    }
    let witness = Arc::new(Witness::default());
    let mut profiles = Profiles::default();
    for name in ["default", "karmada"] {
        let mut profile = (**profiles.get(name).unwrap()).clone();
        if at.contains(&Point::QueueSort) {
            profile.clear(Point::QueueSort);
        }
        at.iter().for_each(|point| profile.enable(*point, "Witness"));
        profiles.insert(profile);
    }
    let plugins: Vec<Arc<dyn Extension>> = vec![witness.clone()];
    let setup = Setup { profiles, plugins, ..Setup::default() };
    let federation = Federation::start_on(hub, setup).await;
    federation.until_history(&[Trigger::First; 3]).await;
    let order = witness.0.lock().unwrap();
    order.iter().map(|name| name.replace("-deployment", "")).collect()
}

#[tokio::test(start_paused = true)]
async fn a_greater_priority_is_decided_first() {
    assert_eq!(order(&[Point::Reserve]).await, ["b", "c", "a"]);
}

#[tokio::test(start_paused = true)]
async fn another_queue_sort_plugin_puts_the_queue_in_another_order() {
    assert_eq!(order(&[Point::Reserve, Point::QueueSort]).await, ["c", "b", "a"]);
}

/// Records how urgent each binding was when it first became ready; it ranks by urgency.
#[derive(Default)]
struct Urgencies(Mutex<BTreeMap<String, Urgency>>);

impl Extension for Urgencies {
    fn name(&self) -> &'static str {
        "Urgencies"
    }

    fn queue_sort(&self, ready: &Ready<'_>) -> Rank {
        let mut seen = self.0.lock().unwrap();
        seen.entry(ready.key.name().to_owned()).or_insert(ready.urgency);
        [0, i64::from(ready.urgency == Urgency::Later)]
    }
}

#[tokio::test(start_paused = true)]
async fn what_runs_nowhere_is_decided_before_a_new_leader_rechecks_what_runs() {
    let hub = Hub::open().await;
    policy(&hub, "all", None, json!({})).await;
    hub.deployment("a", 1).await;
    hub.deployment("b", 1).await;
    let urgencies = Arc::new(Urgencies::default());
    let mut profiles = Profiles::default();
    for name in ["default", "karmada"] {
        let mut profile = (**profiles.get(name).unwrap()).clone();
        profile.clear(Point::QueueSort);
        profile.enable(Point::QueueSort, "Urgencies");
        profiles.insert(profile);
    }
    let plugins: Vec<Arc<dyn Extension>> = vec![urgencies.clone()];
    let setup = Setup { profiles, plugins, ..Setup::default() };
    let federation = Federation::start_on(hub, setup).await;
    federation.until_history(&[Trigger::First; 2]).await;
    let seen = || std::mem::take(&mut *urgencies.0.lock().unwrap()).into_values();
    assert_eq!(seen().collect::<Vec<_>>(), [Urgency::Now; 2]);
    federation.until(BINDING, "a-deployment", "/status/summary/ready", json!(1)).await;
    federation.until(BINDING, "b-deployment", "/status/summary/ready", json!(1)).await;

    // All members come back, as after a restart.
    drop(seen());
    for member in ["m1", "m2", "m3"] {
        federation.members.connect(member).await;
    }
    eventually("rechecked", SOON, || async { urgencies.0.lock().unwrap().len() == 2 }).await;
    assert_eq!(seen().collect::<Vec<_>>(), [Urgency::Later; 2]);

    drop(seen());
    let _federation = federation.restart().await;
    eventually("rechecked", SOON, || async { urgencies.0.lock().unwrap().len() == 2 }).await;
    assert_eq!(seen().collect::<Vec<_>>(), [Urgency::Later; 2]);
}

#[tokio::test(start_paused = true)]
async fn other_tasks_run_while_a_long_queue_without_decisions_is_worked_off() {
    const WORKLOADS: usize = 100;
    /// Turns of this task: the controller needs some 20.
    const LOOKS: usize = 1_000;
    let federation = Federation::start().await;
    let name = |number: usize| format!("web-{number}");
    for number in 0..WORKLOADS {
        federation.hub.deployment(&name(number), 1).await;
    }
    let active = || {
        let metrics = federation.metrics();
        let line = metrics.iter().find(|line| line.contains("queue_depth{place=\"active\"}"));
        line.unwrap().rsplit(' ').next().unwrap().parse::<usize>().unwrap()
    };
    // The first policy for the kind: all of its objects are read and queued, and one is claimed.
    policy(&federation.hub, "one", Some(&name(0)), json!({})).await;
    let mut seen = BTreeSet::new();
    for _ in 0..LOOKS {
        seen.insert(active());
        tokio::task::yield_now().await;
    }
    assert!(seen.range(1..WORKLOADS).next().is_some(), "queue lengths: {seen:?}");
    federation.until_history(&[Trigger::First]).await;
}

#[tokio::test(start_paused = true)]
async fn karmada_resolves_the_class_when_it_applies_the_policy_and_not_when_the_class_changes() {
    let federation = Federation::start().await;
    class(&federation.hub, "gold", 100).await;
    policy(&federation.hub, "all", None, class_of("gold")).await;
    federation.hub.deployment("web", 3).await;
    let priority = "/spec/schedulePriority/priority";
    federation.until(BINDING, "web-deployment", priority, json!(100)).await;
    federation.until(BINDING, "web-deployment", "/status/summary/ready", json!(3)).await;

    federation.hub.delete(CLASS.0, CLASS.1, None, "gold").await;
    class(&federation.hub, "gold", 7).await;
    policy(&federation.hub, "other", Some("other"), class_of("gold")).await;
    federation.hub.deployment("other", 3).await;
    federation.until(BINDING, "other-deployment", priority, json!(7)).await;
    let web = federation.hub.binding("web-deployment").await;
    assert_eq!(web.pointer(priority), Some(&json!(100)), "the class alone touches no binding");

    federation.hub.deployment("web", 4).await;
    federation.until(BINDING, "web-deployment", priority, json!(7)).await;
    policy(&federation.hub, "all", None, json!({"schedulePriority": null})).await;
    eventually("no priority is left", SOON, || async {
        federation.hub.binding("web-deployment").await.pointer(priority).is_none()
    })
    .await;
}

#[tokio::test]
async fn karmadas_other_sources_of_priority_are_refused_by_the_hub() {
    let hub = Hub::open().await;
    let (api, _) = hub.api(POLICY.0, POLICY.1, Some("shop")).await;
    for source in ["FederatedPriorityClass", "PodPriorityClass"] {
        let object = serde_json::from_value(json!({
            "apiVersion": POLICY.0, "kind": POLICY.1, "metadata": {"name": "p"},
            "spec": {
                "resourceSelectors": [{"apiVersion": "apps/v1", "kind": "Deployment"}],
                "schedulePriority": {"priorityClassSource": source, "priorityClassName": "gold"},
            },
        }));
        let refused = api.create(&Default::default(), &object.unwrap()).await.unwrap_err();
        let expected = format!(
            "spec.schedulePriority.priorityClassSource: Unsupported value: \"{source}\": \
             supported values: \"KubePriorityClass\""
        );
        assert!(refused.to_string().contains(&expected), "{refused}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_missing_class_keeps_new_bindings_out_until_it_is_there_and_hinders_none_that_run() {
    let federation = Federation::start().await;
    policy(&federation.hub, "all", None, class_of("gold")).await;
    federation.hub.deployment("web", 3).await;
    until_gated(&federation, 1).await;
    let why = until_policy(&federation, "all", "NoPriority").await;
    assert!(why.contains("spec.schedulePriority.priorityClassName"), "{why}");
    assert_eq!(federation.hub.binding("web-deployment").await, Value::Null);

    class(&federation.hub, "silver", 1).await;
    class(&federation.hub, "gold", 100).await;
    federation.until(BINDING, "web-deployment", "/status/summary/ready", json!(3)).await;
    until_policy(&federation, "all", "Accepted").await;
    until_gated(&federation, 0).await;

    federation.hub.delete(CLASS.0, CLASS.1, None, "gold").await;
    until_policy(&federation, "all", "NoPriority").await;
    federation.hub.deployment("web", 6).await;
    federation.until(BINDING, "web-deployment", "/status/summary/ready", json!(6)).await;
    let priority = "/spec/schedulePriority/priority";
    federation.until(BINDING, "web-deployment", priority, json!(100)).await;
}

#[tokio::test(start_paused = true)]
async fn a_suspended_binding_is_kept_out_of_the_queue_with_its_reason_until_its_policy_lets_it() {
    let federation = Federation::start().await;
    let suspended = |scheduling| json!({"suspension": {"scheduling": scheduling}});
    policy(&federation.hub, "all", None, suspended(true)).await;
    federation.hub.deployment("web", 3).await;
    until_gated(&federation, 1).await;
    federation.members.lose("m3").await;
    assert_eq!(federation.hub.binding("web-deployment").await, Value::Null);
    policy(&federation.hub, "all", None, suspended(false)).await;
    federation.until(BINDING, "web-deployment", "/spec/replicas", json!(3)).await;
    until_gated(&federation, 0).await;

    policy(&federation.hub, "all", None, suspended(true)).await;
    // The policy's field reaches the binding without a decision.
    federation.until(BINDING, "web-deployment", "/spec/suspension/scheduling", json!(true)).await;
    federation.hub.deployment("web", 6).await;
    federation.until(BINDING, "web-deployment", "/spec/replicas", json!(6)).await;
    eventually("the condition says why", SOON, || async {
        let binding = federation.hub.binding("web-deployment").await;
        let (_, reason, message) = condition(&binding, "Scheduled");
        reason == "SchedulingGated" && message == "SchedulingGates: suspension.scheduling is set"
    })
    .await;
    until_gated(&federation, 1).await;
    assert_eq!(federation.history().await, [Trigger::First]);
    policy(&federation.hub, "all", None, suspended(false)).await;
    federation.until_history(&[Trigger::First, Trigger::Scale]).await;
    eventually("the condition is the decision's again", SOON, || async {
        let binding = federation.hub.binding("web-deployment").await;
        condition(&binding, "Scheduled").1 == "Placed"
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_suspended_binding_is_withdrawn_with_its_template() {
    let federation = Federation::start().await;
    policy(&federation.hub, "all", None, json!({})).await;
    federation.hub.deployment("web", 3).await;
    federation.until(BINDING, "web-deployment", "/status/summary/ready", json!(3)).await;
    policy(&federation.hub, "all", None, json!({"suspension": {"scheduling": true}})).await;
    until_gated(&federation, 1).await;
    federation.hub.delete(DEPLOYMENT.0, DEPLOYMENT.1, Some("shop"), "web").await;
    eventually("the binding is gone", Duration::from_secs(120), || async {
        federation.hub.binding("web-deployment").await.is_null()
    })
    .await;
    assert!(federation.members.replicas().is_empty());
    until_gated(&federation, 0).await;
}

#[tokio::test(start_paused = true)]
async fn requests_that_cannot_be_counted_are_refused_by_field_and_value() {
    let federation = Federation::start().await;
    policy(&federation.hub, "all", None, json!({})).await;
    let requests = json!({"resources": {"requests": {"cpu": "1e30"}}, "name": "c", "image": "i"});
    let big = json!({"metadata": {"name": "big"}, "spec": {
        "replicas": 2, "selector": {"matchLabels": {"app": "big"}},
        "template": {
            "metadata": {"labels": {"app": "big"}}, "spec": {"containers": [requests]},
        },
    }});
    federation.hub.apply(DEPLOYMENT.0, DEPLOYMENT.1, Some("shop"), big).await;
    eventually("the condition names field and value", SOON, || async {
        let (status, reason, message) =
            condition(&federation.hub.binding("big-deployment").await, "Scheduled");
        (&*status, &*reason) == ("False", "Invalid")
            && message.contains("resourceRequest.cpu: quantity 1e30 is too large")
    })
    .await;
}

/// Opens after this number of evaluations; evaluated again when a cluster changes.
struct Counts {
    asked: AtomicUsize,
    opens_at: usize,
}

impl Extension for Counts {
    fn name(&self) -> &'static str {
        "Counts"
    }

    fn pre_enqueue(&self, _: &Gate<'_>) -> Result<(), String> {
        let asked = self.asked.fetch_add(1, SeqCst) + 1;
        if asked < self.opens_at { Err(format!("asked {asked} times")) } else { Ok(()) }
    }

    fn opens(&self) -> &'static [Opening] {
        &[Opening::Cluster]
    }
}

#[tokio::test(start_paused = true)]
async fn a_gate_is_asked_again_after_the_events_that_it_named_and_after_no_others() {
    let counts = Arc::new(Counts { asked: AtomicUsize::new(0), opens_at: 2 });
    let mut profiles = Profiles::default();
    let mut profile = (**profiles.get("default").unwrap()).clone();
    profile.enable(Point::PreEnqueue, "Counts");
    profiles.insert(profile);
    let setup = Setup { profiles, plugins: vec![counts.clone()], ..Setup::default() };
    let federation = Federation::start_on(Hub::open().await, setup).await;
    policy(&federation.hub, "all", None, json!({})).await;
    federation.hub.deployment("web", 3).await;
    until_gated(&federation, 1).await;
    federation.hub.deployment("web", 4).await;
    class(&federation.hub, "gold", 1).await;
    policy(&federation.hub, "all", None, json!({"priority": 3})).await;
    // A change of another binding does not trigger it either; when that one is gated too, all of the above was handled.
    federation.hub.deployment("web2", 3).await;
    federation.until(BINDING, "web2-deployment", "/spec/replicas", json!(3)).await;
    assert_eq!(counts.asked.load(SeqCst), 2, "once for each binding, at its first look");
    assert_eq!(federation.hub.binding("web-deployment").await, Value::Null);
    until_gated(&federation, 1).await;

    let cluster = ("cluster.atoll.dev/v1alpha1", "Cluster");
    let labels = json!({"metadata": {"name": "m1", "labels": {"any": "thing"}}});
    federation.hub.apply(cluster.0, cluster.1, None, labels).await;
    federation.until(BINDING, "web-deployment", "/spec/replicas", json!(4)).await;
    until_gated(&federation, 0).await;
}
