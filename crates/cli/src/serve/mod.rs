//! Verbs that run a component of the federation as its own process.

mod aggregated;
pub(crate) mod controller;
pub(crate) mod database;
mod hosted;

use atoll_program::process::end_on_signal;
pub(crate) use atoll_program::process::listen;
