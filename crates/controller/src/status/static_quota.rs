//! The conditions of FederatedResourceQuotas with `staticAssignments`.

use std::collections::{BTreeMap, BTreeSet};

use atoll_api::FederatedResourceQuota;
use atoll_api::conditions::Status;
use atoll_api::federated_resource_quota::StaticAssignment;
use atoll_api::quantity::{Quantity, ResourceList};
use atoll_api::static_assignment::{is_owned, name_of};
use kube::ResourceExt;
use serde_json::Value;

use super::binding::shorten;
use super::facts::Sources;
use crate::index::key::{GroupKind, TemplateKey};

/// Limit of the workloads that one computation checks for requests: each is parsed.
const MOST_CHECKED: usize = 500;
/// What Kubernetes asks of every container under a quota with these names: `requests` or `limits`, and the resource.
const REQUIRED: [(&str, &str, &str); 6] = [
    ("cpu", "requests", "cpu"),
    ("requests.cpu", "requests", "cpu"),
    ("limits.cpu", "limits", "cpu"),
    ("memory", "requests", "memory"),
    ("requests.memory", "requests", "memory"),
    ("limits.memory", "limits", "memory"),
];

/// Status, reason and message of a condition.
pub(super) type Verdict = (Status, &'static str, String);

/// The assignments of a quota in the leader's state.
pub(super) struct Assignments<'a> {
    sources: Sources<'a>,
    quota: &'a FederatedResourceQuota,
    namespace: String,
    /// The ResourceQuota on the hub; `None` if its name would be too long.
    template: Option<TemplateKey>,
}

impl<'a> Assignments<'a> {
    pub(super) fn of(sources: Sources<'a>, quota: &'a FederatedResourceQuota) -> Self {
        let namespace = quota.namespace().unwrap_or_default();
        let template = name_of(&quota.name_any()).map(|name| TemplateKey {
            kind: GroupKind::of("v1", "ResourceQuota"),
            namespace: Some(namespace.clone()),
            name,
        });
        Self { sources, quota, namespace, template }
    }

    fn all(&self) -> &'a [StaticAssignment] {
        &self.quota.spec.static_assignments
    }

    /// What the ResourceQuota of a member reports: `status.hard` and `status.used`.
    pub(super) fn reported(&self, cluster: &str) -> (ResourceList, ResourceList) {
        let key = self.template.as_ref().map(TemplateKey::binding);
        let observed = key.and_then(|key| self.sources.placements.observed(&key, cluster));
        let status = observed.and_then(|observed| observed.item.status.as_ref());
        let list = |field: &str| status.map(|status| amounts(&status[field])).unwrap_or_default();
        (list("hard"), list("used"))
    }

    /// Whether every member holds its ResourceQuota.
    pub(super) fn assigned(&self) -> Verdict {
        let Some(template) = &self.template else {
            let message = "metadata.name is longer than 246 characters, so ResourceQuota static-NAME cannot be created: \
                           choose a shorter name";
            return (Status::False, "NameTooLong", message.to_owned());
        };
        if self.is_taken(template) {
            let message = format!(
                "ResourceQuota {} exists on the hub and does not belong to this quota: rename or delete it",
                template.name
            );
            return (Status::False, "NameTaken", message);
        }
        let index = &self.sources.hub.index;
        let (mut unknown, mut outside) = (Vec::new(), Vec::new());
        for StaticAssignment { cluster_name: cluster, .. } in self.all() {
            if index.cluster(cluster).is_none() {
                unknown.push(cluster.clone());
            } else if !index.may_use(Some(&self.namespace), cluster) {
                outside.push(cluster.clone());
            }
        }
        if !unknown.is_empty() {
            let message = format!(
                "no Cluster has the name of these spec.staticAssignments: {}. They take effect once it joins",
                shorten(&unknown)
            );
            return (Status::False, "UnknownCluster", message);
        }
        if !outside.is_empty() {
            let message = format!(
                "ClusterSets do not let namespace {} use these members of spec.staticAssignments: {}",
                self.namespace,
                shorten(&outside)
            );
            return (Status::False, "OutsideClusterSet", message);
        }
        let missing: Vec<String> =
            self.all().iter().filter_map(|entry| self.missing(template, entry)).collect();
        match missing.is_empty() {
            true => (Status::True, "Assigned", String::new()),
            false => (Status::False, "Pending", shorten(&missing)),
        }
    }

    /// Whether a ResourceQuota of another owner has the name.
    fn is_taken(&self, template: &TemplateKey) -> bool {
        let uid = self.quota.uid().unwrap_or_default();
        self.sources.hub.index.template(template).is_some_and(|row| {
            let owners = row.object()["metadata"]["ownerReferences"].clone();
            let owners: Vec<_> = serde_json::from_value(owners).unwrap_or_default();
            !is_owned(&owners, &self.quota.name_any(), &uid)
        })
    }

    /// Why a member does not hold its ResourceQuota yet.
    fn missing(&self, template: &TemplateKey, assignment: &StaticAssignment) -> Option<String> {
        let cluster = &assignment.cluster_name;
        let placements = self.sources.placements;
        let key = template.binding();
        let placement = placements.get(&key, cluster);
        let sent = placement.and_then(|placement| placement.sent.as_ref());
        let observed = placement.and_then(|placement| placement.observed.as_ref());
        let why = match (sent, observed) {
            (Some(sent), Some(observed)) if observed.holds(&sent.hash) => return None,
            (_, Some(observed)) => match &observed.trouble {
                Some(trouble) => format!("{}: {}", trouble.reason, trouble.message),
                None => "has not confirmed its ResourceQuota".to_owned(),
            },
            (Some(_), None) => "has not confirmed its ResourceQuota".to_owned(),
            (None, None) => self
                .render_error(template, cluster)
                .unwrap_or_else(|| "was not sent its ResourceQuota yet".to_owned()),
        };
        Some(format!("{cluster}: {why}"))
    }

    fn render_error(&self, template: &TemplateKey, cluster: &str) -> Option<String> {
        let key = template.binding();
        let mut errors = self.sources.placements.render_errors(&key);
        errors.find(|(name, _)| name.as_str() == cluster).map(|(_, why)| why.to_string())
    }

    /// Whether the assigned members admit the pods of the namespace's workloads.
    pub(super) fn pods_admitted(&self) -> Verdict {
        let assigned: BTreeMap<&str, &ResourceList> = self
            .all()
            .iter()
            .map(|assignment| (assignment.cluster_name.as_str(), &assignment.hard))
            .collect();
        let index = &self.sources.hub.index;
        let (mut refused, mut checked) = (Vec::new(), 0);
        for facts in self.sources.hub.tables.bindings(&self.namespace) {
            let shares = facts.shares.iter().map(|share| share.name.as_str());
            let on: BTreeSet<&str> =
                shares.filter(|cluster| assigned.contains_key(cluster)).collect();
            let template = index.binding(&facts.key).map(|binding| binding.template());
            let row = template.as_ref().and_then(|template| index.template(template));
            let Some(row) = row.filter(|_| !on.is_empty()) else { continue };
            if checked == MOST_CHECKED {
                break;
            }
            checked += 1;
            let object = row.object();
            for cluster in on {
                if let Some(lack) = lacks(&object, assigned[cluster]) {
                    let (kind, name) = (&row.key.kind.kind, &row.key.name);
                    refused.push(format!("{kind} {name} on {cluster}: {lack}"));
                }
            }
        }
        if refused.is_empty() {
            let message = match checked == MOST_CHECKED {
                true => format!("the first {MOST_CHECKED} workloads were checked"),
                false => String::new(),
            };
            return (Status::True, "PodsAdmitted", message);
        }
        let message = format!(
            "members refuse pods without these, unless a LimitRange there sets them: {}",
            shorten(&refused)
        );
        (Status::False, "RequestsMissing", message)
    }
}

