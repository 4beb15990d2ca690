//! `placement.workloadAffinity`: clusters by where other workloads of the namespace run.
//!
//! The rules restrict new clusters only: a cluster that runs the workload passes, also where the group has changed since.
//! The decision notes the violation, and so does a condition of the binding. A rebalance applies the rules again.

use std::collections::BTreeMap;
use std::sync::Arc;

use atoll_api::binding::Mode;
use atoll_api::workload_affinity::WorkloadGroup;

use super::{cluster_sets, taint_toleration};
use crate::cycle::state::Cycle;
use crate::divide::input::Ties;
use crate::framework::plugin::Plugin;
use crate::framework::scores::{MAX, Scores, Values};
use crate::framework::status::{Code, Status};
use crate::framework::verdicts::{Hold, Verdicts};
use crate::state::affinity_group::{AffinityGroup, GroupMembers, Side, memberships};
use atoll_decision::{BitSet, Shares};

/// See the module documentation.
#[derive(Debug)]
pub struct WorkloadAffinity;
super::without_args!(WorkloadAffinity);

/// The plugin's name.
pub const NAME: &str = atoll_decision::plugin::WORKLOAD_AFFINITY;

/// Workloads named in a reason. Further ones are only counted.
const MAX_NAMED: usize = 3;

impl Plugin for WorkloadAffinity {
    fn name(&self) -> &'static str {
        NAME
    }

    fn pre_filter(&self, cycle: &mut Cycle<'_>) -> Status {
        match &cycle.request.placement.workload_affinity {
            Some(rules) if rules.affinity.is_some() || rules.anti_affinity.is_some() => {
                Status::success()
            }
            _ => Status::skip(),
        }
    }

    fn filter(&self, cycle: &Cycle<'_>, verdicts: &mut Verdicts) -> Status {
        for group in required(cycle) {
            let Some(members) = members(cycle, &group) else { continue };
            let mut rows = match group.side {
                Side::Affinity => apart_from(cycle, verdicts, &group, members),
                Side::AntiAffinity => shared_with(cycle, &group, members),
            };
            // As in Karmada, a current target passes. In a division from zero nothing is current.
            if cycle.as_karmada() || cycle.mode != Mode::Fresh {
                rows.minus(&cycle.targets.rows);
            }
            if rows.is_empty() {
                continue;
            }
            let reason = reason(cycle, &group, members);
            verdicts.reject(NAME, Code::Unschedulable, reason, rows, Hold::UnlessChange);
        }
        Status::success()
    }

    fn pre_score(&self, cycle: &mut Cycle<'_>) -> Status {
        match &cycle.request.placement.workload_affinity {
            Some(rules) if !rules.preferred.is_empty() => Status::success(),
            _ => Status::skip(),
        }
    }

    /// Each preference scores a cluster by the part of the group's other workloads that run there: 100 = all of them for
    /// affinity, none of them for anti-affinity. The score is the mean by weight.
    fn score(&self, cycle: &Cycle<'_>, scores: &mut Scores<'_>) -> Status {
        let rules = cycle.request.placement.workload_affinity.as_ref();
        let mut sums = vec![0_i64; scores.candidates.len()];
        let mut weights = 0;
        for wish in rules.into_iter().flat_map(|rules| &rules.preferred) {
            let near = wish.affinity.as_ref().map(|term| (Side::Affinity, term));
            let term = near.or(wish.anti_affinity.as_ref().map(|term| (Side::AntiAffinity, term)));
            let Some(group) = term.and_then(|(side, term)| group(cycle, side, term)) else {
                continue;
            };
            let Some(members) = members(cycle, &group) else { continue };
            let (placed, on) = members.count_others(&group, &cycle.request.key, false);
            if placed == 0 {
                continue;
            }
            weights += wish.weight;
            let on = by_row(cycle, &on);
            for (sum, row) in sums.iter_mut().zip(scores.candidates) {
                let count = on.get(row).copied().unwrap_or(0);
                let part = MAX * i64::from(count) / i64::from(placed);
                let part = if group.side == Side::Affinity { part } else { MAX - part };
                *sum += wish.weight * part;
            }
        }
        if weights == 0 {
            return Status::skip();
        }
        scores.values = Values::Each(sums.into_iter().map(|sum| sum / weights).collect());
        Status::success()
    }
}

fn group(cycle: &Cycle<'_>, side: Side, term: &WorkloadGroup) -> Option<AffinityGroup> {
    AffinityGroup::by(side, term, &cycle.request.template.labels)
}

/// The groups that the placement requires.
pub fn required(cycle: &Cycle<'_>) -> Vec<AffinityGroup> {
    let groups = memberships(&cycle.request.placement, &cycle.request.template.labels);
    groups.iter().filter(|of| of.required).map(|of| of.group.clone()).collect()
}

