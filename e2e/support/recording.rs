//! Objects of a real Karmada control plane and its members: recorded by the test against a living one, and stored as data for
//! tests that play them on embedded servers.

use std::path::PathBuf;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Api, ApiResource, DynamicObject, GroupVersionKind, ListParams, PostParams};
use kube::runtime::{conditions, wait::await_condition};
use kube::{Client, discovery};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::cli::root;
use super::federation::namespace;

/// Environment variable: with any value, the objects are written anew.
const RECORD: &str = "ATOLL_RECORD_KARMADA";
/// Address that stands for members in the recording.
const ADDRESS: &str = "https://192.0.2.1:6443";

/// A kind of the recorded estate that only its customization explains. All servers serve it.
const GADGETS: &str = r#"
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: gadgets.example.com}
spec:
  group: example.com
  names: {kind: Gadget, plural: gadgets, singular: gadget, listKind: GadgetList}
  scope: Namespaced
  versions:
  - name: v1
    served: true
    storage: true
    schema: {openAPIV3Schema: {type: object, properties: {spec: {type: object, properties: {size: {type: integer}}}}}}
"#;

/// Kinds of Karmada that a migration reads: group, version, kind.
const KINDS: [(&str, &str, &str); 11] = [
    ("cluster.karmada.io", "v1alpha1", "Cluster"),
    ("config.karmada.io", "v1alpha1", "ResourceInterpreterCustomization"),
    ("policy.karmada.io", "v1alpha1", "PropagationPolicy"),
    ("policy.karmada.io", "v1alpha1", "ClusterPropagationPolicy"),
    ("policy.karmada.io", "v1alpha1", "OverridePolicy"),
    ("policy.karmada.io", "v1alpha1", "ClusterOverridePolicy"),
    ("policy.karmada.io", "v1alpha1", "FederatedResourceQuota"),
    ("policy.karmada.io", "v1alpha1", "ClusterTaintPolicy"),
    ("work.karmada.io", "v1alpha2", "ResourceBinding"),
    ("work.karmada.io", "v1alpha2", "ClusterResourceBinding"),
    ("work.karmada.io", "v1alpha1", "Work"),
];

/// What was recorded.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Recording {
    /// Karmada's objects, and those of users, before the migration.
    pub(crate) before: Vec<Value>,
    /// Bindings and Works once Karmada's controllers have followed the suspension.
    pub(crate) suspended: Vec<Value>,
    /// What each member has of it before the migration, with the program that owns it.
    pub(crate) members: Vec<Copies>,
}

/// The objects on one member.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Copies {
    pub(crate) member: String,
    pub(crate) objects: Vec<Value>,
}

/// Whether to record.
pub(crate) fn records() -> bool {
    std::env::var_os(RECORD).is_some()
}

fn path() -> PathBuf {
    root().join("tests/karmada/estate.json")
}

impl Recording {
    pub(crate) fn read() -> Self {
        serde_json::from_str(&std::fs::read_to_string(path()).unwrap()).unwrap()
    }

    /// Writes it, one object a line: a change of one shows as one line.
    pub(crate) fn write(&self) {
        let list = |objects: &[Value]| {
            let lines: Vec<String> = objects.iter().map(ToString::to_string).collect();
            format!("[\n{}\n]", lines.join(",\n"))
        };
        let members = self.members.iter().map(|copies| {
            let (name, objects) = (json!(copies.member), list(&copies.objects));
            format!("{{\"member\": {name}, \"objects\": {objects}}}")
        });
        let members = members.collect::<Vec<_>>().join(",\n");
        let (before, suspended) = (list(&self.before), list(&self.suspended));
        let text = format!(
            "{{\"before\": {before},\n\"suspended\": {suspended},\n\"members\": [\n{members}\n]}}\n"
        );
        std::fs::write(path(), text).unwrap();
    }

    /// A recorded object of Karmada before the migration.
    pub(crate) fn find(&self, kind: &str, name: &str) -> &Value {
        let is = |object: &&Value| object["kind"] == kind && object["metadata"]["name"] == name;
        self.before.iter().find(is).unwrap_or_else(|| panic!("no {kind} {name} was recorded"))
    }

