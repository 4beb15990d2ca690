//! Plans: what a change would move, decided by the leader on a copy of what it knows. Nothing is written.
//!
//! [`Planner::base`] asks the event loop for the copy ([`Known`]). The change is applied to a [`trial::Trial`], which decides
//! what is due with the leader's own steps: the same tables, queue, claims, requests and scheduler. What it
//! decides is stored in the copy, so that later decisions see it. The bindings that it looked at are then decided without
//! the change, too: the difference is the plan. Both run on a thread of their own, one plan at a time.

mod base;
mod lists;
mod sides;
mod store;
mod trial;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use atoll_api::ClusterName;
use atoll_scheduler::offline::{Answer, World};
use atoll_scheduler::{LiveCluster, Profiles, Tables, WakeCondition};
use kube::api::ApiResource;
use serde_json::Value;
use tokio::sync::{Semaphore, mpsc, oneshot};

pub use self::base::Base;
use crate::env::Env;
use crate::index::Index;
use crate::index::key::{BindingKey, GroupKind};
use crate::leader::LeaderTerm;
use crate::reconcile::Reported;

/// Plans that wait for the one that runs. Each may hold a request of some megabytes.
const QUEUED: usize = 4;
/// Limit of the wait for the plans before it.
const TURN: Duration = Duration::from_secs(10);
/// Limit of the wait for the event loop.
const COPY: Duration = Duration::from_secs(5);

/// A request for a copy of what the leader knows; `None` if this process does not lead.
pub(crate) type Ask = oneshot::Sender<Option<Box<Known>>>;

/// What the leader decides from.
pub(crate) struct Known {
    pub(crate) env: Arc<Env>,
    pub(crate) term: LeaderTerm,
    pub(crate) index: Index,
    /// With what was decided and is not in the hub yet.
    pub(crate) tables: Tables,
    pub(crate) live: BTreeMap<ClusterName, LiveCluster>,
    pub(crate) resources: BTreeMap<GroupKind, ApiResource>,
    pub(crate) reported: Arc<BTreeMap<BindingKey, Reported>>,
    /// Bindings that wait for events.
    pub(crate) waiting: Vec<(BindingKey, Vec<WakeCondition>)>,
    /// Bindings that are being decided, or will be.
    pub(crate) due: Vec<BindingKey>,
    /// Bindings behind shut gates.
    pub(crate) gated: Vec<BindingKey>,
}

/// A change to plan.
#[derive(Debug, Default)]
pub struct Change {
    /// Objects as the hub would store them.
    pub objects: Vec<Value>,
    /// The profiles that the scheduler would get.
    pub profiles: Option<Profiles>,
}

/// What a change would do.
#[derive(Debug)]
pub struct Planned {
    /// The workloads that were looked at, without the change.
    pub before: Side,
    /// The same with the change.
    pub after: Side,
    /// All workloads.
    pub workloads: usize,
    /// Replicas of all other workloads, by member.
    pub elsewhere: BTreeMap<String, i64>,
    /// Why a ChangeGuard would hold the change.
    pub held_by: Option<String>,
    /// What the plan lacks.
    pub problems: Vec<String>,
    /// Equal for equal states of the hub and of the members' room.
    pub snapshot: String,
}

/// Objects with the decisions on them.
#[derive(Debug)]
pub struct Side {
    /// The objects.
    pub world: World,
    /// The decisions.
    pub answers: Vec<Answer>,
}

/// Why there is no plan.
#[derive(Debug, thiserror::Error)]
pub enum PlanError {
    /// Another controller leads, or none.
    #[error("this controller does not lead: only the leader plans")]
    NotLeading,
    /// Too many plans.
    #[error("{QUEUED} other plans wait: try again in some seconds")]
    Busy,
    /// It takes too long.
    #[error("the plan took longer than {} s: plan a smaller change", .0.as_secs())]
    TooLong(Duration),
    /// An object of the change cannot be planned.
    #[error("{object}: {problem}")]
    Object {
        /// The object.
        object: String,
        /// The problem, and the fix.
        problem: String,
    },
    /// The profiles' plugins cannot run together.
    #[error("the profiles: {0}")]
    Profiles(String),
    /// The hub did not answer.
    #[error("list {what}: {why}")]
    Hub {
        /// The objects.
        what: String,
        /// The problem.
        why: String,
    },
    /// The thread panicked; the log says why.
    #[error("the plan ended with an error in the controller: its log says why")]
    Failed,
}

/// Plans changes. Clones share their limits.
#[derive(Debug, Clone)]
pub struct Planner {
    asks: mpsc::Sender<Ask>,
    running: Arc<Semaphore>,
    queued: Arc<Semaphore>,
}

/// A planner without a leader.
impl Default for Planner {
    fn default() -> Self {
        Self::new().0
    }
}

impl Planner {
    /// A planner, and where the event loop gets what it asks for.
    pub(crate) fn new() -> (Self, mpsc::Receiver<Ask>) {
        let (asks, plans) = mpsc::channel(1);
        let (running, queued) = (Semaphore::new(1), Semaphore::new(QUEUED));
        (Self { asks, running: Arc::new(running), queued: Arc::new(queued) }, plans)
    }

    /// What the leader knows at this moment, to plan one change with. The next plan waits until it is dropped.
    ///
    /// # Errors
    /// When this controller does not lead, or other plans wait.
    pub async fn base(&self) -> Result<Base, PlanError> {
        let place = Arc::clone(&self.queued).try_acquire_owned().map_err(|_| PlanError::Busy)?;
        let turn = tokio::time::timeout(TURN, Arc::clone(&self.running).acquire_owned()).await;
        let turn = turn.map_err(|_| PlanError::Busy)?.map_err(|_| PlanError::NotLeading)?;
        drop(place);
        let (ask, answer) = oneshot::channel();
        let asked = async {
            self.asks.send(ask).await.ok()?;
            answer.await.ok().flatten()
        };
        let known = tokio::time::timeout(COPY, asked).await.ok().flatten();
        Ok(Base::new(*known.ok_or(PlanError::NotLeading)?, turn))
    }
}
