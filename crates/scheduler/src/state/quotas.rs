//! The FederatedResourceQuotas of a namespace, and what its workloads use.
//!
//! Kept only for namespaces that have a quota. The use is exact: it changes with every share that is booked, before the
//! next decision is made.

use std::collections::BTreeMap;
use std::sync::Arc;

use atoll_api::FederatedResourceQuota;
use atoll_api::binding::TargetCluster;
use atoll_api::federated_resource_quota::counted_resource;
use serde::{Deserialize, Serialize};

use super::needs::{Amounts, Needs, PODS, amount};
use super::tables::BindingFacts;

/// Amounts that may be sums over many workloads and clusters, in the units of [`Amounts`].
pub type Sums = BTreeMap<String, i128>;

/// The limit of a resource.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limit {
    /// Most that may be used.
    pub hard: i64,
    /// The quota that sets it.
    pub quota: Arc<str>,
}

/// The quotas of a namespace.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Quotas {
    /// `spec.overall` of each, by name of the quota.
    overall: BTreeMap<Arc<str>, Amounts>,
    /// The lowest limit of each resource.
    limits: BTreeMap<String, Limit>,
    /// What all workloads of the namespace use, also of resources without a limit.
    used: Sums,
}

/// [`Quotas`] as data. Sums are texts, because JSON readers have no numbers of 128 bits.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct StoredQuotas {
    overall: BTreeMap<String, Amounts>,
    used: BTreeMap<String, String>,
}

impl From<&Quotas> for StoredQuotas {
    fn from(quotas: &Quotas) -> Self {
        let overall = quotas.overall().map(|(name, amounts)| (name.to_owned(), amounts.clone()));
        let used = quotas.used.iter().map(|(resource, sum)| (resource.clone(), sum.to_string()));
        Self { overall: overall.collect(), used: used.collect() }
    }
}

impl StoredQuotas {
    /// The quotas.
    ///
    /// # Errors
    /// The resource whose sum is not a number.
    pub fn read(self) -> Result<Quotas, String> {
        let mut quotas = Quotas::default();
        for (name, amounts) in self.overall {
            quotas.overall.insert(name.into(), amounts);
        }
        for (resource, sum) in self.used {
            let sum = sum.parse().map_err(|error| format!("used.{resource}: {error}"))?;
            quotas.used.insert(resource, sum);
        }
        quotas.settle();
        Ok(quotas)
    }
}

impl Quotas {
    /// Adds or updates a quota. An amount that is negative or cannot be read counts as 0: until it is repaired, nothing
    /// grows.
    pub(super) fn upsert(&mut self, name: &str, quota: &FederatedResourceQuota) {
        let overall = quota.spec.overall.iter().filter_map(|(name, quantity)| {
            let resource = counted_resource(name)?;
            Some((resource.to_owned(), amount(resource, quantity).unwrap_or(0).max(0)))
        });
        let mut amounts = Amounts::new();
        for (resource, hard) in overall {
            // `cpu` and `requests.cpu` limit the same.
            let least = amounts.entry(resource).or_insert(hard);
            *least = hard.min(*least);
        }
        self.overall.insert(name.into(), amounts);
        self.settle();
    }

    /// Removes a quota.
    pub(super) fn remove(&mut self, name: &str) {
        self.overall.remove(name);
        self.settle();
    }

    fn settle(&mut self) {
        self.limits.clear();
        for (quota, amounts) in &self.overall {
            for (resource, hard) in amounts {
                let lower = self.limits.get(resource).is_none_or(|limit| *hard < limit.hard);
                if lower {
                    let limit = Limit { hard: *hard, quota: quota.clone() };
                    self.limits.insert(resource.clone(), limit);
                }
            }
        }
    }

