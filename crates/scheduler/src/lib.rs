//! The scheduler core: decides on which member clusters a workload runs, and with how many replicas each.
//!
//! `(Snapshot, Request) -> Decision`, pure: no async, clock, network, randomness or hash order. The controller keeps
//! [`Tables`] up to date, takes snapshots of them and commits decisions; offline readers do the same with files.
//!
//! The way of a decision is [`cycle`]; its plugins are in [`plugins`], its strategies in [`divide`].

// Test code that is shared with the tests outside names this crate.
#[cfg(test)]
extern crate self as atoll_scheduler;

pub mod cycle;
pub mod detect;
pub mod divide;
pub mod framework;
pub mod hash;
pub mod lint;
pub mod lint_policy;
#[cfg(test)]
mod mutants;
pub mod offline;
pub mod plugins;
pub mod request;
mod scheduler;
pub mod select;
pub mod state;

pub use atoll_decision::{BindingKey, Cure, Decision, PolicyRef};
pub use framework::config::SchedulerConfiguration;
pub use framework::profile::{Profile, Profiles};
pub use request::objects::{Claim, Existing, RequestError};
pub use request::{Previous, RecoverAfter, Report, Request, TaintEviction, Template};
pub use scheduler::Scheduler;
pub use state::change::Change;
pub use state::row::{LiveCluster, Session};
pub use state::snapshot::Snapshot;
pub use state::supply::{Capacity, FreeVector, NodeClass};
pub use state::tables::{BindingFacts, Tables};
