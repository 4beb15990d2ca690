//! The control plane: from what users ask for on the hub to what every member runs.
//!
//! The modules stand in the order in which data passes: `watch` (streams of the hub's objects) -> `index` (tables) ->
//! `detect` (which policy claims what) -> `queue` -> `schedule` (the pure core) -> `commit` (one write) -> `dispatch`
//! (what each member should hold) -> `members` (sessions with agents) -> `status` (what people read). `engine` is the
//! one task that joins them; `lifecycle`, `events`, `leader`, `metrics` and
//! `http` (pages for probes and Prometheus) are what their names say. Nothing here knows the agent,
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