    /// The members on which Karmada placed an object, with their replicas.
    pub(crate) fn shares(&self, kind: &str, name: &str) -> Vec<(String, i64)> {
        let of = |binding: &&Value| {
            let resource = &binding["spec"]["resource"];
            resource["kind"] == kind && resource["name"] == name
        };
        let mut bindings =
            self.before.iter().filter(|o| o["kind"].as_str().unwrap().ends_with("ResourceBinding"));
        let binding = bindings.find(of).unwrap_or_else(|| panic!("no binding of {kind} {name}"));
        let clusters = binding["spec"]["clusters"].as_array().unwrap().iter();
        clusters
            .map(|to| {
                (to["name"].as_str().unwrap().to_owned(), to["replicas"].as_i64().unwrap_or(0))
            })
            .collect()
    }
}

/// All objects of Karmada, and the users' objects that its bindings name.
pub(crate) async fn of_karmada(karmada: &Client, namespace: &str) -> Vec<Value> {
    let mut all = vec![get(karmada, "v1", "Namespace", None, namespace).await];
    let mut own = Vec::new();
    for (group, version, kind) in KINDS {
        own.extend(list(karmada, group, version, kind).await);
    }
    own.retain(|object| concerns(object, namespace));
    for binding in own.iter().filter(|o| o["kind"].as_str().unwrap().ends_with("ResourceBinding")) {
        let resource = &binding["spec"]["resource"];
        let text = |field: &str| resource[field].as_str();
        let (api_version, kind) = (text("apiVersion").unwrap(), text("kind").unwrap());
        all.push(get(karmada, api_version, kind, text("namespace"), text("name").unwrap()).await);
    }
    all.extend(own);
    all
}

/// Karmada makes a Work for each namespace, also for those without objects.
fn concerns(object: &Value, namespace: &str) -> bool {
    let manifest = &object["spec"]["workload"]["manifests"][0];
    manifest["kind"] != "Namespace" || manifest["metadata"]["name"] == namespace
}

/// Bindings and Works alone.
pub(crate) async fn of_work(karmada: &Client, namespace: &str) -> Vec<Value> {
    let mut all = Vec::new();
    for (group, version, kind) in KINDS.into_iter().filter(|kind| kind.0 == "work.karmada.io") {
        all.extend(list(karmada, group, version, kind).await);
    }
    all.retain(|object| concerns(object, namespace));
    all
}

/// What a member has of the objects in these Works.
pub(crate) async fn of_member(member: &Client, name: &str, works: &[Value]) -> Copies {
    let place = format!("karmada-es-{name}");
    let mut objects = Vec::new();
    for work in works.iter().filter(|o| o["kind"] == "Work" && o["metadata"]["namespace"] == *place)
    {
        let manifest = &work["spec"]["workload"]["manifests"][0];
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        let (api_version, kind) = (text(&manifest["apiVersion"]), text(&manifest["kind"]));
        let metadata = &manifest["metadata"];
        let namespace = metadata["namespace"].as_str();
        objects.push(get(member, &api_version, &kind, namespace, &text(&metadata["name"])).await);
    }
    objects.sort_by_key(|object| object["kind"] != "Namespace");
    Copies { member: name.to_owned(), objects }
}

async fn list(client: &Client, group: &str, version: &str, kind: &str) -> Vec<Value> {
    let gvk = GroupVersionKind::gvk(group, version, kind);
    let (resource, _) = discovery::pinned_kind(client, &gvk).await.unwrap();
    let api: Api<DynamicObject> = Api::all_with(client.clone(), &resource);
    let found = api.list(&ListParams::default()).await.unwrap();
    found.items.into_iter().map(|object| trimmed(object, &resource)).collect()
}

