//! Interrupts each step before and after every write, runs it again, and compares with a run that was not interrupted.
//! Karmada and the hub are embedded API servers; each list of Works finds what Karmada's binding controller would have
//! made of the bindings by then.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use atoll_apiserver::{Options, Server};
use atoll_convert::Converter;
use http::{Method, Request};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{
    Api, ApiResource, DynamicObject, GroupVersionKind, ListParams, Patch, PatchParams, PostParams,
};
use kube::client::{Body, Client};
use serde_json::{Value, json};
use tower::ServiceExt;

use super::source::Karmada;
use super::target::Target;
use super::{Migration, back, converter};
use crate::args::Format;
use crate::hub::Hub;
use crate::print::Printer;

/// When a write is lost, and what of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Loss {
    Request,
    Answer,
}

/// Which write is lost.
#[derive(Debug, Clone, Default)]
struct Faults {
    writes: Arc<AtomicUsize>,
    at: Option<(usize, Loss)>,
}

impl Faults {
    fn client(&self, server: &Server, follows: bool) -> Client {
        let (faults, server) = (self.clone(), server.clone());
        let service = tower::service_fn(move |request: Request<Body>| {
            let (faults, server) = (faults.clone(), server.clone());
            async move {
                let lost = || std::io::Error::other("the test lost it");
                let reads = request.method() == Method::GET;
                if follows && reads && request.uri().path().ends_with("/works") {
                    follow(&server.client()).await;
                }
                let count =
                    if reads { 0 } else { faults.writes.fetch_add(1, Ordering::SeqCst) + 1 };
                let loss = faults.at.filter(|(at, _)| *at == count).map(|(_, loss)| loss);
                if loss == Some(Loss::Request) {
                    return Err(lost());
                }
                let Ok(response) = server.service().oneshot(request).await;
                if loss == Some(Loss::Answer) { Err(lost()) } else { Ok(response) }
            }
        });
        Client::new(service, "default")
    }
}

fn api(
    client: &Client,
    api_version: &str,
    kind: &str,
    namespace: Option<&str>,
) -> Api<DynamicObject> {
    let (group, version) = api_version.rsplit_once('/').unwrap_or(("", api_version));
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind));
    match namespace {
        Some(namespace) => Api::namespaced_with(client.clone(), namespace, &resource),
        None => Api::all_with(client.clone(), &resource),
    }
}

async fn create(client: &Client, object: Value) {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let namespace = object["metadata"]["namespace"].as_str().map(str::to_owned);
    let api =
        api(client, &text(&object["apiVersion"]), &text(&object["kind"]), namespace.as_deref());
    let object = serde_json::from_value(object).unwrap();
    api.create(&PostParams::default(), &object).await.unwrap();
}

