//! The whole federation in one thread on paused time: the promises of the README, measured, repeated, and with the
//! invariants of ARCHITECTURE.md checked at every event.

#![allow(clippy::unwrap_used, reason = "a panic is the report of a test")]
#![allow(clippy::print_stderr, reason = "a random history tells its seed and its steps")]

mod backlog;
mod chaos;
mod corpus;
mod crashes;
mod determinism;
mod drift;
mod etcd;
mod faults;
mod guards;
mod history;
mod leaders;
mod leaving;
mod planned;
mod preemption;
mod regressions;
mod returning;
mod rights;
mod scenario;
mod sessions;
mod sickness;
mod soak;
mod versions;
mod walk;
mod workload_policy;
mod workload_spread;
mod writes;
