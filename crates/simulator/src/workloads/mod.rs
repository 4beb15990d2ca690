//! The workload controllers of kube-controller-manager. Each is a pure function from what the index holds to the writes
//! that bring its object one step further; the next look comes with the answers to those writes.

pub(crate) mod children;
pub(crate) mod cron_job;
pub(crate) mod daemon_set;
pub(crate) mod deployment;
pub(crate) mod job;
pub(crate) mod names;
pub(crate) mod replica_set;
pub(crate) mod revisions;
pub(crate) mod stateful_set;
