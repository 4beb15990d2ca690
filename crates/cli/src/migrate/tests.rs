//! Interrupts each step before and after every write, runs it again, and compares with a run that was not interrupted.
//! Karmada, the hub and a member are embedded API servers. Each list of Works finds what Karmada's binding controller would
//! have made of the bindings by then, each list of Clusters those Ready whose agents have credentials; and what Atoll's
//! controller and agent do between two steps is written by the test.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use atoll_api::Clock;
use atoll_api::names::binding_name;
use atoll_apiserver::{Options, Server};
use atoll_controller::members;
use atoll_convert::Converter;
use atoll_protocol::identity::TrustDomain;
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
use super::{Migration, back, converter, finish};
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

/// Where the hub serves members.
const PROXY: &str = "/apis/proxy.atoll.dev/v1alpha1";

impl Faults {
    /// A client of a server. `member` is reached through it, as the aggregated API has it.
    fn client(&self, server: &Server, member: Option<&Server>) -> Client {
        let (faults, server, member) = (self.clone(), server.clone(), member.cloned());
        let service = tower::service_fn(move |mut request: Request<Body>| {
            let (faults, mut server) = (faults.clone(), server.clone());
            let member = member.clone();
            async move {
                let lost = || std::io::Error::other("the test lost it");
                let reads = request.method() == Method::GET;
                let path = request.uri().path().to_owned();
                match path.rsplit('/').next() {
                    Some("works") if reads => follow(&server.client()).await,
                    Some("clusters") if reads && member.is_some() => join(&server.client()).await,
                    _ => {}
                }
                if let (Some(member), Some(below)) = (member, path.strip_prefix(PROXY)) {
                    let below = below.strip_prefix("/clusters/m1/proxy").unwrap_or("/api");
                    *request.uri_mut() = below.parse().unwrap();
                    server = member;
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

/// What the agent beside the controller does once it has a member's credentials.
async fn join(client: &Client) {
    let secrets = api(client, "v1", "Secret", Some("atoll-system"));
    if secrets.get_opt("m1-kubeconfig").await.unwrap().is_none() {
        return;
    }
    let ready = json!({"status": {"clusterId": "m1", "conditions": [{"type": "Ready", "status": "True", "reason": "Ok",
        "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"}]}});
    let clusters = api(client, "cluster.atoll.dev/v1alpha1", "Cluster", None);
    clusters.patch_status("m1", &PatchParams::default(), &Patch::Merge(ready)).await.unwrap();
}

const KINDS: [(&str, &str, &str, &str, &str); 11] = [
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
    (
        "policy.karmada.io",
        "v1alpha1",
        "FederatedResourceQuota",
        "federatedresourcequotas",
        "Namespaced",
    ),
    ("policy.karmada.io", "v1alpha1", "ClusterTaintPolicy", "clustertaintpolicies", "Cluster"),
    (
        "config.karmada.io",
        "v1alpha1",
        "ResourceInterpreterCustomization",
        "resourceinterpretercustomizations",
        "Cluster",
    ),
];
/// What the hub gets before the objects: kind, name, and the condition by which the controller accepts it.
const PREPARED: [(&str, &str, &str, &str); 5] = [
    ("policy", "PropagationPolicy", "web", "Accepted"),
    ("policy", "OverridePolicy", "none", "Accepted"),
    ("policy", "FederatedResourceQuota", "shop", "Accepted"),
    ("policy", "ClusterTaintPolicy", "unready", "Accepted"),
    ("config", "ResourceInterpreterCustomization", "maps", "Compiled"),
];

fn namespace(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
}

fn work(name: &str, manifest: &Value) -> Value {
    json!({"apiVersion": "work.karmada.io/v1alpha1", "kind": "Work",
        "metadata": {"name": name, "namespace": "karmada-es-m1", "finalizers": ["karmada.io/execution-controller"]},
        "spec": {"workload": {"manifests": [manifest]}}})
}

/// The rules for kinds and the limits of the control plane.
fn extras() -> [Value; 3] {
    let of = |api_version: &str, kind: &str, metadata: Value, spec: Value| json!({"apiVersion": api_version, "kind": kind, "metadata": metadata, "spec": spec});
    [
        of(
            "policy.karmada.io/v1alpha1",
            "FederatedResourceQuota",
            json!({"name": "shop", "namespace": "shop"}),
            json!({"overall": {"cpu": "10"}}),
        ),
        of(
            "policy.karmada.io/v1alpha1",
            "ClusterTaintPolicy",
            json!({"name": "unready"}),
            json!({"taints": [{"key": "a", "effect": "NoSchedule"}]}),
        ),
        of(
            "config.karmada.io/v1alpha1",
            "ResourceInterpreterCustomization",
            json!({"name": "maps"}),
            json!({"target": {"apiVersion": "v1", "kind": "ConfigMap"}, "customizations": {
                "dependencyInterpretation": {"luaScript": "function GetDependencies(o) return {} end"}}}),
        ),
    ]
}

/// A ConfigMap as a member has it from Karmada.
fn copy(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "data": {"a": "b"}, "metadata": {"name": name, "namespace": "shop",
        "labels": {"karmada.io/managed": "true"}, "annotations": {"work.karmada.io/name": name}}})
}

async fn member() -> Server {
    let server = Server::open(Options::memory()).unwrap();
    let mut shop = namespace("shop");
    shop["metadata"]["labels"] = json!({"karmada.io/managed": "true"});
    for object in [shop, copy("web"), copy("along")] {
        create(&server.client(), object).await;
    }
    server
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
        json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "m1", "namespace": "shop"},
            "data": {"caBundle": "Q0E=", "token": "dG9rZW4="}}),
    )
    .await;
    create(
        &client,
        json!({"apiVersion": "cluster.karmada.io/v1alpha1", "kind": "Cluster", "metadata": {"name": "m1"},
            "spec": {"syncMode": "Push", "apiEndpoint": "https://192.0.2.1:6443", "secretRef": {"namespace": "shop", "name": "m1"}}}),
    )
    .await;
    for object in extras() {
        create(&client, object).await;
    }
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
    // A controller has run.
    let trust = TrustDomain::new("atoll.test".to_owned()).unwrap();
    members::load_or_create(&client, &Clock::system(), &trust).await.unwrap();
    server
}

