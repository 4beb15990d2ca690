//! A whole member over the embedded API server, in one thread on paused time.

#![allow(clippy::unwrap_used, reason = "a panic is the report of a test")]

use std::sync::Arc;
use std::time::Duration;

use atoll_api::Clock;
use atoll_apiserver::{Options, Server};
use atoll_simulator::{Member, MemberOptions, simulated_clock};
use jiff::Timestamp;
use k8s_openapi::api::apps::v1::{DaemonSet, Deployment, ReplicaSet, StatefulSet};
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{Node, PersistentVolumeClaim, Pod, Service, ServiceAccount};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::serde::de::DeserializeOwned;
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::runtime::conditions::is_deleted;
use kube::runtime::wait::await_condition;
use kube::{Client, Resource, ResourceExt};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

struct Rig {
    server: Server,
    client: Client,
    clock: Clock,
    token: CancellationToken,
    member: Member,
}

async fn member(client: Client, clock: &Clock, token: &CancellationToken) -> Member {
    let options = MemberOptions::standard("member1", clock.clone());
    Member::start(client, options, token.clone()).await.unwrap()
}

impl Rig {
    async fn start() -> Self {
        let clock = simulated_clock(Timestamp::from_second(1_700_000_000).unwrap());
        let now = clock.clone();
        let options = Options { clock: Arc::new(move || now.now()), seed: 1, ..Options::memory() };
        let server = Server::open(options).unwrap();
        let token = CancellationToken::new();
        let (controllers, stop) = (server.clone(), token.clone());
        tokio::spawn(async move { controllers.run_controllers(stop).await });
        let client = server.client();
        let member = member(client.clone(), &clock, &token).await;
        Self { server, client, clock, token, member }
    }

    fn api<K>(&self) -> Api<K>
    where
        K: Resource<Scope = kube::core::NamespaceResourceScope, DynamicType = ()>,
    {
        Api::namespaced(self.client.clone(), "default")
    }

    async fn create<K>(&self, object: Value)
    where
        K: Resource<Scope = kube::core::NamespaceResourceScope, DynamicType = ()>
            + serde::Serialize
            + DeserializeOwned
            + Clone
            + std::fmt::Debug,
    {
        let object: K = serde_json::from_value(object).unwrap();
        self.api().create(&PostParams::default(), &object).await.unwrap();
    }

    async fn patch<K>(&self, name: &str, patch: Value)
    where
        K: Resource<Scope = kube::core::NamespaceResourceScope, DynamicType = ()>
            + DeserializeOwned
            + Clone
            + std::fmt::Debug,
    {
        let patch = Patch::Merge(patch);
        self.api::<K>().patch(name, &PatchParams::default(), &patch).await.unwrap();
    }

    /// Waits until an object meets a condition, for at most this many simulated seconds.
    async fn until<K>(&self, seconds: u64, name: &str, holds: impl Fn(&K) -> bool)
    where
        K: Resource<Scope = kube::core::NamespaceResourceScope, DynamicType = ()>
            + DeserializeOwned
            + Clone
            + std::fmt::Debug
            + Send
            + 'static,
    {
        let waiting =
            await_condition(self.api::<K>(), name, |object: Option<&K>| object.is_some_and(&holds));
        let waited = tokio::time::timeout(Duration::from_secs(seconds), waiting).await;
        if waited.is_err() {
            panic!("not within {seconds} s: {:#?}", self.api::<K>().get(name).await);
        }
        waited.unwrap().unwrap();
    }

    /// The version of the whole store: it grows with every write.
    async fn version(&self) -> u64 {
        let list = self.api::<Pod>().list(&ListParams::default()).await.unwrap();
        list.metadata.resource_version.unwrap().parse().unwrap()
    }

    async fn pods(&self) -> Vec<Pod> {
        self.api::<Pod>().list(&ListParams::default()).await.unwrap().items
    }

    /// Lets simulated time pass.
    async fn rest(&self, seconds: u64) {
        tokio::time::sleep(Duration::from_secs(seconds)).await;
    }

    async fn restart(&mut self) {
        self.member.stop();
        self.member.stopped().await;
        self.member = member(self.server.client(), &self.clock, &self.token).await;
    }
}

