//! The requirements of one replica.

use std::collections::{BTreeMap, BTreeSet};

use atoll_api::{
    binding::{NodeClaim, ReplicaRequirements},
    quantity::{Quantity, ResourceList},
    selector::Selector,
};
use k8s_openapi::api::core::v1::{
    NodeSelector, NodeSelectorRequirement, NodeSelectorTerm, Toleration,
};
use serde_json::Value;

use crate::{
    pod,
    read::{at, flag, int, list, map, text},
};

/// Label that distinguishes nodes: a host port is available once per node.
const HOSTNAME: &str = "kubernetes.io/hostname";

/// The requirements of one replica; `None` for an object without pods.
///
/// Requests are summed as in kube-scheduler: the larger of containers plus sidecars, and the largest init container
/// plus the sidecars that started before it; plus the overhead; plus one of `pods`. A limit without a request counts as
/// the request, as in the API server. An unreadable quantity is passed on unchanged, so that the caller can report it.
#[must_use]
pub fn requirements(obj: &Value) -> Option<ReplicaRequirements> {
    of_template(obj, pod::template(obj)?)
}

/// The requirements of one pod of this template of the object.
pub(crate) fn of_template(obj: &Value, template: &Value) -> Option<ReplicaRequirements> {
    let spec = at(template, &["spec"])?;
    let claim = NodeClaim {
        hard_node_affinity: node_affinity(spec),
        node_selector: map(spec, &["nodeSelector"])
            .filter_map(|(name, v)| Some((name.to_owned(), v.as_str()?.to_owned())))
            .collect(),
        tolerations: list(spec, &["tolerations"]).iter().map(toleration).collect(),
        self_anti_affinity: self_anti_affinity(obj, template, spec),
    };
    let priority_class = text(spec, &["priorityClassName"]);
    Some(ReplicaRequirements {
        node_claim: Some(claim).filter(|claim| *claim != NodeClaim::default()),
        resource_request: requests(spec),
        priority_class_name: Some(priority_class.to_owned()).filter(|name| !name.is_empty()),
    })
}

/// Requests in thousandths, and their original notation.
#[derive(Default)]
struct Sum {
    milli: BTreeMap<String, i128>,
    unreadable: ResourceList,
    written: BTreeMap<(String, i128), Quantity>,
}

impl Sum {
    /// The requests of a container; a limit replaces a missing request.
    fn of(&mut self, container: &Value) -> BTreeMap<String, i128> {
        let limits = map(container, &["resources", "limits"]);
        let requests = map(container, &["resources", "requests"]);
        let mut out = BTreeMap::new();
        for (name, value) in limits.chain(requests) {
            if let Some(milli) = self.read(name, value) {
                out.insert(name.to_owned(), milli);
            }
        }
        out
    }

    fn read(&mut self, name: &str, value: &Value) -> Option<i128> {
        let quantity = match value {
            Value::String(text) => Quantity::new(text.clone()),
            other => Quantity::new(other.to_string()),
        };
        match quantity.milli() {
            Ok(milli) => {
                self.written.entry((name.to_owned(), milli)).or_insert(quantity);
                Some(milli)
            }
            Err(_) => {
                self.unreadable.insert(name.to_owned(), quantity);
                None
            }
        }
    }

    fn finish(self) -> ResourceList {
        let Self { milli, mut unreadable, mut written } = self;
        let mut out: ResourceList = milli
            .into_iter()
            .map(|(name, milli)| {
                // A sum equal to a quantity in the template, such as `200Mi`, keeps that notation.
                let quantity = written.remove(&(name.clone(), milli));
                (name, quantity.unwrap_or_else(|| Quantity::from_milli(milli)))
            })
            .collect();
        out.append(&mut unreadable);
        out
    }
}

fn add(to: &mut BTreeMap<String, i128>, more: &BTreeMap<String, i128>) {
    for (name, milli) in more {
        *to.entry(name.clone()).or_default() += milli;
    }
}

fn raise(to: &mut BTreeMap<String, i128>, other: &BTreeMap<String, i128>) {
    for (name, milli) in other {
        let entry = to.entry(name.clone()).or_insert(*milli);
        *entry = (*entry).max(*milli);
    }
}

