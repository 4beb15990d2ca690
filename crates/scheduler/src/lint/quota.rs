//! Checks FederatedResourceQuotas: no decision increases the use of a namespace beyond one.

use std::collections::BTreeMap;

use atoll_api::binding::{Component, ReplicaRequirements, TargetCluster};

use super::check::Check;

/// Amounts by resource: `cpu` in thousandths, everything else in whole units.
type Amounts = BTreeMap<String, i128>;

impl Check<'_> {
    /// The use after the decision is within every quota, or not above the use before it.
    pub(super) fn quota(&mut self) {
        let namespace = self.request.key.namespace().unwrap_or_default();
        let Some(quotas) = self.snapshot.quotas(namespace) else { return };
        let template = &self.request.template;
        let use_of = |shares: &[TargetCluster]| {
            uses(shares, template.requirements.as_deref(), &template.components)
        };
        let (before, after) = (use_of(&self.decision.before), use_of(&self.decision.after));
        let (mut others, mut all) = (Amounts::new(), Amounts::new());
        for facts in self.snapshot.bindings(namespace) {
            let used = uses(&facts.shares, facts.requirements.as_deref(), &facts.components);
            add(&mut all, &used);
            if facts.key != self.request.key {
                add(&mut others, &used);
            }
        }
        let of = |amounts: &Amounts, resource: &str| amounts.get(resource).copied().unwrap_or(0);
        let mut faults = Vec::new();
        for (name, overall) in quotas.overall() {
            for (resource, hard) in overall {
                let (was, is) = (of(&before, resource), of(&after, resource));
                let total = of(&others, resource) + is;
                if is > was && total > i128::from(*hard) {
                    faults
                        .push(format!("{name}: {total} {resource} of {hard}, from {was} to {is}"));
                }
            }
        }
        for resource in all.keys() {
            let (counted, kept) = (of(&all, resource), quotas.used(resource));
            if counted != kept {
                faults.push(format!("{kept} {resource} are booked, {counted} are used"));
            }
        }
        faults.into_iter().for_each(|what| self.fault("quota", what));
    }

    /// Whether a quota does not allow that every share is the desired number.
    pub(super) fn is_short_of_quota(&self) -> bool {
        let namespace = self.request.key.namespace().unwrap_or_default();
        let Some(quotas) = self.snapshot.quotas(namespace) else { return false };
        let template = &self.request.template;
        let desired = self.decision.desired.unwrap_or(0);
        let full: Vec<TargetCluster> = self
            .after
            .keys()
            .map(|name| TargetCluster { name: (*name).to_owned(), replicas: desired })
            .collect();
        let wanted = uses(&full, template.requirements.as_deref(), &template.components);
        let mut others = Amounts::new();
        for facts in self.snapshot.bindings(namespace).filter(|f| f.key != self.request.key) {
            add(
                &mut others,
                &uses(&facts.shares, facts.requirements.as_deref(), &facts.components),
            );
        }
        let mut limits = quotas.overall().flat_map(|(_, overall)| overall);
        limits.any(|(resource, hard)| {
            let of = |amounts: &Amounts| amounts.get(resource).copied().unwrap_or(0);
            of(&wanted) > 0 && of(&wanted) + of(&others) > i128::from(*hard)
        })
    }
}

fn uses(
    shares: &[TargetCluster],
    requirements: Option<&ReplicaRequirements>,
    components: &[Component],
) -> Amounts {
    let mut total = Amounts::new();
    let mut count = |requirements: Option<&ReplicaRequirements>, replicas: i128| {
        if replicas <= 0 {
            return;
        }
        *total.entry("pods".to_owned()).or_default() += replicas;
        let requests = requirements.into_iter().flat_map(|given| &given.resource_request);
        for (resource, quantity) in requests.filter(|(resource, _)| *resource != "pods") {
            let value = if resource == "cpu" { quantity.milli() } else { quantity.units() };
            *total.entry(resource.clone()).or_default() += value.unwrap_or(0) * replicas;
        }
    };
    if components.is_empty() {
        count(requirements, shares.iter().map(|share| i128::from(share.replicas)).sum());
    }
    for component in components {
        let replicas = i128::from(component.replicas) * shares.len() as i128;
        count(component.replica_requirements.as_ref(), replicas);
    }
    total.retain(|_, value| *value != 0);
    total
}

fn add(sums: &mut Amounts, other: &Amounts) {
    for (resource, value) in other {
        *sums.entry(resource.clone()).or_default() += value;
    }
}
