//! What the event loop asks of a member, until the member's state is free.
//!
//! The state of a member has a lock, which the session's reader and writer, the health loop, the Cluster writer and the
//! maintenance loop take. The event loop must not wait for it: the session holds it while it compares an inventory with
//! the desired set, which takes as long as about 5,000 orders (see `tests::measure`). So the event loop leaves its
//! orders here and applies them itself only if the state is free; otherwise the next task that locks the state applies
//! them first, which is at the latest the session's writer, that every order wakes.
//!
//! There is no task that owns the desired set and gets messages, because agents' reports need answers from it: each
//! report on an object asks which bindings claim it and whether its hash is current. A question to another task and its
//! answer cost several times the lock (`tests::measure`), and a report is the most frequent message by far.
//!
//! The mailbox has at most one entry for each binding, as the newest orders replace earlier ones. It is therefore never
//! larger, in entries and in bytes, than the desired set that follows from it.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use atoll_api::policy::ConflictResolution;

use super::types::{Proof, Withdrawal};
use crate::lifecycle::emptying::Emptying;
use crate::sessions::desired::{DesiredSet, Packed};

/// Orders for one member. Its lock is held only to insert and to take entries.
#[derive(Debug, Default)]
pub(crate) struct Mailbox(Mutex<Orders>);

/// Orders that were not applied yet.
#[derive(Debug, Default)]
pub(crate) struct Orders {
    by_claim: BTreeMap<String, ClaimOrder>,
    retry_held_back: bool,
    emptying: Option<Emptying>,
}

/// The order about one claim. A withdrawal is not replaced by a later set: what the claim then no longer wants has a
/// proof for its removal.
#[derive(Debug, Default)]
struct ClaimOrder {
    /// Applied first.
    withdraw: Option<(Withdrawal, Proof)>,
    set: Option<(Vec<Arc<Packed>>, ConflictResolution)>,
}

impl Mailbox {
    fn lock(&self) -> MutexGuard<'_, Orders> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// See [`DesiredSet::set`].
    pub(crate) fn set(&self, claim: &str, objects: Vec<Arc<Packed>>, conflict: ConflictResolution) {
        self.lock().by_claim.entry(claim.to_owned()).or_default().set = Some((objects, conflict));
    }

    /// See [`DesiredSet::withdraw`].
    pub(crate) fn withdraw(&self, claim: &str, how: Withdrawal, proof: Proof) {
        let order = ClaimOrder { withdraw: Some((how, proof)), set: None };
        self.lock().by_claim.insert(claim.to_owned(), order);
    }

    /// See [`DesiredSet::retry_held_back`].
    pub(crate) fn retry_held_back(&self) {
        self.lock().retry_held_back = true;
    }

    /// Progress of emptying the member.
    pub(crate) fn set_emptying(&self, emptying: Emptying) {
        self.lock().emptying = Some(emptying);
    }

    pub(crate) fn take(&self) -> Orders {
        std::mem::take(&mut *self.lock())
    }
}

impl Orders {
    /// Carries the orders out.
    pub(crate) fn apply(self, desired: &mut DesiredSet, emptying: &mut Emptying) {
        for (claim, order) in self.by_claim {
            if let Some((how, proof)) = order.withdraw {
                desired.withdraw(&claim, how, proof);
            }
            if let Some((objects, conflict)) = order.set {
                desired.set(&claim, objects, conflict);
            }
        }
        if self.retry_held_back {
            desired.retry_held_back();
        }
        if let Some(newest) = self.emptying {
            *emptying = newest;
        }
    }
}

#[cfg(test)]
mod tests;
