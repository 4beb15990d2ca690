//! Reports about the member to the controller.

use std::time::Duration;

use atoll_protocol::v1::agent_message::Message as Said;
use atoll_protocol::v1::controller_message::Message;
use atoll_protocol::v1::{Health, WatchLabels, Welcome};
use serde_json::json;

use crate::member::{Fault, config, deployment, deployment_path, marked};
use crate::setup::Setup;

#[tokio::test(start_paused = true)]
async fn statuses_are_coalesced_and_the_newest_wins() {
    let setup = Setup::new().await;
    let agent = setup.agent();
    let mut session = setup.hub.agreed(1).await;
    let key = session.apply(&deployment("web", "h1", 100)).await;
    session.status(&key, |status| !status.gone).await;
    let path = format!("{}/status", deployment_path("web"));
    for ready in 1..=100 {
        let status = json!({"status": {
            "observedGeneration": 1, "replicas": 100, "updatedReplicas": 100,
            "readyReplicas": ready, "availableReplicas": ready,
        }});
        setup.member.edit(&path, "kube-controller-manager", status).await;
    }
    session.heard.clear();
    let last = session.status(&key, |status| status.ready == Some(100)).await;
    assert_eq!((last.hash.as_str(), last.generation, last.observed_generation), ("h1", 1, 1));
    assert_eq!(last.health(), Health::Healthy);
    let status: serde_json::Value = serde_json::from_slice(&last.status_json).unwrap();
    assert_eq!(status["readyReplicas"], 100);
    let said = session.heard.iter().filter(|said| matches!(said, Said::Status(_))).count();
    assert!(said < 10, "{said} statuses for 100 changes");

    setup.member.delete(&deployment_path("web")).await;
    assert!(session.status(&key, |status| status.gone).await.gone);
    agent.stop().await;
}

/// The API server ends a watch within five minutes and the agent restarts it, so ten minutes show every watched kind.
#[tokio::test(start_paused = true)]
async fn kinds_are_watched_while_there_are_objects_of_them_and_in_the_smallest_form_that_does() {
    const TEN_MINUTES: Duration = Duration::from_secs(600);
    let configs = "/api/v1/configmaps";
    let deployments = "/apis/apps/v1/deployments";
    let setup = Setup::new().await;
    let agent = setup.agent();
    let mut session = setup.hub.agreed(1).await;
    let watched = setup.member.watched();
    assert!(!watched.contains_key(configs) && !watched.contains_key(deployments), "{watched:?}");

    // From the first object on; for a ConfigMap the metadata is enough to detect a modification.
    let settings = session.apply(&config("shop", "settings", "h1", "a")).await;
    session.apply(&deployment("web", "h1", 2)).await;
    tokio::time::sleep(TEN_MINUTES).await;
    let watched = setup.member.watched();
    assert!(watched[configs].contains("as=PartialObjectMetadata"), "{watched:?}");
    assert!(!watched[deployments].contains("as=PartialObjectMetadata"), "{watched:?}");

    // Until some time after the last object.
    session.remove(&settings, "").await;
    session.applied(&settings).await;
    tokio::time::sleep(TEN_MINUTES).await;
    setup.member.watched();
    tokio::time::sleep(TEN_MINUTES).await;
    let watched = setup.member.watched();
    assert!(!watched.contains_key(configs) && watched.contains_key(deployments), "{watched:?}");
    agent.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_new_session_hears_every_status_and_every_open_failure() {
    let setup = Setup::new().await;
    let agent = setup.agent();
    let mut session = setup.hub.agreed(1).await;
    let web = session.apply(&deployment("web", "h1", 2)).await;
    let mut invalid = deployment("invalid", "h1", 1);
    invalid["spec"]["template"]["metadata"]["labels"]["app"] = json!("other");
    let invalid = session.upsert(&invalid, false).await;
    session.applied(&invalid).await;
    session.end();
    let mut session = setup.hub.session(1).await;
    assert_eq!(session.applied(&invalid).await.reason, "Invalid");
    session.status(&web, |status| status.hash == "h1").await;
    agent.stop().await;
}

fn pod(name: &str, node: Option<&str>) -> serde_json::Value {
    let mut pod = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "name": name, "namespace": "shop", "labels": {"app": "web", "pod-template-hash": "6d4f"},
            "ownerReferences": [{
                "apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web-6d4f", "uid": "rs",
                "controller": true,
            }],
        },
        "spec": {
            "containers": [{"name": "main", "image": "nginx", "resources": {"requests": {"cpu": "500m"}}}],
        },
    });
    if let Some(node) = node {
        pod["spec"]["nodeName"] = json!(node);
    }
    pod
}

