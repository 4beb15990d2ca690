//! Faults on members appear where users look: in conditions of the binding, and in Events on template and Cluster.

use std::time::Duration;

use k8s_openapi::api::core::v1::Event;
use kube::Api;
use serde_json::{Value, json};

use super::harness::{BINDING, DEPLOYMENT, Federation, SOON};
use crate::testing::eventually;

const CLUSTER: (&str, &str) = ("cluster.atoll.dev/v1alpha1", "Cluster");
/// Longer than every deferral of statuses.
const LONG: Duration = Duration::from_secs(60);

impl Federation {
    /// Messages of Events with this reason about an object.
    pub(super) async fn told(&self, namespace: &str, name: &str, reason: &str) -> Vec<String> {
        let api: Api<Event> = Api::namespaced(self.hub.client.clone(), namespace);
        let events = api.list(&kube::api::ListParams::default()).await.unwrap();
        let about = |event: &Event| {
            event.involved_object.name.as_deref() == Some(name)
                && event.reason.as_deref() == Some(reason)
        };
        events.items.into_iter().filter(about).filter_map(|event| event.message).collect()
    }

    async fn until_told(&self, namespace: &str, name: &str, reason: &str) -> String {
        eventually(&format!("{reason} is told of {name}"), SOON, || async {
            !self.told(namespace, name, reason).await.is_empty()
        })
        .await;
        self.told(namespace, name, reason).await.remove(0)
    }

    async fn condition(&self, type_: &str) -> Value {
        let binding = self.hub.binding("web-deployment").await;
        let conditions = binding["status"]["conditions"].as_array().unwrap().clone();
        conditions.into_iter().find(|condition| condition["type"] == type_).unwrap()
    }

    async fn web() -> Self {
        let federation = Self::start().await;
        federation.hub.policy("all", DEPLOYMENT, json!({"replicaScheduling": {}})).await;
        federation.hub.deployment("web", 3).await;
        federation.until(BINDING, "web-deployment", "/status/summary/ready", json!(3)).await;
        federation
    }
}

#[tokio::test(start_paused = true)]
async fn an_application_that_is_sick_on_members_is_told_once_with_the_pods_reason() {
    let federation = Federation::web().await;
    eventually("healthy", SOON, || async {
        federation.condition("Healthy").await["status"] == "True"
    })
    .await;
    for member in ["m2", "m3"] {
        federation.members.make_fail(member, "ImagePullBackOff", "cannot pull image \"x\"");
    }
    let message = federation.until_told("shop", "web", "ImagePullBackOff").await;
    assert_eq!(message, "on m2, m3: cannot pull image \"x\"");
    let condition = federation.condition("Healthy").await;
    assert_eq!(
        (&condition["status"], &condition["reason"]),
        (&json!("False"), &json!("ImagePullBackOff"))
    );
    assert_eq!(federation.condition("FullyApplied").await["status"], "True");

    // Briefly healthy, then sick again: that is the same fault.
    federation.members.make_sick("m2", false);
    federation.members.make_sick("m3", false);
    federation.until_told("shop", "web", "Healthy").await;
    federation.members.make_fail("m2", "ImagePullBackOff", "cannot pull image \"x\"");
    eventually("sick again", SOON, || async {
        federation.condition("Healthy").await["status"] == "False"
    })
    .await;
    tokio::time::sleep(LONG).await;
    assert_eq!(federation.told("shop", "web", "ImagePullBackOff").await.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn an_object_in_the_way_on_a_member_is_an_event_on_the_template() {
    let federation = Federation::web().await;
    federation.members.be_in_the_way("m2").await;
    let message = federation.until_told("shop", "web", "Conflict").await;
    assert_eq!(message, "on m2: it exists and is not Atoll's");
    let condition = federation.condition("FullyApplied").await;
    assert_eq!(condition["status"], "False");
    let words = condition["message"].as_str().unwrap();
    assert!(words.contains("m2: Conflict: it exists and is not Atoll's"), "{words}");
}

#[tokio::test(start_paused = true)]
async fn objects_in_the_way_on_several_members_are_one_event_that_names_the_first_and_counts() {
    let federation = Federation::web().await;
    federation.members.be_in_the_way("m2").await;
    federation.members.be_in_the_way("m3").await;
    let message = federation.until_told("shop", "web", "Conflict").await;
    assert_eq!(message, "on m2: it exists and is not Atoll's; also on 1 other member");
    assert_eq!(federation.told("shop", "web", "Conflict").await.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn what_happens_to_a_member_is_an_event_on_its_cluster() {
    let federation = Federation::start().await;
    let ready = |status: &str, reason: &str, session: &str, at: &str| {
        json!({
            "session": {"state": session, "epoch": 1},
            "conditions": [{"type": "Ready", "status": status, "reason": reason,
                "message": "said so", "lastTransitionTime": at}],
        })
    };
    let lost = ready("Unknown", "SessionLost", "Lost", "2026-01-02T00:00:00Z");
    federation.hub.patch_status(CLUSTER.0, CLUSTER.1, "m1", lost).await;
    assert_eq!(federation.until_told("default", "m1", "Lost").await, "SessionLost: said so");
    let back = ready("True", "MemberReady", "Connected", "2026-01-02T00:01:00Z");
    federation.hub.patch_status(CLUSTER.0, CLUSTER.1, "m1", back).await;
    federation.until_told("default", "m1", "Ready").await;
    let taints = json!({"metadata": {"name": "m1"}, "spec": {"taints": [
        {"key": "cluster.atoll.dev/cordoned", "effect": "NoSchedule"},
        {"key": "cluster.atoll.dev/drain", "effect": "NoExecute"},
    ]}});
    federation.hub.apply(CLUSTER.0, CLUSTER.1, None, taints).await;
    for reason in ["Cordoned", "Draining"] {
        federation.until_told("default", "m1", reason).await;
    }

    // The next leader has nothing new to report.
    let count = |events: Vec<String>| events.len();
    let before = count(federation.told("default", "m1", "Ready").await);
    let federation = federation.restart().await;
    tokio::time::sleep(LONG).await;
    assert_eq!(count(federation.told("default", "m1", "Ready").await), before);
    assert_eq!(count(federation.told("default", "m1", "Cordoned").await), 1);
}
