//! What people read: the status of bindings, templates and policies, made of what members report.
//!
//! A status is a report and never an input of a decision. [`views`] holds what is known of each binding on each member
//! and how well; [`binding`], [`template`], [`policy`] and [`spread`] make statuses of it, purely; [`due`] says when one may be
//! written, so that what changes together is written once. Nothing is written that the hub says already.

pub mod binding;
pub mod due;
pub mod policy;
pub mod secrets;
pub mod spread;
pub mod template;
pub mod views;
pub mod write;
