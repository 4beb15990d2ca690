//! Which requests and limits the containers of an object's pods lack. Where a ResourceQuota of a member has certain
//! names, Kubernetes refuses pods without them.

use atoll_api::quantity::ResourceList;
use serde_json::Value;

/// What Kubernetes asks of every container under a quota with these names: `requests` or `limits`, and the resource.
const REQUIRED: [(&str, &str, &str); 6] = [
    ("cpu", "requests", "cpu"),
    ("requests.cpu", "requests", "cpu"),
    ("limits.cpu", "limits", "cpu"),
    ("memory", "requests", "memory"),
    ("requests.memory", "requests", "memory"),
    ("limits.memory", "limits", "memory"),
];

/// What at least one container of an object's pods lacks. Kept with the template, so that no template has to be parsed to
/// find out which ones a quota refuses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Lacks(u8);

impl Lacks {
    /// Reads it from an object of any kind.
    #[must_use]
    pub fn of(object: &Value) -> Self {
        let spec = pod_spec(object);
        let lacking = |(at, (_, list, resource)): (usize, &(&str, &str, &str))| {
            let some = containers(spec).any(|container| !has(spec, container, list, resource));
            u8::from(some) << at
        };
        Self(REQUIRED.iter().enumerate().map(lacking).fold(0, |all, one| all | one))
    }

    /// Whether every container has everything.
    #[must_use]
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Whether a member with a quota of these names refuses a pod.
    #[must_use]
    pub fn refused_by(self, hard: &ResourceList) -> bool {
        let asked = |(at, (name, ..)): (usize, &(&str, &str, &str))| {
            u8::from(hard.contains_key(*name)) << at
        };
        self.0 & REQUIRED.iter().enumerate().map(asked).fold(0, |all, one| all | one) != 0
    }
}

/// The first container of an object's pods that lacks what a quota asks for, in words.
#[must_use]
pub(crate) fn first_lack(object: &Value, hard: &ResourceList) -> Option<String> {
    let spec = pod_spec(object);
    containers(spec).find_map(|container| {
        let mut required = REQUIRED.iter().filter(|(name, ..)| hard.contains_key(*name));
        let (_, list, resource) =
            required.find(|(_, list, resource)| !has(spec, container, list, resource))?;
        let name = container["name"].as_str().unwrap_or_default();
        Some(format!("container {name} has no resources.{list}.{resource}"))
    })
}

fn pod_spec(object: &Value) -> &Value {
    match (object["kind"].as_str(), &object["spec"]) {
        (Some("Pod"), spec) => spec,
        (Some("CronJob"), spec) => &spec["jobTemplate"]["spec"]["template"]["spec"],
        (_, spec) => &spec["template"]["spec"],
    }
}

fn containers(spec: &Value) -> impl Iterator<Item = &Value> {
    let lists = ["initContainers", "containers"];
    lists.into_iter().flat_map(|list| spec[list].as_array().into_iter().flatten())
}

/// Whether a container or its pod has it. Limits count as requests, as on members.
fn has(spec: &Value, container: &Value, list: &str, resource: &str) -> bool {
    [&container["resources"], &spec["resources"]].into_iter().any(|resources| {
        resources[list].get(resource).is_some()
            || (list == "requests" && resources["limits"].get(resource).is_some())
    })
}

#[cfg(test)]
mod tests {
    use atoll_api::quantity::Quantity;
    use serde_json::json;

    use super::*;

    /// Checks that what is kept with the template agrees.
    fn first_lack(object: &Value, hard: &ResourceList) -> Option<String> {
        let lack = super::first_lack(object, hard);
        assert_eq!(Lacks::of(object).refused_by(hard), lack.is_some(), "{object}");
        lack
    }

    #[test]
    fn a_container_lacks_what_the_quota_of_its_member_asks_of_every_container() {
        let hard = |names: &[&str]| {
            let entry = |name: &&str| ((*name).to_owned(), Quantity::new("1"));
            names.iter().map(entry).collect::<ResourceList>()
        };
        let deployment = |init: Value, own: Value| {
            json!({"kind": "Deployment", "spec": {"template": {"spec": {
                "initContainers": [{"name": "i", "resources": init}],
                "containers": [{"name": "c", "resources": own}],
            }}}})
        };
        let full = json!({"requests": {"cpu": "1"}, "limits": {"memory": "1Gi"}});
        let object = deployment(full.clone(), full.clone());
        assert_eq!(
            first_lack(&object, &hard(&["cpu", "requests.memory", "limits.memory", "pods"])),
            None
        );
        assert_eq!(
            first_lack(&object, &hard(&["limits.cpu"])).unwrap(),
            "container i has no resources.limits.cpu"
        );
        let object = deployment(full.clone(), json!({}));
        assert_eq!(
            first_lack(&object, &hard(&["memory"])).unwrap(),
            "container c has no resources.requests.memory"
        );
        assert_eq!(first_lack(&object, &hard(&["pods", "services"])), None);
        let pod = json!({"kind": "Pod", "spec": {"containers": [{"name": "c"}]}});
        assert!(first_lack(&pod, &hard(&["cpu"])).is_some());
        let job = json!({"spec": {"template": {"spec": {"containers": [{"name": "c"}]}}}});
        let cron = json!({"kind": "CronJob", "spec": {"jobTemplate": job}});
        assert!(first_lack(&cron, &hard(&["cpu"])).is_some());
        let config = json!({"kind": "ConfigMap"});
        assert_eq!(first_lack(&config, &hard(&["cpu"])), None);
    }
}
