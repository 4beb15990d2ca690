//! `placement.replicaScheduling`: divides the replicas by the placement's strategy, within bounds, and tier by tier if
//! there are overflow tiers.

use std::collections::BTreeSet;
use std::sync::Arc;

use atoll_api::binding::{Mode, Trigger};
use atoll_api::placement::{ClusterAffinity, StaticClusterWeight};
use atoll_api::text::counted;
use serde_json::Value;

use crate::cycle::intent::Strategy;
use crate::cycle::state::{Assignment, Cycle};
use crate::divide::first::{self, WeightAndCap};
use crate::divide::first_within::{self, Candidates};
use crate::divide::input::{Division, DivisionInput, Ties, UNBOUNDED};
use crate::divide::limits::{Bound, Limits, Minimum, NONE};
use crate::divide::{Start, aggregated, dynamic_weight, static_weight, why_left};
use crate::framework::plugin::Plugin;
use crate::framework::registry::{ArgError, known_args, word_arg};
use crate::framework::status::{Code, Status};
use crate::framework::verdicts::{Hold, Verdicts};
use crate::plugins::{cluster_sets, workload_affinity};
use crate::state::cache::AffinityColumn;
use crate::state::weights::WeightColumn;

/// See the module documentation.
#[derive(Debug)]
pub struct ReplicaDivision;

/// The plugin's name.
pub const NAME: &str = atoll_decision::plugin::REPLICA_DIVISION;

impl ReplicaDivision {
    /// Creates the plugin. Arg `semantics`: `Atoll` (default), or `Karmada` for a profile with Karmada's rules.
    ///
    /// # Errors
    /// An unknown arg or word.
    pub fn new(args: Option<&Value>) -> Result<Self, ArgError> {
        known_args(args, &["semantics"])?;
        word_arg(args, "semantics", &[("Atoll", ()), ("Karmada", ())])?;
        Ok(Self)
    }
}

impl Plugin for ReplicaDivision {
    fn name(&self) -> &'static str {
        NAME
    }

    fn filter(&self, cycle: &Cycle<'_>, verdicts: &mut Verdicts) -> Status {
        let Strategy::StaticWeight(rules) = &cycle.intent.strategy else { return Status::skip() };
        if rules.is_empty() || cycle.as_karmada() {
            return Status::skip();
        }
        let mut rest = cycle.snapshot.all();
        rest.minus(&weighted(cycle, rules).matched);
        let reason = "no rule of staticWeightList matches it";
        verdicts.reject(NAME, Code::Unschedulable, reason, rest, Hold::UnlessChange);
        Status::success()
    }

    fn assign(&self, cycle: &mut Cycle<'_>) -> Status {
        if cycle.as_karmada() {
            cycle.assignment = Some(crate::divide::karmada::assign(cycle));
            return Status::success();
        }
        let assignment = match &cycle.intent.strategy {
            Strategy::Copies => copies(cycle, 0),
            Strategy::WholeSet => whole_set(cycle),
            Strategy::Duplicated => copies(cycle, cycle.intent.desired.unwrap_or(0)),
            _ => match bounds(cycle) {
                Err(reason) => Assignment { refused: Some(reason), ..Assignment::default() },
                Ok(bounds) => {
                    cycle.rules.bounds = bounds;
                    divided(cycle)
                }
            },
        };
        cycle.assignment = Some(assignment);
        Status::success()
    }
}

fn matching(cycle: &Cycle<'_>, affinity: &ClusterAffinity) -> Arc<AffinityColumn> {
    cycle.cache.borrow_mut().affinity.get(cycle.snapshot, affinity)
}

/// The weights of a list of rules, by row.
pub(crate) fn weighted(cycle: &Cycle<'_>, rules: &Arc<[StaticClusterWeight]>) -> Arc<WeightColumn> {
    // Rules of one parsed placement share memory, so that pointer equality usually suffices.
    let is = |known: &Arc<[StaticClusterWeight]>| Arc::ptr_eq(known, rules) || known == rules;
    cycle.cache.borrow_mut().weights.get_by(cycle.snapshot, is, || rules.clone())
}