    /// Whether there are no quotas.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.overall.is_empty()
    }

    /// `spec.overall` of each quota, by name, in the scheduler's units.
    pub fn overall(&self) -> impl Iterator<Item = (&str, &Amounts)> {
        self.overall.iter().map(|(name, amounts)| (&**name, amounts))
    }

    /// The limits, by resource.
    #[must_use]
    pub fn limits(&self) -> &BTreeMap<String, Limit> {
        &self.limits
    }

    /// What the workloads of the namespace use of a resource.
    #[must_use]
    pub fn used(&self, resource: &str) -> i128 {
        self.used.get(resource).copied().unwrap_or(0)
    }

    /// What is left of each limited resource; negative where more is used.
    #[must_use]
    pub fn free(&self) -> Sums {
        let left = |(resource, limit): (&String, &Limit)| {
            (resource.clone(), i128::from(limit.hard) - self.used(resource))
        };
        self.limits.iter().map(left).collect()
    }

    /// Replaces the use by that of these bindings.
    pub(super) fn recount<'a>(&mut self, bindings: impl Iterator<Item = &'a Arc<BindingFacts>>) {
        self.used.clear();
        for facts in bindings {
            add(&mut self.used, &use_of(facts), 1);
        }
    }

    /// Updates the use from a binding's old facts to its new ones. Returns whether it changed, and whether the use of
    /// some resource fell.
    pub(super) fn book(
        &mut self,
        old: Option<&BindingFacts>,
        new: Option<&BindingFacts>,
    ) -> Option<bool> {
        let same = |(old, new): (&BindingFacts, &BindingFacts)| {
            old.shares == new.shares
                && old.requirements == new.requirements
                && old.components == new.components
        };
        if old.zip(new).is_some_and(same) {
            return None;
        }
        let mut change = new.map(use_of).unwrap_or_default();
        add(&mut change, &old.map(use_of).unwrap_or_default(), -1);
        if change.is_empty() {
            return None;
        }
        add(&mut self.used, &change, 1);
        Some(change.values().any(|value| *value < 0))
    }
}

/// Adds amounts, or subtracts them with the sign -1.
pub fn add(sums: &mut Sums, other: &Sums, sign: i128) {
    for (resource, value) in other {
        let sum = sums.entry(resource.clone()).or_default();
        *sum = sum.saturating_add(value.saturating_mul(sign));
    }
    sums.retain(|_, sum| *sum != 0);
}

/// What the shares of a binding use. Replicas that an eviction task keeps are not counted.
#[must_use]
pub fn use_of(facts: &BindingFacts) -> Sums {
    let replicas = facts.shares.iter().map(|share| i128::from(share.replicas.max(0))).sum();
    let mut sums = Sums::new();
    if facts.components.is_empty() {
        // Scheduling the binding reports unreadable requirements. Here such a binding uses only pods.
        count(&mut sums, &Needs::read(facts.requirements.as_deref()).unwrap_or_default(), replicas);
        return sums;
    }
    for component in facts.components.iter() {
        let needs = Needs::read(component.replica_requirements.as_ref()).unwrap_or_default();
        let sets = facts.shares.len() as i128;
        count(&mut sums, &needs, sets.saturating_mul(component.replicas.max(0).into()));
    }
    sums
}

/// What each share of a binding uses, by cluster.
pub fn use_on_each(facts: &BindingFacts) -> impl Iterator<Item = (&str, Sums)> {
    let each = |replicas: i64| {
        let share = TargetCluster { name: String::new(), replicas };
        use_of(&BindingFacts {
            shares: vec![share],
            requirements: facts.requirements.clone(),
            components: facts.components.clone(),
            ..BindingFacts::default()
        })
    };
    facts.shares.iter().map(move |share| (share.name.as_str(), each(share.replicas)))
}

fn count(sums: &mut Sums, needs: &Needs, replicas: i128) {
    if replicas == 0 {
        return;
    }
    let each = needs.requests.iter().map(|(resource, request)| (resource.as_str(), *request));
    for (resource, request) in each.chain([(PODS, 1)]) {
        let sum = sums.entry(resource.to_owned()).or_default();
        *sum = sum.saturating_add(replicas.saturating_mul(request.into()));
    }
}
