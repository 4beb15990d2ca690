//! What the hub has: members with status, workloads with bindings and reports, policies, decisions.

use std::path::Path;
use std::sync::Arc;

use atoll_api::binding::{DecisionRecord, ObjectReference, TargetCluster};
use atoll_api::{Cluster, DecisionId, PropagationPolicy, ResourceBinding};
use atoll_history::{BindingRef, Detail, Record, SqliteStore, Store};
use atoll_scheduler::offline::{Document, Fate, Settings, World};
use atoll_scheduler::{Decision, Profiles, Scheduler};
use futures::{StreamExt, stream};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Namespace;
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, Client, Resource};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::support::hub::name as member;

/// Workloads of a namespace, which has a policy of its own.
const NAMESPACE: usize = 1_000;
/// Members of one workload.
const ON: usize = 3;
/// One workload of so many has a problem.
const TROUBLED: usize = 100;
/// Workloads whose objects the hub has: pages read those that they show, and the check of policies the first.
const TEMPLATES: usize = 1_000;
/// Decisions on the workload that is shown: as many as its page reads.
const SHOWN: usize = 300;
/// Concurrent requests while the hub is filled.
const AT_ONCE: usize = 32;
/// Decisions of one transaction.
const BATCH: usize = 1_000;

pub(crate) struct Content {
    pub(crate) members: usize,
    pub(crate) bindings: usize,
}

fn namespace(of: usize) -> String {
    format!("team-{}", of / NAMESPACE)
}

fn workload(of: usize) -> String {
    format!("web-{of:06}")
}

/// The page of the workload that has all its decisions.
pub(crate) fn workload_path() -> String {
    format!("/workloads/{}/Deployment.apps/{}", namespace(0), workload(0))
}

/// The ids of its last two decisions.
pub(crate) fn ids() -> [String; 2] {
    [SHOWN - 1, SHOWN - 2].map(|n| id(0, n))
}

fn id(of: usize, n: usize) -> String {
    format!("{of:08x}{n:024x}")
}

fn cluster(of: usize) -> Value {
    let apis = ["apps/v1", "batch/v1", "networking.k8s.io/v1", "example.com/v1", "v1"].map(|group| {
        let kinds = (0..8).map(|n| json!({"name": format!("things{n}"), "kind": format!("Thing{n}")}));
        json!({"groupVersion": group, "resources": kinds.chain([json!({"name": "deployments", "kind": "Deployment"})]).collect::<Vec<_>>()})
    });
    let at = "2026-01-01T00:00:00Z";
    let ready = if of % 50 == 7 { "False" } else { "True" };
    json!({
        "apiVersion": "cluster.atoll.dev/v1alpha1", "kind": "Cluster",
        "metadata": {"name": member(of), "labels": {"zone": format!("z{}", of % 5), "env": "production"}},
        "spec": {"region": format!("r{}", of % 10), "provider": "example"},
        "status": {
            "apiEnablements": apis,
            "kubernetesVersion": "v1.36.0",
            "nodeSummary": {"totalNum": 20, "readyNum": 20},
            "conditions": [{"type": "Ready", "status": ready, "reason": "AgentReports", "message": "", "lastTransitionTime": at}],
            "session": {"state": if ready == "True" { "Connected" } else { "Lost" }, "since": at},
            "resourceSummary": {
                "allocatable": {"cpu": "640", "memory": "2560Gi", "pods": "2200"},
                "allocated": {"cpu": format!("{}", of % 600), "memory": "1280Gi", "pods": "900"},
            },
        },
    })
}

fn policy(of: usize) -> Value {
    json!({
        "apiVersion": "policy.atoll.dev/v1alpha1", "kind": "PropagationPolicy",
        "metadata": {"name": "all", "namespace": namespace(of)},
        "spec": {
            "resourceSelectors": [{"apiVersion": "apps/v1", "kind": "Deployment"}],
            "placement": {"replicaScheduling": {
                "replicaSchedulingType": "Divided", "replicaDivisionPreference": "Weighted",
                "weightPreference": {"dynamicWeight": "AvailableReplicas"},
            }},
        },
    })
}

