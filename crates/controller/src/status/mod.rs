//! The user-visible status of bindings, templates and policies, computed from the members' reports.
//!
//! A status is a report and never an input of a decision. [`facts`] shows what the leader
//! knows; [`binding`], [`template`], [`policy`] and [`spread`] compute statuses from it, purely; [`due`] schedules the
//! writes, so that simultaneous changes are written once. [`stage`] connects them. Unchanged statuses are not written.

pub(crate) mod binding;
pub(crate) mod cluster_set;
mod customization;
pub(crate) mod due;
pub(crate) mod facts;
pub(crate) mod failures;
pub(crate) mod faults;
pub(crate) mod obstacles;
mod override_policy;
pub(crate) mod policy;
pub(crate) mod quota;
pub(crate) mod replicas;
pub(crate) mod secrets;
pub(crate) mod spread;
pub(crate) mod stage;
mod static_quota;
pub(crate) mod template;
pub(crate) mod warnings;
pub(crate) mod webhook;
pub(crate) mod write;
