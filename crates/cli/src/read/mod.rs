//! Verbs that read decisions, their reasons, and the state of the federation. None of them writes to the hub.

pub(crate) mod bindings;
pub(crate) mod decisions;
pub(crate) mod diff;
pub(crate) mod explain;
pub(crate) mod fleet;
pub(crate) mod get;
mod health;
pub(crate) mod history;
pub(crate) mod item;
pub(crate) mod life;
pub(crate) mod members;
pub(crate) mod timeline;
pub(crate) mod times;
pub(crate) mod work;
pub(crate) mod workload;
