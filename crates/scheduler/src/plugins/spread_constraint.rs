//! `spreadConstraints`: the minimum and maximum number of cluster groups to use.
//!
//! Filter rejects clusters without a group. Select chooses groups, coarse constraints first. The division enforces the
//! minimum, so that it holds for replicas and not only for candidates.

use std::sync::Arc;

use atoll_api::binding::Mode;
use atoll_api::placement::{SpreadConstraint as Constraint, SpreadField};

use crate::cycle::intent::Strategy;
use crate::cycle::state::Cycle;
use crate::divide::limits::Minimum;
use crate::framework::plugin::Plugin;
use crate::framework::status::{Code, Status};
use crate::framework::verdicts::{Hold, Verdicts};
use crate::hash::TieHash;
use crate::select::groups::{self, Candidate, Grouping};
use crate::state::domains::DomainColumn;

/// See the module documentation.
#[derive(Debug)]
pub struct SpreadConstraint;
super::without_args!(SpreadConstraint);

/// The plugin's name.
pub const NAME: &str = atoll_decision::plugin::SPREAD_CONSTRAINT;

/// The topology key that a constraint groups by.
#[must_use]
pub fn key(constraint: &Constraint) -> &str {
    match (&constraint.spread_by_field, &constraint.spread_by_label) {
        (Some(SpreadField::Cluster), _) => "cluster",
        (Some(SpreadField::Region), _) => "region",
        (Some(SpreadField::Zone), _) => "zone",
        (Some(SpreadField::Provider), _) => "provider",
        (None, label) => label.as_deref().unwrap_or_default(),
    }
}

fn domains(cycle: &Cycle<'_>, constraint: &Constraint) -> Arc<DomainColumn> {
    cycle.cache.borrow_mut().domains.get(cycle.snapshot, &key(constraint).to_owned())
}

/// Whether the constraint groups by anything but the cluster itself. Every cluster is in a group by cluster.
fn groups_clusters(constraint: &&Constraint) -> bool {
    constraint.spread_by_field != Some(SpreadField::Cluster)
}

/// Tie-break ranks of groups: by hash of template and group, or by name if the template has no uid.
fn group_ties(cycle: &Cycle<'_>, column: &DomainColumn) -> Vec<u64> {
    let uid = &cycle.request.template.uid;
    if !uid.is_empty() {
        let hash = TieHash::of(uid);
        return column.names.iter().map(|name| hash.rank(name)).collect();
    }
    let mut by_name: Vec<usize> = (0..column.names.len()).collect();
    by_name.sort_by(|a, b| column.names[*b].cmp(&column.names[*a]));
    let mut ties = vec![0; by_name.len()];
    (0..).zip(by_name).for_each(|(place, group)| ties[group] = place);
    ties
}

impl Plugin for SpreadConstraint {
    fn name(&self) -> &'static str {
        NAME
    }

    fn pre_filter(&self, cycle: &mut Cycle<'_>) -> Status {
        if cycle.request.placement.spread_constraints.is_empty() {
            return Status::skip();
        }
        Status::success()
    }

    fn filter(&self, cycle: &Cycle<'_>, verdicts: &mut Verdicts) -> Status {
        let constraints = &cycle.request.placement.spread_constraints;
        for constraint in constraints.iter().filter(groups_clusters) {
            let column = domains(cycle, constraint);
            let without = column.without.clone();
            let reason = format!("has no {}, which spreadConstraints group by", key(constraint));
            let hold = if cycle.as_karmada() { Hold::Never } else { Hold::UnlessChange };
            let code = Code::UnschedulableAndUnresolvable;
            verdicts.reject(NAME, code, reason, without, hold);
        }
        Status::success()
    }

    fn select(&self, cycle: &mut Cycle<'_>) -> Status {
        if cycle.as_karmada() {
            return crate::select::karmada::select(cycle);
        }
        let constraints = cycle.request.placement.spread_constraints.clone();
        cycle.take_all();
        let mut rows = cycle.candidates.clone();
        if !constraints.is_empty() {
            let by_room = match cycle.intent.strategy {
                Strategy::Copies | Strategy::WholeSet | Strategy::Duplicated => false,
                Strategy::StaticWeight(_) => cycle.intent.respect_capacity,
                _ => true,
            };
            // A division from zero ignores running replicas.
            let steady = cycle.mode == Mode::Steady;
            // Both lists are ascending, and every scored row is in `rows`.
            let mut scored = cycle.scored.iter().zip(cycle.score_sums()).peekable();
            let candidates: Vec<Candidate> = (0..rows.len())
                .map(|at| {
                    let row = rows[at] as usize;
                    let score = scored.next_if(|(of, _)| **of == rows[at]);
                    Candidate {
                        seats: if steady { cycle.targets.on(row) } else { 0 },
                        target: steady && cycle.targets.rows.contains(row),
                        score: score.map_or(0, |(_, score)| score),
                        room: cycle.more(row).map(|m| m.saturating_add(cycle.targets.on(row))),
                        full: by_room && cycle.more(row) == Some(0) && cycle.targets.on(row) == 0,
                    }
                })
                .collect();
            let groupings: Vec<Grouping> = constraints
                .iter()
                .enumerate()
                .map(|(at, constraint)| {
                    let column = domains(cycle, constraint);
                    Grouping {
                        field: format!("placement.spreadConstraints[{at}]"),
                        key: key(constraint).to_owned(),
                        of: rows.iter().map(|row| column.of[*row as usize]).collect(),
                        ties: group_ties(cycle, &column),
                        min: constraint.min_groups.unwrap_or(0).max(1),
                        max: constraint.max_groups.filter(|max| *max > 0),
                    }
                })
                .collect();
            let need = cycle.intent.desired.filter(|_| by_room);
            match groups::choose(&candidates, &groupings, need) {
                Ok(chosen) => rows = chosen.into_iter().map(|at| rows[at]).collect(),
                Err(reason) => return Status::new(Code::Unschedulable, reason),
            }
            if cycle.intent.strategy.divides() {
                for constraint in &constraints {
                    let column = domains(cycle, constraint);
                    cycle.rules.minimums.push(Minimum {
                        key: key(constraint).to_owned(),
                        groups: constraint.min_groups.unwrap_or(0),
                        of: column.of.clone(),
                        counts: vec![0; column.names.len()],
                        ..Minimum::default()
                    });
                }
            }
        }
        cycle.candidates = rows;
        Status::success()
    }
}