fn members<'a>(cycle: &Cycle<'a>, group: &AffinityGroup) -> Option<&'a GroupMembers> {
    let namespace = cycle.request.template.namespace.as_deref().unwrap_or_default();
    cycle.snapshot.affinity_group(namespace, group).map(|members| &**members)
}

fn by_row(cycle: &Cycle<'_>, on: &BTreeMap<&str, u32>) -> BTreeMap<u32, u32> {
    let row = |(name, count): (&&str, &u32)| Some((cycle.snapshot.find(name)? as u32, *count));
    on.iter().filter_map(row).collect()
}

/// Clusters where not every placed workload of the group runs. A cluster that all of them must leave does not count:
/// otherwise workloads that fail over together would wait for each other.
fn apart_from(
    cycle: &Cycle<'_>,
    verdicts: &Verdicts,
    group: &AffinityGroup,
    members: &GroupMembers,
) -> BitSet {
    // The whole group is in one namespace, so its ClusterSets force all members off the same clusters.
    let forcing = [taint_toleration::NAME, cluster_sets::NAME];
    let lost = verdicts
        .refusals
        .iter()
        .filter(|refusal| forcing.contains(&refusal.plugin) && refusal.hold == Hold::Never);
    let stays = |name: &str| {
        let row = cycle.snapshot.find(name);
        row.is_some_and(|row| !lost.clone().any(|refusal| refusal.rows.contains(row)))
    };
    let (mut placed, on) = members.count_others(group, &cycle.request.key, true);
    if on.keys().any(|name| !stays(name)) {
        let others = members.others(group, &cycle.request.key, true);
        let counts = others.filter(|facts| facts.shares.iter().any(|share| stays(&share.name)));
        placed = counts.fold(0, |sum: u32, _| sum.saturating_add(1));
    }
    if placed == 0 {
        return BitSet::empty(cycle.snapshot.len());
    }
    let mut apart = cycle.snapshot.all();
    for (row, _) in by_row(cycle, &on).into_iter().filter(|(_, count)| *count >= placed) {
        apart.remove(row as usize);
    }
    apart
}

/// Clusters where a workload of the group runs.
fn shared_with(cycle: &Cycle<'_>, group: &AffinityGroup, members: &GroupMembers) -> BitSet {
    let (_, on) = members.count_others(group, &cycle.request.key, true);
    let mut rows = BitSet::empty(cycle.snapshot.len());
    by_row(cycle, &on).keys().for_each(|row| rows.insert(*row as usize));
    rows
}

/// Why clusters are rejected, with the first workloads of the group.
fn reason(cycle: &Cycle<'_>, group: &AffinityGroup, members: &GroupMembers) -> String {
    let mut others = members.others(group, &cycle.request.key, true);
    let mut names: Vec<&str> =
        others.by_ref().take(MAX_NAMED).map(|facts| facts.key.name()).collect();
    names.sort_unstable();
    let more = others.count();
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    let names = names.join(", ");
    match group.side {
        Side::Affinity => format!("not all workloads of group {group} run there: {names}{more}"),
        Side::AntiAffinity => format!("workloads of group {group} run there: {names}{more}"),
    }
}

/// Notes on required rules that the decision's clusters violate.
pub fn violations(cycle: &Cycle<'_>, after: &Shares) -> Vec<String> {
    let required = required(cycle);
    if required.is_empty() {
        return Vec::new();
    }
    let clusters: Vec<&str> = after.each().map(|(name, _)| name).collect();
    let violated = required.into_iter().filter_map(|group| {
        members(cycle, &group)?.violated(&group, &cycle.request.key, &clusters)
    });
    let note = |violation| format!("placement.workloadAffinity is violated: {violation}");
    violated.map(note).collect()
}

/// Tie-break ranks by preference: where a strategy has no reason to prefer one of two clusters, the preferences do.
#[must_use]
pub fn ranks(cycle: &Cycle<'_>, ties: Ties) -> Ties {
    let Some(scores) = cycle.scores.iter().find(|scores| scores.plugin == NAME) else {
        return ties;
    };
    let candidates = &cycle.candidates;
    let by_candidate: Arc<[i64]> = match &scores.values {
        Values::Same(_) => return ties,
        Values::Each(values) if Arc::ptr_eq(candidates, &cycle.scored) => values.clone(),
        values => {
            let score = |row: &u32| cycle.scored.binary_search(row).map_or(0, |at| values.get(at));
            candidates.iter().map(score).collect()
        }
    };
    if let Ties::Hashed { hash, names, rows } = ties {
        return Ties::Preferred { scores: by_candidate, hash, names, rows };
    }
    let mut order: Vec<usize> = (0..candidates.len()).collect();
    order.sort_by_cached_key(|at| (by_candidate[*at], ties.get(*at), std::cmp::Reverse(*at)));
    let mut ranks = vec![0; candidates.len()];
    (0..).zip(order).for_each(|(rank, at)| ranks[at] = rank);
    Ties::Given(ranks)
}
