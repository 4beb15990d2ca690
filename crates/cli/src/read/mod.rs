//! Verbs that read: what was decided, why, and what the federation is made of. None of them writes to the hub.

mod decisions;
pub(crate) mod explain;
pub(crate) mod get;
pub(crate) mod history;
pub(crate) mod work;
mod workload;
