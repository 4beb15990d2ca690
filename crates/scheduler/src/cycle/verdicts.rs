//! Every cluster once, with those that share its fate. Classes are split by whole sets of rows, not row by row.

use std::borrow::Cow;
use std::collections::BTreeMap;

use super::report::{rejection, rows_of};
use super::state::Cycle;
use crate::decision::{ClusterSet, Column, Standing, Verdict};
use crate::state::bits::BitSet;

/// Classes beyond which rows are classed one by one.
const MAX_CLASSES: usize = 64;

/// The verdicts of a cycle that ended with these shares.
#[must_use]
pub fn build(cycle: &Cycle<'_>, after: &[(u32, i64)], gone_stay: bool) -> Vec<Verdict> {
    let len = cycle.snapshot.len();
    let chosen = rows_of(after, len);
    let mut verdicts = Vec::new();
    for (rows, rejections) in classes(cycle) {
        let refused = !rejections.is_empty();
        for (part, standing) in standings(&rows, &chosen, refused) {
            verdicts.push(verdict(cycle, part, standing, &rejections, after));
        }
    }
    if !cycle.targets.gone.is_empty() {
        let clusters = ClusterSet::of(cycle.targets.gone.iter().map(|target| target.name.as_str()));
        let shares: BTreeMap<&str, i64> =
            cycle.targets.gone.iter().map(|t| (t.name.as_str(), t.replicas)).collect();
        let before: Column = clusters.iter().map(|name| shares.get(&**name).copied()).collect();
        let after = if gone_stay { before.clone() } else { Column::default() };
        verdicts.push(Verdict {
            clusters,
            standing: Standing::Gone,
            rejections: Vec::new(),
            before,
            after,
            capacity: Column::default(),
            bounds: Vec::new(),
            bounded: Column::default(),
            scores: BTreeMap::new(),
        });
    }
    verdicts.sort_by_key(|verdict| verdict.standing);
    verdicts
}

fn standings(rows: &BitSet, chosen: &BitSet, refused: bool) -> Vec<(BitSet, Standing)> {
    let (mut inside, mut outside) = (rows.clone(), rows.clone());
    inside.and(chosen);
    outside.minus(chosen);
    let (yes, no) = if refused {
        (Standing::Kept, Standing::Refused)
    } else {
        (Standing::Selected, Standing::NotSelected)
    };
    [(inside, yes), (outside, no)].into_iter().filter(|(rows, _)| !rows.is_empty()).collect()
}

/// Rows by the refusals that they share.
fn classes(cycle: &Cycle<'_>) -> Vec<(BitSet, Vec<usize>)> {
    let refusals = &cycle.verdicts.refusals;
    let mut classes = vec![(cycle.snapshot.all(), Vec::new())];
    for (id, refusal) in refusals.iter().enumerate() {
        let mut split = Vec::with_capacity(classes.len() + 1);
        for (rows, ids) in classes {
            let (mut hit, mut missed) = (rows.clone(), rows);
            hit.and(&refusal.rows);
            missed.minus(&refusal.rows);
            if !hit.is_empty() {
                let mut with: Vec<usize> = ids.clone();
                with.push(id);
                split.push((hit, with));
            }
            if !missed.is_empty() {
                split.push((missed, ids));
            }
        }
        classes = split;
        if classes.len() > MAX_CLASSES {
            return one_by_one(cycle);
        }
    }
    classes
}

fn one_by_one(cycle: &Cycle<'_>) -> Vec<(BitSet, Vec<usize>)> {
    let len = cycle.snapshot.len();
    let mut ids: Vec<Vec<usize>> = vec![Vec::new(); len];
    for (id, refusal) in cycle.verdicts.refusals.iter().enumerate() {
        refusal.rows.iter().for_each(|row| ids[row].push(id));
    }
    let mut classes: BTreeMap<Vec<usize>, BitSet> = BTreeMap::new();
    for (row, ids) in ids.into_iter().enumerate() {
        classes.entry(ids).or_insert_with(|| BitSet::empty(len)).insert(row);
    }
    classes.into_iter().map(|(ids, rows)| (rows, ids)).collect()
}

fn verdict(
    cycle: &Cycle<'_>,
    rows: BitSet,
    standing: Standing,
    rejections: &[usize],
    after: &[(u32, i64)],
) -> Verdict {
    let shares = |list: &[(u32, i64)]| -> Column {
        // Both are ascending: one walk over both.
        let mut list = list.iter().peekable();
        let mut any = false;
        let column = rows
            .iter()
            .map(|row| {
                while list.next_if(|(of, _)| (*of as usize) < row).is_some() {}
                let share = list.next_if(|(of, _)| *of as usize == row).map(|(_, n)| *n);
                any |= share.is_some();
                share
            })
            .collect();
        if any { column } else { Column::default() }
    };
    let targets_here = rows.intersects(&cycle.targets.rows);
    let before = if targets_here { shares(&cycle.targets.seats) } else { Column::default() };
    let chosen = matches!(standing, Standing::Selected | Standing::Kept);
    let after = if chosen { shares(after) } else { Column::default() };
    let (mut capacity, mut bounds, mut bounded) =
        (Column::default(), Vec::new(), Column::default());
    let mut scores = BTreeMap::new();
    if standing != Standing::Refused {
        if let Some(column) = &cycle.capacity {
            let mut index: Vec<Option<usize>> = vec![None; column.bounds.len()];
            for row in rows.iter() {
                capacity.push(column.more[row]);
                let bound = usize::from(column.bounded[row]);
                let known = match index[bound] {
                    Some(known) => known,
                    None => {
                        bounds.push(column.bounds[bound].clone());
                        index[bound] = Some(bounds.len() - 1);
                        bounds.len() - 1
                    }
                };
                bounded.push(Some(known as i64));
            }
        }
        if rejections.is_empty() && !cycle.scored.is_empty() {
            scores = scores_of(cycle, &rows);
        }
    }
    Verdict {
        standing,
        rejections: rejections.iter().map(|id| rejection(&cycle.verdicts.refusals[*id])).collect(),
        before,
        after,
        capacity,
        bounds,
        bounded,
        scores,
        clusters: ClusterSet::new(cycle.snapshot.names(), rows),
    }
}

fn scores_of(cycle: &Cycle<'_>, rows: &BitSet) -> BTreeMap<Cow<'static, str>, Column> {
    use crate::framework::scores::Values;
    let count = rows.count();
    cycle
        .scores
        .iter()
        .map(|scores| {
            let column = match &scores.values {
                Values::Same(value) => {
                    Column::constant_of(Some(value.saturating_mul(scores.weight)), count)
                }
                Values::Each(values) => cycle
                    .scored
                    .iter()
                    .zip(values)
                    .filter(|(row, _)| rows.contains(**row as usize))
                    .map(|(_, value)| Some(value.saturating_mul(scores.weight)))
                    .collect(),
            };
            (Cow::Borrowed(scores.plugin), column)
        })
        .collect()
}
