//! The control plane: from the users' objects on the hub to the workloads on every member.
//!
//! The modules in the order of the data flow: `watch` (streams of the hub's objects) -> `index` (tables) -> `detect`
//! (which policy claims which object) -> `queue` -> `schedule` (the pure core) -> `commit` (one write) -> `dispatch`
//! (what each member should hold) -> `members` (sessions with agents) -> `status` (for users). `engine` is the task
//! that connects them. `http` serves the endpoints for probes and Prometheus. This crate does not depend on the agent,
//! the embedded API server or the simulator.

mod chronicle;
pub mod commit;
mod connections;
pub mod detect;
pub mod dispatch;
mod engine;
pub mod events;
mod http;
pub mod index;
pub mod leader;
pub mod lifecycle;
mod manager;
pub mod members;
mod metrics;
#[cfg(test)]
mod mutants;
mod object;
pub mod queue;
mod run;
pub mod schedule;
pub mod status;
#[cfg(test)]
mod testing;
pub mod watch;

pub use lifecycle::{emptying, pace};
pub use run::{Controller, ControllerError, Hub, MembersSide};
