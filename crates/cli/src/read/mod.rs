//! Verbs that read decisions, their reasons, and the state of the federation. None of them writes to the hub.

pub(crate) mod decisions;
pub(crate) mod diff;
pub(crate) mod explain;
pub(crate) mod fleet;
pub(crate) mod get;
mod health;
pub(crate) mod history;
mod item;
mod life;
mod members;
pub(crate) mod timeline;
mod times;
pub(crate) mod work;
pub(crate) mod workload;
