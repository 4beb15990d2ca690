//! FederatedResourceQuotas: no decision increases what the workloads of a namespace use beyond a quota.
//!
//! The desired number is capped before the division, so that replicas which must move still move: a quota blocks growth
//! only. Divided workloads place as many replicas as the quota allows. Duplicated workloads and sets of components get a
//! copy on a cluster entirely or not at all.

use std::cmp::Reverse;

use atoll_api::quantity::Quantity;
use atoll_decision::{Amounts, QUOTA_EXCEEDED};

use super::check;
use super::intent::Intent;
use super::state::{Assignment, Cycle, Targets};
use crate::plugins::resource_fit;
use crate::request::Request;
use crate::state::needs::PODS;
use crate::state::quotas::{Quotas, use_of};
use crate::state::snapshot::Snapshot;

/// What the quotas of the namespace allow a request. Counted in replicas, or in sets of components.
#[derive(Debug, Clone, PartialEq)]
pub struct Allowance {
    /// Most that may be placed.
    pub most: i64,
    /// Placed by the last decision.
    pub running: i64,
    /// What one replica or set needs of the limited resources.
    each: Amounts,
    tightest: Tightest,
}

/// The limit that allows the fewest.
#[derive(Debug, Clone, PartialEq)]
struct Tightest {
    resource: String,
    quota: String,
    hard: i64,
    /// What other workloads use.
    others: i128,
    each: i64,
}

/// Replicas or sets that are not placed because of a quota.
#[derive(Debug, Clone, PartialEq)]
pub struct Withheld {
    /// How many.
    pub count: i64,
    /// Why.
    pub reason: String,
    /// What must become free before more are placed.
    pub amounts: Amounts,
}

/// What the quotas of the namespace allow a request. `None` if no quota limits it.
#[must_use]
pub fn allowance(
    snapshot: &Snapshot,
    request: &Request,
    intent: &Intent,
    targets: &Targets,
) -> Option<Allowance> {
    let quotas = snapshot.quotas(request.key.namespace()?)?;
    let sets = !request.template.components.is_empty();
    let mut each = each(request, intent)?;
    each.retain(|resource, each| *each > 0 && quotas.limits().contains_key(resource));
    let own = snapshot.binding(&request.key).map(|facts| use_of(facts)).unwrap_or_default();
    let others = |resource: &str| quotas.used(resource) - own.get(resource).copied().unwrap_or(0);
    let (fits, tightest) = tightest(quotas, &each, others)?;
    let running =
        if sets { (targets.seats.len() + targets.gone.len()) as i64 } else { targets.total() };
    Some(Allowance { most: fits.max(running), running, each, tightest })
}

/// What one replica, or one set of components, needs. `None` for kinds without either.
fn each(request: &Request, intent: &Intent) -> Option<Amounts> {
    let components = &request.template.components;
    if !components.is_empty() {
        // Karmada's rules place sets without reading their components.
        return Some(resource_fit::total(&check::components(components).ok()?));
    }
    intent.desired?;
    let mut each = intent.needs.requests.clone();
    each.insert(PODS.to_owned(), 1);
    Some(each)
}

fn tightest(
    quotas: &Quotas,
    each: &Amounts,
    others: impl Fn(&str) -> i128,
) -> Option<(i64, Tightest)> {
    let limited = quotas.limits().iter().filter_map(|(resource, limit)| {
        let each = each.get(resource).copied()?;
        let others = others(resource);
        let left = i128::from(limit.hard).saturating_sub(others).max(0);
        let fits = i64::try_from(left / i128::from(each)).unwrap_or(i64::MAX);
        let (resource, quota) = (resource.clone(), limit.quota.to_string());
        Some((fits, Tightest { resource, quota, hard: limit.hard, others, each }))
    });
    limited.min_by_key(|(fits, _)| *fits)
}

impl Allowance {
    /// Caps the desired number of a divided workload. With `insufficientCapacity: Refuse` it grows by all missing
    /// replicas or by none.
    pub fn cap(&self, intent: &mut Intent) {
        let Some(desired) = intent.desired.filter(|_| intent.strategy.divides()) else { return };
        if desired <= self.most {
            return;
        }
        let capped = if intent.partially { self.most } else { self.running };
        intent.desired = Some(capped);
        let waits_for = if intent.partially { 1 } else { desired - capped };
        intent.withheld = Some(self.withheld(desired - capped, capped, waits_for));
    }

    /// `count` are not placed beside `placed`; `least` of them must fit before more are placed.
    fn withheld(&self, count: i64, placed: i64, least: i64) -> Withheld {
        let Tightest { resource, quota, hard, others, each } = &self.tightest;
        let of = |count: i64| i128::from(count) * i128::from(*each);
        let left = (i128::from(*hard) - others - of(placed)).max(0);
        let amount = |value| format!("{} {resource}", Quantity::of_resource(resource, value));
        let reason = format!(
            "{QUOTA_EXCEEDED}: FederatedResourceQuota {quota} has {} of {} left, {} more needed: {} missing",
            Quantity::of_resource(resource, left),
            amount((*hard).into()),
            Quantity::of_resource(resource, of(count)),
            amount((of(count) - left).max(0)),
        );
        let needs =
            |(resource, each): (&String, &i64)| (resource.clone(), each.saturating_mul(least));
        Withheld { count, reason, amounts: self.each.iter().map(needs).collect() }
    }

