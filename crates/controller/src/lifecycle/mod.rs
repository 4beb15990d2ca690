//! How work leaves clusters: how fast, and what keeps a member from being empty.

pub(crate) mod draining;
pub mod emptying;
pub mod pace;
