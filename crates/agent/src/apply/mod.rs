//! What is done to one object of the member, one call after the other: applied, removed, released.
//!
//! The functions here read, decide and write; when they run and how often is [`crate::engine`]'s business.

pub(crate) mod fields;
pub(crate) mod object;
pub(crate) mod order;
pub(crate) mod removal;
