//! The workload controllers of kube-controller-manager. Each is a pure function from the index to the writes that bring
//! its object one step further; the answers to those writes trigger the next pass.

pub(crate) mod children;
pub(crate) mod cron_job;
pub(crate) mod daemon_set;
pub(crate) mod deployment;
pub(crate) mod job;
pub(crate) mod names;
pub(crate) mod replica_set;
pub(crate) mod revisions;
pub(crate) mod stateful_set;