fn accepted(condition: &str, generation: Option<i64>) -> Value {
    json!({"status": {"observedGeneration": generation, "conditions": [{"type": condition, "status": "True",
        "reason": condition, "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"}]}})
}

/// What Atoll's controller says about what the hub got.
async fn accept(hub: &Server) {
    for (group, kind, name, condition) in PREPARED {
        let namespace = (!kind.starts_with("Cluster") && group == "policy").then_some("shop");
        let api = api(&hub.client(), &format!("{group}.atoll.dev/v1alpha1"), kind, namespace);
        let generation = api.get(name).await.unwrap().metadata.generation;
        let status = accepted(condition, generation);
        api.patch_status(name, &PatchParams::default(), &Patch::Merge(status)).await.unwrap();
    }
}

/// What Atoll's controller and agent do with the objects: bindings, and marks on the member.
async fn take_over(hub: &Server, member: &Server) {
    // Reached through the hub from here on: there is no network to it.
    let clusters = api(&hub.client(), "cluster.atoll.dev/v1alpha1", "Cluster", None);
    let joined = json!({"spec": {"mode": "Agent", "kubeconfigSecret": null}});
    clusters.patch("m1", &PatchParams::default(), &Patch::Merge(joined)).await.unwrap();
    for name in ["web", "along"] {
        let binding = binding_name(name, "ConfigMap", "");
        let clusters = if name == "web" { json!([{"name": "m1"}]) } else { json!([]) };
        let spec = json!({"clusters": clusters, "resource": {"apiVersion": "v1", "kind": "ConfigMap", "namespace": "shop",
            "name": name, "uid": name}});
        create(
            &hub.client(),
            json!({"apiVersion": "work.atoll.dev/v1alpha1", "kind": "ResourceBinding",
                "metadata": {"name": binding, "namespace": "shop"}, "spec": spec}),
        )
        .await;
        let bindings =
            api(&hub.client(), "work.atoll.dev/v1alpha1", "ResourceBinding", Some("shop"));
        let applied = accepted("FullyApplied", None);
        bindings
            .patch_status(&binding, &PatchParams::default(), &Patch::Merge(applied))
            .await
            .unwrap();
        let mark = json!({"metadata": {"labels": {"atoll.dev/managed-by": "atoll"}}});
        let copies = api(&member.client(), "v1", "ConfigMap", Some("shop"));
        copies.patch(name, &PatchParams::default(), &Patch::Merge(mark)).await.unwrap();
    }
}

/// Everything that a step may write, without what differs between runs.
async fn state(servers: &Servers) -> Vec<Value> {
    let Servers { karmada, hub, member } = servers;
    follow(&karmada.client()).await;
    let mut all = Vec::new();
    let kinds = KINDS
        .iter()
        .map(|(group, version, kind, ..)| (karmada, format!("{group}/{version}"), *kind));
    let on_karmada = [(karmada, "v1".to_owned(), "Namespace")];
    let on_hub = [
        (hub, "v1".to_owned(), "ConfigMap"),
        (hub, "v1".to_owned(), "Namespace"),
        (hub, "v1".to_owned(), "Secret"),
        (hub, "cluster.atoll.dev/v1alpha1".to_owned(), "Cluster"),
        (member, "v1".to_owned(), "ConfigMap"),
        (member, "v1".to_owned(), "Namespace"),
    ];
    let prepared = PREPARED
        .iter()
        .map(|(group, kind, ..)| (hub, format!("{group}.atoll.dev/v1alpha1"), *kind));
    for (server, api_version, kind) in kinds.chain(on_karmada).chain(on_hub).chain(prepared) {
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
                meta.finalizers,
                object.data["spec"],
                object.data["data"]
            ])
        }));
    }
    all
}

