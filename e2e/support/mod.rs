//! What the scenarios share: a federation in a process of its own, clients for it, and waiting for conditions.

pub mod cli;
pub mod federation;
pub mod wait;
