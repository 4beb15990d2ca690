//! What one member should hold, what it does hold, and the differences to send. Synchronous, no I/O; callers pass the
//! time.
//!
//! A key's *claims* are the bindings that want it. It is sent when its hash, claims or `preserve` differ from the
//! member's, and removed only by [`DesiredSet::withdraw`] of its last claim, or by a verdict on an inventory: never
//! because it is absent from some list. The pending messages are a set of keys, not a queue: a member that does not
//! read costs one entry per key, and then gets the newest state.

mod budget;
mod inventory;
mod object;
mod object_uid;
mod operator_requests;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use atoll_api::policy::ConflictResolution;
use atoll_api::{BindingUid, Few};
use atoll_protocol::digest::Digest;
use atoll_render::Key;
use bytes::Bytes;
use tokio::time::Instant;

use self::budget::Budget;
use self::object::{KeptBecause, LastOrder, Leaving, Object, PendingOrder, Want};
use crate::member::types::{ApplyResult, HeldObject, LimitReason, Proof, Withdrawal};
use crate::packed::Packed;

pub(crate) use self::object::{Departing, Held, Mark};

/// State of the session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum SyncPhase {
    /// No session, or no agreement on an inventory yet: nothing is sent.
    #[default]
    NotAgreed,
    /// Agreed; the differences of the start are being sent. `Synced` follows them.
    FirstSync,
    /// Differences are sent as they arise.
    InSync,
}

/// The next message.
#[derive(Debug, Clone)]
pub(crate) enum Order {
    /// Create it if missing.
    Ensure(Arc<Packed>),
    /// Apply it.
    Upsert(Arc<Packed>, ConflictResolution),
    /// Delete the object with this uid (empty: the one that was applied).
    Remove(Key, String),
    /// Remove the marks from the object with this uid.
    Release(Key, String),
    /// The wave was sent.
    Synced(Digest),
}

/// A namespace that others need.
#[derive(Debug)]
struct Prerequisite {
    packed: Arc<Packed>,
    users: BTreeSet<BindingUid>,
    /// It exists, or was sent in this session.
    done: bool,
}

/// Position in the sending order: applies in rank order, then removals in reverse.
type Position = (u8, Key);

/// Why removals of a claim's objects are limited, if they are.
pub(crate) type Limits<'a> = dyn Fn(&BindingUid) -> Option<LimitReason> + 'a;

#[derive(Debug, Default)]
pub(crate) struct DesiredSet {
    /// Boxed: a node of the map has room for eleven.
    objects: BTreeMap<Key, Box<Object>>,
    prerequisites: BTreeMap<Key, Prerequisite>,
    /// The keys with something to send.
    due: BTreeSet<Key>,
    /// Keys by claim: wanted, held, or needed. May contain keys that no longer have the claim.
    by_claim: BTreeMap<BindingUid, Few<Key>>,
    /// Withdrawn claims that are not confirmed.
    withdrawn: BTreeMap<BindingUid, (Withdrawal, Proof)>,
    confirmed: Vec<BindingUid>,
    dirty: BTreeSet<Position>,
    /// Objects with marks but without a known binding.
    orphans: BTreeSet<Key>,
    /// Removals above the limit of their window, and why they are limited.
    held_back: BTreeMap<Key, LimitReason>,
    budget: Budget,
    phase: SyncPhase,
    /// Set while the member leaves the federation.
    departing: Option<Departing>,
}

