//! What the benchmarks of many processes share: a hub, a program in several roles, and a crowd of agents.

pub(crate) mod agents;
pub(crate) mod child;
pub(crate) mod hub;
