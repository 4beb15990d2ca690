//! `topologySpreadConstraints`: a limit on every strategy. The next replica goes to the best cluster whose domain may
//! take one. Running replicas are not moved for it, except in a division from zero.

use std::collections::BTreeMap;
use std::sync::Arc;

use atoll_api::placement::{InclusionPolicy, TopologySpreadConstraint, WhenUnsatisfiable};
use atoll_api::selector::Selector;
use serde_json::Value;

use super::{cluster_affinity, taint_toleration};
use crate::cycle::check::topology_spread;
use crate::cycle::state::Cycle;
use crate::divide::limits::Skew;
use crate::framework::plugin::{Plugin, Replicas};
use crate::framework::registry::{ArgError, known_args};
use crate::framework::scores::{MAX, Scores, Values};
use crate::framework::status::{Code, Status};
use crate::framework::verdicts::{Hold, Verdicts};
use crate::state::domains::{DomainColumn, Domains};
use crate::state::tables::BindingFacts;
use atoll_decision::BindingKey;

/// See the module documentation.
#[derive(Debug)]
pub struct TopologySpread {
    /// For placements without constraints.
    defaults: Vec<TopologySpreadConstraint>,
}

/// The plugin's name.
pub const NAME: &str = atoll_decision::plugin::TOPOLOGY_SPREAD;

/// Fields of a default constraint. As in Kubernetes it has no `labelSelector`, because it applies to every workload.
const DEFAULT_FIELDS: [&str; 7] = [
    "maxSkew",
    "topologyKey",
    "whenUnsatisfiable",
    "minDomains",
    "clusterAffinityPolicy",
    "clusterTaintsPolicy",
    "countFullDomains",
];
/// Most default constraints, as in a placement.
const MOST_DEFAULTS: usize = 16;

impl TopologySpread {
    /// Creates the plugin. Arg `defaultConstraints`: constraints of divided workloads whose placement has none.
    ///
    /// # Errors
    /// The path of the first mistake.
    pub fn new(args: Option<&Value>) -> Result<Self, ArgError> {
        const NAME: &str = "defaultConstraints";
        known_args(args, &[NAME])?;
        let wrong = |path: String, problem: String| ArgError { path, problem };
        let Some(given) = args.and_then(|args| args.get(NAME)) else {
            return Ok(Self { defaults: Vec::new() });
        };
        let list =
            given.as_array().filter(|list| list.len() <= MOST_DEFAULTS).ok_or_else(|| {
                let problem = format!("must be a list of at most {MOST_DEFAULTS} constraints");
                wrong(format!(".{NAME}"), problem)
            })?;
        let read = |(at, item): (usize, &Value)| {
            let path = format!(".{NAME}[{at}]");
            known_args(Some(item), &DEFAULT_FIELDS)
                .map_err(|error| wrong(format!("{path}{}", error.path), error.problem))?;
            let constraint: TopologySpreadConstraint = serde_json::from_value(item.clone())
                .map_err(|error| wrong(path.clone(), error.to_string()))?;
            topology_spread(&path, &constraint)
                .map_err(|mistake| wrong(mistake.field, mistake.problem))?;
            Ok(constraint)
        };
        let defaults = list.iter().enumerate().map(read).collect::<Result<_, _>>()?;
        Ok(Self { defaults })
    }

    /// The constraints in force: the placement's own, otherwise the profile's.
    fn constraints<'a>(&'a self, cycle: &Cycle<'a>) -> &'a [TopologySpreadConstraint] {
        let given: &[_] = &cycle.request.placement.topology_spread_constraints;
        if given.is_empty() { &self.defaults } else { given }
    }
}

fn domains(cycle: &Cycle<'_>, constraint: &TopologySpreadConstraint) -> Arc<DomainColumn> {
    cycle.cache.borrow_mut().domains.get(cycle.snapshot, &constraint.topology_key)
}

