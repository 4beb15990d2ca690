//! User requests to a member's set: confirm held back removals, prune orphans, leave the federation.

use std::collections::BTreeSet;

use atoll_render::Key;

use super::DesiredSet;
use super::object::{self, Departing, KeptBecause, Leaving};
use crate::member::types::{Proof, Withdrawal};

impl DesiredSet {
    /// A user confirmed the held back removals.
    pub(crate) fn confirm_prune(&mut self) {
        for key in std::mem::take(&mut self.held_back).into_keys() {
            if let Some(leaving) =
                self.objects.get_mut(&key).and_then(|object| object.leaving.as_mut())
            {
                leaving.held_back = false;
                // Confirmed by a user: no longer counted against the window.
                leaving.proof = leaving.proof.max(Proof::BindingDeleted);
            }
            self.refresh(&key);
        }
    }

    /// Removes those of `keys` that are orphans; returns how many of them the member still has.
    pub(crate) fn prune(&mut self, keys: &BTreeSet<Key>) -> usize {
        let mut open = 0;
        for key in keys {
            let Some(object) = self.objects.get_mut(key) else { continue };
            if object.is_orphan() {
                let removable = !object::is_never_removed(key);
                object.kept = None;
                object.leaving = Some(Box::new(Leaving {
                    how: if removable { Withdrawal::Remove } else { Withdrawal::Release },
                    proof: Proof::Asked,
                    claims: BTreeSet::new(),
                    held_back: false,
                }));
                self.refresh(key);
            }
            let leaving = self.objects.get(key).and_then(|object| object.leaving.as_ref());
            open += usize::from(leaving.is_some_and(|leaving| leaving.proof == Proof::Asked));
        }
        open
    }

    /// Starts emptying the member.
    pub(crate) fn start_departure(&mut self, departing: Departing) {
        if self.departing.replace(departing) == Some(departing) {
            return;
        }
        if departing.release {
            for object in self.objects.values_mut() {
                if let Some(leaving) = &mut object.leaving {
                    leaving.how = Withdrawal::Release;
                }
            }
        }
        self.retry_held_back();
    }

    /// The name belongs to a new Cluster: its member stays.
    pub(crate) fn cancel_departure(&mut self) {
        self.departing = None;
    }

    /// Objects on a departing member that a decision still wants, or will: their workloads have not moved yet.
    pub(crate) fn not_moved(&self) -> Vec<&Key> {
        let stays = self.objects.iter().filter(|(_, object)| {
            !object.wants.is_empty() || object.kept == Some(KeptBecause::Awaited)
        });
        stays.map(|(key, _)| key).collect()
    }

    /// Releases what no decision holds there and no proof removes: orphans, frozen or suspended objects; with `force`
    /// also objects that have not moved.
    pub(crate) fn release_rest(&mut self) {
        let force = self.departing.is_some_and(|departing| departing.force);
        let keys: Vec<_> = self.objects.keys().cloned().collect();
        for key in keys {
            let Some(object) = self.objects.get_mut(&key) else { continue };
            if force {
                object.wants.clear();
            }
            if object.wants.is_empty() && object.leaving.is_none() && object.may_be_held() {
                object.kept = None;
                object.leaving = Some(Box::new(Leaving {
                    how: Withdrawal::Release,
                    proof: Proof::Asked,
                    claims: BTreeSet::new(),
                    held_back: false,
                }));
            }
            self.refresh(&key);
        }
    }

    /// Our objects that the member is known to hold, and those that it may hold because they were sent.
    pub(crate) fn remaining(&self) -> Vec<&Key> {
        let may = |object: &object::Object| {
            object.may_be_held() || object.leaving.is_some() || !object.wants.is_empty()
        };
        self.objects.iter().filter(|(_, object)| may(object)).map(|(key, _)| key).collect()
    }
}