impl DesiredSet {
    /// Replaces what `claim` wants here. An object that it no longer wants is kept: there is no proof that it should be
    /// removed.
    pub(crate) fn set(
        &mut self,
        claim: &BindingUid,
        objects: Vec<Arc<Packed>>,
        conflict: ConflictResolution,
    ) {
        if self.departing.is_some_and(|departing| departing.force) {
            return;
        }
        self.withdrawn.remove(claim);
        let before = self.keys_of(claim);
        for key in before {
            if objects.iter().any(|packed| packed.key == key) {
                continue;
            }
            self.drop_need(&key, claim);
            let Some(object) = self.objects.get_mut(&key) else { continue };
            if object.wants.remove(claim).is_some() && object.wants.is_empty() {
                object.kept = Some(KeptBecause::Orphan);
            }
            self.refresh(&key);
        }
        for packed in objects {
            let key = packed.key.clone();
            self.by_claim.entry(claim.clone()).or_default().insert(key.clone(), ());
            if packed.claim.is_none() {
                let needed = self.prerequisites.entry(key.clone()).or_insert_with(|| {
                    Prerequisite { packed: packed.clone(), users: BTreeSet::new(), done: false }
                });
                needed.packed = packed;
                needed.users.insert(claim.clone());
                if !needed.done && self.phase != SyncPhase::NotAgreed {
                    self.due.insert(key);
                }
                continue;
            }
            let object = self.objects.entry(key.clone()).or_default();
            object.unreported |= self.phase != SyncPhase::NotAgreed && object.wants.is_empty();
            object.wants.insert(claim.clone(), Want { packed, conflict });
            object.gone.remove(claim);
            object.kept = None;
            let waiting = object.leaving.take().map(|leaving| leaving.claims);
            self.held_back.remove(&key);
            self.refresh(&key);
            self.confirm(waiting.into_iter().flatten());
        }
    }

    /// `claim` wants nothing here any more. Objects without another claim are removed or released.
    pub(crate) fn withdraw(&mut self, claim: &BindingUid, how: Withdrawal, proof: Proof) {
        self.withdrawn.insert(claim.clone(), (how, proof));
        let keys = self.keys_of(claim);
        for key in keys {
            self.drop_need(&key, claim);
            self.withdraw_from(&key, claim, how, proof);
        }
        self.confirm([claim.clone()]);
    }

    /// Keys by claim, see [`DesiredSet::by_claim`].
    fn keys_of(&self, claim: &BindingUid) -> Vec<Key> {
        self.by_claim.get(claim).into_iter().flat_map(Few::keys).cloned().collect()
    }

    /// `claim` does not need this namespace any more.
    fn drop_need(&mut self, key: &Key, claim: &BindingUid) {
        let Some(needed) = self.prerequisites.get_mut(key) else { return };
        needed.users.remove(claim);
        if needed.users.is_empty() {
            self.prerequisites.remove(key);
        }
    }

    fn withdraw_from(&mut self, key: &Key, claim: &BindingUid, how: Withdrawal, proof: Proof) {
        let (withdrawn, departing) = (&self.withdrawn, self.departing);
        let Some(object) = self.objects.get_mut(key) else { return };
        let wanted = object.wants.remove(claim).is_some();
        object.gone.insert(claim.clone());
        let held =
            object.held.as_ref().is_some_and(|held| held.mark.claims.iter().any(|c| c == claim));
        if object.wants.is_empty() && object.may_be_held() && (wanted || held) {
            let others = object.held.iter().flat_map(|held| &held.mark.claims);
            let gone = &object.gone;
            if others
                .into_iter()
                .any(|other| !gone.contains(other) && !withdrawn.contains_key(other))
            {
                // Another claim without a verdict yet keeps it.
                object.kept.get_or_insert(KeptBecause::Awaited);
            } else {
                object.kept = None;
                let how = effective(key, object, how, proof, departing);
                let leaving = object.leaving.get_or_insert_with(|| {
                    Box::new(Leaving { how, proof, claims: BTreeSet::new(), held_back: false })
                });
                // Of several withdrawals the one that deletes less wins, and of several claims' proofs the weaker one.
                leaving.how = leaving.how.max(how);
                leaving.claims.insert(claim.clone());
                let alone = leaving.claims.len() == 1;
                leaving.proof = if alone { proof } else { leaving.proof.min(proof) };
                if leaving.held_back && leaving.proof != Proof::NotTargeted {
                    leaving.held_back = false;
                    self.held_back.remove(key);
                }
            }
        }
        self.refresh(key);
    }