fn deployment(of: usize) -> Value {
    let (name, labels) = (workload(of), json!({"app": workload(of)}));
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"name": name, "namespace": namespace(of)},
        "spec": {
            "replicas": 9, "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "main", "image": "nginx",
                "resources": {"requests": {"cpu": "100m", "memory": "64Mi"}}}]}},
        },
    })
}

impl Content {
    /// The members of a workload: the first member has one workload of a hundred.
    fn on(&self, of: usize) -> Vec<TargetCluster> {
        let place = |k: usize| match (of % 100, k) {
            (0, 0) => 0,
            _ => (of * 7 + k * 1_237) % self.members,
        };
        (0..ON.min(self.members))
            .map(|k| TargetCluster { name: member(place(k)), replicas: 3 })
            .collect()
    }

    fn binding(&self, of: usize) -> Value {
        let on = self.on(of);
        let health =
            |at: usize| if of % TROUBLED == 1 && at == 0 { "Unhealthy" } else { "Healthy" };
        let reports = on.iter().enumerate().map(|(at, share)| {
            json!({"clusterName": share.name, "applied": true, "health": health(at), "replicas": 3, "readyReplicas": 3,
                "status": {"replicas": 3, "readyReplicas": 3, "availableReplicas": 3, "observedGeneration": 1}})
        });
        let at = "2026-01-01T00:00:00Z";
        let condition = |kind: &str| json!({"type": kind, "status": "True", "reason": "Success", "message": "", "lastTransitionTime": at});
        let conditions = ["Scheduled", "FullyApplied", "Healthy"].map(condition);
        json!({
            "apiVersion": "work.atoll.dev/v1alpha1", "kind": "ResourceBinding",
            "metadata": {
                "name": format!("{}-deployment", workload(of)), "namespace": namespace(of),
                "labels": {"policy.atoll.dev/uid": "0b7a2d4c-3f6e-4d3a-9b1c-5e8f7a6b4c3d", "team": (of / NAMESPACE).to_string()},
                "annotations": {"policy.atoll.dev/name": "all", "policy.atoll.dev/namespace": namespace(of)},
            },
            "spec": {
                "resource": {"apiVersion": "apps/v1", "kind": "Deployment", "namespace": namespace(of), "name": workload(of), "uid": format!("t{of}")},
                "replicas": 9, "clusters": on, "placement": policy(of)["spec"]["placement"],
                "decision": {"id": id(of, 0), "trigger": "First", "mode": "Fresh", "outcome": "Placed", "desired": 9, "term": 1,
                    "pending": if of % TROUBLED == 2 { json!([{"replicas": 2, "reason": "Insufficient cpu"}]) } else { json!([]) }, "at": at},
            },
            "status": {
                "conditions": conditions,
                "aggregatedStatus": reports.collect::<Vec<_>>(),
            },
        })
    }

    /// Creates everything, and returns the decision on the workload that is shown.
    pub(crate) async fn fill(&self, client: &Client) -> Decision {
        let all: Api<Namespace> = Api::all(client.clone());
        let namespaces = self.bindings.div_ceil(NAMESPACE);
        for of in 0..namespaces {
            let name = namespace(of * NAMESPACE);
            let object = serde_json::from_value(json!({"metadata": {"name": name}})).unwrap();
            all.create(&PostParams::default(), &object).await.unwrap();
            put::<PropagationPolicy>(client, Some(&name), policy(of * NAMESPACE), false).await;
        }
        let members = stream::iter(0..self.members);
        members
            .for_each_concurrent(AT_ONCE, |of| put::<Cluster>(client, None, cluster(of), true))
            .await;
        let templates = stream::iter(0..TEMPLATES.min(self.bindings));
        templates
            .for_each_concurrent(AT_ONCE, async |of| {
                put::<Deployment>(client, Some(&namespace(of)), deployment(of), false).await;
            })
            .await;
        let bindings = stream::iter(0..self.bindings);
        bindings
            .for_each_concurrent(AT_ONCE, async |of| {
                put::<ResourceBinding>(client, Some(&namespace(of)), self.binding(of), true).await;
            })
            .await;
        self.decide()
    }

