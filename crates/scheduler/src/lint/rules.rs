//! The rules of the linter.

use std::collections::{BTreeMap, BTreeSet};

use atoll_api::binding::{Mode, Outcome, Trigger};
use atoll_api::placement::{
    ClusterAffinity, ClusterField, FieldOperator, InclusionPolicy, ReplicaSchedulingType,
    SpreadField, WhenUnsatisfiable,
};
use atoll_api::policy::PurgeMode;
use atoll_api::selector::Selector;
use atoll_api::workload_policy::AllocationType;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use super::Fault;
use crate::decision::{Decision, Standing};
use crate::request::Request;
use crate::state::row::Row;
use crate::state::snapshot::Snapshot;

pub(super) struct Check<'a> {
    snapshot: &'a Snapshot,
    request: &'a Request,
    decision: &'a Decision,
    rows: BTreeMap<&'a str, &'a Row>,
    before: BTreeMap<&'a str, i64>,
    after: BTreeMap<&'a str, i64>,
    /// Whether nothing was to move: failures, and decisions that only note something.
    still: bool,
    karmada: bool,
    pub(super) faults: Vec<Fault>,
}

impl<'a> Check<'a> {
    pub(super) fn new(
        snapshot: &'a Snapshot,
        request: &'a Request,
        decision: &'a Decision,
    ) -> Self {
        let rows = snapshot.rows().map(|(_, row)| (&*row.name, &**row)).collect();
        let shares = |list: &'a [atoll_api::binding::TargetCluster]| -> BTreeMap<&'a str, i64> {
            list.iter().map(|t| (t.name.as_str(), t.replicas)).collect()
        };
        let (before, after) = (shares(&decision.before), shares(&decision.after));
        let sum = |shares: &BTreeMap<&str, i64>| shares.values().sum::<i64>();
        // A decision without a result takes back what is asked for no more, and nothing else.
        let only_shrinks = sum(&before) > decision.desired.unwrap_or(0)
            && sum(&after) > 0
            && after.iter().all(|(name, n)| before.get(name).is_some_and(|was| n <= was));
        let failed = matches!(
            decision.outcome,
            Outcome::NoFit | Outcome::FailoverInfeasible | Outcome::Invalid
        ) || (decision.outcome == Outcome::Unschedulable
            && (before == after || only_shrinks));
        let still = failed || matches!(decision.trigger, Trigger::Avoid | Trigger::EvictionDone);
        Self {
            snapshot,
            request,
            decision,
            rows,
            before,
            after,
            still,
            karmada: decision.profile == "karmada",
            faults: Vec::new(),
        }
    }

    fn fault(&mut self, rule: &'static str, what: impl Into<String>) {
        self.faults.push(Fault { rule, what: what.into() });
    }

    fn duplicated(&self) -> bool {
        let plain = match &self.request.placement.replica_scheduling {
            None => true,
            Some(given) => given.replica_scheduling_type == ReplicaSchedulingType::Duplicated,
        };
        plain && !self.steered()
    }

    /// Whether a WorkloadPolicy or WorkloadSpread divides.
    fn steered(&self) -> bool {
        let template = &self.request.template;
        let namespace = template.namespace.as_deref().unwrap_or_default();
        !self.karmada
            && (template.workload_policy.is_some()
                || self
                    .snapshot
                    .workload_spread(namespace, template.group(), &template.kind, &template.name)
                    .is_some())
    }

    fn divided(&self) -> bool {
        self.decision.desired.is_some() && !self.duplicated()
    }

    /// Whether what is on a cluster may be there although newcomers may not: it does not grow.
    fn did_not_grow(&self, name: &str) -> bool {
        let after = self.after.get(name).copied().unwrap_or(0);
        self.before.get(name).is_some_and(|before| after <= *before || self.duplicated())
    }

    /// I2: one share a cluster, none below zero, none on a cluster that is not there.
    pub(super) fn shares(&mut self) {
        if self.after.len() != self.decision.after.len() {
            self.fault("I2", "a cluster has two shares");
        }
        for (name, replicas) in self.after.clone() {
            if replicas < 0 {
                self.fault("I2", format!("{name} has {replicas} replicas"));
            }
            if !self.rows.contains_key(name) && !self.still {
                self.fault("I8", format!("{name} is no cluster"));
            }
        }
    }

