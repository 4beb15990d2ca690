//! The conditions of FederatedResourceQuotas with `staticAssignments`.

use std::collections::{BTreeMap, BTreeSet};

use atoll_api::FederatedResourceQuota;
use atoll_api::conditions::Status;
use atoll_api::federated_resource_quota::StaticAssignment;
use atoll_api::quantity::{Quantity, ResourceList};
use atoll_api::static_assignment::{is_owned, name_of};
use kube::ResourceExt;
use serde_json::Value;

use super::binding::{MOST_NAMED, named, shorten};
use super::facts::Sources;
use crate::index::key::{KindRef, TemplateKey};
use crate::index::pod_resources::first_lack;

/// Longest name of a resource, prefix included, in the API of Kubernetes.
const LONGEST_NAME: usize = 317;

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
        let kind = KindRef::of("v1", "ResourceQuota");
        let template =
            name_of(&quota.name_any()).map(|name| TemplateKey::new(kind, Some(&namespace), &name));
        Self { sources, quota, namespace, template }
    }

    fn all(&self) -> &'a [StaticAssignment] {
        &self.quota.spec.static_assignments
    }

    /// What the ResourceQuota of a member reports: `status.hard` and `status.used`.
    pub(super) fn reported(&self, cluster: &str) -> (ResourceList, ResourceList) {
        let key = self.template.as_ref().map(TemplateKey::binding);
        let observed = key.and_then(|key| self.sources.placements.observed(&key, cluster));
        let status = observed.and_then(|observed| observed.status.value());
        let list =
            |field: &str| status.as_ref().map(|status| amounts(&status[field])).unwrap_or_default();
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
                template.name()
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
        let mut refused: Vec<String> = Vec::new();
        let mut more = 0;
        for facts in self.sources.hub.tables.bindings(&self.namespace) {
            let shares = facts.shares.iter().map(|share| share.name.as_str());
            let on: BTreeSet<&str> =
                shares.filter(|cluster| assigned.contains_key(cluster)).collect();
            let binding = index.binding(&facts.key);
            let row = binding.and_then(|binding| index.template(&binding.template));
            let Some(row) = row.filter(|row| !row.extract.lacks.is_empty()) else { continue };
            for cluster in
                on.into_iter().filter(|cluster| row.extract.lacks.refused_by(assigned[cluster]))
            {
                if refused.len() == MOST_NAMED {
                    more += 1;
                    continue;
                }
                // Only what is named is parsed.
                let lack = first_lack(&row.object(), assigned[cluster]).unwrap_or_default();
                let (kind, name) = (row.key.group_kind().kind, row.key.name());
                refused.push(format!("{kind} {name} on {cluster}: {lack}"));
            }
        }
        if refused.is_empty() {
            return (Status::True, "PodsAdmitted", String::new());
        }
        let message = format!(
            "members refuse pods without these, unless a LimitRange there sets them: {}",
            named(&refused, more)
        );
        (Status::False, "RequestsMissing", message)
    }
}

/// Amounts that a member reports. What is not a quantity is left out: the hub would refuse the whole status.
fn amounts(list: &Value) -> ResourceList {
    let entries = list.as_object().into_iter().flatten();
    let read = |(name, amount): (&String, &Value)| {
        let amount: Quantity = serde_json::from_value(amount.clone()).ok()?;
        (amount.milli().is_ok() && name.len() <= LONGEST_NAME).then(|| (name.clone(), amount))
    };
    entries.filter_map(read).take(64).collect()
}