/// The first container of an object's pods that lacks what a quota asks for. Limits count as requests, as on members.
fn lacks(object: &Value, hard: &ResourceList) -> Option<String> {
    let spec = match (object["kind"].as_str(), &object["spec"]) {
        (Some("Pod"), spec) => spec,
        (Some("CronJob"), spec) => &spec["jobTemplate"]["spec"]["template"]["spec"],
        (_, spec) => &spec["template"]["spec"],
    };
    let has = |resources: &Value, list: &str, resource: &str| {
        resources[list].get(resource).is_some()
            || (list == "requests" && resources["limits"].get(resource).is_some())
    };
    let lists = ["initContainers", "containers"];
    let containers = lists.iter().flat_map(|list| spec[*list].as_array().into_iter().flatten());
    let required = REQUIRED.iter().filter(|(name, ..)| hard.contains_key(*name));
    let required: Vec<_> = required.collect();
    for container in containers {
        for (_, list, resource) in &required {
            let (own, pod) = (&container["resources"], &spec["resources"]);
            if !has(own, list, resource) && !has(pod, list, resource) {
                let name = container["name"].as_str().unwrap_or_default();
                return Some(format!("container {name} has no resources.{list}.{resource}"));
            }
        }
    }
    None
}

/// Amounts that a member reports; what is not a quantity is left out.
fn amounts(list: &Value) -> ResourceList {
    let entries = list.as_object().into_iter().flatten();
    let read = |(name, amount): (&String, &Value)| {
        let amount: Quantity = serde_json::from_value(amount.clone()).ok()?;
        Some((name.clone(), amount))
    };
    entries.filter_map(read).take(64).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

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
            lacks(&object, &hard(&["cpu", "requests.memory", "limits.memory", "pods"])),
            None
        );
        assert_eq!(
            lacks(&object, &hard(&["limits.cpu"])).unwrap(),
            "container i has no resources.limits.cpu"
        );
        let object = deployment(full.clone(), json!({}));
        assert_eq!(
            lacks(&object, &hard(&["memory"])).unwrap(),
            "container c has no resources.requests.memory"
        );
        assert_eq!(lacks(&object, &hard(&["pods", "services"])), None);
        let pod = json!({"kind": "Pod", "spec": {"containers": [{"name": "c"}]}});
        assert!(lacks(&pod, &hard(&["cpu"])).is_some());
        let job = json!({"spec": {"template": {"spec": {"containers": [{"name": "c"}]}}}});
        let cron = json!({"kind": "CronJob", "spec": {"jobTemplate": job}});
        assert!(lacks(&cron, &hard(&["cpu"])).is_some());
        let config = json!({"kind": "ConfigMap"});
        assert_eq!(lacks(&config, &hard(&["cpu"])), None);
    }
}
