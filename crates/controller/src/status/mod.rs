//! The user-visible status of bindings, templates and policies, computed from the members' reports.
//!
//! A status is a report and never an input of a decision. [`views`] holds the state of each binding on each member and
//! its certainty; [`binding`], [`template`], [`policy`] and [`spread`] compute statuses from it, purely; [`due`]
//! schedules the writes, so that simultaneous changes are written once. Unchanged statuses are not written.

pub mod binding;
pub mod due;
pub mod policy;
pub mod secrets;
pub mod spread;
pub mod template;
pub mod views;
pub mod write;