/// Duplicated, and kinds without replicas: the same number on every cluster.
fn copies(cycle: &Cycle<'_>, replicas: i64) -> Assignment {
    let rows = &cycle.candidates;
    let is_target = |row: &u32| cycle.targets.rows.contains(*row as usize);
    let anew = cycle.targets.is_empty()
        || cycle.change
        || matches!(cycle.trigger, Trigger::First | Trigger::Rebalance)
        // A quota withheld some of the copies.
        || cycle.request.previous.as_ref().is_some_and(|previous| previous.pending() > 0);
    let mut targets: Vec<bool> = rows.iter().map(|row| anew || is_target(row)).collect();
    if matches!(
        cycle.trigger,
        Trigger::Failover | Trigger::ApplicationFailure | Trigger::OutsideClusterSet
    ) {
        targets = rows.iter().map(is_target).collect();
        let reserved = targets.iter().filter(|target| **target).count();
        let failed = cycle.targets.seats.len() + cycle.targets.gone.len() - reserved;
        let ties = cycle.ties(rows);
        let mut spare: Vec<usize> = (0..rows.len())
            .filter(|at| !targets[*at] && !cycle.kept.contains(rows[*at] as usize))
            .collect();
        let score =
            |at: usize| cycle.scored.binary_search(&rows[at]).map_or(0, |at| cycle.score(at));
        spare.sort_by_key(|at| {
            let more = cycle.more(rows[*at] as usize);
            std::cmp::Reverse((score(*at), more.is_some(), more, ties.get(*at), rows.len() - at))
        });
        // Copies that may not be where they are leave even if no other cluster can take over.
        let outside = cycle.verdicts.refused_by(cluster_sets::NAME);
        let outside = cycle.targets.seats.iter().filter(|(row, _)| {
            outside.contains(*row as usize) && !cycle.kept.contains(*row as usize)
        });
        if spare.len() < failed.saturating_sub(outside.count()) {
            let reason = format!(
                "{} failed, but only {} can take over",
                counted(failed, "target"),
                counted(spare.len(), "other cluster")
            );
            return Assignment { refused: Some(reason), infeasible: true, ..Default::default() };
        }
        spare.iter().take(failed).for_each(|at| targets[*at] = true);
    }
    Assignment {
        seats: targets.iter().map(|target| if *target { replicas } else { 0 }).collect(),
        targets: Some(targets),
        ..Assignment::default()
    }
}

/// A set of components: on the cluster where it is, otherwise on the best one.
fn whole_set(cycle: &Cycle<'_>) -> Assignment {
    let rows = &cycle.candidates;
    let ties = cycle.ties(rows);
    let fresh = cycle.mode == Mode::Fresh;
    let score = |at: usize| cycle.scored.binary_search(&rows[at]).map_or(0, |at| cycle.score(at));
    let best = (0..rows.len()).max_by_key(|at| {
        let stays = !fresh && cycle.targets.rows.contains(rows[*at] as usize);
        (stays, score(*at), ties.get(*at), rows.len() - at)
    });
    Assignment {
        seats: vec![0; rows.len()],
        targets: Some((0..rows.len()).map(|at| Some(at) == best).collect()),
        ..Assignment::default()
    }
}

