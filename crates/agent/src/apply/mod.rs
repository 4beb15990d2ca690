//! Calls on one object of the member: apply, remove, release.
//!
//! The functions here read, decide and write; [`crate::engine`] schedules them.

pub(crate) mod fields;
pub(crate) mod object;
pub(crate) mod order;
pub(crate) mod removal;
mod retain;
