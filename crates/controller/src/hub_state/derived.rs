//! What the scheduler's tables are made from, besides clusters. Pure: plans derive the same from a copy of the tables.

use std::sync::Arc;

use atoll_api::placement::Placement;
use atoll_api::selector::Labelled;
use atoll_api::{ClusterName, Few, share_equal};
use atoll_scheduler::state::affinity_group::{Membership, memberships};
use atoll_scheduler::{BindingFacts, Standing, TableChange, Tables};

use crate::index::extract::Demand;
use crate::index::key::BindingKey;
use crate::index::{Index, Touched};

/// Brings the tables up to date with policies, spreads, quotas and ClusterSets.
pub(crate) fn refresh_rules(
    tables: &mut Tables,
    index: &Index,
    touched: &Touched,
) -> Vec<TableChange> {
    let mut changes = Vec::new();
    for key in &touched.rows.workload_policies {
        changes.extend(match index.workload_policy(key) {
            Some(policy) => tables.upsert_workload_policy(policy),
            None => tables.remove_workload_policy(&key.0, &key.1),
        });
    }
    for key in &touched.rows.spreads {
        changes.extend(match index.spread(key) {
            Some(spread) => tables.upsert_workload_spread(spread),
            None => tables.remove_workload_spread(&key.0, &key.1),
        });
    }
    for key in &touched.tenancy.quotas {
        changes.extend(match index.quota(key) {
            Some(quota) => tables.upsert_quota(quota),
            None => tables.remove_quota(&key.0, &key.1),
        });
    }
    if touched.tenancy.rules {
        changes.extend(tables.set_cluster_sets(index.cluster_rules().clone()));
    }
    changes
}

/// Brings the tables up to date with a binding; `reported` is what members run of it.
pub(crate) fn refresh_binding(
    tables: &mut Tables,
    index: &Index,
    key: &BindingKey,
    reported: Few<ClusterName, i64>,
) -> Vec<TableChange> {
    let Some(binding) = index.binding(key) else {
        return tables.remove_binding(key);
    };
    if index.refusal(binding).is_some() {
        return tables.remove_binding(key); // a refused binding takes no capacity
    }
    let template = index.template(&binding.template);
    let (pod_labels, mut demand) = match template {
        Some(template) => {
            (template.extract.pod_labels.clone(), index.demand(template, Some(binding)))
        }
        None => (
            Arc::default(),
            Demand {
                replicas: None,
                requirements: binding.spec.replica_requirements.clone(),
                components: binding.spec.components.clone(),
            },
        ),
    };
    share_equal(&mut demand.requirements, &binding.spec.replica_requirements);
    let placement = binding.spec.placement.as_deref();
    let groups =
        placement.zip(template).map(|(placement, template)| groups_of(placement, &template.labels));
    let steered = template.is_some_and(|template| template.extract.workload_policy.is_some());
    tables.upsert_binding(BindingFacts {
        key: key.clone(),
        pod_labels,
        requirements: demand.requirements,
        components: demand.components.into(),
        groups: groups.unwrap_or_default(),
        standing: Standing::read(&binding.spec, steered),
        shares: binding.spec.clusters.clone(),
        reported,
    })
}

/// The groups for `placement.workloadAffinity` that an object belongs to under a placement.
pub(crate) fn groups_of(placement: &Placement, labels: &impl Labelled) -> Arc<[Membership]> {
    if placement.workload_affinity.is_none() {
        return Arc::default();
    }
    memberships(placement, labels)
}
