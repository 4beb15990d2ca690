//! What to do with an object that a member holds with our marks: the proofs required before anything is deleted.
//!
//! The event loop writes this state, and sessions read it for each object of an inventory; so it is behind a lock, which
//! is held only for single look-ups. Asking the event loop by message instead costs 16 times as much, on an idle loop:
//! 24 us for an object against 1.5 us (`measure_the_lock_against_messages`, unoptimized build, two cores).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard, PoisonError};

use atoll_api::{BindingUid, ClusterName, DecisionId};

use crate::index::key::BindingKey;
use crate::index::rows::Binding;
use crate::leader::LeaderTerm;
use crate::members::LimitReason;

/// Relation of an object to its binding.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Judgement {
    /// A committed decision wants it there: it will be sent.
    Wanted,
    /// The binding exists, and neither its targets nor a kept task name this member.
    NotATarget,
    /// The binding is being withdrawn; the object goes with it.
    Withdrawn,
    /// The binding is being withdrawn, and the object with it.
    Released,
    /// The binding is being withdrawn; the object stays, without our marks.
    WithdrawnBefore,
    /// Nothing may be sent or removed now: the kind cannot be read, or the decision suspends the member.
    Frozen,
    /// No such binding is known: an orphan.
    Unknown,
}

/// One for each binding, so its members are sorted lists: a set has room for eleven.
#[derive(Debug, Clone, Default)]
struct Intent {
    wanted: Box<[ClusterName]>,
    left: Box<[ClusterName]>,
    deleting: bool,
    preserve: bool,
    frozen: bool,
    decision: DecisionId,
    /// Whether this leader made it.
    ours: bool,
}

#[derive(Debug)]
struct Inner {
    term: LeaderTerm,
    claims: BTreeMap<BindingUid, Intent>,
    /// uids of the bindings in `claims`.
    uids: BTreeMap<BindingKey, BindingUid>,
    /// Withdrawn bindings by the members that have not confirmed, from history.
    unconfirmed: BTreeMap<ClusterName, BTreeSet<BindingUid>>,
    /// Decisions of earlier leaders that are the newest in history, by their bindings.
    newest: BTreeMap<BindingUid, DecisionId>,
    /// Why all removals are limited.
    limit: Option<LimitReason>,
}

impl Default for Inner {
    fn default() -> Self {
        Self {
            term: LeaderTerm::default(),
            claims: BTreeMap::new(),
            uids: BTreeMap::new(),
            unconfirmed: BTreeMap::new(),
            newest: BTreeMap::new(),
            limit: Some(LimitReason::HistoryUnreachable),
        }
    }
}

/// The verdicts of one leadership.
#[derive(Debug, Default)]
pub(crate) struct Verdicts(Mutex<Inner>);

impl Verdicts {
    /// Without any knowledge of history, until it was queried.
    pub(crate) fn begin(term: LeaderTerm) -> Self {
        Self(Mutex::new(Inner { term, ..Inner::default() }))
    }

    /// Records a binding: which members hold it by its decision, and which are not changed.
    pub(crate) fn set(
        &self,
        binding: &Binding,
        wanted: BTreeSet<ClusterName>,
        left: BTreeSet<ClusterName>,
        frozen: bool,
    ) {
        let decision = binding.spec.decision.as_ref();
        let mut inner = self.lock();
        let known = Intent {
            wanted: wanted.into_iter().collect(),
            left: left.into_iter().collect(),
            deleting: binding.deleting(),
            preserve: binding.spec.preserve_resources_on_deletion,
            frozen,
            decision: decision.map(|decision| decision.id.clone()).unwrap_or_default(),
            ours: decision.is_some() && binding.term() == inner.term,
        };
        let uid = binding.uid.clone();
        if let Some(before) = inner.uids.insert(binding.key.clone(), uid.clone())
            && before != uid
        {
            inner.claims.remove(&before);
        }
        inner.claims.insert(uid, known);
    }

