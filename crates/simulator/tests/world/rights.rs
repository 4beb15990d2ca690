//! The controller makes no request to the hub that its manifest does not allow.

use std::collections::BTreeMap;

use atoll_apiserver::Server;
use atoll_simulator::world::{Actor, World};
use serde_json::{Value, json};

#[path = "../../../agent/tests/it/authorization.rs"]
mod authorization;

use authorization::Request;

const CONTROLLER: &str = include_str!("../../../../deploy/controller/controller.yaml");
const RBAC: &str = include_str!("../../../../deploy/controller/rbac.yaml");

/// Panics at a request of the controller that its ServiceAccount may not make.
pub(crate) fn assert_allowed(world: &World) {
    let objects: Vec<Value> = serde_saphyr::from_multiple(RBAC).unwrap();
    let asked = world.requests(Actor::Controller);
    assert!(asked.len() > 20, "{asked:#?}");
    for line in &asked {
        let Some(request) = Request::read(line) else { continue };
        let allowed = objects.iter().any(|object| {
            let applies = object["kind"] == "ClusterRole"
                || object["kind"] == "Role"
                    && object["metadata"]["namespace"] == request.namespace.as_str();
            let rules = object["rules"].as_array();
            applies && rules.into_iter().flatten().any(|rule| request.is_allowed(rule))
        });
        assert!(allowed, "{line}: {request:?}");
    }
}

const SECRETS: &str = include_str!("../../../../deploy/controller/secrets.yaml");
const USERS: &str = include_str!("../../../../deploy/controller/users.yaml");

/// The rules of the ClusterRoles of a manifest, each with the role's name and labels.
fn rules(manifest: &str) -> Vec<(String, Value, Value)> {
    let objects: Vec<Value> = serde_saphyr::from_multiple(manifest).unwrap();
    let roles = objects.into_iter().filter(|object| object["kind"] == "ClusterRole");
    roles
        .flat_map(|role| {
            let name = role["metadata"]["name"].as_str().unwrap().to_owned();
            let labels = role["metadata"]["labels"].clone();
            let rules = role["rules"].as_array().cloned().unwrap_or_default();
            rules.into_iter().map(move |rule| (name.clone(), labels.clone(), rule))
        })
        .collect()
}

fn has(list: &Value, item: &str) -> bool {
    list.as_array().unwrap().iter().any(|held| held == item || held == "*")
}

#[test]
fn secrets_of_all_namespaces_are_read_only_where_an_administrator_adds_the_role() {
    let reads = |(_, _, rule): &(String, Value, Value)| {
        has(&rule["apiGroups"], "") && has(&rule["resources"], "secrets")
    };
    assert_eq!(rules(RBAC).iter().filter(|rule| reads(rule)).count(), 0);
    let added = rules(SECRETS);
    assert!(reads(&added[0]) && added.len() == 1, "{added:?}");
    assert_eq!(added[0].1["rbac.atoll.dev/aggregate-to-controller"], "true");
    assert_eq!(added[0].2["verbs"], json!(["get", "list", "watch"]));
}

#[test]
fn namespace_users_write_policies_and_no_bindings() {
    let mut writes_policies = false;
    for (name, labels, rule) in rules(USERS) {
        let reads = ["get", "list", "watch"];
        let verbs = rule["verbs"].as_array().unwrap();
        let writes = verbs.iter().any(|verb| !reads.iter().any(|read| verb == read));
        for group in ["work.atoll.dev", "cluster.atoll.dev"] {
            assert!(!(writes && has(&rule["apiGroups"], group)), "{name} writes {group}");
        }
        let view = labels["rbac.authorization.k8s.io/aggregate-to-view"] == "true";
        assert!(!(writes && view), "{name} lets viewers write");
        assert!(!has(&rule["resources"], "clusterpropagationpolicies"), "{name}");
        writes_policies |= writes && has(&rule["resources"], "propagationpolicies");
    }
    assert!(writes_policies);
}

/// The references between the manifests resolve.
#[tokio::test]
async fn the_manifests_fit_together() {
    let server = Server::open(atoll_apiserver::Options::memory()).unwrap();
    let mut found = BTreeMap::new();
    for text in [RBAC, SECRETS, USERS, CONTROLLER] {
        let objects: Vec<Value> = serde_saphyr::from_multiple(text).unwrap();
        for object in objects {
            let version = object["apiVersion"].as_str().unwrap();
            let (group, version) = version.split_once('/').unwrap_or(("", version));
            let kind = object["kind"].as_str().unwrap();
            let gvk = kube::api::GroupVersionKind::gvk(group, version, kind);
            let resource = kube::api::ApiResource::from_gvk(&gvk);
            let api: kube::Api<kube::api::DynamicObject> =
                match object["metadata"]["namespace"].as_str() {
                    Some(namespace) => {
                        kube::Api::namespaced_with(server.client(), namespace, &resource)
                    }
                    None => kube::Api::all_with(server.client(), &resource),
                };
            let name = object["metadata"]["name"].as_str().unwrap();
            let params = kube::api::PatchParams::apply("kubectl");
            // The server's schemas refuse what Kubernetes' would.
            api.patch(name, &params, &kube::api::Patch::Apply(&object))
                .await
                .unwrap_or_else(|error| panic!("{kind} {name}: {error}"));
            if group != "rbac.authorization.k8s.io" {
                found.insert(kind.to_owned(), object);
            }
        }
    }
    let pod = &found["Deployment"]["spec"]["template"];
    // The leader's Pod has one more label, which it sets itself: the controller finds its own Pod.
    let mut labels = pod["metadata"]["labels"].clone();
    labels[atoll_api::marks::LEADER] = json!("true");
    assert_eq!(found["Service"]["spec"]["selector"], labels);
    let env = pod["spec"]["containers"][0]["env"].as_array().unwrap();
    for (name, path) in [("POD_NAME", "metadata.name"), ("POD_NAMESPACE", "metadata.namespace")] {
        let field =
            |e: &Value| e["name"] == name && e["valueFrom"]["fieldRef"]["fieldPath"] == path;
        assert!(env.iter().any(field), "{name}");
    }
    assert_eq!(pod["spec"]["serviceAccountName"], found["ServiceAccount"]["metadata"]["name"]);
    let claim = &pod["spec"]["volumes"][0]["persistentVolumeClaim"]["claimName"];
    assert_eq!(*claim, found["PersistentVolumeClaim"]["metadata"]["name"]);
    let ports = pod["spec"]["containers"][0]["ports"].as_array().unwrap();
    let target = &found["Service"]["spec"]["ports"][0]["targetPort"];
    assert!(ports.iter().any(|port| port["name"] == *target), "{target}");
}
