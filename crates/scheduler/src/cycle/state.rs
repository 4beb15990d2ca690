//! The state that the plugins of one decision share.

use std::any::Any;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::Arc;

use atoll_api::binding::{Mode, Preemption, TargetCluster, Trigger};
use atoll_api::placement::{ClusterAffinity, OverflowAffinity};

use super::intent::Intent;
use super::preempted::Lost;
use super::quota::Withheld;
use crate::divide::input::Ties;
use crate::divide::limits::{Bound, Minimum, Skew};
use crate::framework::profile::{Profile, Semantics};
use crate::framework::scores::PluginScores;
use crate::framework::verdicts::Verdicts;
use crate::hash::TieHash;
use crate::request::Request;
use crate::state::cache::{Cache, CapacityColumn};
use crate::state::snapshot::Snapshot;
use atoll_decision::{BitSet, GroupReport};

/// The state of one decision, for one affinity term.
pub struct Cycle<'a> {
    /// The clusters, policies and other bindings.
    pub snapshot: &'a Snapshot,
    /// The request to decide on.
    pub request: &'a Request,
    /// The profile in use.
    pub profile: &'a Profile,
    /// What the request wants, and the strategy.
    pub intent: &'a Intent,
    /// Where the binding runs.
    pub targets: &'a Targets,
    /// Columns kept between decisions.
    pub cache: &'a RefCell<Cache>,
    /// The affinity term being tried.
    pub term: Arc<Term>,
    /// Why the decision is made. Set after the filters of the current term have run.
    pub trigger: Trigger,
    /// Which replicas may move.
    pub mode: Mode,
    /// Whether the decision may react to changed clusters or a changed placement.
    pub change: bool,
    /// Whether every target stays, regardless of the rules it fails.
    pub keeps_all: bool,
    /// Results of the filters.
    pub verdicts: Verdicts,
    /// Overflow tier by row, if the term has tiers. 0 = the term's own clusters.
    pub tiers: Option<Vec<u32>>,
    /// Unschedulable replicas that the decision tries to move away, by row, ascending. See `cycle::migration`.
    pub leaving: Vec<(u32, i64)>,
    /// The division that showed that unschedulable replicas can move. It is the result if they move.
    pub tried: Option<Tried>,
    /// Clusters of each subset of a WorkloadSpread, in the order of the subsets.
    pub subsets: Vec<BitSet>,
    /// How many more replicas fit, by row.
    pub capacity: Option<Arc<CapacityColumn>>,
    /// Targets that stay although they fail a rule.
    pub kept: BitSet,
    /// Rows to divide over, ascending: the selected and the kept clusters.
    pub candidates: Arc<[u32]>,
    /// Scores of all rows that passed the filters, in the order of `scored`.
    pub scores: Vec<PluginScores>,
    /// Rows that were scored, ascending.
    pub scored: Arc<[u32]>,
    /// The scored rows as a set.
    pub scored_set: Arc<BitSet>,
    /// Rules on groups of rows, added by Select and TopologySpread.
    pub rules: Rules,
    /// The result.
    pub assignment: Option<Assignment>,
    /// What a quota withholds from the result.
    pub withheld: Option<Withheld>,
    /// Room that the decision takes from bindings of lower priority.
    pub preempts: Vec<Preemption>,
    /// The rules before Assign added its own, for another division. Kept only where a PostFilter plugin is enabled.
    pub undivided: Option<Rules>,
    /// Domains or subsets, for the report.
    pub groups: Vec<GroupReport>,
    /// Further information for users.
    pub notes: Vec<String>,
    /// State of custom plugins, by plugin name.
    pub extras: BTreeMap<&'static str, Box<dyn Any>>,
}

/// A division that was made to find out whether it would change anything.
#[derive(Debug)]
pub struct Tried {
    /// Its result.
    pub assignment: Assignment,
    /// What a quota withholds from it.
    pub withheld: Option<Withheld>,
    /// The rules that it followed.
    pub rules: Rules,
    /// Domains or subsets, for the report.
    pub groups: Vec<GroupReport>,
    /// Replicas that it moved away.
    pub leaving: Vec<(u32, i64)>,
    /// Further information for users.
    pub notes: Vec<String>,
}

