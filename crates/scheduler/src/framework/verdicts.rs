//! Results of the filters. Every rejection is kept, with all clusters that share it.

use std::collections::BTreeMap;

use super::status::Code;
use crate::state::cache::RowClasses;
use atoll_decision::{BitSet, Text};

/// Whether a cluster that already runs the binding keeps it after failing the rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Hold {
    /// It keeps its share but gets no more replicas.
    Always,
    /// It keeps its share unless the decision may react to changed clusters or a changed placement.
    UnlessChange,
    /// It loses its share.
    Never,
}

/// A rule and the clusters that failed it.
#[derive(Debug, Clone, PartialEq)]
pub struct Refusal {
    /// The plugin.
    pub plugin: &'static str,
    /// Its status code.
    pub code: Code,
    /// Why, with the values that failed.
    pub reason: Text,
    /// The clusters.
    pub rows: BitSet,
    /// The consequence for clusters that already run the binding.
    pub hold: Hold,
}

/// Results of the filters for all clusters.
#[derive(Debug, Clone, PartialEq)]
pub struct Verdicts {
    /// Clusters that no filter rejected.
    pub passing: BitSet,
    /// The rejections, in the order of the filters.
    pub refusals: Vec<Refusal>,
    /// Clusters with a limit on the binding's total replicas (`Partial(n)`): limit, plugin and reason.
    pub partial: BTreeMap<usize, (i64, &'static str, String)>,
}

impl Verdicts {
    /// The initial state: every cluster passes.
    #[must_use]
    pub fn new(rows: usize) -> Self {
        Self { passing: BitSet::full(rows), refusals: Vec::new(), partial: BTreeMap::new() }
    }

    /// Rejects clusters.
    pub fn reject(
        &mut self,
        plugin: &'static str,
        code: Code,
        reason: impl Into<Text>,
        rows: BitSet,
        hold: Hold,
    ) {
        if rows.is_empty() {
            return;
        }
        self.passing.minus(&rows);
        self.refusals.push(Refusal { plugin, code, reason: reason.into(), rows, hold });
    }

    /// Rejects the clusters that fail a cached test, except the given ones.
    pub fn reject_classes(
        &mut self,
        plugin: &'static str,
        code: Code,
        classes: &RowClasses,
        except: Option<&BitSet>,
        hold: Hold,
    ) {
        for (reason, rows) in &classes.refused {
            if rows.is_empty() {
                continue;
            }
            let mut rows = rows.clone();
            if let Some(except) = except {
                rows.minus(except);
            }
            self.reject(plugin, code, reason.clone(), rows, hold);
        }
    }

    /// Limits a cluster's total replicas of the binding. The lowest limit wins.
    pub fn limit(&mut self, plugin: &'static str, row: usize, replicas: i64, reason: String) {
        let new = (replicas.max(0), plugin, reason);
        let entry = self.partial.entry(row).or_insert_with(|| new.clone());
        if new.0 < entry.0 {
            *entry = new;
        }
    }

    /// Clusters that a plugin rejected.
    #[must_use]
    pub fn refused_by(&self, plugin: &str) -> BitSet {
        let mut rows = BitSet::empty(self.passing.capacity());
        for refusal in self.refusals.iter().filter(|refusal| refusal.plugin == plugin) {
            rows.or(&refusal.rows);
        }
        rows
    }

    /// The clusters among `targets` that keep their share: none of their rejections removes it.
    #[must_use]
    pub fn kept(&self, targets: &BitSet, change: bool) -> BitSet {
        let mut kept = targets.clone();
        kept.minus(&self.passing);
        for refusal in &self.refusals {
            let leaves = match refusal.hold {
                Hold::Always => false,
                Hold::UnlessChange => change,
                Hold::Never => true,
            };
            if leaves {
                kept.minus(&refusal.rows);
            }
        }
        kept
    }

    /// The first rejection of a cluster.
    #[must_use]
    pub fn first(&self, row: usize) -> Option<&Refusal> {
        self.refusals.iter().find(|refusal| refusal.rows.contains(row))
    }
}
