//! Plans: what a change would move, decided by the leader on a copy of what it knows. Nothing is written.
//!
//! [`Planner::base`] asks the event loop for the copy ([`Known`]). The change is applied to a [`trial::Trial`], which decides
//! what is due with the leader's own steps: the same tables, queue, claims, requests and scheduler. What it
//! decides is stored in the copy, so that later decisions see it. The bindings that it looked at are then decided without
//! the change, too: the difference is the plan. Both run on a thread of their own, one plan at a time.

mod base;
mod lists;
mod offline;
mod planner;
mod sides;
mod store;
mod trial;
mod types;

pub use self::base::Base;
pub(crate) use self::planner::Ask;
pub use self::planner::Planner;
pub use self::types::{Change, PlanError, Planned, Side};
pub(crate) use self::types::{Known, Settings};
