//! What the filters said: every rejection is kept, with all clusters that share it.

use std::collections::BTreeMap;

use super::status::Code;
use crate::state::cache::Classes;
use atoll_decision::{BitSet, Text};

/// Whether a cluster that already runs the binding stays although it fails the rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Hold {
    /// It keeps its share and never grows.
    Always,
    /// It keeps its share unless the decision may react to changed clusters or a changed placement.
    UnlessChange,
    /// It loses its share.
    Never,
}

/// One rule that clusters failed.
#[derive(Debug, Clone, PartialEq)]
pub struct Refusal {
    /// The plugin.
    pub plugin: &'static str,
    /// Its status code.
    pub code: Code,
    /// With the values that failed.
    pub reason: Text,
    /// The clusters.
    pub rows: BitSet,
    /// What it means for clusters that run the binding.
    pub hold: Hold,
}

/// Answers of the filters on all clusters.
#[derive(Debug, Clone, PartialEq)]
pub struct Verdicts {
    /// Clusters that no filter rejected.
    pub passing: BitSet,
    /// The rejections, in the order of the filters.
    pub refusals: Vec<Refusal>,
    /// Clusters that take only so many replicas in all (`Partial(n)`), with plugin and reason.
    pub partial: BTreeMap<usize, (i64, &'static str, String)>,
}

impl Verdicts {
    /// Every cluster passes so far.
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

    /// Rejects what a cached test refuses, except some clusters.
    pub fn reject_classes(
        &mut self,
        plugin: &'static str,
        code: Code,
        classes: &Classes,
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

    /// Limits a cluster to so many replicas of the binding; the least limit counts.
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

    /// Of these clusters, those whose every rejection lets a running share stay.
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

    /// Why a cluster was rejected, the first rule.
    #[must_use]
    pub fn first(&self, row: usize) -> Option<&Refusal> {
        self.refusals.iter().find(|refusal| refusal.rows.contains(row))
    }
}
