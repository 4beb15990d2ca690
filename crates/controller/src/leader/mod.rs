//! Leader election among the controllers: one Lease, a term that only grows, and a deadline that the leader enforces
//! itself.
//!
//! The rules are client-go's: the record is replaced under its resourceVersion, and a holder counts as gone when *we*
//! have not seen its record change for a lease duration on the monotonic clock; wall clocks are not trusted. The leader
//! stops earlier, at the renew deadline, so that there are never two leaders at once. The term is an annotation of the
//! Lease and grows in the update that acquires it: members refuse orders with a lower term.

mod candidate;
mod elector;
pub(crate) mod label;
mod leadership;
mod record;
mod term;
#[cfg(test)]
mod tests;
mod while_leading;

pub use self::candidate::{Candidate, LOOKS, LeaseTimes};
pub use self::elector::{Election, ElectionError, Elector, RAISE_PAUSE, election};
pub use self::label::OwnPod;
pub use self::leadership::Leadership;
pub use self::term::{LARGEST_TERM_STEP, LeaderTerm};
pub(crate) use self::while_leading::while_leading;