    /// I1: shares and pending add up to what is asked for, however the decision ended; Duplicated gives everybody all.
    pub(super) fn conservation(&mut self) {
        let Some(desired) = self.decision.desired else { return };
        let quiet = matches!(self.decision.trigger, Trigger::Avoid | Trigger::EvictionDone);
        let invalid = self.decision.outcome == Outcome::Invalid;
        if quiet || (invalid && !self.was_divided(desired)) {
            return;
        }
        if self.duplicated() {
            let moot = invalid || self.karmada && self.still;
            if !moot && self.after.values().any(|replicas| *replicas != desired) {
                self.fault("I1", format!("Duplicated, but not every share is {desired}"));
            }
            return;
        }
        let job = self.request.template.kind == "Job";
        let placed: i64 = self.after.values().sum();
        let total = placed + self.decision.pending_replicas();
        // Karmada keeps what runs when there is no result.
        let kept = self.karmada && self.still && placed > desired;
        if total != desired && !kept && !job {
            self.fault("I1", format!("{placed} placed + pending = {total}, asked for {desired}"));
        }
    }

    /// Whether a request that cannot be read was divided by the last decision, and asks for a number that makes sense.
    fn was_divided(&self, desired: i64) -> bool {
        let Some(previous) = &self.request.previous else { return false };
        let Some(record) = &previous.decision else { return false };
        let accounted = self.before.values().sum::<i64>() + previous.pending();
        accounted == record.desired && (0..=i64::from(i32::MAX)).contains(&desired)
    }

    /// I6: what need not move does not.
    pub(super) fn movement(&mut self) {
        let quiet = matches!(self.decision.trigger, Trigger::Avoid | Trigger::EvictionDone);
        // Another number is followed also where nothing else moves.
        let desired = self.decision.desired.unwrap_or(0);
        let follows = if self.duplicated() {
            self.after.keys().eq(self.before.keys()) && self.after.values().all(|n| *n == desired)
        } else {
            self.before.values().sum::<i64>() > desired
                && self.after.keys().all(|name| self.did_not_grow(name))
        };
        let follows = follows && !quiet;
        if (quiet || self.still) && self.before != self.after && !self.karmada && !follows {
            self.fault("I6", "nothing was to move, and something did");
        }
        let steady = self.decision.mode == Mode::Steady && self.divided() && !self.karmada;
        if !steady || self.still {
            return;
        }
        if matches!(self.decision.trigger, Trigger::Failover | Trigger::ApplicationFailure) {
            // A lost cluster moves only its own: whoever is not rejected loses nothing.
            for (name, before) in self.before.clone() {
                let refused = self.decision.verdict(name).is_some_and(|(verdict, _)| {
                    matches!(verdict.standing, Standing::Refused | Standing::Gone)
                });
                let after = self.after.get(name).copied().unwrap_or(0);
                let fewer = self.before.values().sum::<i64>() > self.decision.desired.unwrap_or(0);
                if !refused && after < before && !fewer {
                    self.fault("I6", format!("{name} went from {before} to {after} in a failover"));
                }
            }
        }
        if self.decision.trigger == Trigger::Scale {
            let sum = |shares: &BTreeMap<&str, i64>| shares.values().sum::<i64>();
            let (old, new) = (sum(&self.before), sum(&self.after));
            let (mut up, mut down) = (0, 0);
            let names: BTreeSet<&str> =
                self.before.keys().chain(self.after.keys()).copied().collect();
            for name in names {
                let lost = self.decision.verdict(name).is_some_and(|(verdict, _)| {
                    matches!(verdict.standing, Standing::Refused | Standing::Gone)
                });
                let of = |shares: &BTreeMap<&str, i64>| shares.get(name).copied().unwrap_or(0);
                let change = of(&self.after) - of(&self.before);
                if change > 0 {
                    up += change;
                } else if !lost {
                    down -= change;
                }
            }
            if new > old && down > 0 {
                self.fault("I6", format!("scaling up took {down} replicas away"));
            }
            if new < old && up > 0 && self.lost() == 0 {
                self.fault("I6", format!("scaling down gave {up} replicas"));
            }
        }
    }

    fn lost(&self) -> i64 {
        let lost = self.before.iter().filter(|(name, _)| {
            self.decision.verdict(name).is_none_or(|(verdict, _)| {
                matches!(verdict.standing, Standing::Refused | Standing::Gone)
            })
        });
        lost.map(|(_, replicas)| *replicas).sum()
    }

