//! Groups all clusters by verdict. Classes are split by whole sets of rows, not row by row.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use super::intent::Strategy;
use super::preempted;
use super::report::{rejection, rows_of};
use super::state::Cycle;
use crate::framework::scores::{PluginScores, Values};
use crate::plugins::replica_division::weighted;
use crate::state::cache::CapacityColumn;
use atoll_decision::{BitSet, ClusterOutcome, ClusterSet, Column, Figures, Text, Verdict};

/// Above this number of classes, rows are classified one by one.
const MAX_CLASSES: usize = 64;

/// The verdicts of a cycle that ended with the shares `after`.
#[must_use]
pub fn build(
    cycle: &Cycle<'_>,
    after: &[(u32, i64)],
    gone: &[atoll_api::binding::TargetCluster],
) -> Vec<Verdict> {
    let len = cycle.snapshot.len();
    let chosen = rows_of(after, len);
    let mut verdicts = Vec::new();
    for (rows, rejections) in classes(cycle) {
        let refused = !rejections.is_empty();
        for (part, outcome) in by_outcome(&rows, &chosen, refused) {
            verdicts.push(verdict(cycle, part, outcome, &rejections, after));
        }
    }
    if !cycle.targets.gone.is_empty() {
        let clusters = ClusterSet::of(cycle.targets.gone.iter().map(|target| target.name.as_str()));
        let shares = |list: &[atoll_api::binding::TargetCluster]| -> Column {
            let shares: BTreeMap<&str, i64> =
                list.iter().map(|t| (t.name.as_str(), t.replicas)).collect();
            clusters.iter().map(|name| shares.get(&**name).copied()).collect()
        };
        let before = shares(&cycle.targets.gone);
        let after = if gone.is_empty() { Column::default() } else { shares(gone) };
        verdicts.push(Verdict {
            clusters,
            outcome: ClusterOutcome::Gone,
            rejections: Vec::new(),
            before,
            after,
            capacity: Column::default(),
            bounds: Vec::new(),
            bounded: Column::default(),
            weights: Column::default(),
            scores: BTreeMap::new(),
        });
    }
    verdicts.sort_by_key(|verdict| verdict.outcome);
    verdicts
}

fn by_outcome(rows: &BitSet, chosen: &BitSet, refused: bool) -> Vec<(BitSet, ClusterOutcome)> {
    let (mut inside, mut outside) = (rows.clone(), rows.clone());
    inside.and(chosen);
    outside.minus(chosen);
    let (yes, no) = if refused {
        (ClusterOutcome::Kept, ClusterOutcome::Refused)
    } else {
        (ClusterOutcome::Selected, ClusterOutcome::NotSelected)
    };
    [(inside, yes), (outside, no)].into_iter().filter(|(rows, _)| !rows.is_empty()).collect()
}

/// Rows grouped by the refusals that they share.
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
    outcome: ClusterOutcome,
    rejections: &[usize],
    after: &[(u32, i64)],
) -> Verdict {
    let rows = Arc::new(rows);
    let before = if cycle.targets.lost.is_empty() {
        let targets_here = rows.intersects(&cycle.targets.rows);
        if targets_here { shares(&rows, &cycle.targets.seats) } else { Column::default() }
    } else {
        Some(shares(&rows, &preempted::before(cycle.targets, cycle.snapshot)))
            .filter(|column| column.iter().any(|share| share.is_some()))
            .unwrap_or_default()
    };
    let chosen = matches!(outcome, ClusterOutcome::Selected | ClusterOutcome::Kept);
    let after = if chosen {
        // Every selected row has a share, so iterating over the list is shorter than over the rows.
        let here = after.iter().filter(|(row, _)| rows.contains(*row as usize));
        Column::of(here.map(|(_, replicas)| *replicas))
    } else {
        Column::default()
    };
    let (mut capacity, mut bounds, mut bounded) =
        (Column::default(), Vec::new(), Column::default());
    let mut scores = BTreeMap::new();
    if outcome != ClusterOutcome::Refused {
        if let Some(column) = &cycle.capacity {
            let figures = Figures::Numbers(column.more.clone(), 1);
            capacity = Column::picked(figures, None, rows.clone());
            (bounds, bounded) = bounds_of(column, &rows);
        }
        if rejections.is_empty() && !cycle.scored.is_empty() {
            scores = scores_of(cycle, &rows);
        }
    }
    Verdict {
        outcome,
        weights: if chosen { weights_of(cycle, &rows) } else { Column::default() },
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

/// The static weights of these rows, if the strategy has a weight list.
fn weights_of(cycle: &Cycle<'_>, rows: &BitSet) -> Column {
    let Strategy::StaticWeight(rules) = &cycle.intent.strategy else { return Column::default() };
    if rules.is_empty() {
        return Column::default();
    }
    let column = weighted(cycle, rules);
    Column::of(rows.iter().map(|row| i64::try_from(column.weight[row]).unwrap_or(i64::MAX)))
}

/// Shares by row. Rows without a share have no number.
fn shares(rows: &BitSet, list: &[(u32, i64)]) -> Column {
    // Both are in ascending order, so one pass suffices.
    let mut list = list.iter().peekable();
    let share = |row: usize| {
        while list.next_if(|(of, _)| (*of as usize) < row).is_some() {}
        list.next_if(|(of, _)| *of as usize == row).map(|(_, n)| *n)
    };
    rows.iter().map(share).collect()
}

/// What limits the capacity of these rows, in order of first occurrence, and the index of the limit for each row.
fn bounds_of(column: &CapacityColumn, rows: &Arc<BitSet>) -> (Vec<Text>, Column) {
    let mut met: Vec<(usize, usize)> = column
        .bounds
        .iter()
        .enumerate()
        .filter_map(|(code, (_, of))| Some((of.first_common(rows)?, code)))
        .collect();
    met.sort_unstable();
    let texts = met.iter().map(|(_, code)| column.bounds[*code].0.clone()).collect();
    if met.len() == 1 {
        return (texts, Column::constant_of(Some(0), rows.count()));
    }
    let mut stands = vec![0_u8; column.bounds.len()];
    (0..).zip(&met).for_each(|(place, (_, code))| stands[*code] = place);
    let figures = Figures::Codes(column.bounded.clone(), stands.into());
    (texts, Column::picked(figures, None, rows.clone()))
}

fn scores_of(cycle: &Cycle<'_>, rows: &Arc<BitSet>) -> BTreeMap<Cow<'static, str>, Column> {
    let of = || Some(cycle.scored_set.clone());
    let column = |scores: &PluginScores| match &scores.values {
        Values::Same(value) => {
            Column::constant_of(Some(value.saturating_mul(scores.weight)), rows.count())
        }
        Values::Each(values) => {
            let figures = Figures::Numbers(values.clone(), scores.weight);
            Column::picked(figures, of(), rows.clone())
        }
    };
    cycle.scores.iter().map(|scores| (Cow::Borrowed(scores.plugin), column(scores))).collect()
}
