//! The scheduler's decisions: every strategy, policy and trigger, and properties over random instances. Every decision
//! of these tests passes the linter, is made twice, and survives a round trip through JSON.
#![allow(clippy::unwrap_used, clippy::print_stderr)]

mod auto_migration;
mod cluster_sets;
mod components;
mod each_plugin;
mod explaining;
mod failover;
mod framework;
mod linter;
mod mending;
mod movement;
mod mutants;
mod plugins;
mod preemption;
mod properties;
mod quotas;
mod spreading;
mod strategies;
mod support;
mod workload_affinity;
mod workload_policy;
mod workload_spread;
