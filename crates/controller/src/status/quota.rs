//! The status of FederatedResourceQuotas.

use std::collections::BTreeMap;

use atoll_api::FederatedResourceQuota;
use atoll_api::conditions::{self, ACCEPTED, ASSIGNED, PODS_ADMITTED, Status};
use atoll_api::federated_resource_quota::{
    ClusterQuotaStatus, FederatedResourceQuotaStatus, MAX_MEMBERS, counted_resource,
};
use atoll_api::quantity::{Quantity, ResourceList};
use atoll_scheduler::lint_policy;
use atoll_scheduler::state::quotas::{Sums, add, use_on_each};
use jiff::Timestamp;

use super::binding::shorten;
use super::facts::Sources;
use super::static_quota::Assignments;

/// The desired status of a FederatedResourceQuota.
#[must_use]
pub(crate) fn status(
    sources: Sources<'_>,
    quota: &FederatedResourceQuota,
    now: Timestamp,
) -> FederatedResourceQuotaStatus {
    let before = quota.status.clone().unwrap_or_default();
    let generation = quota.metadata.generation;
    let spec = &quota.spec;
    let namespace = quota.metadata.namespace.as_deref().unwrap_or_default();
    let mut by_member: BTreeMap<&str, Sums> = BTreeMap::new();
    let assigned: BTreeMap<&str, &ResourceList> = spec
        .static_assignments
        .iter()
        .map(|assignment| (assignment.cluster_name.as_str(), &assignment.hard))
        .collect();
    by_member.extend(assigned.keys().map(|cluster| (*cluster, Sums::new())));
    let assignments = Assignments::of(sources, quota);
    let mut total = Sums::new();
    for (cluster, used) in
        sources.hub.tables.bindings(namespace).flat_map(|facts| use_on_each(facts))
    {
        add(&mut total, &used, 1);
        add(by_member.entry(cluster).or_default(), &used, 1);
    }
    let members = by_member.len();
    let each = by_member.into_iter().take(MAX_MEMBERS);
    let aggregated_status = each.map(|(name, used)| {
        let own = assigned.get(name);
        let (hard, member_used) = own.map(|_| assignments.reported(name)).unwrap_or_default();
        let names = spec.overall.keys().chain(own.into_iter().flat_map(|hard| hard.keys()));
        let used = amounts(names, &used);
        ClusterQuotaStatus { cluster_name: name.to_owned(), used, hard, member_used }
    });
    let findings = lint_policy::quota("", &quota.spec);
    let problems: Vec<String> = findings.iter().map(ToString::to_string).collect();
    let (holds, reason, mut message) = match problems.is_empty() {
        true => (Status::True, "Accepted", String::new()),
        false => (Status::False, "Invalid", shorten(&problems)),
    };
    if problems.is_empty() && members > MAX_MEMBERS {
        message = format!("aggregatedStatus has {MAX_MEMBERS} of {members} members");
    }
    let mut conditions = before.conditions;
    match assigned.is_empty() {
        true => conditions.retain(|held| ![ASSIGNED, PODS_ADMITTED].contains(&&*held.type_)),
        false => {
            for (kind, (holds, reason, message)) in
                [(ASSIGNED, assignments.assigned()), (PODS_ADMITTED, assignments.pods_admitted())]
            {
                conditions::set(&mut conditions, kind, holds, reason, &message, generation, now);
            }
        }
    }
    conditions::set(&mut conditions, ACCEPTED, holds, reason, &message, generation, now);
    FederatedResourceQuotaStatus {
        observed_generation: generation,
        conditions,
        overall: spec.overall.clone(),
        overall_used: amounts(spec.overall.keys(), &total),
        aggregated_status: aggregated_status.collect(),
    }
}

/// The use of the resources that these names limit.
fn amounts<'a>(names: impl Iterator<Item = &'a String>, used: &Sums) -> ResourceList {
    let of = |name: &String| {
        let resource = counted_resource(name)?;
        let amount = used.get(resource).copied().unwrap_or(0);
        Some((name.clone(), Quantity::of_resource(resource, amount)))
    };
    names.filter_map(of).collect()
}
