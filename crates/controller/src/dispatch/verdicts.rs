//! What is to become of an object that a member holds with our marks: the proofs without which nothing is deleted.
//!
//! The index task writes, the members' side reads while a session starts; so it is the one piece of knowledge behind a
//! lock. It is taken for single look-ups only.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::index::key::BindingKey;
use crate::index::rows::Binding;

/// What an object is to a binding.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Judgement {
    /// A committed decision wants it there: it will be set.
    Wanted,
    /// The binding exists, and neither its targets nor a kept task name this member.
    NotATarget,
    /// The binding is being withdrawn; the object goes with it.
    Withdrawn,
    /// The binding is being withdrawn; the object stays, without our marks.
    Released,
    /// The binding is gone, and history says that this member had not confirmed it.
    WithdrawnBefore,
    /// Nothing may be sent or removed now: the kind cannot be read, or the decision says to leave it.
    Frozen,
    /// Nobody knows of such a binding: an orphan.
    Unknown,
}

#[derive(Debug, Clone, Default)]
struct Known {
    wanted: BTreeSet<String>,
    left: BTreeSet<String>,
    deleting: bool,
    preserve: bool,
    frozen: bool,
}

#[derive(Debug, Default)]
struct Inner {
    claims: BTreeMap<String, Known>,
    /// uids of the bindings in `claims`.
    uids: BTreeMap<BindingKey, String>,
    /// Withdrawn bindings by the members that have not confirmed, from history.
    unconfirmed: BTreeMap<String, BTreeSet<String>>,
}

/// The verdicts.
#[derive(Debug, Default)]
pub struct Verdicts(Mutex<Inner>);

impl Verdicts {
    /// Takes note of a binding: who holds it by its decision, and who is left as it is.
    pub fn set(
        &self,
        binding: &Binding,
        wanted: BTreeSet<String>,
        left: BTreeSet<String>,
        frozen: bool,
    ) {
        let known = Known {
            wanted,
            left,
            deleting: binding.deleting(),
            preserve: binding.spec.preserve_resources_on_deletion,
            frozen,
        };
        let mut inner = self.lock();
        let uid = binding.uid().to_owned();
        if let Some(before) = inner.uids.insert(binding.key.clone(), uid.clone())
            && before != uid
        {
            inner.claims.remove(&before);
        }
        inner.claims.insert(uid, known);
    }

    /// A binding is gone.
    pub fn forget(&self, key: &BindingKey) {
        let mut inner = self.lock();
        if let Some(uid) = inner.uids.remove(key) {
            inner.claims.remove(&uid);
        }
    }

    /// Forgets everything: a term begins, and what bindings were in an earlier one proves nothing.
    pub fn clear(&self) {
        *self.lock() = Inner::default();
    }

    /// A member has not confirmed the withdrawal of these bindings, by history.
    pub fn unconfirmed(&self, cluster: &str, claims: impl IntoIterator<Item = String>) {
        let mut inner = self.lock();
        inner.unconfirmed.entry(cluster.to_owned()).or_default().extend(claims);
    }

    /// What is to become of an object of this claim on this member.
    #[must_use]
    pub fn judge(&self, cluster: &str, claim: &str) -> Judgement {
        let inner = self.lock();
        let Some(known) = inner.claims.get(claim) else {
            let withdrawn = inner.unconfirmed.get(cluster).is_some_and(|set| set.contains(claim));
            return if withdrawn { Judgement::WithdrawnBefore } else { Judgement::Unknown };
        };
        match known {
            known if known.deleting && known.preserve => Judgement::Released,
            known if known.deleting => Judgement::Withdrawn,
            known if known.frozen || known.left.contains(cluster) => Judgement::Frozen,
            known if known.wanted.contains(cluster) => Judgement::Wanted,
            _ => Judgement::NotATarget,
        }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        // Every change is a single insert or remove: a panic elsewhere cannot have left it half done.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn binding(uid: &str, deleting: bool, preserve: bool) -> Binding {
        let mut object = json!({
            "metadata": {"namespace": "shop", "name": "web-deployment", "uid": uid},
            "spec": {
                "resource": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
                "preserveResourcesOnDeletion": preserve,
            },
        });
        if deleting {
            object["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
        }
        Binding::read(&object).unwrap()
    }

    fn set(names: &[&str]) -> BTreeSet<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    #[test]
    fn nothing_goes_without_a_proof() {
        let verdicts = Verdicts::default();
        assert_eq!(verdicts.judge("a", "u1"), Judgement::Unknown, "an orphan stays");
        verdicts.set(&binding("u1", false, false), set(&["a"]), set(&["c"]), false);
        assert_eq!(verdicts.judge("a", "u1"), Judgement::Wanted);
        assert_eq!(verdicts.judge("b", "u1"), Judgement::NotATarget);
        assert_eq!(verdicts.judge("c", "u1"), Judgement::Frozen);
        verdicts.set(&binding("u1", false, false), set(&["a"]), set(&[]), true);
        assert_eq!(verdicts.judge("b", "u1"), Judgement::Frozen, "the kind cannot be read");
        verdicts.set(&binding("u1", true, false), set(&[]), set(&[]), true);
        assert_eq!(verdicts.judge("b", "u1"), Judgement::Withdrawn);
        verdicts.set(&binding("u1", true, true), set(&[]), set(&[]), false);
        assert_eq!(verdicts.judge("b", "u1"), Judgement::Released);
        verdicts.forget(&binding("u1", false, false).key);
        assert_eq!(verdicts.judge("b", "u1"), Judgement::Unknown);
        verdicts.unconfirmed("b", ["u1".to_owned()]);
        assert_eq!(verdicts.judge("b", "u1"), Judgement::WithdrawnBefore);
        assert_eq!(verdicts.judge("a", "u1"), Judgement::Unknown, "history names b only");
    }
}
