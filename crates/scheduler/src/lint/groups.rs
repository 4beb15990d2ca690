//! Rules on groups of clusters: bounds, spread constraints, skew, targets of a WorkloadPolicy, limits of a WorkloadSpread.

use std::collections::{BTreeMap, BTreeSet};

use atoll_api::binding::{Mode, Trigger};
use atoll_api::placement::{InclusionPolicy, SpreadField, WhenUnsatisfiable};
use atoll_api::selector::Selector;
use atoll_api::workload_policy::AllocationType;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use super::candidates::chooses;
use super::check::{Check, subset_of};

impl Check<'_> {
    /// Bounds of replicaScheduling.
    pub(super) fn bounds(&mut self) {
        if self.still || self.steered() || !self.divided() || self.karmada {
            return;
        }
        let given = self.request.placement.replica_scheduling.as_ref();
        for bound in given.iter().flat_map(|given| &given.bounds) {
            let sum = |shares: &BTreeMap<&str, i64>| -> i64 {
                let members = shares.iter().filter(|(name, _)| {
                    self.rows.get(**name).is_some_and(|row| chooses(&bound.target_cluster, row))
                });
                members.map(|(_, replicas)| *replicas).sum()
            };
            let (before, after) = (sum(&self.before), sum(&self.after));
            if bound.max.is_some_and(|max| after > max && after > before) {
                self.fault("bounds", format!("{after} replicas are above max {:?}", bound.max));
            }
            let enough = self.decision.pending.is_empty() && self.decision.mode != Mode::Steady;
            let desired = self.decision.desired.unwrap_or(0);
            if enough && desired > 0 && bound.min.is_some_and(|min| after < min) {
                self.fault("bounds", format!("{after} replicas are below min {:?}", bound.min));
            }
        }
    }

    /// Spread constraints and skew.
    pub(super) fn groups(&mut self) {
        if self.still || self.karmada || self.decision.desired.is_none() {
            return;
        }
        let placed: i64 = self.after.values().filter(|replicas| **replicas > 0).count() as i64;
        for constraint in &self.request.placement.spread_constraints.clone() {
            let groups: BTreeSet<String> = self
                .after
                .iter()
                .filter(|(_, replicas)| **replicas > 0)
                .filter_map(|(name, _)| {
                    let row = self.rows.get(name)?;
                    match constraint.spread_by_field {
                        Some(SpreadField::Cluster) => Some((*name).to_owned()),
                        Some(SpreadField::Region) => row.region.clone(),
                        Some(SpreadField::Provider) => row.provider.clone(),
                        Some(SpreadField::Zone) => Some(row.zones.join("+")),
                        None => row.labels.get(constraint.spread_by_label.as_ref()?).cloned(),
                    }
                })
                .collect();
            let used = groups.len() as i64;
            let max = constraint.max_groups.unwrap_or(0);
            let scratch =
                self.decision.mode != Mode::Steady || self.decision.trigger == Trigger::First;
            if max > 0 && used > max && scratch {
                self.fault("spread", format!("{used} groups are above maxGroups {max}"));
            }
            let total: i64 = self.after.values().sum();
            let least = constraint.min_groups.unwrap_or(0).min(total).min(placed.max(total));
            let soft = self.request.placement.topology_spread_constraints.is_empty();
            let all = self.decision.pending.is_empty();
            if self.divided() && scratch && soft && all && used < least {
                self.fault("spread", format!("{used} groups are below minGroups {least}"));
            }
        }
        self.skew();
    }

    fn skew(&mut self) {
        if !self.divided() {
            return;
        }
        for constraint in &self.request.placement.topology_spread_constraints.clone() {
            let hard = constraint.when_unsatisfiable == WhenUnsatisfiable::DoNotSchedule;
            let scratch =
                self.decision.trigger == Trigger::First || self.decision.mode == Mode::Fresh;
            let simple = constraint.label_selector.is_none()
                && constraint.cluster_taints_policy == InclusionPolicy::Ignore
                && constraint.count_full_domains
                && self.request.placement.cluster_affinities.is_none();
            if !hard || !scratch || !simple {
                continue;
            }
            // Honor, the default: clusters outside the placement form no domains.
            let honored = self
                .request
                .placement
                .cluster_affinity
                .as_ref()
                .filter(|_| constraint.cluster_affinity_policy == InclusionPolicy::Honor);
            let mut domains: BTreeMap<String, i64> = BTreeMap::new();
            for (name, row) in &self.rows {
                if honored.is_some_and(|affinity| !chooses(affinity, row)) {
                    continue;
                }
                if let Some(domain) = row.domain(&constraint.topology_key) {
                    let share = self.after.get(name).copied().unwrap_or(0);
                    *domains.entry(domain.into_owned()).or_default() += share;
                }
            }
            let few = constraint.min_domains.is_some_and(|min| (domains.len() as i64) < min);
            let low = if few { 0 } else { domains.values().copied().min().unwrap_or(0) };
            let high = domains.values().copied().max().unwrap_or(0);
            if high - low > constraint.max_skew {
                self.fault("skew", format!("{} over {}", high - low, constraint.topology_key));
            }
        }
    }

    /// Targets of a Required WorkloadPolicy and limits of a WorkloadSpread.
    pub(super) fn targets(&mut self) {
        if self.still || self.karmada || self.decision.desired.is_none() {
            return;
        }
        let template = &self.request.template;
        let namespace = template.namespace.as_deref().unwrap_or_default();
        if let Some(spread) = self.spread() {
            let mut sums: Vec<(i64, i64)> = vec![(0, 0); spread.spec.subsets.len()];
            for (name, row) in &self.rows {
                if let Some(at) = subset_of(spread, row) {
                    sums[at].0 += self.before.get(name).copied().unwrap_or(0);
                    sums[at].1 += self.after.get(name).copied().unwrap_or(0);
                }
            }
            for (at, (before, after)) in sums.into_iter().enumerate() {
                let sharing = spread.spec.sharing(at);
                let numbers = sharing.iter().map(|subset| match subset.max_replicas {
                    Some(IntOrString::Int(max)) => Some(i64::from(max)),
                    _ => None,
                });
                let Some(max) = numbers.sum::<Option<i64>>() else { continue };
                let subset = &spread.spec.subsets[at];
                if after > max && after > before {
                    self.fault("limit", format!("subset {} grew to {after} of {max}", subset.name));
                }
            }
            return;
        }
        let Some(name) = &template.workload_policy else { return };
        let Some(policy) = self.snapshot.workload_policy(namespace, name) else { return };
        if policy.spec.allocation_type != AllocationType::Required {
            return;
        }
        let Ok(selector) = Selector::parse(&policy.spec.label_selector) else { return };
        let listed: BTreeMap<String, i64> = policy
            .spec
            .allocation_policy
            .iter()
            .map(|domain| (domain.name.clone(), domain.replicas))
            .collect();
        let (mut before, mut after): (BTreeMap<String, i64>, BTreeMap<String, i64>) =
            Default::default();
        let key = policy.spec.topology_key.clone();
        let domain = |name: &str| {
            let row = self.rows.get(name)?;
            Some(row.domain(&key)?.into_owned())
        };
        for (sums, shares) in [(&mut before, &self.before), (&mut after, &self.after)] {
            for (name, replicas) in shares {
                if let Some(domain) = domain(name) {
                    *sums.entry(domain).or_default() += replicas;
                }
            }
            for facts in self.snapshot.bindings(namespace) {
                if facts.key == self.request.key || !selector.matches(&facts.pod_labels) {
                    continue;
                }
                for share in &facts.shares {
                    if let Some(domain) = domain(&share.name) {
                        *sums.entry(domain).or_default() += share.replicas;
                    }
                }
            }
        }
        for (domain, now) in after {
            let was = before.get(&domain).copied().unwrap_or(0);
            if now > was && listed.get(&domain).is_none_or(|target| now > *target) {
                self.fault(
                    "target",
                    format!("{domain} grew to {now} of {:?}", listed.get(&domain)),
                );
            }
        }
    }
}