    /// I8: every cluster with a share satisfies the placement, or is kept and says which rule it fails.
    pub(super) fn candidates(&mut self) {
        if self.still || self.karmada {
            return;
        }
        let placement = &self.request.placement;
        let affinities: Option<Vec<&ClusterAffinity>> = match &placement.cluster_affinities {
            Some(terms) if !terms.is_empty() => {
                let name = self.decision.affinity_name.as_deref();
                let term = terms.iter().find(|term| Some(term.affinity_name.as_str()) == name);
                term.map(|term| {
                    let tiers = term.overflow_affinities.iter().map(|tier| &tier.affinity);
                    let tiers = tiers.filter(|_| self.decision.desired.is_some());
                    std::iter::once(&term.affinity).chain(tiers).collect()
                })
            }
            _ => Some(placement.cluster_affinity.iter().collect()),
        };
        let Some(affinities) = affinities else {
            self.fault("I8", "no affinity term of that name");
            return;
        };
        for name in self.after.keys().copied().collect::<Vec<_>>() {
            let Some(row) = self.rows.get(name).copied() else { continue };
            let mut broken = Vec::new();
            if !affinities.is_empty() && !affinities.iter().any(|a| chooses(a, row)) {
                broken.push("clusterAffinity");
            }
            if row.terminating {
                broken.push("being deleted");
            }
            let template = &self.request.template;
            let serves = row.apis.serves(&template.api_version, &template.kind);
            if !serves && !self.before.contains_key(name) {
                broken.push("APIEnablement");
            }
            for taint in &row.taints {
                let borne = placement.cluster_tolerations.iter().any(|t| bears(t, taint));
                let wanted = ["NoSchedule", "NoExecute"].contains(&taint.effect.as_str());
                if wanted && !borne && !self.subset_bears(row, taint) {
                    broken.push(if taint.effect == "NoExecute" { "NoExecute" } else { "taint" });
                }
            }
            if broken.is_empty() {
                continue;
            }
            let kept = self
                .decision
                .verdict(name)
                .is_some_and(|(v, _)| v.standing == Standing::Kept && !v.rejections.is_empty());
            if !kept || !self.did_not_grow(name) {
                self.fault("I8", format!("{name} breaks {broken:?} and is not kept as it was"));
            }
            let fatal = broken.iter().any(|rule| ["NoExecute", "being deleted"].contains(rule));
            if fatal && !placement.sticky {
                self.fault("I8", format!("{name} keeps a share although {broken:?}"));
            }
        }
    }

    fn subset_bears(&self, row: &Row, taint: &k8s_openapi::api::core::v1::Taint) -> bool {
        let template = &self.request.template;
        let namespace = template.namespace.as_deref().unwrap_or_default();
        let spread = self.snapshot.workload_spread(
            namespace,
            template.group(),
            &template.kind,
            &template.name,
        );
        let subset = spread.and_then(|spread| {
            spread.spec.subsets.iter().find(|subset| {
                subset.required_cluster_selector.as_ref().is_none_or(|selector| {
                    Selector::parse(selector).is_ok_and(|s| s.matches(&row.labels))
                })
            })
        });
        subset.is_some_and(|subset| subset.tolerations.iter().any(|t| bears(t, taint)))
    }