/// The bounds by row. Refuses sums that cannot be met.
fn bounds(cycle: &Cycle<'_>) -> Result<Vec<Bound>, String> {
    let desired = cycle.intent.requested().unwrap_or(0);
    // Where a quota withholds replicas, the others need not reach the minimums.
    let limited = cycle.intent.withheld.is_some();
    let given = cycle.request.placement.replica_scheduling.iter().flat_map(|r| &r.bounds);
    let mut bounds = Vec::new();
    let mut times = vec![0_u32; cycle.snapshot.len()];
    for (at, bound) in given.enumerate() {
        let rows = &matching(cycle, &bound.target_cluster).0.pass;
        let member: Vec<bool> = (0..cycle.snapshot.len()).map(|row| rows.contains(row)).collect();
        rows.iter().for_each(|row| times[row] += 1);
        bounds.push(Bound {
            field: format!("placement.replicaScheduling.bounds[{at}]"),
            member,
            min: bound.min.filter(|_| !limited).unwrap_or(0),
            max: bound.max.unwrap_or(UNBOUNDED),
            sum: 0,
        });
    }
    if bounds.is_empty() || desired == 0 {
        return Ok(bounds);
    }
    let of_candidates = || cycle.candidates.iter().map(|row| times[*row as usize]);
    // The sums mean nothing for overlapping bounds. The division enforces each of those separately.
    if of_candidates().all(|times| times <= 1) {
        let sum = |value: &dyn Fn(&Bound) -> i64| {
            bounds.iter().fold(0_i64, |sum, bound| sum.saturating_add(value(bound)))
        };
        let least = sum(&|bound| bound.min);
        if least > desired {
            return Err(format!(
                "placement.replicaScheduling.bounds: the sum of min, {least}, is above the requested {}",
                counted(desired, "replica")
            ));
        }
        let most = sum(&|bound| bound.max);
        if of_candidates().all(|times| times == 1) && most < desired {
            return Err(format!(
                "placement.replicaScheduling.bounds: the sum of max, {most}, is below the requested {}",
                counted(desired, "replica")
            ));
        }
    }
    Ok(bounds)
}

fn divided(cycle: &Cycle<'_>) -> Assignment {
    if let Some(division) = first(cycle) {
        debug_assert_eq!(
            division.seats,
            divide_in_full(cycle).seats,
            "the short way is the long way"
        );
        debug_assert_eq!(division.pending, divide_in_full(cycle).pending);
        let Division { seats, pending, refused } = division;
        return Assignment { seats, pending, refused, ..Assignment::default() };
    }
    divide_in_full(cycle)
}

/// The division of a workload that runs nowhere yet, if only weights and capacity matter.
fn first(cycle: &Cycle<'_>) -> Option<Division> {
    let rules = &cycle.rules;
    let plain = cycle.targets.is_empty()
        && cycle.kept.is_empty()
        && cycle.verdicts.partial.is_empty()
        && cycle.tiers.is_none()
        && rules.bounds.is_empty();
    // Rules on groups may require a longer prefix than the shortest one.
    let prefix = matches!(cycle.intent.strategy, Strategy::Aggregated);
    let groups = rules.minimums.iter().any(|minimum| minimum.groups > 0);
    let spread = !rules.skews.is_empty();
    if !plain || cycle.divides_once() || (prefix && (groups || spread)) || (groups && spread) {
        return None;
    }
    let desired = cycle.intent.desired.unwrap_or(0);
    let rows = &cycle.candidates;
    let ties = workload_affinity::ranks(cycle, cycle.ties(rows));
    let column = cycle.capacity.as_deref();
    let more = |index: usize| column?.more(rows[index] as usize).map(|more| more.max(0));
    if spread {
        return first_within(cycle, &ties, more, desired);
    }
    let why = |caps_bind| move || why_left(&Limits::default(), caps_bind);
    let division = match &cycle.intent.strategy {
        Strategy::DynamicWeight => {
            let claim = |index| WeightAndCap::by_room(more(index));
            first::divide(rows.len(), claim, &ties, desired, why(true))
        }
        Strategy::Aggregated => first::aggregate(rows.len(), more, &ties, desired, why(true)),
        _ => {
            let (weights, bound) = (weights(cycle), cycle.intent.respect_capacity);
            let claim = |index: usize| {
                let cap = if bound { more(index).unwrap_or(UNBOUNDED) } else { UNBOUNDED };
                WeightAndCap { weight: weights[index], cap }
            };
            first::divide(rows.len(), claim, &ties, desired, why(bound))
        }
    };
    // The first replica of a group goes to its best candidate. If the division already uses enough groups, it equals
    // the division that the group minimums would produce.
    rules
        .minimums
        .iter()
        .all(|minimum| reaches(minimum, rows, &division, desired))
        .then_some(division)
}

