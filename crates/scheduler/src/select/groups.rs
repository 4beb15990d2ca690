//! Selects groups. Each constraint starts with its best groups, up to the maximum, then exchanges groups until the
//! capacity suffices and every minimum can be met. Polynomial: sorting plus at most one exchange per group.

use std::cmp::Reverse;
use std::collections::BTreeSet;

use atoll_api::text::counted;

use crate::divide::limits::NONE;

/// A cluster that may be selected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Candidate {
    /// Replicas that it runs.
    pub seats: i64,
    /// Whether it is a current target.
    pub target: bool,
    /// Sum of scores.
    pub score: i64,
    /// Replicas that it can hold; `None` = unknown.
    pub room: Option<i64>,
    /// Whether it runs no replica and has no room for one. Such a cluster would not really fill a group.
    pub full: bool,
}

/// One constraint.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Grouping {
    /// Path of its field.
    pub field: String,
    /// The topology key.
    pub key: String,
    /// Group of each candidate.
    pub of: Vec<u32>,
    /// Tie-break rank of each group. The length is the number of groups.
    pub ties: Vec<u64>,
    /// Minimum number of groups.
    pub min: i64,
    /// Maximum number of groups.
    pub max: Option<i64>,
}

/// The value of a group. Greater is better.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Offer {
    runs: bool,
    seats: i64,
    score: i64,
    room: i64,
    tie: u64,
}

/// Selects candidates. `need` is the number of replicas that must fit, if replicas are divided.
///
/// # Errors
/// The constraint that cannot be met.
pub fn choose(
    candidates: &[Candidate],
    groupings: &[Grouping],
    need: Option<i64>,
) -> Result<Vec<usize>, String> {
    let mut order: Vec<usize> = (0..groupings.len()).collect();
    if groupings.len() > 1 {
        let distinct = |at: usize| groupings[at].of.iter().collect::<BTreeSet<_>>().len();
        order.sort_by_cached_key(|at| (distinct(*at), *at));
    }
    let mut chosen: Vec<usize> = (0..candidates.len()).filter(|at| !candidates[*at].full).collect();
    for (place, at) in order.iter().enumerate() {
        let finer: Vec<&Grouping> = order[place + 1..].iter().map(|at| &groupings[*at]).collect();
        chosen = narrow(candidates, &groupings[*at], &finer, chosen, need)?;
    }
    for grouping in groupings {
        enough(grouping, &chosen)?;
    }
    Ok(chosen)
}

fn enough(grouping: &Grouping, chosen: &[usize]) -> Result<(), String> {
    let groups = groups_in(grouping, chosen) as i64;
    if groups >= grouping.min {
        return Ok(());
    }
    Err(format!(
        "{}: minGroups is {} by {}, but only {} can be used",
        grouping.field,
        grouping.min,
        grouping.key,
        counted(groups, "group")
    ))
}

fn groups_in(grouping: &Grouping, chosen: &[usize]) -> usize {
    let mut used = vec![false; grouping.ties.len()];
    for group in chosen.iter().map(|at| grouping.of[*at]).filter(|group| *group != NONE) {
        used[group as usize] = true;
    }
    used.into_iter().filter(|used| *used).count()
}

fn narrow(
    candidates: &[Candidate],
    grouping: &Grouping,
    finer: &[&Grouping],
    chosen: Vec<usize>,
    need: Option<i64>,
) -> Result<Vec<usize>, String> {
    let groups = groups_in(grouping, &chosen) as i64;
    let Some(max) = grouping.max.filter(|max| groups > *max) else {
        enough(grouping, &chosen)?;
        return Ok(chosen);
    };
    let max = max as usize;
    let mut members: Vec<Vec<usize>> = vec![Vec::new(); grouping.ties.len()];
    for at in chosen.iter().filter(|at| grouping.of[**at] != NONE) {
        members[grouping.of[*at] as usize].push(*at);
    }
    let mut ranked: Vec<(Offer, u32)> = (0..)
        .zip(members.iter().zip(&grouping.ties))
        .filter(|(_, (of, _))| !of.is_empty())
        .map(|(group, (of, tie))| (offer(candidates, of, *tie), group))
        .collect();
    ranked.sort_by_key(|(offer, group)| (Reverse(*offer), *group));
    let (mut kept, mut rest) = (ranked[..max].to_vec(), ranked[max..].to_vec());
    if let Some(need) = need {
        exchange(&mut kept, &mut rest, |offer, _| offer.room, need);
    }
    for other in finer {
        let width = |_: &Offer, group: u32| groups_in(other, &members[group as usize]) as i64;
        exchange(&mut kept, &mut rest, width, other.min);
    }
    let mut stays = vec![false; grouping.ties.len()];
    kept.iter().for_each(|(_, group)| stays[*group as usize] = true);
    let in_kept = |at: &usize| stays.get(grouping.of[*at] as usize).is_some_and(|stays| *stays);
    Ok(chosen.into_iter().filter(in_kept).collect())
}

fn offer(candidates: &[Candidate], of: &[usize], tie: u64) -> Offer {
    let sum = |value: &dyn Fn(&Candidate) -> i64| {
        of.iter().fold(0, |sum: i64, at| sum.saturating_add(value(&candidates[*at])))
    };
    Offer {
        runs: of.iter().any(|at| candidates[*at].target),
        seats: sum(&|candidate| candidate.seats),
        score: of.iter().map(|at| candidates[*at].score).max().unwrap_or(0),
        // Unknown capacity is not a limit.
        room: sum(&|candidate| candidate.room.unwrap_or(i64::MAX)),
        tie,
    }
}

/// Exchanges the kept group of lowest value for the other group of highest value, until the sum suffices or no exchange
/// helps. A group that runs the binding is never exchanged.
fn exchange(
    kept: &mut [(Offer, u32)],
    rest: &mut [(Offer, u32)],
    value: impl Fn(&Offer, u32) -> i64,
    need: i64,
) {
    for _ in 0..kept.len() {
        let sum = kept.iter().fold(0_i64, |sum, (o, group)| sum.saturating_add(value(o, *group)));
        if sum >= need {
            return;
        }
        let worth = |list: &[(Offer, u32)], at: usize| value(&list[at].0, list[at].1);
        let poorest = (0..kept.len())
            .filter(|at| !kept[*at].0.runs)
            .min_by_key(|at| (worth(kept, *at), Reverse(*at)));
        let richest = (0..rest.len()).max_by_key(|at| (worth(rest, *at), Reverse(*at)));
        let (Some(poorest), Some(richest)) = (poorest, richest) else { return };
        if worth(rest, richest) <= worth(kept, poorest) {
            return;
        }
        std::mem::swap(&mut kept[poorest], &mut rest[richest]);
    }
}
