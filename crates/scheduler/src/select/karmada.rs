//! Selection as Karmada does it (`pkg/scheduler/core/spreadconstraint`), for profile `karmada`.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use atoll_api::placement::{SpreadConstraint, SpreadField};
use atoll_api::text::counted;

use crate::cycle::intent::Strategy;
use crate::cycle::state::Cycle;
use crate::framework::status::{Code, Status};

/// Prefix of failures of spread constraints. People and the batch output distinguish them by it.
pub const SPREAD: &str = "SpreadConstraints";

#[derive(Debug, Clone, Copy)]
struct Member {
    row: u32,
    score: i64,
    available: i64,
}

/// A region with its clusters, in order.
struct Region {
    name: String,
    members: Vec<Member>,
    score: i64,
}

/// Selects clusters. The candidates stay in Karmada's order, because its divisions break ties by that order.
pub fn select(cycle: &mut Cycle<'_>) -> Status {
    let desired = cycle.intent.desired.unwrap_or(0);
    let mut members: Vec<Member> = (0..cycle.scored.len())
        .map(|at| {
            let row = cycle.scored[at];
            let free = cycle.more(row as usize).unwrap_or(desired);
            let available = free.saturating_add(cycle.targets.on(row as usize));
            Member { row, score: cycle.score(at), available }
        })
        .collect();
    let tier = |row: u32| cycle.tiers.as_ref().map_or(0, |tiers| tiers[row as usize]);
    // Rows are ordered by name.
    members.sort_by_key(|m| (tier(m.row), Reverse(m.score), Reverse(m.available), m.row));
    let ignored = cycle.request.placement.spread_constraints.is_empty() || by_weight_list(cycle);
    let chosen = if ignored { Ok(members) } else { constrained(cycle, members, desired) };
    match chosen {
        Ok(members) => {
            cycle.candidates = members.iter().map(|member| member.row).collect();
            Status::success()
        }
        Err(reason) => Status::new(Code::Unschedulable, format!("{SPREAD}: {reason}")),
    }
}

/// Whether the strategy is static weights, which ignore constraints. As in Karmada, a placement without any weight
/// preference counts, but a preference with an empty list does not.
fn by_weight_list(cycle: &Cycle<'_>) -> bool {
    let Strategy::StaticWeight(rules) = &cycle.intent.strategy else { return false };
    let scheduling = cycle.request.placement.replica_scheduling.as_ref();
    !rules.is_empty() || scheduling.is_none_or(|given| given.weight_preference.is_none())
}

fn constrained(
    cycle: &Cycle<'_>,
    members: Vec<Member>,
    desired: i64,
) -> Result<Vec<Member>, String> {
    // The last constraint on a field wins.
    let by: BTreeMap<_, &SpreadConstraint> = cycle
        .request
        .placement
        .spread_constraints
        .iter()
        .filter_map(|constraint| Some((constraint.spread_by_field?, constraint)))
        .collect();
    let need = cycle.intent.strategy.divides().then_some(desired);
    let cluster = by.get(&SpreadField::Cluster).copied();
    match (by.get(&SpreadField::Region), cluster) {
        (Some(region), cluster) => by_region(cycle, members, region, cluster, desired),
        (None, Some(cluster)) => by_cluster(members, cluster, need),
        (None, None) => Err("only spreadByField cluster and region are supported".to_owned()),
    }
}

fn min(constraint: &SpreadConstraint) -> usize {
    constraint.min_groups.and_then(|min| usize::try_from(min).ok()).unwrap_or(0)
}

fn max(constraint: &SpreadConstraint) -> usize {
    constraint.max_groups.and_then(|max| usize::try_from(max).ok()).unwrap_or(0)
}

fn by_cluster(
    mut members: Vec<Member>,
    constraint: &SpreadConstraint,
    need: Option<i64>,
) -> Result<Vec<Member>, String> {
    if members.len() < min(constraint) {
        return Err(format!("{}, fewer than minGroups", counted(members.len(), "cluster")));
    }
    let n = members.len().min(max(constraint));
    if n == 0 {
        return Err("maxGroups leaves no cluster".to_owned());
    }
    let mut rest = members.split_off(n);
    let Some(need) = need else { return Ok(members) };
    let sum =
        |members: &[Member]| members.iter().fold(0, |s: i64, m| s.saturating_add(m.available));
    for k in (0..n).rev() {
        if sum(&members) >= need {
            break;
        }
        let mut best: Option<usize> = None;
        for (at, other) in rest.iter().enumerate() {
            let bar = best.map_or(members[k].available, |best| rest[best].available);
            if other.available > bar {
                best = Some(at);
            }
        }
        if let Some(best) = best {
            std::mem::swap(&mut members[k], &mut rest[best]);
        }
    }
    if sum(&members) < need {
        return Err("not enough resources".to_owned());
    }
    Ok(members)
}