fn requests(spec: &Value) -> ResourceList {
    let mut sum = Sum::default();
    let mut running = BTreeMap::new();
    for container in list(spec, &["containers"]) {
        let request = sum.of(container);
        add(&mut running, &request);
    }
    let mut sidecars = BTreeMap::new();
    let mut starting = BTreeMap::new();
    for container in list(spec, &["initContainers"]) {
        let request = sum.of(container);
        if text(container, &["restartPolicy"]) == "Always" {
            add(&mut running, &request);
            add(&mut sidecars, &request);
        } else {
            let mut with_sidecars = request;
            add(&mut with_sidecars, &sidecars);
            raise(&mut starting, &with_sidecars);
        }
    }
    raise(&mut running, &starting);
    // Requests of the whole pod replace the sum of its containers.
    for (name, milli) in sum.of(spec) {
        running.insert(name, milli);
    }
    for (name, value) in map(spec, &["overhead"]) {
        if let Some(milli) = sum.read(name, value) {
            *running.entry(name.to_owned()).or_default() += milli;
        }
    }
    running.insert("pods".to_owned(), 1000);
    sum.milli = running;
    sum.finish()
}

fn strings(value: &Value, path: &[&str]) -> Vec<String> {
    list(value, path).iter().filter_map(|v| v.as_str().map(str::to_owned)).collect()
}

pub(crate) fn node_affinity(spec: &Value) -> Option<NodeSelector> {
    let path = ["affinity", "nodeAffinity", "requiredDuringSchedulingIgnoredDuringExecution"];
    let required = at(spec, &path)?;
    let requirements = |term: &Value, name: &str| -> Option<Vec<NodeSelectorRequirement>> {
        at(term, &[name])?;
        let requirement = |r: &Value| NodeSelectorRequirement {
            key: text(r, &["key"]).to_owned(),
            operator: text(r, &["operator"]).to_owned(),
            values: at(r, &["values"]).map(|_| strings(r, &["values"])),
        };
        Some(list(term, &[name]).iter().map(requirement).collect())
    };
    let term = |term: &Value| NodeSelectorTerm {
        match_expressions: requirements(term, "matchExpressions"),
        match_fields: requirements(term, "matchFields"),
    };
    let terms = list(required, &["nodeSelectorTerms"]).iter().map(term).collect();
    Some(NodeSelector { node_selector_terms: terms })
}

pub(crate) fn toleration(toleration: &Value) -> Toleration {
    let field = |name: &str| at(toleration, &[name])?.as_str().map(str::to_owned);
    Toleration {
        effect: field("effect"),
        key: field("key"),
        operator: field("operator"),
        toleration_seconds: int(toleration, &["tolerationSeconds"]),
        value: field("value"),
    }
}

/// The topology keys whose domains can hold only one replica.
fn self_anti_affinity(obj: &Value, template: &Value, spec: &Value) -> Vec<String> {
    let labels = pod::labels(template);
    let namespace = text(obj, &["metadata", "namespace"]);
    let path = ["affinity", "podAntiAffinity", "requiredDuringSchedulingIgnoredDuringExecution"];
    let terms = list(spec, &path).iter().filter(|term| {
        let selector = at(term, &["labelSelector"])
            .and_then(|s| serde_json::from_value(s.clone()).ok())
            .and_then(|s| Selector::parse(&s).ok());
        let other_revisions_only = !list(term, &["mismatchLabelKeys"]).is_empty();
        selector.is_some_and(|s| s.matches(&labels))
            && !other_revisions_only
            && means_own_namespace(term, namespace)
    });
    let mut keys: BTreeSet<String> =
        terms.map(|term| text(term, &["topologyKey"]).to_owned()).collect();
    if takes_host_port(spec) {
        keys.insert(HOSTNAME.to_owned());
    }
    keys.into_iter().filter(|key| !key.is_empty()).collect()
}

/// Whether a term applies to the pod's own namespace. A term without namespaces does. A namespace selector counts only
/// if it selects all namespaces, because the namespace's labels are not known here.
fn means_own_namespace(term: &Value, own: &str) -> bool {
    let named = list(term, &["namespaces"]);
    match at(term, &["namespaceSelector"]) {
        Some(selector) => {
            selector.as_object().is_some_and(serde_json::Map::is_empty)
                || named.iter().any(|n| n == own)
        }
        None => named.is_empty() || named.iter().any(|n| n == own),
    }
}

