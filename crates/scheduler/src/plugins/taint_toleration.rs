//! Taints of clusters: NoSchedule rejects new targets, NoExecute removes running shares when its toleration ends,
//! PreferNoSchedule lowers the score. A cluster that is being deleted takes no replicas and keeps none.

use k8s_openapi::api::core::v1::Toleration;

use crate::cycle::intent::Strategy;
use crate::cycle::state::Cycle;
use crate::framework::plugin::Plugin;
use crate::framework::scores::{MAX, Scores, Values};
use crate::framework::status::{Code, Status};
use crate::framework::verdicts::{Hold, Verdicts};
use crate::request::TaintEviction;
use crate::state::cache::TaintColumn;
use atoll_decision::BitSet;

/// See the module documentation.
#[derive(Debug)]
pub struct TaintToleration;
super::without_args!(TaintToleration);

/// The plugin's name.
pub const NAME: &str = atoll_decision::plugin::TAINT_TOLERATION;

impl Plugin for TaintToleration {
    fn name(&self) -> &'static str {
        NAME
    }

    fn pre_filter(&self, _: &mut Cycle<'_>) -> Status {
        Status::success()
    }

    fn filter(&self, cycle: &Cycle<'_>, verdicts: &mut Verdicts) -> Status {
        for (tolerations, among) in tolerations(cycle) {
            let column = cycle.cache.borrow_mut().taints.get(cycle.snapshot, &tolerations);
            reject_deleted(&column, among.as_ref(), verdicts);
            for (reason, rows) in &column.no_schedule.refused {
                let mut rows = rows.clone();
                if let Some(among) = &among {
                    rows.and(among);
                }
                if cycle.as_karmada() {
                    rows.minus(&cycle.targets.rows);
                }
                verdicts.reject(NAME, Code::Unschedulable, reason.clone(), rows, Hold::Always);
            }
            reject_evicting(cycle, &column, among.as_ref(), verdicts);
        }
        Status::success()
    }

    fn score(&self, cycle: &Cycle<'_>, scores: &mut Scores<'_>) -> Status {
        let columns: Vec<_> = tolerations(cycle)
            .into_iter()
            .map(|(list, among)| {
                (cycle.cache.borrow_mut().taints.get(cycle.snapshot, &list), among)
            })
            .collect();
        if columns.iter().all(|(column, _)| column.any_prefer_not.is_empty()) {
            scores.values = Values::Same(MAX);
            return Status::success();
        }
        let count = |row: &u32| {
            let row = *row as usize;
            let mut of = columns
                .iter()
                .filter(|(_, among)| among.as_ref().is_none_or(|rows| rows.contains(row)));
            of.next().map_or(0, |(column, _)| i64::from(column.prefer_not[row]))
        };
        let most = scores.candidates.iter().map(count).max().unwrap_or(0);
        scores.values = if most == 0 {
            Values::Same(MAX)
        } else {
            let score = |row| MAX - MAX * count(row) / most;
            Values::Each(scores.candidates.iter().map(score).collect())
        };
        Status::success()
    }
}

/// Rejects the clusters that work must leave: clusters that are being deleted, and clusters with a NoExecute taint that
/// is not or no longer tolerated. Applies in every profile, even if the plugin is not enabled: work placed there would
/// be evicted again.
pub fn evict(cycle: &Cycle<'_>, verdicts: &mut Verdicts) {
    for (tolerations, among) in tolerations(cycle) {
        let column = cycle.cache.borrow_mut().taints.get(cycle.snapshot, &tolerations);
        reject_deleted(&column, among.as_ref(), verdicts);
        reject_evicting(cycle, &column, among.as_ref(), verdicts);
    }
}

fn reject_deleted(column: &TaintColumn, among: Option<&BitSet>, verdicts: &mut Verdicts) {
    let mut rows = column.deleting.clone();
    if let Some(among) = among {
        rows.and(among);
    }
    let code = Code::UnschedulableAndUnresolvable;
    verdicts.reject(NAME, code, "is being deleted", rows, Hold::Never);
}

fn reject_evicting(
    cycle: &Cycle<'_>,
    column: &TaintColumn,
    among: Option<&BitSet>,
    verdicts: &mut Verdicts,
) {
    let untolerated = column.no_execute.refused.iter().cloned();
    let expired = column.expiring.iter().filter(|(_, until, _)| *until <= cycle.request.now);
    let expired = expired.map(|(row, _, reason)| {
        let mut one = BitSet::empty(cycle.snapshot.len());
        one.insert(*row);
        (reason.as_str().into(), one)
    });
    let stay = cycle.as_karmada() && cycle.request.taint_eviction == TaintEviction::LeftOut;
    let ended = ended_targets(cycle);
    for (reason, mut rows) in untolerated.chain(expired) {
        if let Some(among) = among {
            rows.and(among);
        }
        if stay {
            rows.minus(&cycle.targets.rows);
        }
        let mut staying = rows.clone();
        staying.and(&ended);
        rows.minus(&ended);
        // Karmada's rules have no targets that stay although a filter rejects them: there the cluster passes.
        if !cycle.as_karmada() {
            verdicts.reject(NAME, Code::Unschedulable, reason.clone(), staying, Hold::Always);
        }
        verdicts.reject(NAME, Code::Unschedulable, reason, rows, Hold::Never);
    }
}

/// Targets on which the object is a Job that has ended: taints do not move it, because a copy elsewhere would run again.
fn ended_targets(cycle: &Cycle<'_>) -> BitSet {
    let mut ended = BitSet::empty(cycle.snapshot.len());
    for (row, _) in &cycle.targets.seats {
        let row = *row as usize;
        if cycle.request.has_ended_on(&cycle.snapshot.row(row).name) {
            ended.insert(row);
        }
    }
    ended
}

/// The tolerations in force. Each list has the clusters that it applies to (`None` = all).
pub fn tolerations(cycle: &Cycle<'_>) -> Vec<(Vec<Toleration>, Option<BitSet>)> {
    let base = &cycle.request.placement.cluster_tolerations;
    let Strategy::WorkloadSpread(spread) = &cycle.intent.strategy else {
        return vec![(base.clone(), None)];
    };
    let mut rest = cycle.snapshot.all();
    let mut lists = Vec::new();
    for (subset, rows) in spread.spec.subsets.iter().zip(&cycle.subsets) {
        if !subset.tolerations.is_empty() {
            rest.minus(rows);
            let both = base.iter().chain(&subset.tolerations).cloned().collect();
            lists.push((both, Some(rows.clone())));
        }
    }
    lists.push((base.clone(), Some(rest)));
    lists
}
