//! What requests and tables take from a binding.

use std::collections::BTreeMap;
use std::sync::Arc;

use atoll_api::binding::{
    AggregatedStatusItem, ResourceBindingStatus, ResourceHealth, TargetCluster,
};
use atoll_api::{ClusterName, ResourceBinding};

use crate::request::objects::Existing;
use crate::request::{Report, Template, has_ended};
use crate::state::affinity_group::memberships;
use crate::state::standing::Standing;
use crate::{BindingFacts, BindingKey};

/// A binding, as requests use it.
pub(super) fn existing(binding: &ResourceBinding) -> Existing<'_> {
    Existing::of(&binding.metadata, &binding.spec, binding.status.as_ref())
}

/// The facts about a binding that affect other decisions.
pub(super) fn facts(
    key: BindingKey,
    template: &Template,
    binding: &ResourceBinding,
) -> BindingFacts {
    let reported = reports(Some(binding)).into_iter().map(|(name, r)| (name, r.replicas)).collect();
    let shares: Vec<TargetCluster> = binding.spec.clusters.clone();
    let placement = binding.spec.placement.as_deref();
    BindingFacts {
        groups: placement.map_or_else(Arc::default, |p| memberships(p, &template.labels)),
        standing: Standing::read(&binding.spec, template.workload_policy.is_some()),
        key,
        pod_labels: Arc::new((&template.pod_labels).into()),
        requirements: template.requirements.clone(),
        components: template.components.clone().into(),
        shares,
        reported,
    }
}

/// The members' reports on a binding, from its status.
pub(super) fn reports(binding: Option<&ResourceBinding>) -> BTreeMap<ClusterName, Report> {
    let status: Option<&ResourceBindingStatus> = binding.and_then(|b| b.status.as_ref());
    let items = status.into_iter().flat_map(|status| &status.aggregated_status);
    items
        .filter(|item| item.replicas.is_some() || item.health != ResourceHealth::Unknown)
        .map(|item| (ClusterName::from(&item.cluster_name), report(item)))
        .collect()
}

fn report(item: &AggregatedStatusItem) -> Report {
    Report {
        replicas: item.replicas.unwrap_or(0),
        ready: item.ready_replicas.unwrap_or(0),
        unschedulable: item.unschedulable_replicas.unwrap_or(0),
        // The binding's status has no such time; a given WorkloadSpread's status does.
        unschedulable_since: None,
        healthy: match item.health {
            ResourceHealth::Healthy => Some(true),
            ResourceHealth::Unhealthy => Some(false),
            ResourceHealth::Unknown => None,
        },
        unhealthy_since: item.unhealthy_since.as_ref().map(|since| since.0),
        status: item.status.clone(),
        succeeded: 0,
        ended: item.status.as_ref().is_some_and(has_ended),
    }
}
