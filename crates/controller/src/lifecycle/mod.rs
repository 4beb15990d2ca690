//! Changes of many workloads at once: how fast they go, and what keeps a member from being empty.

pub(crate) mod draining;
pub mod emptying;
mod mending;
pub mod pace;
pub(crate) mod rollouts;