impl Plugin for TopologySpread {
    fn name(&self) -> &'static str {
        NAME
    }

    fn limits_skew_by_default(&self) -> bool {
        let mut defaults = self.defaults.iter();
        defaults.any(|one| one.when_unsatisfiable == WhenUnsatisfiable::DoNotSchedule)
    }

    fn pre_filter(&self, cycle: &mut Cycle<'_>) -> Status {
        let given = !self.constraints(cycle).is_empty();
        if given && cycle.intent.strategy.divides() { Status::success() } else { Status::skip() }
    }

    fn remove_binding(&self, cycle: &mut Cycle<'_>, replicas: &Replicas<'_>) {
        count_leaving(cycle, replicas, replicas.placed);
    }

    fn add_binding(&self, cycle: &mut Cycle<'_>, replicas: &Replicas<'_>) {
        count_leaving(cycle, replicas, replicas.placed.saturating_neg());
    }

    fn filter(&self, cycle: &Cycle<'_>, verdicts: &mut Verdicts) -> Status {
        let hard = self
            .constraints(cycle)
            .iter()
            .filter(|c| c.when_unsatisfiable == WhenUnsatisfiable::DoNotSchedule);
        for constraint in hard {
            let column = domains(cycle, constraint);
            let without = column.without.clone();
            let reason = format!("lacks topologyKey {}", constraint.topology_key);
            let code = Code::UnschedulableAndUnresolvable;
            verdicts.reject(NAME, code, reason, without, Hold::UnlessChange);
        }
        Status::success()
    }

    fn score(&self, cycle: &Cycle<'_>, scores: &mut Scores<'_>) -> Status {
        let constraints = self.constraints(cycle);
        if constraints.is_empty() || !cycle.intent.strategy.divides() {
            return Status::skip();
        }
        // 100 in the emptiest domain, 0 in the fullest; averaged over the constraints.
        let mut sums = vec![0_i64; scores.candidates.len()];
        for constraint in constraints {
            let skew = skew(cycle, constraint);
            let running = running(cycle, &skew);
            let most = running.iter().copied().max().unwrap_or(0).max(1);
            // A candidate without the key counts as one in the fullest domain.
            let score = |count: &i64| MAX - MAX * count / most;
            let of_domain: Vec<i64> = running.iter().map(score).collect();
            for (sum, row) in sums.iter_mut().zip(scores.candidates) {
                *sum += of_domain.get(skew.of[*row as usize] as usize).copied().unwrap_or(0);
            }
        }
        if constraints.len() > 1 {
            let count = constraints.len() as i64;
            sums.iter_mut().for_each(|sum| *sum /= count);
        }
        scores.values = Values::Each(sums.into());
        Status::success()
    }

    fn assign(&self, cycle: &mut Cycle<'_>) -> Status {
        if cycle.intent.strategy.divides() && !cycle.as_karmada() {
            let skews: Vec<Skew> = self.constraints(cycle).iter().map(|c| skew(cycle, c)).collect();
            cycle.rules.skews.extend(skews);
        }
        Status::skip()
    }
}

/// Replicas of other bindings that are taken as gone, by row and binding.
type Leaving = BTreeMap<(usize, BindingKey), (Arc<BindingFacts>, i64)>;

/// Counts replicas of another binding of the namespace as gone, or back.
fn count_leaving(cycle: &mut Cycle<'_>, replicas: &Replicas<'_>, count: i64) {
    if replicas.facts.key.namespace() != cycle.request.key.namespace() {
        return;
    }
    let state = cycle.extras.entry(NAME).or_insert_with(|| Box::new(Leaving::new()));
    let Some(leaving) = state.downcast_mut::<Leaving>() else { return };
    let entry = leaving.entry((replicas.row, replicas.facts.key.clone()));
    let entry = entry.or_insert_with(|| (replicas.facts.clone(), 0));
    entry.1 = entry.1.saturating_add(count).max(0);
}

/// Replicas by domain, of this binding and of others.
fn running(cycle: &Cycle<'_>, skew: &Skew) -> Vec<i64> {
    let mut counts = skew.counts.clone();
    for (row, seats) in &cycle.targets.seats {
        if let Some(count) = counts.get_mut(skew.of[*row as usize] as usize) {
            *count = count.saturating_add(*seats);
        }
    }
    counts
}

/// The constraint by row. The counts include other bindings and own replicas on clusters that are not candidates.
fn skew(cycle: &Cycle<'_>, constraint: &TopologySpreadConstraint) -> Skew {
    let mut eligible = cycle.snapshot.all();
    if constraint.cluster_affinity_policy == InclusionPolicy::Honor {
        eligible.minus(&cycle.verdicts.refused_by(cluster_affinity::NAME));
    }
    if constraint.cluster_taints_policy == InclusionPolicy::Honor {
        eligible.minus(&cycle.verdicts.refused_by(taint_toleration::NAME));
    }
    // Only domains with an eligible cluster count.
    let domains =
        cycle.cache.borrow_mut().domains_of(cycle.snapshot, &constraint.topology_key, &eligible);
    let Domains { of, count: domains } = domains;
    let mut counts = vec![0_i64; domains as usize];
    if let Some(selector) = constraint.counted(&cycle.request.template.pod_labels) {
        // The placement was checked earlier, so that the selector is valid here.
        let selector = Selector::parse(&selector).unwrap_or_default();
        let namespace = cycle.request.template.namespace.as_deref().unwrap_or_default();
        let others = cycle
            .snapshot
            .bindings(namespace)
            .filter(|facts| facts.key != cycle.request.key && selector.matches(&facts.pod_labels));
        for share in others.flat_map(|facts| &facts.shares) {
            let Some(row) = cycle.snapshot.find(&share.name) else { continue };
            if let Some(count) = counts.get_mut(of[row] as usize).filter(|_| eligible.contains(row))
            {
                *count = count.saturating_add(super::sound(share));
            }
        }
        let state = cycle.extras.get(NAME).and_then(|state| state.downcast_ref::<Leaving>());
        for ((row, _), (facts, gone)) in state.into_iter().flatten() {
            if let Some(count) = counts
                .get_mut(of[*row] as usize)
                .filter(|_| eligible.contains(*row) && selector.matches(&facts.pod_labels))
            {
                *count = count.saturating_sub(*gone).max(0);
            }
        }
    }
    let zero = constraint.min_domains.is_some_and(|min| i64::from(domains) < min);
    Skew {
        key: constraint.topology_key.clone(),
        max: constraint.max_skew,
        hard: constraint.when_unsatisfiable == WhenUnsatisfiable::DoNotSchedule,
        of,
        counts,
        zero,
        count_full: constraint.count_full_domains,
        ..Skew::default()
    }
}
