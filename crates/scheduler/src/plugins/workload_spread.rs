//! WorkloadSpread: ordered subsets of clusters for one workload.

use std::sync::Arc;

use atoll_api::binding::{Mode, Trigger};
use atoll_api::placement::ClusterAffinity;
use atoll_api::text::counted;
use atoll_api::workload_spread::ScheduleStrategyType;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;

use crate::cycle::intent::Strategy;
use crate::cycle::state::{Assignment, Cycle};
use crate::divide::input::UNBOUNDED;
use crate::divide::workload_spread::{self as division, Plan, Subset};
use crate::framework::plugin::Plugin;
use crate::framework::status::{Code, Status};
use crate::framework::verdicts::{Hold, Verdicts};
use atoll_decision::{BitSet, GroupReport};

/// See the module documentation.
#[derive(Debug)]
pub struct WorkloadSpread;
super::without_args!(WorkloadSpread);

/// The plugin's name.
pub const NAME: &str = atoll_decision::plugin::WORKLOAD_SPREAD;

/// Default time that a replica may be unschedulable before it moves to the next subset, as in OpenKruise.
pub const CRITICAL: SignedDuration = SignedDuration::from_secs(30);
/// How long a subset stays marked after members reported unschedulable replicas there, as in OpenKruise.
pub const MARKED: SignedDuration = SignedDuration::from_mins(5);

fn spread(cycle: &Cycle<'_>) -> Option<Arc<atoll_api::WorkloadSpread>> {
    match &cycle.intent.strategy {
        Strategy::WorkloadSpread(spread) => Some(spread.clone()),
        _ => None,
    }
}

/// Clusters whose labels match.
fn matching(cycle: &Cycle<'_>, selector: &LabelSelector) -> BitSet {
    let affinity =
        ClusterAffinity { label_selector: Some(selector.clone()), ..ClusterAffinity::default() };
    cycle.cache.borrow_mut().affinity.get(cycle.snapshot, &affinity).0.pass.clone()
}

/// Since when each subset is marked, if it is.
fn marks(cycle: &Cycle<'_>, spread: &atoll_api::WorkloadSpread) -> Vec<Option<Timestamp>> {
    let status = |name: &str| {
        let subsets = spread.status.iter().flat_map(|status| &status.subsets);
        let found = subsets.into_iter().find(|subset| subset.name == name);
        found.and_then(|subset| subset.unschedulable_since.as_ref()).map(|time| time.0)
    };
    let now = cycle.request.now;
    let fresh = |since: &Timestamp| now.duration_since(*since) < MARKED;
    spread
        .spec
        .subsets
        .iter()
        .enumerate()
        .map(|(at, subset)| {
            let overflows = cycle
                .subsets
                .get(at)
                .is_some_and(|rows| !overflowing(cycle, spread, rows).is_empty());
            if overflows { Some(now) } else { status(&subset.name).filter(fresh) }
        })
        .collect()
}

/// Targets among `rows` with replicas that are unschedulable for too long: (row, replicas).
fn overflowing(
    cycle: &Cycle<'_>,
    spread: &atoll_api::WorkloadSpread,
    rows: &BitSet,
) -> Vec<(usize, i64)> {
    let strategy = &spread.spec.schedule_strategy;
    if strategy.type_ != ScheduleStrategyType::Adaptive {
        return Vec::new();
    }
    let given = strategy.adaptive.as_ref().and_then(|a| a.reschedule_critical_seconds);
    let critical = given.map_or(CRITICAL, |seconds| SignedDuration::from_secs(seconds.max(0)));
    let targets = cycle.targets.seats.iter().filter(|(row, _)| rows.contains(*row as usize));
    targets
        .filter_map(|(row, seats)| {
            let report = cycle.request.reports.get(&*cycle.snapshot.row(*row as usize).name)?;
            let since = report.unschedulable_since?;
            let stuck = report.unschedulable.min(*seats);
            let late = cycle.request.now.duration_since(since) >= critical;
            (stuck > 0 && late).then_some((*row as usize, stuck))
        })
        .collect()
}

/// The last subset with clusters of its own. Replicas cannot overflow from it.
fn last_with_clusters(spread: &atoll_api::WorkloadSpread) -> Option<usize> {
    (0..spread.spec.subsets.len()).rev().find(|at| !spread.spec.shares_clusters(*at))
}

/// Describes the replicas that Adaptive must move to a later subset, if any. The last subset has no later one.
#[must_use]
pub fn overflow(cycle: &Cycle<'_>) -> Option<String> {
    let spread = spread(cycle)?;
    let count = last_with_clusters(&spread)?;
    cycle.subsets[..count].iter().zip(&spread.spec.subsets).find_map(|(rows, subset)| {
        let stuck: i64 = overflowing(cycle, &spread, rows).iter().map(|(_, n)| *n).sum();
        (stuck > 0).then(|| {
            format!(
                "subset {}: {} unschedulable for too long",
                subset.name,
                counted(stuck, "replica")
            )
        })
    })
}

