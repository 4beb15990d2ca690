//! Scenarios for the synchronous core: a fake server, fake time, watch events that may lag.

mod cron_jobs;
mod daemon_sets;
mod deployments;
mod jobs;
mod network;
mod nodes;
mod pods;
mod replica_sets;
mod sandbox;
mod scheduling;
mod stateful_sets;