fn template(app: &str, image: &str, cpu: &str) -> Value {
    json!({
        "metadata": {"labels": {"app": app}},
        "spec": {"containers": [
            {"name": "main", "image": image, "resources": {"requests": {"cpu": cpu}}},
        ]},
    })
}

fn workload(kind: &str, name: &str, spec: Value) -> Value {
    let mut object = json!({
        "apiVersion": "apps/v1", "kind": kind, "metadata": {"name": name},
        "spec": {"selector": {"matchLabels": {"app": name}}, "template": template(name, "image:1", "100m")},
    });
    json_patch::merge(&mut object["spec"], &spec);
    object
}

fn is_rolled_out(deployment: &Deployment) -> bool {
    let (Some(spec), Some(status)) = (&deployment.spec, &deployment.status) else { return false };
    status.observed_generation == deployment.metadata.generation
        && [status.replicas, status.updated_replicas, status.available_replicas]
            .iter()
            .all(|count| count.unwrap_or(0) == spec.replicas.unwrap_or(1))
}

#[tokio::test(start_paused = true)]
async fn a_deployment_runs_rolls_and_goes() {
    let rig = Rig::start().await;
    rig.create::<Deployment>(workload("Deployment", "web", json!({"replicas": 3}))).await;
    rig.until(30, "web", is_rolled_out).await;
    let nodes: std::collections::BTreeSet<_> =
        rig.pods().await.into_iter().map(|pod| pod.spec.unwrap().node_name.unwrap()).collect();
    assert_eq!(nodes.len(), 3, "spread over the nodes");
    let new = json!({"spec": {"template": template("web", "image:2", "200m")}});
    rig.patch::<Deployment>("web", new).await;
    rig.until(60, "web", is_rolled_out).await;
    let images: Vec<_> = rig
        .pods()
        .await
        .into_iter()
        .map(|pod| pod.spec.unwrap().containers[0].image.clone().unwrap())
        .collect();
    assert!(images.iter().filter(|image| *image == "image:2").count() == 3, "{images:?}");
    let before = rig.api::<ReplicaSet>().list(&ListParams::default()).await.unwrap();
    assert_eq!(before.items.len(), 2);
    rig.api::<Deployment>().delete("web", &DeleteParams::default()).await.unwrap();
    for pod in rig.pods().await {
        let (name, uid) = (pod.name_any(), pod.uid().unwrap());
        let gone = await_condition(rig.api::<Pod>(), &name, is_deleted(&uid));
        tokio::time::timeout(Duration::from_secs(30), gone).await.unwrap().unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn every_kind_of_workload_works_on_the_real_api() {
    let rig = Rig::start().await;
    rig.create::<Service>(json!({
        "metadata": {"name": "db"},
        "spec": {"type": "LoadBalancer", "selector": {"app": "db"}, "ports": [{"port": 5432}]},
    }))
    .await;
    let claim =
        json!({"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}});
    rig.create::<StatefulSet>(workload(
        "StatefulSet",
        "db",
        json!({
            "replicas": 2, "serviceName": "db",
            "volumeClaimTemplates": [{"metadata": {"name": "data"}, "spec": claim}],
        }),
    ))
    .await;
    rig.create::<DaemonSet>(workload("DaemonSet", "log", json!({}))).await;
    rig.create::<Job>(json!({
        "metadata": {"name": "work"},
        "spec": {"completions": 3, "parallelism": 2, "template": {"spec": {
            "restartPolicy": "Never", "containers": [{"name": "main", "image": "image:1"}],
        }}},
    }))
    .await;
    rig.until(60, "db", |set: &StatefulSet| {
        set.status.as_ref().is_some_and(|s| s.available_replicas == Some(2))
    })
    .await;
    rig.until(60, "log", |set: &DaemonSet| {
        set.status.as_ref().is_some_and(|s| s.number_ready == 3)
    })
    .await;
    rig.until(60, "work", |job: &Job| {
        let status = job.status.clone().unwrap_or_default();
        let complete =
            status.conditions.iter().flatten().any(|c| c.type_ == "Complete" && c.status == "True");
        complete && status.succeeded == Some(3)
    })
    .await;
    rig.until(5, "data-db-1", |claim: &PersistentVolumeClaim| {
        claim.status.as_ref().is_some_and(|s| s.phase.as_deref() == Some("Bound"))
    })
    .await;
    rig.until(5, "db", |service: &Service| {
        let status = service.status.clone().unwrap_or_default();
        status.load_balancer.and_then(|lb| lb.ingress).is_some_and(|ingress| ingress.len() == 1)
    })
    .await;
    rig.until(5, "default", |_: &ServiceAccount| true).await;
    let slices = rig.api::<EndpointSlice>().list(&ListParams::default()).await.unwrap();
    assert_eq!(slices.items[0].endpoints.len(), 2);
}

#[tokio::test(start_paused = true)]
async fn what_fits_nowhere_waits_for_a_node() {
    let rig = Rig::start().await;
    rig.create::<Pod>(json!({
        "metadata": {"name": "big"}, "spec": template("big", "image:1", "12")["spec"],
    }))
    .await;
    rig.until(5, "big", |pod: &Pod| {
        let conditions = pod.status.as_ref().and_then(|status| status.conditions.as_ref());
        conditions.into_iter().flatten().any(|condition| {
            condition.reason.as_deref() == Some("Unschedulable")
                && condition.message.as_deref()
                    == Some("0/3 nodes are available: 3 Insufficient cpu.")
        })
    })
    .await;
    let large = json!({"cpu": "16", "memory": "64Gi", "pods": "10"});
    let node: Node = serde_json::from_value(json!({
        "metadata": {"name": "large"}, "status": {"capacity": large, "allocatable": large},
    }))
    .unwrap();
    Api::all(rig.client.clone()).create(&PostParams::default(), &node).await.unwrap();
    rig.until(10, "big", |pod: &Pod| {
        pod.status.as_ref().is_some_and(|status| status.phase.as_deref() == Some("Running"))
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_restart_writes_nothing_and_an_idle_member_sleeps() {
    let mut rig = Rig::start().await;
    rig.create::<Deployment>(workload("Deployment", "web", json!({"replicas": 5}))).await;
    rig.create::<StatefulSet>(workload("StatefulSet", "db", json!({"replicas": 2}))).await;
    rig.create::<DaemonSet>(workload("DaemonSet", "log", json!({}))).await;
    rig.until(60, "web", is_rolled_out).await;
    rig.until(60, "db", |set: &StatefulSet| {
        set.status.as_ref().is_some_and(|s| s.available_replicas == Some(2))
    })
    .await;
    rig.until(60, "log", |set: &DaemonSet| {
        set.status.as_ref().is_some_and(|s| s.number_ready == 3)
    })
    .await;
    rig.rest(5).await;
    let before = rig.version().await;
    rig.restart().await;
    rig.rest(30).await;
    assert_eq!(rig.version().await, before, "writes after a restart");
    rig.rest(3600).await;
    let heartbeats = rig.version().await - before;
    assert!(
        heartbeats <= 39,
        "{heartbeats} writes in an hour; each of three nodes may beat every five minutes"
    );
}

#[tokio::test(start_paused = true)]
async fn a_stopped_member_does_nothing_and_goes_on_where_it_was() {
    let mut rig = Rig::start().await;
    rig.create::<Deployment>(workload("Deployment", "web", json!({"replicas": 2}))).await;
    rig.until(30, "web", is_rolled_out).await;
    rig.member.stop();
    rig.member.stopped().await;
    rig.patch::<Deployment>("web", json!({"spec": {"replicas": 4}})).await;
    rig.rest(60).await;
    assert_eq!(rig.pods().await.len(), 2);
    rig.restart().await;
    rig.until(30, "web", is_rolled_out).await;
    assert_eq!(rig.pods().await.len(), 4);
}

/// Compares everything: names, addresses, times and versions.
#[tokio::test(start_paused = true)]
async fn two_runs_of_one_seed_end_in_the_same_objects() {
    let mut runs = Vec::new();
    for _ in 0..2 {
        let rig = Rig::start().await;
        rig.create::<Deployment>(workload("Deployment", "web", json!({"replicas": 6}))).await;
        rig.create::<DaemonSet>(workload("DaemonSet", "log", json!({}))).await;
        rig.until(30, "web", is_rolled_out).await;
        runs.push(serde_json::to_string(&rig.pods().await).unwrap());
        rig.token.cancel();
        rig.member.stopped().await;
    }
    assert_eq!(runs[0], runs[1]);
}
