//! What a member already holds according to its agent: agreed on by a digest, or listed and judged object by object.

use std::collections::{BTreeMap, BTreeSet};

use atoll_api::BindingUid;
use atoll_protocol::digest::Digest;
use atoll_render::Key;

use super::object::{Held, KeptBecause, Leaving};
use super::{DesiredSet, effective};
use crate::member::types::{Verdict, Withdrawal};

impl DesiredSet {
    /// The digest of what the member should hold once every order is carried out.
    pub(crate) fn intended(&self) -> Digest {
        let marks: Vec<_> = self
            .objects
            .iter()
            .filter_map(|(key, object)| Some((key, object.intended()?)))
            .collect();
        Digest::of(marks.iter().map(|(key, mark)| mark.entry(key)))
    }

    /// The member's digest equals [`DesiredSet::intended`]: it holds exactly that.
    pub(crate) fn agree(&mut self) {
        for object in self.objects.values_mut() {
            let mark = object.intended();
            let uid = object.held.take().map(|held| held.uid).unwrap_or_default();
            object.held = mark.map(|mark| Held { mark, uid });
        }
        for needed in self.prerequisites.values_mut() {
            needed.done = true;
        }
        self.start_first_sync();
    }

    /// (claim, key) pairs of an inventory that need a verdict.
    pub(crate) fn undecided(&self, entries: &[(Key, Held)]) -> Vec<(BindingUid, Key)> {
        entries
            .iter()
            .filter(|(key, _)| self.objects.get(key).is_none_or(|object| object.wants.is_empty()))
            .flat_map(|(key, held)| held.mark.claims.iter().map(move |claim| (claim, key)))
            .filter(|(claim, _)| !self.withdrawn.contains_key(*claim))
            .map(|(claim, key)| (claim.clone(), key.clone()))
            .collect()
    }

    /// Sets what the member holds. Claims that were not set here are judged by `verdicts`; one without a verdict counts
    /// as unknown.
    pub(crate) fn inventory(
        &mut self,
        entries: Vec<(Key, Held)>,
        verdicts: &BTreeMap<(BindingUid, Key), Verdict>,
    ) {
        for object in self.objects.values_mut() {
            object.held = None;
            object.last_order = None;
            object.kept = None;
            object.gone.clear();
        }
        let namespaces: BTreeSet<_> =
            entries.iter().filter_map(|(key, _)| key.namespace()).collect();
        for needed in self.prerequisites.values_mut() {
            needed.done = namespaces.contains(needed.packed.key.name());
        }
        for (key, held) in entries {
            for claim in &held.mark.claims {
                self.by_claim.entry(claim.clone()).or_default().insert(key.clone(), ());
            }
            let judged: Vec<_> = held
                .mark
                .claims
                .iter()
                .map(|claim| (claim.clone(), self.judge(claim, &key, verdicts)))
                .collect();
            let object = self.objects.entry(key.clone()).or_default();
            object.gone = held
                .mark
                .claims
                .iter()
                .filter(|claim| self.withdrawn.contains_key(*claim))
                .cloned()
                .collect();
            object.held = Some(object.shared(held));
            if object.wants.is_empty() {
                self.classify(&key, judged);
            }
        }
        self.start_first_sync();
    }

    fn judge(
        &self,
        claim: &BindingUid,
        key: &Key,
        verdicts: &BTreeMap<(BindingUid, Key), Verdict>,
    ) -> Verdict {
        match self.withdrawn.get(claim) {
            Some((Withdrawal::Remove, proof)) => Verdict::Remove(*proof),
            Some((Withdrawal::Release, proof)) => Verdict::Release(*proof),
            None => {
                verdicts.get(&(claim.clone(), key.clone())).copied().unwrap_or(Verdict::Unknown)
            }
        }
    }

    /// Decides about an object that the member holds and no claim wants.
    fn classify(&mut self, key: &Key, judged: Vec<(BindingUid, Verdict)>) {
        let departing = self.departing;
        let Some(object) = self.objects.get_mut(key) else { return };
        let any = |wanted: Verdict| judged.iter().any(|(_, verdict)| *verdict == wanted);
        object.kept = if any(Verdict::Wanted) {
            Some(KeptBecause::Awaited)
        } else if any(Verdict::Frozen) {
            Some(KeptBecause::Frozen)
        } else if any(Verdict::Unknown) || judged.is_empty() {
            Some(KeptBecause::Orphan)
        } else {
            None
        };
        if object.kept.is_some() {
            object.leaving = None;
            self.held_back.remove(key);
            return;
        }
        let mut leaving: Option<Leaving> = None;
        for (claim, verdict) in judged {
            let (how, proof) = match verdict {
                Verdict::Remove(proof) => (Withdrawal::Remove, proof),
                Verdict::Release(proof) => (Withdrawal::Release, proof),
                Verdict::Wanted | Verdict::Unknown | Verdict::Frozen => continue,
            };
            self.withdrawn.entry(claim.clone()).or_insert((how, proof));
            let how = effective(key, object, how, proof, departing);
            let held_back = object.leaving.as_ref().is_some_and(|leaving| leaving.held_back);
            let leaving = leaving.get_or_insert_with(|| Leaving {
                how,
                proof,
                claims: BTreeSet::new(),
                held_back,
            });
            leaving.how = leaving.how.max(how);
            leaving.proof = leaving.proof.min(proof);
            leaving.claims.insert(claim);
        }
        object.leaving = leaving.map(Box::new);
    }
}
