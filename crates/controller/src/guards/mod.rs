//! Holds back what changes by people move, where a ChangeGuard says so.
//!
//! The unit is the plan: all changes that are found together and that guards connect. A plan waits or goes as a whole.
//! Every step is durable before the next one, so the next leader continues with the same plans:
//!
//! 1. A decision that people caused is not committed; its change waits here ([`Guards::judge`]). Instead the binding is
//!    decided with its last committed placement ([`exempt`]), which lets failover and scaling go on.
//! 2. When every binding that was due has been decided, and nothing was added for a moment, the changes become a plan.
//!    Its id is written to each of its bindings (`spec.held`).
//! 3. The plan is compared with its guards. If it fits, it is written to their `status.released`, where it counts from
//!    now on; else their status lists it, and `atoll approve` writes it there ([`approve`]).
//! 4. The bindings of a released plan are decided again. A decision that is the planned one is committed.

pub(crate) mod approve;
mod case;
mod change;
pub(crate) mod exempt;
mod plan;
mod preview;
pub(crate) mod release;
mod room;
pub(crate) mod status;
#[cfg(test)]
mod tests;
mod waiting;

pub(crate) use self::case::Case;
pub(crate) use self::preview::Moves;
pub use self::preview::held_by;
pub(crate) use self::waiting::{Guards, Held, Verdict};