/// Where the binding runs.
#[derive(Debug, Clone, Default)]
pub struct Targets {
    /// Rows of its targets.
    pub rows: BitSet,
    /// Replicas by row, ascending.
    pub seats: Vec<(u32, i64)>,
    /// Targets that are no longer members.
    pub gone: Vec<TargetCluster>,
    /// Replicas that bindings of higher priority took the room of. `seats` does not count them.
    pub lost: Vec<Lost>,
}

impl Targets {
    /// Replicas on a row.
    #[must_use]
    pub fn on(&self, row: usize) -> i64 {
        let found = self.seats.binary_search_by_key(&(row as u32), |(row, _)| *row);
        found.map_or(0, |at| self.seats[at].1)
    }

    /// Replicas on all targets, including clusters that are no longer members.
    #[must_use]
    pub fn total(&self) -> i64 {
        let gone = self.gone.iter().map(|target| target.replicas);
        self.seats.iter().map(|(_, n)| *n).chain(gone).fold(0, i64::saturating_add)
    }

    /// Whether there is no target.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.seats.is_empty() && self.gone.is_empty()
    }
}

/// An affinity term.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Term {
    /// Its index in `clusterAffinities`.
    pub at: usize,
    /// Its name, if it has one.
    pub name: Option<String>,
    /// Its clusters. `None` = all.
    pub affinity: Option<ClusterAffinity>,
    /// Its overflow tiers.
    pub tiers: Vec<OverflowAffinity>,
}

/// Rules on groups, by row. Converted to indices when the candidates are known.
#[derive(Debug, Clone, Default)]
pub struct Rules {
    /// Skews; `of` is by row.
    pub skews: Vec<Skew>,
    /// Minimum groups; `of` is by row.
    pub minimums: Vec<Minimum>,
    /// Bounds; `member` is by row.
    pub bounds: Vec<Bound>,
}

/// The result of Assign.
#[derive(Debug, Clone, Default)]
pub struct Assignment {
    /// Replicas by candidate.
    pub seats: Vec<i64>,
    /// Whether each candidate is a target, for strategies where a target may have no replicas (Duplicated, kinds
    /// without replicas).
    pub targets: Option<Vec<bool>>,
    /// Replicas that are not placed, by reason.
    pub pending: Vec<(i64, String)>,
    /// Why nothing may be placed or moved, if so.
    pub refused: Option<String>,
    /// Whether more targets failed than can be replaced.
    pub infeasible: bool,
}

impl Cycle<'_> {
    /// Whether Karmada's rules apply.
    #[must_use]
    pub fn as_karmada(&self) -> bool {
        self.profile.semantics == Semantics::Karmada
    }

    /// Additional replicas that fit on a row; `None` = unknown.
    #[must_use]
    pub fn more(&self, row: usize) -> Option<i64> {
        self.capacity.as_ref().and_then(|column| column.more(row))
    }

    /// Tie-break ranks of rows.
    #[must_use]
    pub fn ties(&self, rows: &Arc<[u32]>) -> Ties {
        let uid = &self.request.template.uid;
        if self.as_karmada() {
            let descending = crate::hash::fnv1a_32(uid.as_bytes()) % 2 == 1 && !uid.is_empty();
            let place = |row: &u32| {
                let row = u64::from(*row);
                if descending { row } else { u64::MAX - row }
            };
            return Ties::Given(rows.iter().map(place).collect());
        }
        if uid.is_empty() {
            // Without a uid, ties are broken by name: equal ranks fall back to the index, which is the order of names.
            return Ties::Same;
        }
        let (hash, names) = (TieHash::of(uid), self.snapshot.names());
        Ties::Hashed { hash, names, rows: rows.clone() }
    }

    /// Sums of weighted scores, in the order of `scored`.
    #[must_use]
    pub fn score_sums(&self) -> Vec<i64> {
        let mut sums = vec![0_i64; self.scored.len()];
        for scores in &self.scores {
            for (at, sum) in sums.iter_mut().enumerate() {
                *sum = sum.saturating_add(scores.values.get(at).saturating_mul(scores.weight));
            }
        }
        sums
    }

    /// Sum of weighted scores at an index of `scored`.
    #[must_use]
    pub fn score(&self, at: usize) -> i64 {
        self.scores
            .iter()
            .map(|scores| scores.values.get(at).saturating_mul(scores.weight))
            .fold(0, i64::saturating_add)
    }
}