    /// Whether so many may be placed.
    #[must_use]
    pub fn has_room_for(&self, count: i64) -> bool {
        count <= self.most
    }
}

/// Applies the quota to the result of Assign.
pub fn limit(cycle: &mut Cycle<'_>) {
    cycle.withheld = None;
    let Some(allowance) = &cycle.intent.quota else { return };
    if cycle.assignment.as_ref().is_none_or(|assignment| assignment.refused.is_some()) {
        return;
    }
    if cycle.intent.strategy.divides() {
        cycle.withheld.clone_from(&cycle.intent.withheld);
        return;
    }
    let order = preference(cycle);
    if let Some(assignment) = &mut cycle.assignment {
        let copies =
            Copies::new(&cycle.candidates, cycle.targets, assignment, cycle.intent.desired);
        cycle.withheld = copies.limit(allowance, assignment, &order, cycle.intent.partially);
    }
}

/// The candidates, the best first.
fn preference(cycle: &Cycle<'_>) -> Vec<usize> {
    let rows = &cycle.candidates;
    let ties = cycle.ties(rows);
    let mut order: Vec<usize> = (0..rows.len()).collect();
    order.sort_by_key(|at| {
        let scored = cycle.scored.binary_search(&rows[*at]);
        let more = cycle.more(rows[*at] as usize);
        Reverse((scored.map_or(0, |at| cycle.score(at)), more, ties.get(*at), rows.len() - at))
    });
    order
}

/// Copies of a workload that is not divided.
struct Copies {
    /// What a copy is: the desired replicas, or one set.
    full: i64,
    sets: bool,
    chosen: Vec<bool>,
    /// What a chosen cluster has of its copy; `None` for new ones.
    has: Vec<Option<i64>>,
    /// What the clusters had that are not chosen any more, the largest first.
    freed: Vec<i64>,
}

impl Copies {
    fn new(rows: &[u32], targets: &Targets, assignment: &Assignment, desired: Option<i64>) -> Self {
        let (full, sets) = (desired.unwrap_or(1), desired.is_none());
        let chosen: Vec<bool> = match &assignment.targets {
            Some(targets) => targets.clone(),
            None => assignment.seats.iter().map(|seats| *seats > 0).collect(),
        };
        // A set has no replicas of its own.
        let copy = |replicas: i64| if sets { 1 } else { replicas.min(full) };
        let has = rows.iter().zip(&chosen).map(|(row, chosen)| {
            let is_target = *chosen && targets.rows.contains(*row as usize);
            is_target.then(|| copy(targets.on(*row as usize)))
        });
        let has: Vec<Option<i64>> = has.collect();
        let stays = |row: &u32| rows.binary_search(row).is_ok_and(|at| chosen[at]);
        let left = targets.seats.iter().filter(|(row, _)| !stays(row)).map(|(_, n)| *n);
        let mut freed: Vec<i64> =
            left.chain(targets.gone.iter().map(|target| target.replicas)).map(copy).collect();
        freed.sort_unstable_by_key(|copy| Reverse(*copy));
        Self { full, sets, chosen, has, freed }
    }

    /// Lowers the copies to what the quota allows: first those that run, then those that replace others, then growth.
    fn limit(
        mut self,
        allowance: &Allowance,
        assignment: &mut Assignment,
        order: &[usize],
        partially: bool,
    ) -> Option<Withheld> {
        let wanted = self.chosen.iter().filter(|chosen| **chosen).count() as i64;
        let wanted = wanted.saturating_mul(self.full);
        if allowance.has_room_for(wanted) {
            return None;
        }
        let new: Vec<usize> = order
            .iter()
            .copied()
            .filter(|at| self.chosen[*at] && self.has[*at].is_none())
            .collect();
        let mut new = new.into_iter();
        for (freed, at) in std::mem::take(&mut self.freed).into_iter().zip(new.by_ref()) {
            self.has[at] = Some(freed);
        }
        let held = self.has.iter().flatten().count() as i64;
        let mut placed = self.has.iter().flatten().fold(0_i64, |sum, n| sum.saturating_add(*n));
        let raised = held.saturating_mul(self.full);
        let raises = partially && allowance.has_room_for(raised);
        let mut least = wanted.saturating_sub(placed);
        if raises {
            self.has.iter_mut().flatten().for_each(|has| *has = self.full);
            placed = raised;
            while allowance.has_room_for(placed.saturating_add(self.full)) {
                let Some(at) = new.next() else { break };
                self.has[at] = Some(self.full);
                placed = placed.saturating_add(self.full);
            }
            least = self.full;
        } else if partially {
            least = raised.saturating_sub(placed);
        }
        if !self.sets {
            assignment.seats = self.has.iter().map(|has| has.unwrap_or(0)).collect();
        }
        assignment.targets = Some(self.has.iter().map(Option::is_some).collect());
        Some(allowance.withheld(wanted.saturating_sub(placed), placed, least))
    }
}