    /// A session begins: nothing was sent in it, and the inventory must be agreed on.
    pub(crate) fn session_started(&mut self) {
        self.session_ended();
        for object in self.objects.values_mut() {
            object.last_order = None;
            object.unreported = false;
        }
        for needed in self.prerequisites.values_mut() {
            needed.done = false;
        }
    }

    /// The session ended.
    pub(crate) fn session_ended(&mut self) {
        self.phase = SyncPhase::NotAgreed;
        self.dirty.clear();
        self.due.clear();
    }

    fn start_first_sync(&mut self) {
        self.phase = SyncPhase::FirstSync;
        self.dirty.clear();
        self.due = self
            .prerequisites
            .iter()
            .filter(|(_, needed)| !needed.done)
            .map(|(key, _)| key.clone())
            .collect();
        let keys: Vec<_> = self.objects.keys().cloned().collect();
        for key in &keys {
            if let Some(object) = self.objects.get_mut(key)
                && object.held.is_none()
                && object.wants.is_empty()
            {
                object.leaving = None;
                self.held_back.remove(key);
            }
            self.refresh(key);
        }
        let open: Vec<_> = self.withdrawn.keys().cloned().collect();
        self.confirm(open);
    }

    /// The next message; `None` when nothing is left to send. Called only when there is room to send. `limits` tells
    /// which removals are limited now.
    pub(crate) fn next(&mut self, now: Instant, limits: &Limits<'_>) -> Option<Order> {
        if self.phase == SyncPhase::NotAgreed {
            return None;
        }
        while let Some(key) = self.due.pop_first() {
            // If a claim wants the namespace, that order creates it. An order without claims after that one would make
            // the agent stop keeping the namespace in sync.
            if self.is_wanted(&key) {
                continue;
            }
            if let Some(needed) = self.prerequisites.get_mut(&key) {
                needed.done = true;
                return Some(Order::Ensure(needed.packed.clone()));
            }
        }
        if self.budget.reopens().is_some_and(|at| now >= at) {
            self.retry_held_back();
        }
        while let Some((_, key)) = self.dirty.pop_first() {
            if let Some(next) = self.order_for(&key, now, limits) {
                return Some(next);
            }
        }
        if self.phase == SyncPhase::FirstSync {
            self.phase = SyncPhase::InSync;
            return Some(Order::Synced(self.intended()));
        }
        None
    }

    /// Why an object's removal is limited, if it is.
    fn limit(&self, object: &Object, limits: &Limits<'_>) -> Option<LimitReason> {
        match object.leaving.as_deref() {
            // When a member leaves, all its objects should go.
            _ if self.departing.is_some() => None,
            Some(Leaving {
                how: Withdrawal::Remove, proof: Proof::NotTargeted, claims, ..
            }) => claims.iter().filter_map(limits).min(),
            _ => None,
        }
    }

    fn order_for(&mut self, key: &Key, now: Instant, limits: &Limits<'_>) -> Option<Order> {
        let held = || self.objects.values().filter(|object| object.held.is_some()).count();
        let object = self.objects.get(key)?;
        let need = object.pending();
        let limit = if need == PendingOrder::Leave { self.limit(object, limits) } else { None };
        let hold_back = limit.filter(|_| !self.budget.take(now, held));
        let object = self.objects.get_mut(key)?;
        match need {
            PendingOrder::Nothing => None,
            PendingOrder::Upsert => {
                let mark = Arc::new(object.mark()?);
                let (packed, conflict) = object.manifest(&mark)?;
                object.last_order = Some(LastOrder::Upsert(mark, conflict));
                Some(Order::Upsert(packed, conflict))
            }
            PendingOrder::Leave => {
                let uid = object.held.as_ref().map(|held| held.uid.to_string()).unwrap_or_default();
                let leaving = object.leaving.as_mut()?;
                leaving.held_back = hold_back.is_some();
                if let Some(reason) = hold_back {
                    self.held_back.insert(key.clone(), reason);
                    return None;
                }
                object.last_order = Some(LastOrder::Leave);
                Some(match leaving.how {
                    Withdrawal::Remove => Order::Remove(key.clone(), uid),
                    Withdrawal::Release => Order::Release(key.clone(), uid),
                })
            }
        }
    }