/// The first division under topologySpreadConstraints, by weights.
fn first_within(
    cycle: &Cycle<'_>,
    ties: &Ties,
    more: impl Fn(usize) -> Option<i64>,
    desired: i64,
) -> Option<Division> {
    let candidates = Candidates { rows: &cycle.candidates, ties, skews: &cycle.rules.skews };
    if matches!(cycle.intent.strategy, Strategy::DynamicWeight) {
        let claim = |index| WeightAndCap::by_room(more(index));
        return first_within::divide(candidates, claim, &more, desired, |input, _| {
            dynamic_weight::divide(input, desired, cycle.start())
        });
    }
    let (weights, bound) = (weights(cycle), cycle.intent.respect_capacity);
    let claim = |index: usize| {
        let cap = if bound { more(index).unwrap_or(UNBOUNDED) } else { UNBOUNDED };
        WeightAndCap { weight: weights[index], cap }
    };
    first_within::divide(candidates, claim, &more, desired, |input, who| {
        let weights: Vec<u64> = who.iter().map(|at| weights[*at]).collect();
        static_weight::divide(input, &weights, desired, cycle.start(), bound)
    })
}

/// Whether a division uses the required number of groups.
fn reaches(minimum: &Minimum, rows: &[u32], division: &Division, desired: i64) -> bool {
    let used = division.seats.iter().zip(rows).filter(|(seats, _)| **seats > 0);
    let groups: BTreeSet<u32> = used.map(|(_, row)| minimum.of[*row as usize]).collect();
    groups.iter().filter(|group| **group != NONE).count() as i64 >= minimum.groups.min(desired)
}

fn divide_in_full(cycle: &Cycle<'_>) -> Assignment {
    let input = cycle.division_input();
    let desired = cycle.intent.desired.unwrap_or(0);
    let weights = weights(cycle);
    let desired = if cycle.divides_once() { desired - finished(cycle) } else { desired };
    let division = match &cycle.tiers {
        Some(tiers) => by_tier(cycle, &input, &weights, tiers, desired),
        None => one(cycle, &input, &weights, desired, cycle.start()),
    };
    let lacking = too_few_groups(cycle, &input, &division);
    Assignment {
        refused: division.refused.or(lacking),
        seats: division.seats,
        pending: division.pending,
        ..Assignment::default()
    }
}

/// A division from scratch must reach the minimum groups of spreadConstraints. Running replicas are not moved for them.
fn too_few_groups(cycle: &Cycle<'_>, input: &DivisionInput, division: &Division) -> Option<String> {
    if cycle.start() == Start::Running && cycle.trigger != Trigger::First {
        return None;
    }
    let placed = division.seats.iter().fold(0_i64, |sum, seats| sum.saturating_add(*seats));
    input.limits.minimums.iter().find_map(|minimum| {
        let used = (0..input.len()).filter(|at| division.seats[*at] > 0);
        let groups = used.map(|at| minimum.of[at]).collect::<BTreeSet<_>>().len() as i64;
        let least = minimum.groups.min(placed);
        (groups < least).then(|| {
            format!(
                "spreadConstraints: minGroups is {} by {}, but only {} can take replicas",
                minimum.groups,
                minimum.key,
                counted(groups, "group")
            )
        })
    })
}

