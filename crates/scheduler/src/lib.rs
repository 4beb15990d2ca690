//! The scheduler core: decides which member clusters run a workload, with how many replicas each.
//!
//! `(Snapshot, Request) -> Decision` is a pure function: no async, clock, network, randomness or hash order. The
//! controller keeps [`Tables`] up to date, takes snapshots of them and commits decisions. Offline readers do the same
//! with files.
//!
//! [`cycle`] makes a decision, with the plugins in [`plugins`] and the strategies in [`divide`].

pub mod cycle;
pub mod detect;
pub mod divide;
pub mod framework;
pub mod hash;
pub mod lint;
pub mod lint_policy;
pub mod offline;
pub mod plugins;
pub mod replay;
pub mod request;
mod scheduler;
pub mod select;
pub mod state;

pub use atoll_decision::{BindingKey, Decision, PolicyRef, WakeCondition};
pub use framework::config::SchedulerConfiguration;
pub use framework::profile::{Profile, Profiles};
pub use framework::registry::{ArgError, Build, Registration};
pub use request::objects::{Claim, Existing, RequestError, named_workload_policy};
pub use request::{
    Previous, Priority, PriorityClass, RecoverAfter, Report, Request, TaintEviction, Template,
    has_ended,
};
pub use scheduler::Scheduler;
pub use state::change::TableChange;
pub use state::row::{LiveCluster, Session};
pub use state::snapshot::Snapshot;
pub use state::standing::{Links, Standing};
pub use state::supply::{Capacity, FreeVector, NodeClass};
pub use state::tables::{BindingFacts, Tables};