    /// The member's result for a key.
    pub(crate) fn applied(&mut self, key: &Key, hash: &str, result: ApplyResult, uid: &str) {
        self.take_result(key, hash, result, uid);
        self.note_orphan(key);
    }

    fn take_result(&mut self, key: &Key, hash: &str, result: ApplyResult, uid: &str) {
        let Some(object) = self.objects.get_mut(key) else { return };
        match result {
            ApplyResult::Applied => {
                let mark = match &object.last_order {
                    Some(LastOrder::Upsert(mark, _)) if mark.hash == hash => mark.clone(),
                    // A result of an older order: the next result will show what exactly it holds.
                    _ => return,
                };
                for claim in &mark.claims {
                    self.by_claim.entry(claim.clone()).or_default().insert(key.clone(), ());
                }
                let gone = std::mem::take(&mut object.gone);
                object.held = Some(Held { mark, uid: uid.into() });
                self.confirm(gone);
            }
            ApplyResult::Removed | ApplyResult::Released | ApplyResult::NotOurs => {
                object.held = None;
                if object.last_order != Some(LastOrder::Leave) {
                    return;
                }
                let mut waiting = std::mem::take(&mut object.gone);
                waiting
                    .extend(object.leaving.take().into_iter().flat_map(|leaving| leaving.claims));
                if object.wants.is_empty() {
                    object.last_order = None;
                }
                self.refresh(key);
                self.confirm(waiting);
            }
            ApplyResult::Conflict => object.held = None,
            ApplyResult::Failed | ApplyResult::Waiting => (),
        }
    }

    /// Claims that became confirmed since the last call.
    pub(crate) fn take_confirmed(&mut self) -> Vec<BindingUid> {
        std::mem::take(&mut self.confirmed)
    }

    /// The bindings that a key concerns: those that want it, or else those that wait for its removal, or else those whose
    /// objects need it.
    pub(crate) fn claims(&self, key: &Key) -> Vec<BindingUid> {
        let Some(object) = self.objects.get(key) else {
            let needed = self.prerequisites.get(key);
            return needed.into_iter().flat_map(|needed| needed.users.iter().cloned()).collect();
        };
        if !object.wants.is_empty() {
            return object.wants.keys().cloned().collect();
        }
        match (&object.leaving, &object.held) {
            (Some(leaving), _) => leaving.claims.iter().cloned().collect(),
            (None, Some(held)) => held.mark.claims.clone(),
            (None, None) => Vec::new(),
        }
    }

    /// Claims that want the key in another form than the one sent.
    pub(crate) fn conflicting(&self, key: &Key) -> Vec<BindingUid> {
        self.objects.get(key).map(|object| object.conflicting()).unwrap_or_default()
    }

    /// Whether a claim wants the key.
    fn is_wanted(&self, key: &Key) -> bool {
        self.objects.get(key).is_some_and(|object| !object.wants.is_empty())
    }

    /// Whether `key` is only a namespace that others need.
    pub(crate) fn is_prerequisite(&self, key: &Key) -> bool {
        self.prerequisites.contains_key(key) && !self.objects.contains_key(key)
    }

    /// Whether the key is wanted with this hash.
    pub(crate) fn is_current(&self, key: &Key, hash: &str) -> bool {
        self.objects
            .get(key)
            .and_then(|object| object.wants.first())
            .is_some_and(|want| want.packed.hash == hash)
    }

    /// The manifest that a claim wants, as JSON.
    pub(crate) fn manifest(&self, claim: &BindingUid, key: &Key) -> Option<Bytes> {
        let want = self.objects.get(key)?.wants.get(claim)?;
        Some(want.packed.manifest())
    }

    /// The objects that the member is known to hold.
    pub(crate) fn held(&self) -> Vec<HeldObject> {
        self.objects
            .iter()
            .filter_map(|(key, object)| {
                let mark = &object.held.as_ref()?.mark;
                Some(HeldObject {
                    key: key.clone(),
                    hash: mark.hash.clone(),
                    current: self.is_current(key, &mark.hash),
                    claims: mark.claims.clone(),
                })
            })
            .collect()
    }

