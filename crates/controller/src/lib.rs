//! The control plane: from the users' objects on the hub to the workloads on every member.
//!
//! The modules in the order of the data flow: `watch` (streams of the hub's objects) -> `hub_state` (`index`, `detect` and
//! the scheduler's tables) -> `queue` -> `reconcile` (one binding; `schedule` is the pure core, `commit` the write) ->
//! `placements` (what each member should hold, was sent and reports) -> `sessions` (with agents) -> `status` (for users),
//! `lifecycle` (how work leaves clusters), `guards` (what changes by people may move) and `audit` (for history). `enrolment` admits members, `health` evaluates them,
//! `member` is what these two and `sessions` share, and `members` is the handle of all three. `hub_load` limits how much
//! the hub is asked to do at once. `event_loop` takes one event
//! at a time; `leadership` is what this process has only while it leads. `rebalance` serves
//! WorkloadRebalancers, `taint_policies` ClusterTaintPolicies, `telemetry` makes traces of decisions, `static_quotas` the `staticAssignments` of quotas. `http` serves the endpoints for probes and
//! Prometheus. `delta` and `few` keep small what there is one of for each workload. This crate does not depend on the agent, the embedded API server or the simulator.

mod audit;
mod authors;
mod commit;
mod delta;
mod detect;
mod enrolment;
mod env;
mod event_loop;
mod events;
mod guards;
mod health;
mod http;
mod hub_load;
mod hub_state;
mod index;
mod interpret;
mod latency;
pub mod leader;
mod leadership;
mod lifecycle;
mod manager;
mod member;
pub mod members;
mod metrics;
#[cfg(test)]
mod mutants;
mod object;
mod optional_number;
mod packed;
mod parallel;
mod pause;
mod placements;
mod planning;
mod proxy;
mod queue;
mod rebalance;
mod reconcile;
mod run;
pub mod schedule;
mod sessions;
mod since;
mod static_quotas;
mod status;
mod taint_policies;
mod telemetry;
#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;
mod watch;

pub use guards::approve::{Approval, ApproveError, approve};
pub use guards::held_by;
pub use index::guard_rules::mistake as guard_mistake;
pub use lifecycle::{emptying, pace};
pub use planning::{Base, Change, PlanError, Planned, Planner, Side};
pub use run::{Controller, ControllerError, Hub, MembersSide};