/// Both sides, and the member.
struct Servers {
    karmada: Server,
    hub: Server,
    member: Server,
}

impl Servers {
    async fn new() -> Self {
        Self { karmada: karmada().await, hub: hub().await, member: member().await }
    }

    fn copy(&self) -> Self {
        let copy = |server: &Server| server.copy(Options { seed: 7, ..Options::memory() }).unwrap();
        Self { karmada: copy(&self.karmada), hub: copy(&self.hub), member: copy(&self.member) }
    }

    fn migration(&self, faults: &Faults, step: Step) -> Migration {
        static CONVERTER: LazyLock<Arc<Converter>> = LazyLock::new(|| converter().unwrap());
        let hub = Hub {
            client: faults.client(&self.hub, Some(&self.member)),
            namespace: "default".to_owned(),
            found: "a test".to_owned(),
        };
        Migration {
            karmada: Karmada::of(faults.client(&self.karmada, None)),
            target: Target { hub },
            converter: CONVERTER.clone(),
            namespace: None,
            pause_others: false,
            take_credentials: step == Step::Prepare,
            wait: Duration::from_secs(60),
        }
    }

    async fn step(&self, step: Step, faults: &Faults) -> anyhow::Result<()> {
        let migration = self.migration(faults, step);
        let out = Printer::stdout();
        match step {
            Step::Prepare => {
                migration.prepare(false, Format::Json, &out).await?;
                accept(&self.hub).await;
                Ok(())
            }
            Step::Switch => migration.switch(false, Format::Json, &out).await,
            Step::Finish => finish::run(&migration, Format::Json, &out).await,
            Step::Rollback => back::run(&migration, Format::Json, &out).await,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    Prepare,
    Switch,
    Finish,
    Rollback,
}

/// Interrupts a step at every write. Returns the servers after a run that was not interrupted.
async fn interrupted(at: Step, servers: &Servers) -> Servers {
    let whole = servers.copy();
    let counted = Faults::default();
    whole.step(at, &counted).await.unwrap();
    let (expected, writes) = (state(&whole).await, counted.writes.load(Ordering::SeqCst));
    assert!(writes >= 3, "{at:?} makes {writes} writes");
    for (write, loss) in (1..=writes).flat_map(|at| [(at, Loss::Request), (at, Loss::Answer)]) {
        let servers = servers.copy();
        let faults = Faults { at: Some((write, loss)), ..Faults::default() };
        let failed = servers.step(at, &faults).await;
        assert!(failed.is_err(), "{at:?}, write {write}, {loss:?}");
        servers.step(at, &Faults::default()).await.unwrap();
        assert_eq!(state(&servers).await, expected, "{at:?}, write {write}, {loss:?}");
    }
    whole
}

fn of_karmada(state: &[Value]) -> Vec<Value> {
    let is_karmadas = |one: &&Value| one[0].as_str().unwrap().contains("karmada.io");
    state.iter().filter(is_karmadas).cloned().map(without_nothing).collect()
}

#[tokio::test(start_paused = true)]
async fn a_step_that_is_interrupted_at_any_write_is_finished_by_the_next_run() {
    let first = Servers::new().await;
    let at_first = state(&first).await;
    let prepared = interrupted(Step::Prepare, &first).await;
    let switched = interrupted(Step::Switch, &prepared).await;
    let back = interrupted(Step::Rollback, &switched).await;
    // Karmada is as it was before.
    assert_eq!(of_karmada(&state(&back).await), of_karmada(&at_first));

    take_over(&switched.hub, &switched.member).await;
    let finished = interrupted(Step::Finish, &switched).await;
    // Nothing of Karmada and of the migration is left where Atoll is.
    let own = [("v1".to_owned(), "ConfigMap")].into_iter();
    let kinds =
        own.chain(PREPARED.map(|(group, kind, ..)| (format!("{group}.atoll.dev/v1alpha1"), kind)));
    for (api_version, kind) in kinds {
        let of_hub = api(&finished.hub.client(), &api_version, kind, None);
        let objects = of_hub.list(&ListParams::default()).await.unwrap().items;
        assert!(!objects.is_empty(), "{kind}");
        for object in objects {
            let marks = json!([object.metadata.annotations, object.data["spec"]]).to_string();
            assert!(!marks.contains("atoll.dev") && !marks.contains("preserve"), "{kind}: {marks}");
        }
    }
    let of_member = finished.member.client();
    for name in ["web", "along"] {
        let copy = api(&of_member, "v1", "ConfigMap", Some("shop")).get(name).await.unwrap();
        assert_eq!(copy.metadata.annotations.unwrap_or_default(), BTreeMap::new());
        let labels = BTreeMap::from([("atoll.dev/managed-by".to_owned(), "atoll".to_owned())]);
        assert_eq!(copy.metadata.labels.unwrap_or_default(), labels);
    }
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