fn takes_host_port(spec: &Value) -> bool {
    let host_network = flag(spec, &["hostNetwork"]);
    list(spec, &["containers"]).iter().chain(list(spec, &["initContainers"])).any(|container| {
        list(container, &["ports"])
            .iter()
            .any(|port| host_network || int(port, &["hostPort"]).is_some_and(|p| p > 0))
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn of(spec: Value) -> ReplicaRequirements {
        let template = json!({"metadata": {"labels": {"app": "web", "tier": "1"}}, "spec": spec});
        let metadata = json!({"name": "web", "namespace": "shop"});
        requirements(&json!({
            "apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata,
            "spec": {"template": template},
        }))
        .unwrap()
    }

    fn requested(spec: Value) -> Vec<(String, String)> {
        let list = of(spec).resource_request;
        list.iter().map(|(name, q)| (name.clone(), q.to_string())).collect()
    }

    fn pairs(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
        pairs.iter().map(|(a, b)| ((*a).to_owned(), (*b).to_owned())).collect()
    }

    fn container(requests: Value) -> Value {
        json!({"name": "c", "resources": {"requests": requests}})
    }

    #[test]
    fn containers_add_up_and_every_replica_is_one_pod() {
        let spec = json!({"containers": [
            container(json!({"cpu": "250m", "memory": "1Gi"})),
            container(json!({"cpu": 1, "nvidia.com/gpu": "2"})),
        ]});
        let expected =
            [("cpu", "1250m"), ("memory", "1Gi"), ("nvidia.com/gpu", "2"), ("pods", "1")];
        assert_eq!(requested(spec), pairs(&expected));
        assert_eq!(requested(json!({"containers": [{"name": "c"}]})), pairs(&[("pods", "1")]));
    }

    #[test]
    fn the_largest_init_container_counts_if_it_is_more_than_what_runs() {
        let spec = json!({
            "initContainers": [container(json!({"cpu": "2", "memory": "10Mi"}))],
            "containers": [container(json!({"cpu": "1", "memory": "20Mi"}))],
            "overhead": {"cpu": "100m"},
        });
        let expected = [("cpu", "2100m"), ("memory", "20Mi"), ("pods", "1")];
        assert_eq!(requested(spec), pairs(&expected));
    }

    #[test]
    fn sidecars_run_along_and_beside_the_init_containers_after_them() {
        let sidecar = |cpu: &str| {
            let mut c = container(json!({ "cpu": cpu }));
            c["restartPolicy"] = json!("Always");
            c
        };
        let init = |cpu: &str| container(json!({ "cpu": cpu }));
        // init 2 alone; then sidecar 1 + init 2 = 3; run: 1 + 1 sidecars + 1 container = 3.
        let spec = json!({
            "initContainers": [init("2"), sidecar("1"), init("2"), sidecar("1")],
            "containers": [init("1")],
        });
        assert_eq!(requested(spec), pairs(&[("cpu", "3"), ("pods", "1")]));
        let spec = json!({
            "initContainers": [sidecar("1"), init("4")], "containers": [init("1")],
        });
        assert_eq!(requested(spec), pairs(&[("cpu", "5"), ("pods", "1")]));
    }

    #[test]
    fn limits_stand_in_for_requests_and_pod_level_requests_for_the_sum() {
        let spec = json!({
            "containers": [{"name": "c", "resources": {
                "limits": {"cpu": "2", "memory": "1Gi"}, "requests": {"cpu": "1"},
            }}],
        });
        let expected = [("cpu", "1"), ("memory", "1Gi"), ("pods", "1")];
        assert_eq!(requested(spec), pairs(&expected));
        let spec = json!({
            "containers": [container(json!({"cpu": "1", "memory": "1Gi"}))],
            "resources": {"requests": {"cpu": "4"}},
        });
        let expected = [("cpu", "4"), ("memory", "1Gi"), ("pods", "1")];
        assert_eq!(requested(spec), pairs(&expected));
    }

    #[test]
    fn an_unreadable_quantity_is_passed_on_as_written() {
        let spec = json!({"containers": [
            container(json!({"cpu": "1"})), container(json!({"cpu": "lots"})),
        ]});
        assert_eq!(requested(spec), pairs(&[("cpu", "lots"), ("pods", "1")]));
    }

    #[test]
    fn the_node_claim_has_selector_affinity_and_tolerations() {
        let required = json!({"nodeSelectorTerms": [{"matchExpressions": [
            {"key": "zone", "operator": "In", "values": ["a", "b"]},
            {"key": "gpu", "operator": "Exists"},
        ]}]});
        let found = of(json!({
            "containers": [],
            "nodeSelector": {"disk": "ssd"},
            "tolerations": [{"key": "k", "operator": "Exists", "tolerationSeconds": 30}],
            "affinity": {"nodeAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": required,
            }},
            "priorityClassName": "high",
        }));
        assert_eq!(found.priority_class_name.as_deref(), Some("high"));
        let claim = found.node_claim.unwrap();
        let expected = json!({
            "hardNodeAffinity": required,
            "nodeSelector": {"disk": "ssd"},
            "tolerations": [{"key": "k", "operator": "Exists", "tolerationSeconds": 30}],
        });
        assert_eq!(serde_json::to_value(claim).unwrap(), expected);
        assert_eq!(of(json!({"containers": []})).node_claim, None);
    }

    #[test]
    fn replicas_keep_apart_when_a_term_selects_themselves_or_a_host_port_is_taken() {
        let keys = |terms: Value| {
            let affinity = json!({"podAntiAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": terms,
            }});
            let claim = of(json!({"containers": [], "affinity": affinity})).node_claim;
            claim.map(|c| c.self_anti_affinity).unwrap_or_default()
        };
        let own = json!({"matchLabels": {"app": "web"}});
        assert_eq!(keys(json!([{"labelSelector": own, "topologyKey": "zone"}])), ["zone"]);
        let in_set = json!({"matchExpressions": [
            {"key": "app", "operator": "In", "values": ["web", "db"]},
        ]});
        assert_eq!(
            keys(json!([
                {"labelSelector": in_set, "topologyKey": "zone", "namespaces": ["shop"]},
                {"labelSelector": own, "topologyKey": "a", "namespaceSelector": {}},
            ])),
            ["a", "zone"]
        );
        for not_self in [
            json!({"labelSelector": {"matchLabels": {"app": "db"}}, "topologyKey": "zone"}),
            json!({"labelSelector": own, "topologyKey": "zone", "namespaces": ["other"]}),
            json!({"labelSelector": own, "topologyKey": "zone", "mismatchLabelKeys": ["tier"]}),
            json!({"topologyKey": "zone"}),
        ] {
            assert_eq!(keys(json!([not_self])), [""; 0], "{not_self}");
        }
        let port = |port: Value, host_network: bool| {
            let containers = json!([{"name": "c", "ports": [port]}]);
            of(json!({"containers": containers, "hostNetwork": host_network})).node_claim
        };
        let hostname = |claim: Option<NodeClaim>| claim.unwrap().self_anti_affinity;
        assert_eq!(hostname(port(json!({"containerPort": 1, "hostPort": 1}), false)), [HOSTNAME]);
        assert_eq!(hostname(port(json!({"containerPort": 1}), true)), [HOSTNAME]);
        assert_eq!(port(json!({"containerPort": 1}), false), None);
    }

    #[test]
    fn cron_jobs_pods_and_unknown_workloads_have_requirements_and_services_none() {
        let pod = json!({"containers": [container(json!({"cpu": "1"}))]});
        let template = json!({ "spec": pod });
        for object in [
            json!({"apiVersion": "batch/v1", "kind": "CronJob", "spec": {
                "jobTemplate": {"spec": {"template": template}},
            }}),
            json!({"apiVersion": "v1", "kind": "Pod", "spec": pod}),
            json!({"apiVersion": "x.io/v1", "kind": "Set", "spec": {"template": template}}),
        ] {
            let request = requirements(&object).unwrap().resource_request;
            assert_eq!(request["cpu"].as_str(), "1", "{object}");
        }
        assert_eq!(requirements(&json!({"apiVersion": "v1", "kind": "Service", "spec": {}})), None);
    }
}
