//! The agent's rights on its member (`atoll join --rights`), with RBAC enforced: everything goes with `all`, and what
//! narrower rights forbid is shown on the hub with the missing ClusterRole.

use kube::api::{Api, ApiResource, DeleteParams, DynamicObject, GroupVersionKind};
use serde_json::{Value, json};

use super::Processes;
use crate::support::cli::root;
use crate::support::process::Process;
use crate::support::servers::ApiServer;
use crate::support::wait::{until, until_gone};

/// What a platform team sends to its members. The agent has none of the rights that the roles grant.
const PLATFORM: &str = r#"
{apiVersion: v1, kind: Namespace, metadata: {name: shop}}
---
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: widgets.example.com}
spec:
  group: example.com
  names: {kind: Widget, plural: widgets, singular: widget, listKind: WidgetList}
  scope: Namespaced
  versions:
  - name: v1
    served: true
    storage: true
    schema: {openAPIV3Schema: {type: object, properties: {spec: {type: object, properties: {size: {type: integer}}}}}}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: node-reader}
rules: [{apiGroups: [""], resources: [nodes/proxy], verbs: [get, create]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: node-reader}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: node-reader}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: Group, name: platform}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: operator, namespace: shop}
rules: [{apiGroups: [example.com], resources: [widgets], verbs: ["*"]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: operator, namespace: shop}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: operator}
subjects: [{kind: ServiceAccount, name: operator, namespace: shop}]
---
{apiVersion: scheduling.k8s.io/v1, kind: PriorityClass, metadata: {name: urgent}, value: 1000}
---
{apiVersion: storage.k8s.io/v1, kind: StorageClass, metadata: {name: fast}, provisioner: example.com/disk}
"#;
const WIDGET: &str = "{apiVersion: example.com/v1, kind: Widget, metadata: {name: gear, namespace: shop}, spec: {size: 1}}";
/// The controller's rights on the custom resource, in the form that deploy/controller/kinds.yaml describes.
const WIDGETS: &str = r#"
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: atoll-controller-widgets, labels: {rbac.atoll.dev/aggregate-to-controller: "true"}}
rules: [{apiGroups: [example.com], resources: [widgets], verbs: [get, list, watch]}]
"#;

fn all(server: &ApiServer, object: &Value) -> Api<DynamicObject> {
    let version = object["apiVersion"].as_str().unwrap();
    let (group, version) = version.split_once('/').unwrap_or(("", version));
    let kind = GroupVersionKind::gvk(group, version, object["kind"].as_str().unwrap());
    let resource = ApiResource::from_gvk(&kind);
    match object["metadata"]["namespace"].as_str() {
        Some(namespace) => Api::namespaced_with(server.client.clone(), namespace, &resource),
        None => Api::all_with(server.client.clone(), &resource),
    }
}

fn name(object: &Value) -> &str {
    object["metadata"]["name"].as_str().unwrap()
}

fn bindings(server: &ApiServer) -> Api<DynamicObject> {
    let object = json!({"apiVersion": "work.atoll.dev/v1alpha1", "kind": "ClusterResourceBinding"});
    all(server, &object)
}

/// A ClusterPropagationPolicy for these objects.
fn policy(policy: &str, objects: &[&Value]) -> String {
    let selectors: Vec<Value> = objects
        .iter()
        .map(|object| {
            json!({
                "apiVersion": object["apiVersion"], "kind": object["kind"], "name": name(object),
                "namespace": object["metadata"]["namespace"],
            })
        })
        .collect();
    json!({
        "apiVersion": "policy.atoll.dev/v1alpha1", "kind": "ClusterPropagationPolicy",
        "metadata": {"name": policy}, "spec": {"resourceSelectors": selectors},
    })
    .to_string()
}

/// A federation with one member, whose agent has these rights.
async fn federation(rights: &[&str]) -> (Processes, ApiServer, [Process; 2]) {
    let (federation, controller) = Processes::started().await;
    let kinds = root().join("deploy/controller/kinds.yaml");
    federation.hub.apply(&std::fs::read_to_string(kinds).unwrap()).await;
    federation.hub.apply(WIDGETS).await;
    let (member, agent) = federation.joined_with("member1", rights).await;
    (federation, member, [controller, agent])
}

