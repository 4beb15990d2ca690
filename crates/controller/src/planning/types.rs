//! What plans are made from, and what they say.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use atoll_api::rebalancer::RebalanceMode;
use atoll_api::{Clock, ClusterName};
use atoll_scheduler::offline::{Answer, World};
use atoll_scheduler::{LiveCluster, Profiles, RecoverAfter, Tables, WakeCondition};
use kube::Client;
use kube::api::ApiResource;
use serde_json::Value;

use crate::env::Env;
use crate::index::Index;
use crate::index::key::{BindingKey, GroupKind, TemplateKey};
use crate::interpret::Interpreter;
use crate::leader::LeaderTerm;
use crate::reconcile::Reported;
use crate::schedule::extend::Extensions;

/// Plans that wait for the one that runs. Each may hold a request of some megabytes.
pub(super) const QUEUED: usize = 4;
/// Limit of the decisions of one plan: kube-apiserver ends requests after 60 s.
pub(super) const LIMIT: Duration = Duration::from_secs(40);

/// What decisions depend on besides objects and reports.
#[derive(Clone)]
pub(crate) struct Settings {
    /// For objects of kinds that are not watched.
    pub(crate) client: Client,
    pub(crate) clock: Clock,
    pub(crate) interpreter: Arc<Interpreter>,
    pub(crate) extensions: Arc<Extensions>,
    pub(crate) profiles: Profiles,
    pub(crate) recover_after: RecoverAfter,
}

impl Settings {
    pub(crate) fn of(env: &Env) -> Self {
        Self {
            client: env.client.clone(),
            clock: env.clock.clone(),
            interpreter: env.interpreter.clone(),
            extensions: env.extensions.clone(),
            profiles: env.scheduler.profiles().clone(),
            recover_after: env.waits.recover_after,
        }
    }
}

/// What the leader decides from.
#[derive(Clone)]
pub(crate) struct Known {
    pub(crate) settings: Settings,
    pub(crate) term: LeaderTerm,
    /// Shared by all who only read it: a copy takes longer than a small plan.
    pub(crate) index: Arc<Index>,
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
    /// Placed workloads for which a rebalance is asked.
    pub rebalance: Vec<(TemplateKey, RebalanceMode)>,
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