/// Copies the suspension of bindings to their Works.
async fn follow(client: &Client) {
    let bindings = api(client, "work.karmada.io/v1alpha2", "ResourceBinding", None);
    for binding in bindings.list(&ListParams::default()).await.unwrap() {
        let name = binding.metadata.name.unwrap();
        let spec = &binding.data["spec"];
        let patch = json!({"spec": {
            "suspendDispatching": spec["suspension"]["dispatching"],
            "preserveResourcesOnDeletion": spec["preserveResourcesOnDeletion"],
        }});
        let works = api(client, "work.karmada.io/v1alpha1", "Work", Some("karmada-es-m1"));
        works.patch(&name, &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
    }
}

const KINDS: [(&str, &str, &str, &str, &str); 8] = [
    ("cluster.karmada.io", "v1alpha1", "Cluster", "clusters", "Cluster"),
    ("policy.karmada.io", "v1alpha1", "PropagationPolicy", "propagationpolicies", "Namespaced"),
    (
        "policy.karmada.io",
        "v1alpha1",
        "ClusterPropagationPolicy",
        "clusterpropagationpolicies",
        "Cluster",
    ),
    ("policy.karmada.io", "v1alpha1", "OverridePolicy", "overridepolicies", "Namespaced"),
    (
        "policy.karmada.io",
        "v1alpha1",
        "ClusterOverridePolicy",
        "clusteroverridepolicies",
        "Cluster",
    ),
    ("work.karmada.io", "v1alpha2", "ResourceBinding", "resourcebindings", "Namespaced"),
    ("work.karmada.io", "v1alpha2", "ClusterResourceBinding", "clusterresourcebindings", "Cluster"),
    ("work.karmada.io", "v1alpha1", "Work", "works", "Namespaced"),
];

fn namespace(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
}

fn work(name: &str, manifest: &Value) -> Value {
    json!({"apiVersion": "work.karmada.io/v1alpha1", "kind": "Work",
        "metadata": {"name": name, "namespace": "karmada-es-m1"}, "spec": {"workload": {"manifests": [manifest]}}})
}

/// A ConfigMap of a policy, and one that goes along with it.
async fn karmada() -> Server {
    let server = Server::open(Options::memory()).unwrap();
    let client = server.client();
    let crds: Api<CustomResourceDefinition> = Api::all(client.clone());
    for (group, version, kind, plural, scope) in KINDS {
        let crd = json!({"metadata": {"name": format!("{plural}.{group}")}, "spec": {
            "group": group, "scope": scope,
            "names": {"kind": kind, "plural": plural, "singular": kind.to_lowercase(), "listKind": format!("{kind}List")},
            "versions": [{"name": version, "served": true, "storage": true, "schema": {"openAPIV3Schema": {
                "type": "object", "x-kubernetes-preserve-unknown-fields": true}}}]}});
        crds.create(&PostParams::default(), &serde_json::from_value(crd).unwrap()).await.unwrap();
    }
    create(&client, namespace("karmada-es-m1")).await;
    create(&client, namespace("shop")).await;
    create(
        &client,
        json!({"apiVersion": "cluster.karmada.io/v1alpha1", "kind": "Cluster",
        "metadata": {"name": "m1"}, "spec": {"syncMode": "Pull"}}),
    )
    .await;
    create(&client, json!({"apiVersion": "policy.karmada.io/v1alpha1", "kind": "PropagationPolicy",
        "metadata": {"name": "web", "namespace": "shop"}, "spec": {
            "resourceSelectors": [{"apiVersion": "v1", "kind": "ConfigMap", "name": "web"}], "placement": {}}})).await;
    create(&client, json!({"apiVersion": "policy.karmada.io/v1alpha1", "kind": "OverridePolicy",
        "metadata": {"name": "none", "namespace": "shop"}, "spec": {"overrideRules": [{"overriders": {}}]}})).await;
    let web = json!({"propagationpolicy.karmada.io/name": "web", "propagationpolicy.karmada.io/namespace": "shop"});
    let on = json!([{"name": "m1"}]);
    let parent = json!([{"namespace": "shop", "name": "web-configmap", "clusters": on}]);
    for (name, annotations, extra) in
        [("web", web, json!({"clusters": on})), ("along", json!({}), json!({"requiredBy": parent}))]
    {
        let object = json!({"apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": name, "namespace": "shop"}, "data": {"a": "b"}});
        let binding = format!("{name}-configmap");
        let mut spec = extra;
        spec["resource"] =
            json!({"apiVersion": "v1", "kind": "ConfigMap", "namespace": "shop", "name": name});
        create(&client, work(&binding, &object)).await;
        create(&client, object).await;
        create(&client, json!({"apiVersion": "work.karmada.io/v1alpha2", "kind": "ResourceBinding",
            "metadata": {"name": binding, "namespace": "shop", "annotations": annotations}, "spec": spec})).await;
    }
    create(&client, work("shop", &namespace("shop"))).await;
    server
}

async fn hub() -> Server {
    let server = Server::open(Options::memory()).unwrap();
    let client = server.client();
    let crds: Api<CustomResourceDefinition> = Api::all(client.clone());
    for crd in atoll_api::crds::all() {
        crds.create(&PostParams::default(), &crd).await.unwrap();
    }
    create(&client, json!({"apiVersion": "cluster.atoll.dev/v1alpha1", "kind": "Cluster", "metadata": {"name": "m1"}, "spec": {}})).await;
    let ready = json!({"status": {"conditions": [{"type": "Ready", "status": "True", "reason": "Ok", "message": "",
        "lastTransitionTime": "2026-01-01T00:00:00Z"}]}});
    let clusters = api(&client, "cluster.atoll.dev/v1alpha1", "Cluster", None);
    clusters.patch_status("m1", &PatchParams::default(), &Patch::Merge(ready)).await.unwrap();
    server
}