fn by_region(
    cycle: &Cycle<'_>,
    members: Vec<Member>,
    constraint: &SpreadConstraint,
    cluster: Option<&SpreadConstraint>,
    desired: i64,
) -> Result<Vec<Member>, String> {
    let mut regions: BTreeMap<String, Vec<Member>> = BTreeMap::new();
    for member in members {
        if let Some(region) = &cycle.snapshot.row(member.row as usize).region {
            regions.entry(region.clone()).or_default().push(member);
        }
    }
    let least_clusters = cluster.map_or(0, min);
    if regions.len() < min(constraint) {
        return Err(format!("{}, fewer than minGroups", counted(regions.len(), "region")));
    }
    let divides = cycle.intent.strategy.divides();
    let mut regions: Vec<Region> = regions
        .into_iter()
        .map(|(name, members)| {
            let score = if divides {
                divided_score(&members, desired, min(constraint), least_clusters)
            } else {
                duplicated_score(&members, desired)
            };
            Region { name, members, score }
        })
        .collect();
    regions.sort_by(|a, b| {
        (a.members.len(), Reverse(a.score), &a.name).cmp(&(
            b.members.len(),
            Reverse(b.score),
            &b.name,
        ))
    });
    let chosen = combination(&regions, least_clusters, min(constraint), max(constraint))
        .ok_or("no combination of regions has enough clusters")?;
    let mut selected: Vec<Member> = Vec::new();
    let mut others: Vec<Member> = Vec::new();
    for at in chosen {
        let members = &regions[at].members;
        selected.push(members[0]);
        others.extend(&members[1..]);
    }
    let tier = |row: u32| cycle.tiers.as_ref().map_or(0, |tiers| tiers[row as usize]);
    others.sort_by_key(|m| (tier(m.row), Reverse(m.score), Reverse(m.available), m.row));
    let n = (selected.len() + others.len()).min(cluster.map_or(0, max));
    let more = n.saturating_sub(selected.len());
    selected.extend(others.into_iter().take(more));
    Ok(selected)
}

fn duplicated_score(members: &[Member], desired: i64) -> i64 {
    let valid: Vec<_> = members.iter().filter(|member| member.available >= desired).collect();
    let count = valid.len() as i64;
    if count == 0 {
        return 0;
    }
    count * 1000 + valid.iter().map(|member| member.score).sum::<i64>() / count
}

fn divided_score(
    members: &[Member],
    desired: i64,
    least_regions: usize,
    least_clusters: usize,
) -> i64 {
    let regions = (least_regions as i64).max(1);
    let target = (desired + regions - 1) / regions;
    let least = least_clusters.max(least_regions) as i64;
    let (mut available, mut score, mut count) = (0_i64, 0_i64, 0_i64);
    for member in members {
        if count >= least && available >= target {
            break;
        }
        available = available.saturating_add(member.available);
        score = score.saturating_add(member.score);
        count += 1;
    }
    if available < target {
        let all: i64 = members.iter().map(|member| member.score).sum();
        return available.saturating_mul(1000).saturating_add(all / members.len().max(1) as i64);
    }
    target.saturating_mul(1000).saturating_add(score / count.max(1))
}

/// Most paths to examine. Karmada's enumeration is unbounded; here the best path found so far is taken at this limit.
const MAX_PATHS: usize = 100_000;

struct Path {
    regions: Vec<usize>,
    weight: i64,
    value: usize,
}

/// The regions to use: the feasible path with the most weight, then the most clusters, then the earliest found. A later
/// path that is a strict prefix of the result replaces it.
fn combination(
    regions: &[Region],
    least_clusters: usize,
    min: usize,
    max: usize,
) -> Option<Vec<usize>> {
    let mut paths: Vec<Path> = Vec::new();
    let only_first = regions.len() == min;
    let mut search = Search { regions, least_clusters, min, max, only_first, paths: &mut paths };
    search.walk(0, &mut Vec::new());
    for path in &mut paths {
        path.regions.sort_by(|a, b| {
            let (a, b) = (&regions[*a], &regions[*b]);
            (Reverse(a.score), &a.name).cmp(&(Reverse(b.score), &b.name))
        });
    }
    // The sort is stable: equal paths stay in order of discovery.
    paths.sort_by_key(|path| (Reverse(path.weight), Reverse(path.value)));
    let mut paths = paths.into_iter();
    let mut last = paths.next()?;
    for path in paths {
        if path.regions.len() < last.regions.len() && last.regions.starts_with(&path.regions) {
            last = path;
        }
    }
    Some(last.regions)
}

struct Search<'a> {
    regions: &'a [Region],
    least_clusters: usize,
    min: usize,
    max: usize,
    only_first: bool,
    paths: &'a mut Vec<Path>,
}

impl Search<'_> {
    fn walk(&mut self, from: usize, path: &mut Vec<usize>) {
        let value: usize = path.iter().map(|at| self.regions[*at].members.len()).sum();
        let length = path.len();
        let fits = value >= self.least_clusters && length >= self.min && length <= self.max;
        if fits && length > 0 {
            let weight = path.iter().map(|at| self.regions[*at].score).sum();
            self.paths.push(Path { regions: path.clone(), weight, value });
            return;
        }
        if length == self.max {
            return;
        }
        for at in from..self.regions.len() {
            if self.paths.len() >= MAX_PATHS || (self.only_first && !self.paths.is_empty()) {
                return;
            }
            path.push(at);
            self.walk(at + 1, path);
            path.pop();
        }
    }
}