    /// I7: nobody gets more than fits beside what is promised already.
    pub(super) fn capacity(&mut self) {
        let by_room = self.steered()
            || self.request.placement.replica_scheduling.as_ref().is_some_and(|given| {
                use atoll_api::placement::ReplicaDivisionPreference::Aggregated;
                let dynamic = given.weight_preference.as_ref();
                given.respect_capacity
                    || given.replica_division_preference == Some(Aggregated)
                    || dynamic.is_some_and(|weights| weights.dynamic_weight.is_some())
            });
        if !self.divided() || !by_room || self.still || self.karmada {
            return;
        }
        for (name, after) in self.after.clone() {
            let before = self.before.get(name).copied().unwrap_or(0);
            let Some((verdict, at)) = self.decision.verdict(name) else { continue };
            let grown = after - before;
            if grown <= 0 {
                continue;
            }
            // By pods, the one resource that every replica needs: the linter's own arithmetic.
            let Some(row) = self.rows.get(name) else { continue };
            if let crate::state::supply::Supply::Summary { free, .. } = &row.supply
                && let Some(pods) = free.get("pods")
            {
                let promised = row.reserved.get("pods").copied().unwrap_or(0);
                if grown > (pods - promised).max(0) {
                    self.fault(
                        "I7",
                        format!("{name} grows by {grown}, {pods} pods less {promised} are free"),
                    );
                }
            }
            if verdict.capacity.get(at).is_some_and(|more| grown > more) {
                self.fault("I7", format!("{name} grows by {grown}, more than the capacity shown"));
            }
        }
    }

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
            // Honor, the default: clusters that the placement does not choose make no domains.
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
        let spread = self.snapshot.workload_spread(
            namespace,
            template.group(),
            &template.kind,
            &template.name,
        );
        if let Some(spread) = spread {
            let mut sums: Vec<(i64, i64)> = vec![(0, 0); spread.spec.subsets.len()];
            for (name, row) in &self.rows {
                let at = spread.spec.subsets.iter().position(|subset| {
                    subset.required_cluster_selector.as_ref().is_none_or(|selector| {
                        Selector::parse(selector).is_ok_and(|s| s.matches(&row.labels))
                    })
                });
                if let Some(at) = at {
                    sums[at].0 += self.before.get(name).copied().unwrap_or(0);
                    sums[at].1 += self.after.get(name).copied().unwrap_or(0);
                }
            }
            for (subset, (before, after)) in spread.spec.subsets.clone().iter().zip(sums) {
                let Some(IntOrString::Int(max)) = subset.max_replicas else { continue };
                if after > i64::from(max) && after > before {
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

    /// Eviction tasks: one a cluster, for what left for another reason than scaling, and never for more than left.
    pub(super) fn evictions(&mut self) {
        let old: BTreeMap<&str, i64> = self
            .request
            .previous
            .iter()
            .flat_map(|previous| &previous.eviction_tasks)
            .map(|task| (task.from_cluster.as_str(), task.replicas))
            .collect();
        let mut seen = BTreeSet::new();
        for task in &self.decision.evictions.clone() {
            let name = task.from_cluster.as_str();
            if !seen.insert(name.to_owned()) {
                self.fault("I2", format!("two eviction tasks for {name}"));
            }
            let known = old.get(name).copied();
            let left = self.before.get(name).copied().unwrap_or(0)
                - self.after.get(name).copied().unwrap_or(0);
            let most = known.unwrap_or(0) + left.max(0);
            if task.replicas > most {
                self.fault(
                    "I1",
                    format!("{name} keeps {} replicas, {most} left it", task.replicas),
                );
            }
            if known.is_none() && !self.before.contains_key(name) {
                self.fault("I2", format!("{name} is left but was no target"));
            }
            if task.keep && task.purge_mode == PurgeMode::Directly {
                self.fault("I2", format!("{name}: Directly keeps nothing"));
            }
        }
        if self.decision.trigger == Trigger::Scale || self.still {
            return;
        }
        for (name, before) in self.before.clone() {
            let after = self.after.get(name);
            let leaves = after.is_none_or(|after| *after < before);
            if leaves && self.rows.contains_key(name) && !seen.contains(name) && !self.karmada {
                self.fault("I1", format!("{name} loses replicas without an eviction task"));
            }
        }
    }

    /// The decision speaks of every cluster exactly once.
    pub(super) fn report(&mut self) {
        if self.decision.outcome == Outcome::Invalid {
            return;
        }
        let mut seen = BTreeSet::new();
        for verdict in &self.decision.verdicts {
            for name in verdict.clusters.iter() {
                if !seen.insert(name.to_string()) {
                    self.faults.push(Fault { rule: "report", what: format!("{name} twice") });
                }
            }
        }
        let missing: Vec<&str> =
            self.rows.keys().copied().filter(|name| !seen.contains(*name)).collect();
        if !missing.is_empty() {
            self.fault("report", format!("no verdict on {missing:?}"));
        }
        if self.decision.pending.iter().any(|group| group.reason.is_empty() || group.replicas <= 0)
        {
            self.fault("report", "a pending group without number or reason");
        }
    }
}

fn chooses(affinity: &ClusterAffinity, row: &Row) -> bool {
    let named = |names: &[String]| names.iter().any(|name| *name == *row.name);
    let fields = affinity.field_selector.iter().flat_map(|s| &s.match_expressions).all(|rule| {
        let has: Vec<&str> = match rule.key {
            ClusterField::Provider => row.provider.iter().map(String::as_str).collect(),
            ClusterField::Region => row.region.iter().map(String::as_str).collect(),
            ClusterField::Zone => row.zones.iter().map(String::as_str).collect(),
        };
        let listed = has.iter().any(|value| rule.values.iter().any(|v| v == value));
        match rule.operator {
            FieldOperator::In => listed,
            FieldOperator::NotIn => !listed,
            FieldOperator::Exists => !has.is_empty(),
            FieldOperator::DoesNotExist => has.is_empty(),
        }
    });
    !named(&affinity.exclude_clusters)
        && (affinity.cluster_names.is_empty() || named(&affinity.cluster_names))
        && affinity
            .label_selector
            .as_ref()
            .is_none_or(|s| Selector::parse(s).is_ok_and(|s| s.matches(&row.labels)))
        && fields
}

fn bears(
    toleration: &k8s_openapi::api::core::v1::Toleration,
    taint: &k8s_openapi::api::core::v1::Taint,
) -> bool {
    let is = |wanted: &Option<String>, value: &str| {
        wanted.as_deref().is_none_or(|wanted| wanted.is_empty() || wanted == value)
    };
    let exists = toleration.operator.as_deref() == Some("Exists");
    let equal = matches!(toleration.operator.as_deref(), None | Some("" | "Equal"))
        && toleration.key.as_deref().is_some_and(|key| !key.is_empty())
        && toleration.value.clone().unwrap_or_default() == taint.value.clone().unwrap_or_default();
    is(&toleration.effect, &taint.effect) && is(&toleration.key, &taint.key) && (exists || equal)
}