#[tokio::test(start_paused = true)]
async fn replicas_without_a_node_come_with_reason_and_time() {
    let setup = Setup::new().await;
    let agent = setup.agent();
    let mut session = setup.hub.agreed(1).await;
    let key = session.apply(&deployment("web", "h1", 2)).await;
    let pods = "/api/v1/namespaces/shop/pods";
    for name in ["web-6d4f-a", "web-6d4f-b"] {
        // Without an existing owner the garbage collector would delete it.
        let mut orphan = pod(name, None);
        orphan["metadata"]["ownerReferences"][0]["uid"] = replica_set(&setup).await;
        setup.member.create(pods, "kube-controller-manager", orphan).await;
        let verdict = json!({"status": {"phase": "Pending", "conditions": [{
            "type": "PodScheduled", "status": "False", "reason": "Unschedulable",
            "message": "0/1 nodes are available: 1 Insufficient cpu.",
            "lastTransitionTime": "2026-01-01T00:00:05Z",
        }]}});
        setup.member.edit(&format!("{pods}/{name}/status"), "kube-scheduler", verdict).await;
    }
    let status = session.status(&key, |status| status.unschedulable == 2).await;
    assert_eq!(status.unschedulable_since, 1_767_225_605);
    assert!(status.unschedulable_reason.contains("Insufficient cpu"));
    setup.member.delete(&format!("{pods}/web-6d4f-a?gracePeriodSeconds=0")).await;
    session.status(&key, |status| status.unschedulable == 1).await;
    agent.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_workload_that_is_not_healthy_comes_with_the_reason_of_its_pods() {
    let setup = Setup::new().await;
    let agent = setup.agent();
    let mut session = setup.hub.agreed(1).await;
    let key = session.apply(&deployment("web", "h1", 2)).await;
    let counts = |ready: i64| {
        json!({"status": {"observedGeneration": 1, "replicas": 2, "updatedReplicas": 2,
               "readyReplicas": ready, "availableReplicas": ready}})
    };
    let path = format!("{}/status", deployment_path("web"));
    setup.member.edit(&path, "kube-controller-manager", counts(1)).await;
    let status = session.status(&key, |status| status.ready == Some(1)).await;
    assert_eq!(
        (status.health_reason.as_str(), status.failing, status.health_message.as_str()),
        ("Unavailable", false, "")
    );

    let pods = "/api/v1/namespaces/shop/pods";
    let mut bad = pod("web-6d4f-a", Some("node1"));
    bad["metadata"]["ownerReferences"][0]["uid"] = replica_set(&setup).await;
    setup.member.create(pods, "kube-controller-manager", bad).await;
    let waiting = |reason: &str| {
        json!({"status": {"phase": "Pending", "containerStatuses": [{
            "name": "main", "image": "nginx", "imageID": "", "ready": false, "restartCount": 0,
            "state": {"waiting": {"reason": reason, "message": reason}}, "lastState": {},
        }]}})
    };
    let pod_status = format!("{pods}/web-6d4f-a/status");
    setup.member.edit(&pod_status, "kubelet", waiting("ErrImagePull")).await;
    let status = session.status(&key, |status| status.failing).await;
    assert_eq!(status.health(), Health::Unhealthy);
    assert_eq!(status.health_reason, "ImagePullBackOff");
    assert_eq!(status.health_message, "container \"main\": cannot pull image \"nginx\"");

    // The kubelet alternates between two reasons, and the agent sends nothing for that.
    session.heard.clear();
    for reason in ["ImagePullBackOff", "ErrImagePull", "ImagePullBackOff"] {
        setup.member.edit(&pod_status, "kubelet", waiting(reason)).await;
        tokio::time::sleep(Duration::from_secs(5)).await;
    }
    // A healthy workload is not reported as failing because of a surplus pod.
    setup.member.edit(&path, "kube-controller-manager", counts(2)).await;
    let status = session.status(&key, |status| status.ready == Some(2)).await;
    assert_eq!((status.health(), status.failing), (Health::Healthy, false));
    let said = session.heard.iter().filter(|said| matches!(said, Said::Status(_))).count();
    assert!(said <= 1, "{said} statuses");
    agent.stop().await;
}

/// uid of a ReplicaSet of the Deployment, created by the first call.
async fn replica_set(setup: &Setup) -> serde_json::Value {
    let path = "/apis/apps/v1/namespaces/shop/replicasets";
    if let Some(found) = setup.member.get(&format!("{path}/web-6d4f")).await {
        return found["metadata"]["uid"].clone();
    }
    let mut set = deployment("web", "h1", 2);
    set["kind"] = json!("ReplicaSet");
    set["metadata"] = json!({"name": "web-6d4f", "namespace": "shop"});
    setup.member.create(path, "kube-controller-manager", set).await["metadata"]["uid"].clone()
}

#[tokio::test(start_paused = true)]
async fn facts_tell_version_kinds_and_capacity_by_the_labels_asked_for() {
    let setup = Setup::new().await;
    for (name, zone) in [("n1", "a"), ("n2", "a"), ("n3", "b")] {
        let node = json!({
            "apiVersion": "v1", "kind": "Node",
            "metadata": {"name": name, "labels": {"zone": zone, "host": name}},
        });
        setup.member.create("/api/v1/nodes", "kubelet", node).await;
        let status = json!({"status": {
            "allocatable": {"cpu": "4", "memory": "8Gi", "pods": "110"},
            "conditions": [{"type": "Ready", "status": "True"}],
        }});
        setup.member.edit(&format!("/api/v1/nodes/{name}/status"), "kubelet", status).await;
    }
    let agent = setup.agent();
    let mut session = setup.hub.agreed(1).await;
    let facts = session.facts(|_| true).await;
    assert!(facts.kubernetes_version.starts_with("v1.") && facts.api_healthy);
    assert!(facts.apis_complete && facts.taken_at_ms > 0);
    let apps = facts.apis.iter().find(|api| api.group_version == "apps/v1").unwrap();
    assert!(apps.kinds.iter().any(|kind| kind.kind == "Deployment" && kind.namespaced));
    assert_eq!((facts.nodes_total, facts.nodes_ready), (3, 3));
    assert_eq!(facts.allocatable_milli["cpu"], "12000");
    assert_eq!(facts.node_classes.len(), 1);

    session.say(Message::WatchLabels(WatchLabels { keys: vec!["zone".into()] })).await;
    let facts = session.facts(|facts| facts.node_classes.len() == 2).await;
    let a = facts.node_classes.iter().find(|class| class.labels["zone"] == "a").unwrap();
    assert_eq!(a.free.iter().map(|free| free.nodes).sum::<i64>(), 2);

    let mut bound = pod("web", Some("n3"));
    bound["metadata"].as_object_mut().unwrap().remove("ownerReferences");
    setup.member.create("/api/v1/namespaces/shop/pods", "admin", bound).await;
    let facts = session.facts(|facts| facts.allocated_milli.contains_key("cpu")).await;
    let b = facts.node_classes.iter().find(|class| class.labels["zone"] == "b").unwrap();
    assert_eq!((b.free[0].milli["cpu"], b.free[0].milli["pods"]), (3_500, 109_000));
    agent.stop().await;
}

#[tokio::test(start_paused = true)]
async fn kinds_of_a_definition_that_arrives_are_reported_long_before_the_next_facts() {
    let setup = Setup::new().await;
    let agent = setup.agent();
    let mut session = setup.hub.arrival(1).await;
    session
        .say(Message::Welcome(Welcome {
            session: "s".into(),
            heartbeat_ms: 5_000,
            facts_ms: 3_600_000,
            cluster_name: "member1".into(),
        }))
        .await;
    session.take_inventory().await;
    session.synced().await;
    session.facts(|facts| facts.apis_complete).await;
    let definition = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "things.x.io"},
        "spec": {
            "group": "x.io", "scope": "Namespaced",
            "names": {"kind": "Thing", "plural": "things", "singular": "thing", "listKind": "ThingList"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {
                "type": "object", "x-kubernetes-preserve-unknown-fields": true,
            }}}],
        },
    });
    let sent = tokio::time::Instant::now();
    session.upsert(&marked(definition, "h1", "claim-1"), false).await;
    session.facts(|facts| facts.apis.iter().any(|api| api.group_version == "x.io/v1")).await;
    assert!(sent.elapsed() < Duration::from_secs(10), "{:?}", sent.elapsed());
    agent.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_sick_api_is_told_over_a_living_session_and_nothing_is_written_meanwhile() {
    let setup = Setup::new().await;
    let agent = setup.agent();
    let mut session = setup.hub.agreed(1).await;
    setup.member.set_fault("/", Some(Fault::Unavailable));
    let message = session
        .wait(|said| match said {
            Said::Heartbeat(beat) if !beat.api_healthy => Some(beat.api_message.clone()),
            _ => None,
        })
        .await;
    assert!(!message.is_empty());
    // Long enough for the lease to be overdue; the session goes on.
    tokio::time::sleep(Duration::from_secs(60)).await;
    setup.member.writes();
    let key = session.upsert(&config("shop", "settings", "h1", "a"), false).await;
    tokio::time::sleep(Duration::from_secs(10)).await;
    assert_eq!(setup.member.writes(), Vec::<String>::new());
    setup.member.set_fault("/", None);
    session
        .wait(|said| matches!(said, Said::Heartbeat(beat) if beat.api_healthy).then_some(()))
        .await;
    let applied = session.applied(&key).await;
    assert_eq!(applied.result(), atoll_protocol::v1::ApplyResult::Applied, "{applied:?}");
    agent.stop().await;
}