async fn get(
    client: &Client,
    api_version: &str,
    kind: &str,
    namespace: Option<&str>,
    name: &str,
) -> Value {
    let (group, version) = api_version.rsplit_once('/').unwrap_or(("", api_version));
    let gvk = GroupVersionKind::gvk(group, version, kind);
    let (resource, _) = discovery::pinned_kind(client, &gvk).await.unwrap();
    let api: Api<DynamicObject> = match namespace {
        Some(namespace) => Api::namespaced_with(client.clone(), namespace, &resource),
        None => Api::all_with(client.clone(), &resource),
    };
    trimmed(api.get(name).await.unwrap(), &resource)
}

/// Without what differs in each run and decides nothing, and without addresses.
fn trimmed(object: DynamicObject, resource: &ApiResource) -> Value {
    let mut object = serde_json::to_value(object).unwrap();
    object["apiVersion"] = json!(resource.api_version);
    object["kind"] = json!(resource.kind);
    let metadata = object["metadata"].as_object_mut().unwrap();
    for field in ["resourceVersion", "generation", "creationTimestamp"] {
        metadata.remove(field);
    }
    let owners = metadata.remove("managedFields").map(owners).unwrap_or_default();
    metadata.insert("managedFields".to_owned(), owners);
    if resource.kind == "Cluster" {
        object["spec"]["apiEndpoint"] = json!(ADDRESS);
        let status = object["status"].as_object_mut().unwrap();
        status.retain(|field, _| field == "conditions" || field == "kubernetesVersion");
    }
    object
}

/// Who owns fields, and how: the fields themselves follow from the object.
fn owners(fields: Value) -> Value {
    let each = fields.as_array().into_iter().flatten().map(|entry| {
        json!({"manager": entry["manager"], "operation": entry["operation"], "subresource": entry["subresource"]})
    });
    Value::Array(each.collect())
}

/// Defines the kind of the recorded estate.
pub(crate) async fn define(client: &Client) {
    let definition: CustomResourceDefinition = serde_saphyr::from_str(GADGETS).unwrap();
    let name = definition.metadata.name.clone().unwrap();
    let definitions: Api<CustomResourceDefinition> = Api::all(client.clone());
    definitions.create(&PostParams::default(), &definition).await.unwrap();
    await_condition(definitions, &name, conditions::is_crd_established()).await.unwrap();
}

/// Stores Karmada's objects as a living control plane had them. Its kinds, and those of users, are defined.
pub(crate) async fn control_plane(karmada: &Client, recording: &Recording) {
    for copies in &recording.members {
        store(karmada, &namespace(&format!("karmada-es-{}", copies.member))).await;
    }
    for object in &recording.before {
        store(karmada, object).await;
    }
}

/// Stores a recorded object as its owner did. Without `status` where the kind has it apart.
pub(crate) async fn store(client: &Client, recorded: &Value) {
    let mut object = recorded.clone();
    let metadata = object["metadata"].as_object_mut().unwrap();
    let owners = metadata.remove("managedFields").unwrap_or_default();
    // The server gives each object another uid, so the recorded owners do not exist there.
    metadata.remove("uid");
    metadata.remove("ownerReferences");
    let mut owners = owners.as_array().into_iter().flatten();
    let owner = owners.find(|owner| owner["subresource"].is_null());
    let field_manager = owner.and_then(|owner| owner["manager"].as_str()).map(str::to_owned);
    let params = PostParams { field_manager, ..PostParams::default() };
    let api_version = object["apiVersion"].as_str().unwrap();
    let (group, version) = api_version.rsplit_once('/').unwrap_or(("", api_version));
    let gvk = GroupVersionKind::gvk(group, version, object["kind"].as_str().unwrap());
    let (resource, _) = discovery::pinned_kind(client, &gvk).await.unwrap();
    let api: Api<DynamicObject> = match object["metadata"]["namespace"].as_str() {
        Some(namespace) => Api::namespaced_with(client.clone(), namespace, &resource),
        None => Api::all_with(client.clone(), &resource),
    };
    let object: DynamicObject = serde_json::from_value(object).unwrap();
    let name = object.metadata.name.clone().unwrap();
    let stored = api.create(&params, &object).await;
    stored.unwrap_or_else(|error| panic!("{} {name}: {error}", resource.kind));
}