/// Completions that succeeded on lost clusters. They do not have to run again.
#[must_use]
pub fn finished(cycle: &Cycle<'_>) -> i64 {
    let lost = cycle
        .targets
        .seats
        .iter()
        .filter(|(row, _)| !cycle.candidates.contains(row))
        .map(|(row, seats)| (&*cycle.snapshot.row(*row as usize).name, *seats));
    let gone = cycle.targets.gone.iter().map(|target| (target.name.as_str(), target.replicas));
    lost.chain(gone)
        .map(|(name, seats)| {
            let report = cycle.request.reports.get(name);
            report.map_or(0, |report| report.succeeded.clamp(0, seats))
        })
        .fold(0, i64::saturating_add)
}

/// Weight of each candidate: the largest weight among matching rules.
fn weights(cycle: &Cycle<'_>) -> Vec<u64> {
    let Strategy::StaticWeight(rules) = &cycle.intent.strategy else { return Vec::new() };
    if rules.is_empty() {
        return vec![1; cycle.candidates.len()];
    }
    let column = weighted(cycle, rules);
    cycle.candidates.iter().map(|row| column.weight[*row as usize]).collect()
}

/// Divides once.
fn one(
    cycle: &Cycle<'_>,
    input: &DivisionInput,
    weights: &[u64],
    desired: i64,
    start: Start,
) -> Division {
    match &cycle.intent.strategy {
        Strategy::DynamicWeight => dynamic_weight::divide(input, desired, start),
        Strategy::Aggregated => aggregated::divide(input, &|at| input.ties.get(at), desired, start),
        _ => static_weight::divide(input, weights, desired, start, cycle.intent.respect_capacity),
    }
}

/// Fills the tiers in order, each up to its capacity. Scaling down starts with the last tier.
fn by_tier(
    cycle: &Cycle<'_>,
    input: &DivisionInput,
    weights: &[u64],
    tiers: &[u32],
    desired: i64,
) -> Division {
    let start = cycle.start();
    let count = cycle.term.tiers.len() + 1;
    let members: Vec<Vec<usize>> = (0..count as u32)
        .map(|tier| {
            (0..input.len())
                .filter(|at| {
                    let of = tiers[cycle.candidates[*at] as usize];
                    // A kept cluster without a tier counts as part of the last one.
                    of == tier || (of >= count as u32 && tier as usize == count - 1)
                })
                .collect()
        })
        .collect();
    let room = |of: &[usize]| of.iter().fold(0_i64, |sum, at| sum.saturating_add(input.room(*at)));
    let runs = |of: &[usize]| of.iter().map(|at| input.seats[*at]).fold(0, i64::saturating_add);
    let mut totals: Vec<i64> = vec![0; count];
    let mut left = desired;
    if start == Start::Zero || cycle.trigger == Trigger::Recover {
        for (total, of) in totals.iter_mut().zip(&members) {
            *total = left.min(room(of));
            left -= *total;
        }
    } else {
        totals = members.iter().map(|of| runs(of)).collect();
        let running = totals.iter().copied().fold(0, i64::saturating_add);
        left = desired - running;
        for (total, of) in totals.iter_mut().zip(&members) {
            let more = left.min(room(of).saturating_sub(*total)).max(0);
            *total = total.saturating_add(more);
            left -= more;
        }
        for total in totals.iter_mut().rev() {
            let less = (-left).clamp(0, *total);
            *total -= less;
            left += less;
        }
    }
    let mut seats = if start == Start::Zero { vec![0; input.len()] } else { input.seats.clone() };
    let mut pending = Vec::new();
    for (total, of) in totals.into_iter().zip(&members) {
        let part = input.part(of, &seats);
        let weights: Vec<u64> = if weights.is_empty() {
            Vec::new()
        } else {
            of.iter().map(|at| weights[*at]).collect()
        };
        let division = one(cycle, &part, &weights, total, start);
        for (at, value) in of.iter().zip(division.seats) {
            seats[*at] = value;
        }
        pending.extend(division.pending);
    }
    if left > 0 {
        pending.push((left, "no overflow tier has room for one more".to_owned()));
    }
    Division { seats, pending, refused: None }
}
