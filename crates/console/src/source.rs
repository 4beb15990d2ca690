//! Where the pages get what they show.

use futures::future::BoxFuture;
use futures::stream::BoxStream;

use crate::data::{
    Action, Copy, DecisionFilter, DecisionPage, Decisions, DiffPage, Member, Overview, Placement,
    PlacementFilter, Plan, Policies, WhatIf, Workload, WorkloadId,
};

/// An answer that is being read.
pub type Answer<'a, T> = BoxFuture<'a, Result<T, Fault>>;

/// Says each time that what a page shows may have changed. Ends when changes can no longer be followed.
pub type Changes = BoxStream<'static, ()>;

/// Why something cannot be shown. The texts are for the user.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// It does not exist.
    #[error("{0}")]
    NotFound(String),
    /// The user may not see or do it.
    #[error("{0}")]
    Forbidden(String),
    /// The request is wrong.
    #[error("{0}")]
    Invalid(String),
    /// The hub does not answer, or answers with an error.
    #[error("{0}")]
    Failed(String),
}

/// What a page shows, for following changes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Topic {
    /// All members and workloads.
    Fleet,
    /// Decisions that the filter selects.
    Decisions(Box<DecisionFilter>),
}

/// Reads what the pages show, with the rights of the user, and does what the user confirmed. Each call answers within a
/// time limit of its own or is dropped by the console.
pub trait Source: Send + Sync + 'static {
    /// The page Overview, with these pages of members and concerns.
    fn overview(&self, members: usize, concerns: usize) -> Answer<'_, Overview>;
    /// The page Placement.
    fn placement<'a>(&'a self, filter: &'a PlacementFilter) -> Answer<'a, Placement>;
    /// The page of a workload, with these pages of its shares and verdicts.
    fn workload<'a>(
        &'a self,
        of: &'a WorkloadId,
        shares: usize,
        verdicts: usize,
    ) -> Answer<'a, Workload>;
    /// A workload on one member.
    fn copy<'a>(&'a self, of: &'a WorkloadId, member: &'a str) -> Answer<'a, Copy>;
    /// The page of a member, with this page of its work.
    fn member<'a>(&'a self, name: &'a str, page: usize) -> Answer<'a, Member>;
    /// The page Decisions.
    fn decisions<'a>(&'a self, filter: &'a DecisionFilter) -> Answer<'a, Decisions>;
    /// One decision, with this page of its verdicts.
    fn decision<'a>(
        &'a self,
        namespace: Option<&'a str>,
        id: &'a str,
        page: usize,
    ) -> Answer<'a, DecisionPage>;
    /// The difference of two decisions, by their ids.
    fn diff<'a>(&'a self, from: &'a str, to: &'a str) -> Answer<'a, DiffPage>;
    /// The page Policies, with these pages of policies and findings.
    fn policies(&self, page: usize, findings: usize) -> Answer<'_, Policies>;
    /// What a change would move.
    fn plan<'a>(&'a self, ask: &'a WhatIf) -> Answer<'a, Plan>;
    /// What an action would do; nothing is written.
    fn preview<'a>(&'a self, action: &'a Action) -> Answer<'a, Plan>;
    /// Does it, and says what was done.
    fn act<'a>(&'a self, action: &'a Action) -> Answer<'a, String>;
    /// Follows changes.
    fn changes(&self, topic: Topic) -> Changes;
}