    /// How many objects the member should hold, or holds.
    pub(crate) fn len(&self) -> usize {
        self.objects.len()
    }

    /// How many objects have a message to send. Without a session it is unknown, and 0 here.
    pub(crate) fn unsent(&self) -> usize {
        self.dirty.len() + self.due.len()
    }

    /// Objects with marks but without a known binding.
    pub(crate) fn orphans(&self) -> &BTreeSet<Key> {
        &self.orphans
    }

    /// Removals above the limit of their window, and why they are limited.
    pub(crate) fn held_back(&self) -> &BTreeMap<Key, LimitReason> {
        &self.held_back
    }

    /// When held back removals may continue.
    pub(crate) fn reopens(&self) -> Option<Instant> {
        if self.held_back.is_empty() { None } else { self.budget.reopens() }
    }

    /// Retries held back removals: the limit of their window, or its reason, may no longer apply.
    pub(crate) fn retry_held_back(&mut self) {
        for key in std::mem::take(&mut self.held_back).into_keys() {
            if let Some(leaving) =
                self.objects.get_mut(&key).and_then(|object| object.leaving.as_mut())
            {
                leaving.held_back = false;
            }
            self.refresh(&key);
        }
    }

    /// Updates a key's place in the sending order and among the orphans, and drops it when it holds no more information.
    fn refresh(&mut self, key: &Key) {
        let open = self.prerequisites.get(key).is_some_and(|needed| !needed.done);
        if open && self.phase != SyncPhase::NotAgreed && !self.is_wanted(key) {
            self.due.insert(key.clone());
        }
        let rank = object::rank(key);
        let (apply, leave) = ((rank, key.clone()), (u8::MAX - rank, key.clone()));
        self.dirty.remove(&apply);
        self.dirty.remove(&leave);
        self.note_orphan(key);
        let Some(object) = self.objects.get(key) else { return };
        if object.is_done() {
            self.objects.remove(key);
            return;
        }
        if self.phase != SyncPhase::NotAgreed {
            match object.pending() {
                PendingOrder::Nothing => (),
                PendingOrder::Upsert => drop(self.dirty.insert(apply)),
                PendingOrder::Leave => drop(self.dirty.insert(leave)),
            }
        }
    }

    /// Updates whether a key is among the orphans.
    fn note_orphan(&mut self, key: &Key) {
        if self.objects.get(key).is_some_and(|object| object.is_orphan()) {
            self.orphans.insert(key.clone());
        } else {
            self.orphans.remove(key);
        }
    }

    /// Confirms those of these withdrawn claims that no object delays. Requires an agreed inventory: before that, the
    /// member may hold some object.
    fn confirm(&mut self, claims: impl IntoIterator<Item = BindingUid>) {
        if self.phase == SyncPhase::NotAgreed {
            return;
        }
        for claim in claims {
            let keys = self.by_claim.get(&claim).into_iter().flat_map(Few::keys);
            let open =
                keys.filter_map(|key| self.objects.get(key)).any(|object| object.waits(&claim));
            if !open && self.withdrawn.remove(&claim).is_some() {
                self.by_claim.remove(&claim);
                self.confirmed.push(claim);
            }
        }
    }
}

/// The effective withdrawal for this object: kinds that are never removed are released, and so are objects marked to
/// stay, unless a decision moves them elsewhere; and everything on a departing member that keeps its workloads.
fn effective(
    key: &Key,
    object: &Object,
    how: Withdrawal,
    proof: Proof,
    departing: Option<Departing>,
) -> Withdrawal {
    let preserved = object.held.as_ref().is_some_and(|held| held.mark.preserve);
    if object::is_never_removed(key)
        || (preserved && proof != Proof::NotTargeted)
        || departing.is_some_and(|departing| departing.release)
    {
        Withdrawal::Release
    } else {
        how
    }
}