    /// A binding was deleted.
    pub(crate) fn forget(&self, key: &BindingKey) {
        let mut inner = self.lock();
        if let Some(uid) = inner.uids.remove(key) {
            inner.claims.remove(&uid);
        }
    }

    /// Decisions of earlier leaders that are the newest in history, by their bindings.
    pub(crate) fn newest(&self, decisions: BTreeMap<BindingUid, DecisionId>) {
        self.lock().newest = decisions;
    }

    /// Sets why all removals are limited from now on, if they are.
    pub(crate) fn limit_all(&self, reason: Option<LimitReason>) {
        self.lock().limit = reason;
    }

    /// Why removals of an object of this claim from a member that its decision does not name are limited.
    #[must_use]
    pub(crate) fn limit(&self, claim: &BindingUid) -> Option<LimitReason> {
        let inner = self.lock();
        let known = inner.claims.get(claim);
        let newest = known.is_some_and(|known| {
            known.ours || inner.newest.get(claim).is_some_and(|id| *id == known.decision)
        });
        inner.limit.or((!newest).then_some(LimitReason::DecisionNotNewest))
    }

    /// According to history, a member has not confirmed the withdrawal of these bindings.
    pub(crate) fn unconfirmed(
        &self,
        cluster: &ClusterName,
        claims: impl IntoIterator<Item = BindingUid>,
    ) {
        let mut inner = self.lock();
        inner.unconfirmed.entry(cluster.clone()).or_default().extend(claims);
    }

