//! What the scenarios share: a federation in a process of its own, clients for it, and waiting for conditions.

pub(crate) mod cli;
pub(crate) mod federation;
pub(crate) mod wait;