    /// A real decision over all members.
    fn decide(&self) -> Decision {
        let mut world = World::default();
        let clusters = (0..self.members).map(cluster);
        for object in clusters.chain([policy(0), deployment(0)]) {
            world.add(Document { origin: String::new(), object }).unwrap();
        }
        let settings = Settings { profile: None, now: Timestamp::now() };
        let mut answers = world.decide(&mut Scheduler::new(Profiles::default()), &settings);
        match answers.pop().map(|answer| answer.fate) {
            Some(Fate::Decided(decision)) => *decision,
            other => panic!("not decided: {other:?}"),
        }
    }

    /// One decision on each workload within the last days, and those on the workload that is shown, with all verdicts.
    pub(crate) async fn history(&self, folder: &Path, decision: &Decision) -> Arc<dyn Store> {
        let store = SqliteStore::open(&folder.join("history.db")).await.unwrap();
        let (small, large) =
            (Detail::encode(&json!({"verdicts": []})), Detail::of(decision).unwrap());
        let now = Timestamp::now();
        let ago = |seconds: usize| now - SignedDuration::from_secs(i64::try_from(seconds).unwrap());
        let others = (1..self.bindings)
            .map(|of| self.record(of, 0, ago(self.bindings - of), &small, decision));
        let shown = (0..SHOWN).map(|n| self.record(0, n, ago(SHOWN - n), &large, decision));
        let all: Vec<Record> = others.chain(shown).collect();
        for batch in all.chunks(BATCH) {
            store.insert(batch).await.unwrap();
        }
        Arc::new(store)
    }

    fn record(
        &self,
        of: usize,
        n: usize,
        at: Timestamp,
        detail: &Detail,
        like: &Decision,
    ) -> Record {
        let on = |moved: bool| {
            let mut on = self.on(of);
            if moved && on.len() > 1 {
                (on[0].replicas, on[1].replicas) = (4, 2);
            }
            on
        };
        let parent = n.checked_sub(1).map(|before| id(of, before));
        Record {
            record: DecisionRecord {
                id: id(of, n).into(),
                parent: parent.map(DecisionId::from),
                at: at.into(),
                ..like.record(1)
            },
            binding: BindingRef {
                kind: "ResourceBinding".to_owned(),
                namespace: Some(namespace(of)),
                name: format!("{}-deployment", workload(of)),
                uid: format!("b{of}").into(),
            },
            workload: ObjectReference {
                api_version: "apps/v1".to_owned(),
                kind: "Deployment".to_owned(),
                namespace: Some(namespace(of)),
                name: workload(of),
                uid: Some(format!("t{of}")),
            },
            before: Some(on(n.is_multiple_of(2))),
            after: on(n % 2 == 1),
            reason: None,
            gap: None,
            withdrawal: None,
            provenance: None,
            rejections: None,
            detail: Some(detail.clone()),
            inputs: None,
        }
    }
}

/// Creates an object, and its status if it has one.
async fn put<K>(client: &Client, namespace: Option<&str>, object: Value, has_status: bool)
where
    K: Resource<DynamicType = ()> + Clone + DeserializeOwned + Serialize + std::fmt::Debug,
{
    let typed: K = serde_json::from_value(object.clone()).unwrap();
    // Paths are made from the type; the scope is that of the object.
    let resource = kube::api::ApiResource::erase::<K>(&());
    let api: Api<kube::api::DynamicObject> = match namespace {
        Some(namespace) => Api::namespaced_with(client.clone(), namespace, &resource),
        None => Api::all_with(client.clone(), &resource),
    };
    let name = typed.meta().name.clone().unwrap();
    let created = serde_json::from_value(object.clone()).unwrap();
    api.create(&PostParams::default(), &created).await.unwrap();
    if has_status {
        let patch = Patch::Merge(json!({"status": object["status"]}));
        api.patch_status(&name, &PatchParams::default(), &patch).await.unwrap();
    }
}