    /// What to do with an object of this claim on this member.
    #[must_use]
    pub(crate) fn judge(&self, cluster: &ClusterName, claim: &BindingUid) -> Judgement {
        let inner = self.lock();
        let Some(known) = inner.claims.get(claim) else {
            let withdrawn = inner.unconfirmed.get(cluster).is_some_and(|set| set.contains(claim));
            return if withdrawn { Judgement::WithdrawnBefore } else { Judgement::Unknown };
        };
        match known {
            known if known.deleting && known.preserve => Judgement::Released,
            known if known.deleting => Judgement::Withdrawn,
            known if known.frozen || known.left.binary_search(cluster).is_ok() => Judgement::Frozen,
            known if known.wanted.binary_search(cluster).is_ok() => Judgement::Wanted,
            _ => Judgement::NotATarget,
        }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        // Every change is a single insert or remove: a panic elsewhere cannot have left it incomplete.
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

    #[test]
    fn only_decisions_that_are_the_newest_remove_without_a_limit() {
        let decided = |term: i64| {
            let mut binding = binding("u1", false, false);
            binding.spec.decision = serde_json::from_value(json!({
                "id": format!("d{term}"), "trigger": "Failover", "mode": "Steady", "outcome": "Placed",
                "desired": 1, "at": "2026-01-01T00:00:00Z", "term": term,
            }))
            .unwrap();
            binding
        };
        let verdicts = Verdicts::begin(LeaderTerm::new(7));
        let limit = |claim: &str| verdicts.limit(&claim.into());
        let set_decided = |term| verdicts.set(&decided(term), set(&["a"]), set(&[]), false);
        set_decided(7);
        assert_eq!(
            limit("u1"),
            Some(LimitReason::HistoryUnreachable),
            "history has not answered yet"
        );
        verdicts.limit_all(None);
        assert_eq!(limit("u1"), None, "made by this leader");
        assert_eq!(limit("u2"), Some(LimitReason::DecisionNotNewest), "not known");
        set_decided(6);
        assert_eq!(limit("u1"), Some(LimitReason::DecisionNotNewest));
        verdicts.newest(BTreeMap::from([("u1".into(), "d6".into())]));
        assert_eq!(limit("u1"), None, "the newest in history");
        set_decided(5);
        assert_eq!(limit("u1"), Some(LimitReason::DecisionNotNewest), "an older one");
        set_decided(7);
        for reason in [LimitReason::HubOlderThanHistory, LimitReason::TermRaised] {
            verdicts.limit_all(Some(reason));
            assert_eq!(limit("u1"), Some(reason), "regardless of its leader");
        }
    }

    fn set(names: &[&str]) -> BTreeSet<ClusterName> {
        names.iter().map(|name| (*name).into()).collect()
    }

    #[test]
    fn nothing_goes_without_a_proof() {
        let verdicts = Verdicts::default();
        let judge = |cluster: &str, claim: &str| verdicts.judge(&cluster.into(), &claim.into());
        assert_eq!(judge("a", "u1"), Judgement::Unknown, "an orphan stays");
        verdicts.set(&binding("u1", false, false), set(&["a"]), set(&["c"]), false);
        assert_eq!(judge("a", "u1"), Judgement::Wanted);
        assert_eq!(judge("b", "u1"), Judgement::NotATarget);
        assert_eq!(judge("c", "u1"), Judgement::Frozen);
        verdicts.set(&binding("u1", false, false), set(&["a"]), set(&[]), true);
        assert_eq!(judge("b", "u1"), Judgement::Frozen, "the kind cannot be read");
        verdicts.set(&binding("u1", true, false), set(&[]), set(&[]), true);
        assert_eq!(judge("b", "u1"), Judgement::Withdrawn);
        verdicts.set(&binding("u1", true, true), set(&[]), set(&[]), false);
        assert_eq!(judge("b", "u1"), Judgement::Released);
        verdicts.forget(&binding("u1", false, false).key);
        assert_eq!(judge("b", "u1"), Judgement::Unknown);
        verdicts.unconfirmed(&"b".into(), ["u1".into()]);
        assert_eq!(judge("b", "u1"), Judgement::WithdrawnBefore);
        assert_eq!(judge("a", "u1"), Judgement::Unknown, "history names b only");
    }

    /// What an inventory of 10,000 objects costs with the lock, and with a question to a task that owns the table.
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    #[ignore = "a measurement for the comment at the top of this file; run it with --release and --nocapture"]
    async fn measure_the_lock_against_messages() {
        const OBJECTS: usize = 10_000;
        let fill = || {
            let verdicts = Verdicts::begin(LeaderTerm::new(1));
            for n in 0..OBJECTS {
                let mut row = binding(&format!("u{n}"), false, false);
                row.key = BindingKey::of(row.key.namespace(), &format!("web-{n}"));
                verdicts.set(&row, set(&["a"]), set(&[]), false);
            }
            verdicts
        };
        let cluster: ClusterName = "a".into();
        let claims: Vec<BindingUid> =
            (0..OBJECTS).map(|n| format!("u{n}").as_str().into()).collect();

        let locked = fill();
        let start = std::time::Instant::now();
        let wanted = claims.iter().filter(|c| locked.judge(&cluster, c) == Judgement::Wanted);
        assert_eq!(wanted.count(), OBJECTS);
        let with_lock = start.elapsed();

        type Question = (ClusterName, BindingUid, tokio::sync::oneshot::Sender<Judgement>);
        let (ask, mut questions) = tokio::sync::mpsc::channel::<Question>(1_024);
        let owned = fill();
        let owner = tokio::spawn(async move {
            while let Some((cluster, claim, answer)) = questions.recv().await {
                let _ = answer.send(owned.judge(&cluster, &claim));
            }
        });
        let start = std::time::Instant::now();
        for claim in &claims {
            let (answer, judged) = tokio::sync::oneshot::channel();
            ask.send((cluster.clone(), claim.clone(), answer)).await.unwrap();
            assert_eq!(judged.await.unwrap(), Judgement::Wanted);
        }
        let with_messages = start.elapsed();
        drop(ask);
        owner.await.unwrap();
        let ratio = with_messages.as_secs_f64() / with_lock.as_secs_f64();
        println!(
            "{OBJECTS} objects: lock {with_lock:?}, messages {with_messages:?}, ratio {ratio:.0}"
        );
    }
}