impl Plugin for WorkloadSpread {
    fn name(&self) -> &'static str {
        NAME
    }

    fn pre_filter(&self, cycle: &mut Cycle<'_>) -> Status {
        let Some(spread) = spread(cycle) else { return Status::skip() };
        let mut free = cycle.snapshot.all();
        cycle.subsets = spread
            .spec
            .subsets
            .iter()
            .map(|subset| {
                let mut rows = match &subset.required_cluster_selector {
                    Some(selector) => matching(cycle, selector),
                    None => cycle.snapshot.all(),
                };
                rows.and(&free);
                free.minus(&rows);
                rows
            })
            .collect();
        Status::success()
    }

    fn filter(&self, cycle: &Cycle<'_>, verdicts: &mut Verdicts) -> Status {
        let mut nowhere = cycle.snapshot.all();
        cycle.subsets.iter().for_each(|rows| nowhere.minus(rows));
        let code = Code::UnschedulableAndUnresolvable;
        verdicts.reject(NAME, code, "is in no subset", nowhere, Hold::UnlessChange);
        Status::success()
    }

    fn assign(&self, cycle: &mut Cycle<'_>) -> Status {
        let Some(spread) = spread(cycle) else { return Status::skip() };
        let spec = &spread.spec;
        let mut desired = cycle.intent.desired.unwrap_or(0);
        if cycle.divides_once() {
            desired -= super::replica_division::finished(cycle);
        }
        let mut input = cycle.division_input();
        let marks = marks(cycle, &spread);
        if cycle.trigger == Trigger::Overflow {
            let last = last_with_clusters(&spread).unwrap_or(0);
            for (row, stuck) in
                cycle.subsets[..last].iter().flat_map(|rows| overflowing(cycle, &spread, rows))
            {
                if let Ok(index) = cycle.candidates.binary_search(&(row as u32)) {
                    input.seats[index] -= stuck;
                    input.frozen[index] = true;
                }
            }
        }
        let limits = division::limits(spec, desired);
        let subsets: Vec<Subset> = spec
            .subsets
            .iter()
            .enumerate()
            .map(|(at, subset)| Subset {
                name: subset.name.clone(),
                limit: limits[at],
                marked: marks[at].is_some(),
                members: members(cycle, at, subset),
            })
            .collect();
        let rules = division::SubsetRules {
            subsets: &subsets,
            adaptive: spec.schedule_strategy.type_ == ScheduleStrategyType::Adaptive,
            desired,
            accounted: cycle
                .targets
                .total()
                .saturating_add(cycle.request.previous.as_ref().map_or(0, |p| p.pending())),
            plan: match (cycle.mode, cycle.trigger) {
                (Mode::Fresh, _) => Plan::Anew,
                (Mode::Replan, _) => Plan::Trim,
                (Mode::Steady, Trigger::Recover) => Plan::Recover,
                (Mode::Steady, _) => Plan::Continue,
            },
            ordinal: cycle.request.template.kind == "StatefulSet",
        };
        let answer = division::divide(&input, &rules);
        cycle.groups = subsets
            .iter()
            .enumerate()
            .map(|(at, subset)| {
                let own: i64 =
                    subset.members.iter().map(|(index, _)| answer.division.seats[*index]).sum();
                let mut free = subset.members.iter().map(|(index, _)| match input.room(*index) {
                    UNBOUNDED => None,
                    room => Some(room.saturating_sub(answer.division.seats[*index]).max(0)),
                });
                GroupReport {
                    name: subset.name.clone(),
                    target: (subset.limit != UNBOUNDED).then_some(subset.limit),
                    assigned: own,
                    own,
                    room: free.try_fold(0_i64, |sum, free| Some(sum.saturating_add(free?))),
                    pending: answer.waiting[at],
                    blocked_by: subset
                        .marked
                        .then(|| "replicas were unschedulable there".to_owned()),
                    unschedulable_since: marks[at],
                }
            })
            .collect();
        cycle.assignment = Some(Assignment {
            seats: answer.division.seats,
            pending: answer.division.pending,
            ..Assignment::default()
        });
        Status::success()
    }
}

/// Candidates of a subset, with their preference scores.
fn members(
    cycle: &Cycle<'_>,
    at: usize,
    subset: &atoll_api::workload_spread::Subset,
) -> Vec<(usize, i64)> {
    let wishes: Vec<(i64, BitSet)> = subset
        .preferred_cluster_selectors
        .iter()
        .map(|wish| (wish.weight, matching(cycle, &wish.preference)))
        .collect();
    let rows = &cycle.subsets[at];
    cycle
        .candidates
        .iter()
        .enumerate()
        .filter(|(_, row)| rows.contains(**row as usize))
        .map(|(index, row)| {
            let met = wishes.iter().filter(|(_, rows)| rows.contains(*row as usize));
            (index, met.map(|(weight, _)| *weight).sum())
        })
        .collect()
}