/// What Atoll's controller says about the policies.
async fn accept(hub: &Server) {
    for (kind, name) in [("PropagationPolicy", "web"), ("OverridePolicy", "none")] {
        let api = api(&hub.client(), "policy.atoll.dev/v1alpha1", kind, Some("shop"));
        let generation = api.get(name).await.unwrap().metadata.generation;
        let status = json!({"status": {"observedGeneration": generation, "conditions": [{"type": "Accepted",
            "status": "True", "reason": "Accepted", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"}]}});
        api.patch_status(name, &PatchParams::default(), &Patch::Merge(status)).await.unwrap();
    }
}

/// Everything on both sides that a step may write, without what differs between runs.
async fn state(karmada: &Server, hub: &Server) -> Vec<Value> {
    follow(&karmada.client()).await;
    let mut all = Vec::new();
    let kinds = KINDS
        .iter()
        .map(|(group, version, kind, ..)| (karmada, format!("{group}/{version}"), *kind));
    let on_karmada = [(karmada, "v1".to_owned(), "Namespace")];
    let on_hub = [
        (hub, "v1".to_owned(), "ConfigMap"),
        (hub, "v1".to_owned(), "Namespace"),
        (hub, "policy.atoll.dev/v1alpha1".to_owned(), "PropagationPolicy"),
        (hub, "policy.atoll.dev/v1alpha1".to_owned(), "OverridePolicy"),
    ];
    for (server, api_version, kind) in kinds.chain(on_karmada).chain(on_hub) {
        let list = api(&server.client(), &api_version, kind, None)
            .list(&ListParams::default())
            .await
            .unwrap();
        all.extend(list.items.into_iter().map(|object| {
            let meta = &object.metadata;
            json!([
                api_version,
                kind,
                meta.name,
                meta.labels,
                meta.annotations,
                object.data["spec"],
                object.data["data"]
            ])
        }));
    }
    all
}

fn migration(karmada: &Server, hub: &Server, faults: &Faults) -> Migration {
    static CONVERTER: LazyLock<Arc<Converter>> = LazyLock::new(|| converter().unwrap());
    let hub = Hub {
        client: faults.client(hub, false),
        namespace: "default".to_owned(),
        found: "a test".to_owned(),
    };
    Migration {
        karmada: Karmada::of(faults.client(karmada, true)),
        target: Target { hub },
        converter: CONVERTER.clone(),
        namespace: Some("shop".to_owned()),
        pause_others: false,
        take_credentials: false,
        wait: Duration::from_secs(60),
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    Prepare,
    Switch,
    Rollback,
}

async fn step(step: Step, karmada: &Server, hub: &Server, faults: &Faults) -> anyhow::Result<()> {
    let migration = migration(karmada, hub, faults);
    let out = Printer::stdout();
    match step {
        Step::Prepare => {
            migration.prepare(false, Format::Json, &out).await?;
            accept(hub).await;
            Ok(())
        }
        Step::Switch => migration.switch(false, Format::Json, &out).await,
        Step::Rollback => back::run(&migration, Format::Json, &out).await,
    }
}

#[tokio::test(start_paused = true)]
async fn a_step_that_is_interrupted_at_any_write_is_finished_by_the_next_run() {
    let (mut karmada, mut hub) = (karmada().await, hub().await);
    let at_first = state(&karmada, &hub).await;
    let mut interrupted = 0;
    for at in [Step::Prepare, Step::Switch, Step::Rollback] {
        let copy = |server: &Server| server.copy(Options { seed: 7, ..Options::memory() }).unwrap();
        let (whole_karmada, whole_hub) = (copy(&karmada), copy(&hub));
        let counted = Faults::default();
        step(at, &whole_karmada, &whole_hub, &counted).await.unwrap();
        let (expected, writes) =
            (state(&whole_karmada, &whole_hub).await, counted.writes.load(Ordering::SeqCst));
        assert!(writes >= 3, "{at:?} makes {writes} writes");
        for (write, loss) in (1..=writes).flat_map(|at| [(at, Loss::Request), (at, Loss::Answer)]) {
            let (karmada, hub) = (copy(&karmada), copy(&hub));
            let faults = Faults { at: Some((write, loss)), ..Faults::default() };
            let failed = step(at, &karmada, &hub, &faults).await;
            assert!(failed.is_err(), "{at:?}, write {write}, {loss:?}");
            step(at, &karmada, &hub, &Faults::default()).await.unwrap();
            assert_eq!(state(&karmada, &hub).await, expected, "{at:?}, write {write}, {loss:?}");
            interrupted += 1;
        }
        (karmada, hub) = (whole_karmada, whole_hub);
    }
    assert!(interrupted > 30, "{interrupted} interruptions");
    // Karmada is as it was before.
    let of_karmada = |state: &[Value]| {
        let mut state: Vec<Value> = state
            .iter()
            .filter(|one| one[0].as_str().unwrap().contains("karmada.io"))
            .cloned()
            .collect();
        state.iter_mut().for_each(|one| *one = without_nothing(one.take()));
        state
    };
    assert_eq!(of_karmada(&state(&karmada, &hub).await), of_karmada(&at_first));
}

/// Without what means the same as an absent field.
fn without_nothing(value: Value) -> Value {
    match value {
        Value::Object(fields) => {
            let kept = fields.into_iter().map(|(name, value)| (name, without_nothing(value)));
            let kept: serde_json::Map<_, _> =
                kept.filter(|(_, value)| !value.is_null() && *value != json!({})).collect();
            if kept.is_empty() { Value::Null } else { Value::Object(kept) }
        }
        Value::Array(items) => items.into_iter().map(without_nothing).collect(),
        other => other,
    }
}
