//! The extension points of the pure part of a decision. A plugin implements the ones it needs.

use std::sync::Arc;

use super::scores::Scores;
use super::status::Status;
use super::verdicts::Verdicts;
use crate::cycle::state::Cycle;
use crate::state::tables::BindingFacts;

/// A scheduling plugin. Each extension point handles all clusters at once, as sets.
pub trait Plugin: Send + Sync {
    /// Its name in configuration and in decisions.
    fn name(&self) -> &'static str;

    /// Runs once, before the filters, and prepares the plugin's state. `Skip` skips the plugin's Filter; a rejection
    /// ends the decision.
    fn pre_filter(&self, _: &mut Cycle<'_>) -> Status {
        Status::skip()
    }

    /// Rejects clusters, or limits them with `Partial(n)`.
    fn filter(&self, _: &Cycle<'_>, _: &mut Verdicts) -> Status {
        Status::skip()
    }

    /// Takes replicas of another binding out of the plugin's state, as if they had left a cluster. Runs between
    /// `pre_filter` and `assign`, when a PostFilter plugin tries what would help. kube-scheduler calls these two functions
    /// PreFilterExtensions.
    fn remove_binding(&self, _: &mut Cycle<'_>, _: &Replicas<'_>) {}

    /// Puts replicas back that [`Plugin::remove_binding`] took out.
    fn add_binding(&self, _: &mut Cycle<'_>, _: &Replicas<'_>) {}

    /// Runs when no cluster passes: then the filters run again after the first plugin that returns Success. Runs also
    /// when replicas are left without a place: then a plugin that returns Success has replaced `cycle.assignment` by a
    /// better one.
    fn post_filter(&self, _: &mut Cycle<'_>) -> Status {
        Status::skip()
    }

    /// Runs once, before the scores. `Skip` skips the plugin's Score.
    fn pre_score(&self, _: &mut Cycle<'_>) -> Status {
        Status::success()
    }

    /// Scores the candidates.
    fn score(&self, _: &Cycle<'_>, _: &mut Scores<'_>) -> Status {
        Status::skip()
    }

    /// Normalizes the plugin's scores to 0..=100.
    fn normalize(&self, _: &Cycle<'_>, _: &mut Scores<'_>) {}

    /// Selects clusters under group constraints. The first plugin that does not Skip decides.
    fn select(&self, _: &mut Cycle<'_>) -> Status {
        Status::skip()
    }

    /// Divides the replicas. The first plugin that does not Skip decides.
    fn assign(&self, _: &mut Cycle<'_>) -> Status {
        Status::skip()
    }

    /// Reserves the result. A failure unreserves all plugins in reverse order.
    fn reserve(&self, _: &mut Cycle<'_>) -> Status {
        Status::success()
    }

    /// Whether it keeps the skew of workloads within a hard limit whose placement has no constraints of its own.
    fn limits_skew_by_default(&self) -> bool {
        false
    }

    /// Undoes the reservation. Idempotent; may run without Reserve.
    fn unreserve(&self, _: &mut Cycle<'_>) {}
}

/// Replicas of another binding on a cluster.
#[derive(Debug, Clone, Copy)]
pub struct Replicas<'b> {
    /// The binding.
    pub facts: &'b Arc<BindingFacts>,
    /// Row of the cluster.
    pub row: usize,
    /// How many.
    pub count: i64,
    /// How many of them belong to its share. The member still reports the others, which no decision counts any more.
    pub placed: i64,
    /// Whether they leave anyway. Their room may be promised to others: it only makes up for reservations beyond the free
    /// room.
    pub awaited: bool,
}

/// Extension points, in execution order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Point {
    /// Gate before the queue (controller).
    PreEnqueue,
    /// Order of the queue (controller).
    QueueSort,
    /// See [`Plugin::pre_filter`].
    PreFilter,
    /// See [`Plugin::filter`].
    Filter,
    /// See [`Plugin::post_filter`].
    PostFilter,
    /// See [`Plugin::pre_score`].
    PreScore,
    /// See [`Plugin::score`].
    Score,
    /// See [`Plugin::select`].
    Select,
    /// See [`Plugin::assign`].
    Assign,
    /// See [`Plugin::reserve`].
    Reserve,
    /// Approval, denial or waiting (controller).
    Permit,
    /// Before the write (controller).
    PreBind,
    /// The write (controller).
    Bind,
    /// After the write (controller).
    PostBind,
}

impl Point {
    /// All extension points, in execution order.
    pub const ALL: [Self; 14] = [
        Self::PreEnqueue,
        Self::QueueSort,
        Self::PreFilter,
        Self::Filter,
        Self::PostFilter,
        Self::PreScore,
        Self::Score,
        Self::Select,
        Self::Assign,
        Self::Reserve,
        Self::Permit,
        Self::PreBind,
        Self::Bind,
        Self::PostBind,
    ];

    /// Its name in configuration.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::PreEnqueue => "preEnqueue",
            Self::QueueSort => "queueSort",
            Self::PreFilter => "preFilter",
            Self::Filter => "filter",
            Self::PostFilter => "postFilter",
            Self::PreScore => "preScore",
            Self::Score => "score",
            Self::Select => "select",
            Self::Assign => "assign",
            Self::Reserve => "reserve",
            Self::Permit => "permit",
            Self::PreBind => "preBind",
            Self::Bind => "bind",
            Self::PostBind => "postBind",
        }
    }
}