#[tokio::test(flavor = "multi_thread")]
async fn all_rights_take_cluster_scoped_kinds_roles_definitions_and_custom_resources() {
    let (federation, member, _processes) = federation(&["--rights", "all"]).await;
    let hub = &federation.hub;
    let mut objects = hub.apply(PLATFORM).await;
    let definition = objects.remove(1);
    assert_eq!(definition["kind"], "CustomResourceDefinition");
    let is_served =
        |o: &Value| o["status"]["conditions"].to_string().contains("InitialNamesAccepted");
    until(&all(hub, &definition), name(&definition), "served", is_served).await;
    let mut applied = hub.apply(WIDGET).await;
    let widget = applied.remove(0);
    // The namespace follows its objects.
    let sent: Vec<&Value> = objects[1..].iter().chain([&definition, &widget]).collect();
    hub.apply(&policy("platform", &sent)).await;
    for object in &sent {
        until(&all(&member, object), name(object), "on the member", |_| true).await;
    }
    let on_member = all(&member, &objects[1]).get("node-reader").await.unwrap();
    assert_eq!(on_member.data["rules"], objects[1]["rules"]);
    hub.apply(&WIDGET.replace("size: 1", "size: 2")).await;
    until(&all(&member, &widget), "gear", "the change", |o| o["spec"]["size"] == 2).await;

    // The definition last: when the hub no longer serves a kind, its objects stay on members.
    let (definitions, others): (Vec<&Value>, Vec<&Value>) =
        sent.iter().copied().partition(|object| **object == definition);
    for object in &others {
        all(hub, object).delete(name(object), &DeleteParams::background()).await.unwrap();
    }
    for object in &others {
        until_gone(&all(&member, object), name(object)).await;
    }
    // A definition stays, because with it all its custom resources would go; it is no longer Atoll's.
    for object in definitions {
        all(hub, object).delete(name(object), &DeleteParams::background()).await.unwrap();
    }
    let released = |o: &Value| o["metadata"]["labels"]["atoll.dev/managed-by"].is_null();
    until(&all(&member, &definition), name(&definition), "released", released).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_missing_right_is_on_the_binding_and_its_text_mends_it() {
    let (federation, member, _processes) = federation(&[]).await;
    let hub = &federation.hub;
    let objects = hub.apply(PLATFORM).await;
    let find = |kind: &str| objects.iter().find(|object| object["kind"] == kind).unwrap();
    let (role, binding) = (find("ClusterRole"), find("ClusterRoleBinding"));
    hub.apply(&policy("roles", &[role, binding])).await;

    // Each time the first right that is missing: on the kind, then to grant what the agent does not have.
    for (object, verbs) in [(role, ["get", "escalate"]), (binding, ["get", "bind"])] {
        let bound = atoll_api::names::binding_name(
            name(object),
            object["kind"].as_str().unwrap(),
            "rbac.authorization.k8s.io",
        );
        for verb in verbs {
            let lacks = |b: &Value| missing(b).is_some_and(|role| grants(&role, verb));
            let refused = until(&bindings(hub), &bound, verb, lacks).await;
            let missing = missing(&refused).unwrap();
            let condition = refused["status"]["conditions"].as_array().unwrap().iter();
            let condition = condition.clone().find(|c| c["type"] == "FullyApplied").unwrap();
            assert_eq!(condition["status"], "False", "{refused:#}");
            let message = condition["message"].as_str().unwrap();
            assert!(message.contains(&missing.to_string()), "{message}");
            member.apply(&missing.to_string()).await;
        }
        until(&all(&member, object), name(object), "on the member", |_| true).await;
        let applied = |b: &Value| b["status"]["aggregatedStatus"][0]["applied"] == true;
        until(&bindings(hub), &bound, "applied", applied).await;
    }
}

/// The ClusterRole that a binding's report of its member ends with.
fn missing(binding: &Value) -> Option<Value> {
    let message = binding["status"]["aggregatedStatus"][0]["appliedMessage"].as_str()?;
    serde_json::from_str(message.split_once("on the member: ")?.1).ok()
}

fn grants(role: &Value, verb: &str) -> bool {
    role["rules"][0]["verbs"].as_array().is_some_and(|verbs| verbs.iter().any(|held| held == verb))
}
