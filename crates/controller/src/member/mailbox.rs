//! What the event loop orders for a member, until the member's state is free.
//!
//! The state of a member has a lock, which the session's reader and writer, the health loop, the Cluster writer and
//! the maintenance loop take. The event loop must not wait for it: a session holds it while it compares an inventory
//! with the desired set, which takes as long as two orders for each object of the member (measured at 20,000 objects;
//! see `tests::measure`). So the event loop leaves its orders here and applies them itself only if the state is free.
//! Otherwise the next task that locks the state applies them first. That is at the latest the session's writer, which
//! each order wakes, or without a session the health loop within a second. Leaving an order costs about 1 % of
//! applying it.
//!
//! There is no task that owns the desired set and gets messages, because agents' reports need answers from it: each
//! report on an object asks which bindings claim it and whether its hash is current, and reports are by far the most
//! frequent messages. A question to such a task and its answer cost 40 to 120 times the lock (`tests::measure`, a
//! debug build on two busy cores: compare ratios).
//!
//! Three calls of the event loop take the lock, because their effect must be in force when they return, and they are
//! rare: the end of a leadership, and a Cluster's change (a revocation) and deletion.
//!
//! The mailbox has at most one entry for each binding, because newer orders replace older ones. So it is never larger,
//! in entries and in bytes, than the desired set that follows from it.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use atoll_api::BindingUid;
use atoll_api::policy::ConflictResolution;

use super::types::{Proof, Withdrawal};
use crate::lifecycle::emptying::Emptying;
use crate::packed::Packed;
use crate::sessions::desired::DesiredSet;

/// Orders for one member. Its lock is held only to insert and to take entries.
#[derive(Debug, Default)]
pub(crate) struct Mailbox(Mutex<Orders>);

/// Orders that were not applied yet.
#[derive(Debug, Default)]
pub(crate) struct Orders {
    by_claim: BTreeMap<BindingUid, ClaimOrder>,
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
    pub(crate) fn set(
        &self,
        claim: &BindingUid,
        objects: Vec<Arc<Packed>>,
        conflict: ConflictResolution,
    ) {
        self.lock().by_claim.entry(claim.clone()).or_default().set = Some((objects, conflict));
    }

    /// See [`DesiredSet::withdraw`].
    pub(crate) fn withdraw(&self, claim: &BindingUid, how: Withdrawal, proof: Proof) {
        let order = ClaimOrder { withdraw: Some((how, proof)), set: None };
        self.lock().by_claim.insert(claim.clone(), order);
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
