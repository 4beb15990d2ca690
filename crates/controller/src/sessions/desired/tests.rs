use std::time::Duration;

use atoll_api::marks;
use atoll_render::Rendered;
use serde_json::{Value, json};

use super::*;
use crate::member::types::Verdict;

/// Every removal because of a decision is limited.
const LIMITED: fn(&BindingUid) -> Option<LimitReason> = |_| Some(LimitReason::HubOlderThanHistory);
const NONE: &BTreeMap<(BindingUid, Key), Verdict> = &BTreeMap::new();

fn key(name: &str) -> Key {
    Key::new("apps", "Deployment", Some("shop"), name)
}

fn rendered_as(key: Key, claim: &str, hash: &str) -> Arc<Packed> {
    let annotations = json!({marks::CLAIMS: claim, marks::HASH: hash});
    let manifest = json!({"metadata": {"name": key.name(), "annotations": annotations}});
    let rendered = Rendered { key, api_version: "v1".into(), manifest, hash: hash.into() };
    Arc::new(Packed::of(&rendered, None, Some(&claim.into())))
}

fn rendered(name: &str, claim: &str, hash: &str) -> Arc<Packed> {
    rendered_as(key(name), claim, hash)
}

fn held(name: &str, hash: &str, claims: &[&str]) -> (Key, Held) {
    let claims = claims.iter().map(|claim| (*claim).into()).collect();
    let mark = Mark { hash: hash.into(), claims, preserve: false };
    (key(name), Held { mark: Arc::new(mark), uid: format!("uid-{name}").as_str().into() })
}

/// An agent that carries out orders at once.
#[derive(Debug, Default)]
struct Agent {
    objects: BTreeMap<Key, Held>,
    log: Vec<String>,
    synced: Option<bool>,
    /// Every n-th apply fails; 0 = none.
    refuse: usize,
}

impl Agent {
    fn entries(&self) -> Vec<(Key, Held)> {
        self.objects.iter().map(|(key, held)| (key.clone(), held.clone())).collect()
    }

    fn digest(&self) -> Digest {
        Digest::of(self.objects.iter().map(|(key, held)| held.mark.entry(key)))
    }

    /// Carries out all pending orders.
    fn follow(&mut self, set: &mut DesiredSet, now: Instant) {
        // What it should hold once everything is carried out, including failed applies.
        let mut intent = self.objects.clone();
        while let Some(next) = set.next(now, &LIMITED) {
            match next {
                Order::Ensure(rendered) => self.log.push(format!("ensure {}", rendered.key.name())),
                Order::Upsert(rendered, _) => {
                    let manifest: Value = serde_json::from_slice(&rendered.manifest()).unwrap();
                    let annotation =
                        |name| manifest["metadata"]["annotations"][name].as_str().unwrap_or("");
                    let claims =
                        annotation(marks::CLAIMS).split(',').map(BindingUid::from).collect();
                    let preserve = annotation(marks::PRESERVE) == "true";
                    let mark = Mark { hash: rendered.hash.clone(), claims, preserve };
                    let uid = format!("uid-{}", rendered.key.name());
                    self.log.push(format!(
                        "upsert {} {}",
                        rendered.key.name(),
                        annotation(marks::CLAIMS)
                    ));
                    let held = Held { mark: Arc::new(mark), uid: uid.as_str().into() };
                    intent.insert(rendered.key.clone(), held.clone());
                    if self.refuse > 0 && self.log.len().is_multiple_of(self.refuse) {
                        set.applied(&rendered.key, &rendered.hash, ApplyResult::Failed, "");
                        continue;
                    }
                    self.objects.insert(rendered.key.clone(), held);
                    set.applied(&rendered.key, &rendered.hash, ApplyResult::Applied, &uid);
                }
                Order::Remove(key, uid) => {
                    self.log.push(format!("remove {} {uid}", key.name()));
                    self.objects.remove(&key);
                    intent.remove(&key);
                    set.applied(&key, "", ApplyResult::Removed, &uid);
                }
                Order::Release(key, uid) => {
                    self.log.push(format!("release {} {uid}", key.name()));
                    self.objects.remove(&key);
                    intent.remove(&key);
                    set.applied(&key, "", ApplyResult::Released, &uid);
                }
                Order::Synced(digest) => {
                    let own = Digest::of(intent.iter().map(|(key, held)| held.mark.entry(key)));
                    self.synced = Some(own == digest);
                }
            }
        }
        let orphans = set.objects.iter().filter(|(_, object)| object.is_orphan());
        assert!(orphans.map(|(key, _)| key).eq(set.orphans()), "{:?}", set.orphans());
    }

    fn connect(
        &mut self,
        set: &mut DesiredSet,
        verdicts: &BTreeMap<(BindingUid, Key), Verdict>,
        now: Instant,
    ) {
        self.log.clear();
        self.synced = None;
        set.session_started();
        if set.intended() == self.digest() {
            set.agree();
        } else {
            set.inventory(self.entries(), verdicts);
        }
        self.follow(set, now);
        assert_eq!(self.synced, Some(true), "the digests must agree: {:?}", self.log);
    }
}

fn verdicts(list: &[(&str, &str, Verdict)]) -> BTreeMap<(BindingUid, Key), Verdict> {
    list.iter().map(|(claim, name, verdict)| (((*claim).into(), key(name)), *verdict)).collect()
}

fn start() -> (DesiredSet, Agent, Instant) {
    (DesiredSet::default(), Agent::default(), Instant::now())
}

const ABORT: ConflictResolution = ConflictResolution::Abort;

#[tokio::test]
async fn differences_only_and_nothing_after_a_restart_with_equal_digests() {
    let (mut set, mut agent, now) = start();
    set.set(&"b1".into(), vec![rendered("web", "b1", "h1")], ABORT);
    set.set(&"b2".into(), vec![rendered("api", "b2", "h1")], ABORT);
    assert!(set.next(now, &LIMITED).is_none(), "nothing is sent without a session");
    agent.connect(&mut set, NONE, now);
    assert_eq!(agent.log, ["upsert api b2", "upsert web b1"]);

    agent.log.clear();
    set.set(&"b1".into(), vec![rendered("web", "b1", "h2")], ABORT);
    set.set(&"b2".into(), vec![rendered("api", "b2", "h1")], ABORT);
    agent.follow(&mut set, now);
    assert_eq!(agent.log, ["upsert web b1"]);

    agent.connect(&mut set, NONE, now);
    assert_eq!(agent.log, [""; 0]);

    // A restarted controller has the same desired set and no uids.
    let mut fresh = DesiredSet::default();
    fresh.set(&"b1".into(), vec![rendered("web", "b1", "h2")], ABORT);
    fresh.set(&"b2".into(), vec![rendered("api", "b2", "h1")], ABORT);
    agent.connect(&mut fresh, NONE, now);
    assert_eq!(agent.log, [""; 0]);
    assert_eq!(fresh.held().len(), 2);
}

/// Reports of an object that no binding wanted reached none: the member has to repeat them.
#[tokio::test]
async fn what_the_member_holds_already_is_ordered_if_it_is_wanted_only_in_the_session() {
    let (mut set, mut agent, now) = start();
    set.set(&"b1".into(), vec![rendered("web", "b1", "h1")], ABORT);
    agent.connect(&mut set, NONE, now);
    let mut next_leader = DesiredSet::default();
    agent.connect(&mut next_leader, NONE, now);
    assert_eq!(agent.log, [""; 0]);
    next_leader.set(&"b1".into(), vec![rendered("web", "b1", "h1")], ABORT);
    agent.follow(&mut next_leader, now);
    assert_eq!(agent.log, ["upsert web b1"]);
    next_leader.set(&"b1".into(), vec![rendered("web", "b1", "h1")], ABORT);
    agent.follow(&mut next_leader, now);
    assert_eq!(agent.log.len(), 1, "once");
}

#[tokio::test]
async fn the_newest_wins_while_the_agent_does_not_read() {
    let (mut set, mut agent, now) = start();
    agent.connect(&mut set, NONE, now);
    for version in 0..1000 {
        set.set(&"b1".into(), vec![rendered("web", "b1", &format!("h{version}"))], ABORT);
    }
    agent.follow(&mut set, now);
    assert_eq!(agent.log, ["upsert web b1"]);
    assert_eq!(agent.objects[&key("web")].mark.hash, "h999");
}

#[tokio::test]
async fn nothing_is_removed_because_it_is_absent() {
    let (mut set, mut agent, now) = start();
    set.set(&"b1".into(), vec![rendered("web", "b1", "h1"), rendered("side", "b1", "h1")], ABORT);
    agent.connect(&mut set, NONE, now);
    agent.log.clear();
    set.set(&"b1".into(), vec![rendered("web", "b1", "h1")], ABORT);
    agent.follow(&mut set, now);
    assert_eq!(agent.log, [""; 0]);
    // An empty controller: everything that the member holds is unknown to it.
    let mut empty = DesiredSet::default();
    agent.connect(&mut empty, NONE, now);
    assert_eq!((agent.log.len(), empty.orphans().len()), (0, 2));
    // The same with the binding known and frozen, and with one that will be set.
    for verdict in [Verdict::Frozen, Verdict::Wanted] {
        let mut set = DesiredSet::default();
        let verdicts = verdicts(&[("b1", "web", verdict), ("b1", "side", verdict)]);
        agent.connect(&mut set, &verdicts, now);
        assert_eq!((agent.log.len(), set.orphans().len()), (0, 0));
        assert_eq!(agent.objects.len(), 2);
    }
}

#[tokio::test]
async fn a_withdrawn_claim_goes_with_its_uid_and_is_confirmed() {
    let (mut set, mut agent, now) = start();
    set.set(&"b1".into(), vec![rendered("web", "b1", "h1")], ABORT);
    agent.connect(&mut set, NONE, now);
    agent.log.clear();
    set.withdraw(&"b1".into(), Withdrawal::Remove, Proof::NotTargeted);
    assert_eq!(set.take_confirmed(), [""; 0]);
    agent.follow(&mut set, now);
    assert_eq!(agent.log, ["remove web uid-web"]);
    assert_eq!(set.take_confirmed(), ["b1"]);
    assert!(set.objects.is_empty() && set.by_claim.is_empty(), "{set:?}");
    // Again: the object is already gone, which counts as confirmed.
    set.withdraw(&"b1".into(), Withdrawal::Remove, Proof::NotTargeted);
    assert_eq!(set.take_confirmed(), ["b1"]);
}

#[tokio::test]
async fn an_upsert_on_its_way_is_followed_by_its_removal() {
    let (mut set, mut agent, now) = start();
    agent.connect(&mut set, NONE, now);
    set.set(&"b1".into(), vec![rendered("web", "b1", "h1")], ABORT);
    assert!(matches!(set.next(now, &LIMITED), Some(Order::Upsert(..))));
    set.withdraw(&"b1".into(), Withdrawal::Remove, Proof::NotTargeted);
    assert_eq!(set.take_confirmed(), [""; 0], "it may be there by now");
    assert!(matches!(set.next(now, &LIMITED), Some(Order::Remove(_, uid)) if uid.is_empty()));
    set.applied(&key("web"), "h1", ApplyResult::Applied, "uid");
    assert_eq!(set.take_confirmed(), [""; 0]);
    set.applied(&key("web"), "", ApplyResult::Removed, "uid");
    assert_eq!(set.take_confirmed(), ["b1"]);
}

#[tokio::test]
async fn a_claim_that_comes_back_cancels_its_withdrawal() {
    let (mut set, mut agent, now) = start();
    set.set(&"b1".into(), vec![rendered("web", "b1", "h1")], ABORT);
    agent.connect(&mut set, NONE, now);
    agent.log.clear();
    set.withdraw(&"b1".into(), Withdrawal::Remove, Proof::NotTargeted);
    set.set(&"b1".into(), vec![rendered("web", "b1", "h1")], ABORT);
    agent.follow(&mut set, now);
    assert_eq!(agent.log, [""; 0]);
    // The same after the removal was sent: it is applied again.
    set.withdraw(&"b1".into(), Withdrawal::Remove, Proof::NotTargeted);
    assert!(matches!(set.next(now, &LIMITED), Some(Order::Remove(..))));
    set.set(&"b1".into(), vec![rendered("web", "b1", "h1")], ABORT);
    set.applied(&key("web"), "", ApplyResult::Removed, "uid-web");
    agent.objects.clear();
    agent.follow(&mut set, now);
    assert_eq!(agent.log, ["upsert web b1"]);
    assert_eq!(set.take_confirmed(), [""; 0]);
}

#[tokio::test]
async fn a_shared_object_goes_with_its_last_claim() {
    let (mut set, mut agent, now) = start();
    set.set(&"b1".into(), vec![rendered("config", "b1", "h1")], ABORT);
    set.set(&"b2".into(), vec![rendered("config", "b2", "h1")], ABORT);
    agent.connect(&mut set, NONE, now);
    assert_eq!(agent.log, ["upsert config b1,b2"]);
    agent.log.clear();
    set.withdraw(&"b1".into(), Withdrawal::Remove, Proof::BindingDeleted);
    assert_eq!(set.take_confirmed(), [""; 0], "the member still lists it");
    agent.follow(&mut set, now);
    assert_eq!(agent.log, ["upsert config b2"]);
    assert_eq!(set.take_confirmed(), ["b1"]);
    // Another claim is set and withdrawn before anything is sent.
    set.set(&"b3".into(), vec![rendered("config", "b3", "h1")], ABORT);
    set.withdraw(&"b3".into(), Withdrawal::Remove, Proof::BindingDeleted);
    set.withdraw(&"b2".into(), Withdrawal::Remove, Proof::BindingDeleted);
    agent.follow(&mut set, now);
    assert_eq!(agent.log[1..], ["remove config uid-config"]);
    assert_eq!(set.take_confirmed(), ["b3", "b2"]);
}

#[tokio::test]
async fn a_shared_object_stays_while_a_claim_of_it_is_not_known() {
    let (mut set, mut agent, now) = start();
    agent.objects.extend([held("config", "h1", &["b1", "b2"])]);
    let known = verdicts(&[
        ("b1", "config", Verdict::Remove(Proof::Recorded)),
        ("b2", "config", Verdict::Unknown),
    ]);
    agent.connect(&mut set, &known, now);
    assert_eq!((agent.log.len(), set.orphans().len()), (0, 1));
    set.withdraw(&"b2".into(), Withdrawal::Remove, Proof::Recorded);
    agent.follow(&mut set, now);
    assert_eq!(agent.log.len(), 0, "b1 was never withdrawn here, only b2");
    set.withdraw(&"b1".into(), Withdrawal::Remove, Proof::Recorded);
    agent.follow(&mut set, now);
    assert_eq!(agent.log, ["remove config uid-config"]);
}

#[tokio::test]
async fn a_withdrawal_while_the_member_is_away_waits_for_its_inventory() {
    let (mut set, mut agent, now) = start();
    agent.objects.extend([held("web", "h1", &["b1"])]);
    set.withdraw(&"b1".into(), Withdrawal::Remove, Proof::BindingDeleted);
    set.withdraw(&"b2".into(), Withdrawal::Remove, Proof::BindingDeleted);
    assert_eq!(set.take_confirmed(), [""; 0]);
    agent.connect(&mut set, NONE, now);
    assert_eq!(agent.log, ["remove web uid-web"]);
    let mut confirmed = set.take_confirmed();
    confirmed.sort();
    assert_eq!(confirmed, ["b1", "b2"]);
}

#[tokio::test]
async fn verdicts_of_the_hub_remove_and_release_and_are_confirmed() {
    let (mut set, mut agent, now) = start();
    agent.objects.extend([held("a", "h1", &["b1"]), held("b", "h1", &["b2"])]);
    let known = verdicts(&[
        ("b1", "a", Verdict::Remove(Proof::Recorded)),
        ("b2", "b", Verdict::Release(Proof::BindingDeleted)),
    ]);
    set.session_started();
    assert_eq!(set.undecided(&agent.entries()).len(), 2);
    agent.connect(&mut set, &known, now);
    assert_eq!(agent.log, ["remove a uid-a", "release b uid-b"]);
    assert_eq!(set.take_confirmed().len(), 2);
}

#[tokio::test]
async fn what_is_marked_to_stay_is_released_unless_a_decision_moves_it() {
    for (proof, expected) in [
        (Proof::BindingDeleted, "release web uid-web"),
        (Proof::Recorded, "release web uid-web"),
        (Proof::NotTargeted, "remove web uid-web"),
    ] {
        let (mut set, mut agent, now) = start();
        let (key, mut kept) = held("web", "h1", &["b1"]);
        Arc::make_mut(&mut kept.mark).preserve = true;
        agent.objects.insert(key, kept);
        let known = verdicts(&[("b1", "web", Verdict::Remove(proof))]);
        agent.connect(&mut set, &known, now);
        assert_eq!(agent.log, [expected], "{proof:?}");
    }
}

#[tokio::test]
async fn namespaces_come_first_are_made_once_and_are_never_removed() {
    let (mut set, mut agent, now) = start();
    let namespace = |name: &str| Key::new("", "Namespace", None, name);
    let needed = atoll_render::namespace("shop", None);
    let objects = || vec![rendered("web", "b1", "h1"), Arc::new(Packed::prerequisite(&needed))];
    set.set(&"b1".into(), objects(), ABORT);
    set.set(&"b2".into(), vec![rendered_as(namespace("team"), "b2", "h1")], ABORT);
    agent.connect(&mut set, NONE, now);
    assert_eq!(agent.log, ["ensure shop", "upsert team b2", "upsert web b1"]);
    assert!(set.is_prerequisite(&needed.key));
    agent.log.clear();
    set.set(&"b1".into(), objects(), ABORT);
    set.withdraw(&"b1".into(), Withdrawal::Remove, Proof::BindingDeleted);
    set.withdraw(&"b2".into(), Withdrawal::Remove, Proof::BindingDeleted);
    agent.follow(&mut set, now);
    assert_eq!(agent.log, ["remove web uid-web", "release team uid-team"]);
    assert!(set.prerequisites.is_empty());
}

#[tokio::test]
async fn a_namespace_is_needed_until_the_last_claim_that_needs_it_is_set_without_it_or_withdrawn() {
    let mut set = DesiredSet::default();
    let needed = atoll_render::namespace("shop", None);
    let objects = |name: &str, claim: &str| {
        vec![rendered(name, claim, "h1"), Arc::new(Packed::prerequisite(&needed))]
    };
    set.set(&"b1".into(), objects("web", "b1"), ABORT);
    set.set(&"b2".into(), objects("api", "b2"), ABORT);
    set.set(&"b1".into(), vec![rendered("web", "b1", "h1")], ABORT);
    assert!(set.is_prerequisite(&needed.key));
    set.withdraw(&"b2".into(), Withdrawal::Remove, Proof::BindingDeleted);
    assert!(set.prerequisites.is_empty());
}

#[tokio::test]
async fn a_namespace_that_a_claim_wants_is_applied_and_its_results_are_for_that_claim() {
    let needed = atoll_render::namespace("shop", None);
    for sessions in [1, 2] {
        let (mut set, mut agent, now) = start();
        let web = vec![rendered("web", "b1", "h1"), Arc::new(Packed::prerequisite(&needed))];
        set.set(&"b1".into(), web, ABORT);
        set.set(&"b2".into(), vec![rendered_as(needed.key.clone(), "b2", "h1")], ABORT);
        agent.connect(&mut set, NONE, now);
        assert_eq!(agent.log, ["upsert shop b2", "upsert web b1"]);
        assert_eq!(set.claims(&needed.key), ["b2"]);
        let mut ends = vec!["release shop uid-shop"];
        if sessions == 2 {
            agent.connect(&mut set, NONE, now);
            assert!(agent.log.is_empty(), "without claims b2 loses it: {:?}", agent.log);
        } else {
            // No inventory has shown yet that it exists.
            ends.insert(0, "ensure shop");
        }
        agent.log.clear();
        set.withdraw(&"b2".into(), Withdrawal::Remove, Proof::BindingDeleted);
        agent.follow(&mut set, now);
        assert_eq!(agent.log, ends);
        assert_eq!(set.claims(&needed.key), ["b1"]);
    }
}

/// The agent keeps no object in sync whose last order has no claims.
#[tokio::test]
async fn the_first_object_in_a_namespace_that_a_claim_wants_brings_no_order_without_claims() {
    let (mut set, mut agent, now) = start();
    let needed = atoll_render::namespace("shop", None);
    set.set(&"b2".into(), vec![rendered_as(needed.key.clone(), "b2", "h1")], ABORT);
    agent.connect(&mut set, NONE, now);
    let web = vec![rendered("web", "b1", "h1"), Arc::new(Packed::prerequisite(&needed))];
    set.set(&"b1".into(), web, ABORT);
    agent.follow(&mut set, now);
    assert_eq!(agent.log, ["upsert shop b2", "upsert web b1"]);
    assert_eq!(set.claims(&needed.key), ["b2"]);
}

#[tokio::test]
async fn removals_by_decision_are_limited_to_the_larger_of_100_and_30_per_cent() {
    for (objects, first) in [(150_usize, 100), (1000, 300)] {
        let (mut set, mut agent, now) = start();
        for i in 0..objects {
            let (name, claim) = (format!("w{i}"), BindingUid::from(format!("b{i}")));
            set.set(&claim, vec![rendered(&name, &claim, "h1")], ABORT);
        }
        agent.connect(&mut set, NONE, now);
        agent.log.clear();
        for i in 0..objects {
            set.withdraw(&format!("b{i}").into(), Withdrawal::Remove, Proof::NotTargeted);
        }
        agent.follow(&mut set, now);
        assert_eq!((agent.log.len(), set.held_back().len()), (first, objects - first));
        assert_eq!(set.take_confirmed().len(), first);
        // A new session does not bypass the limit, and both ends agree on what is left.
        agent.connect(&mut set, NONE, now);
        assert_eq!(agent.log.len(), 0);
        // Removal for a deleted binding is not limited, although it was held back before.
        let i = (0..objects).find(|i| agent.objects.contains_key(&key(&format!("w{i}")))).unwrap();
        set.withdraw(&format!("b{i}").into(), Withdrawal::Remove, Proof::BindingDeleted);
        set.set(&"own".into(), vec![rendered("own", "own", "h1")], ABORT);
        set.withdraw(&"own".into(), Withdrawal::Remove, Proof::BindingDeleted);
        // The next window admits the next part.
        let later = set.reopens().unwrap();
        assert_eq!(later, now + Duration::from_secs(600));
        agent.follow(&mut set, later);
        let second = 100.max((objects - first) * 30 / 100);
        assert!(agent.log.len() >= second.min(objects - first), "{}", agent.log.len());
        // A user's confirmation admits everything.
        set.confirm_prune();
        agent.follow(&mut set, later);
        assert_eq!((agent.objects.len(), set.held_back().len()), (0, 0));
    }
}

/// A member that returns after a failover: removals of decisions known to be the newest are not limited, and held back
/// removals continue as soon as that is known.
#[tokio::test]
async fn removals_of_the_newest_decisions_are_not_limited() {
    let (mut set, mut agent, now) = start();
    let objects = 400;
    for i in 0..objects {
        let (name, claim) = (format!("w{i}"), BindingUid::from(format!("b{i}")));
        set.set(&claim, vec![rendered(&name, &claim, "h1")], ABORT);
    }
    agent.connect(&mut set, NONE, now);
    for i in 0..objects {
        set.withdraw(&format!("b{i}").into(), Withdrawal::Remove, Proof::NotTargeted);
    }
    let sent = |set: &mut DesiredSet, limits: &Limits<'_>| {
        std::iter::from_fn(|| set.next(now, limits)).count()
    };
    // Two bindings have a decision that is not the newest; removals of the others do not count against the window.
    let two = |claim: &BindingUid| {
        ["b1", "b2"].contains(&claim.as_str()).then_some(LimitReason::DecisionNotNewest)
    };
    let unreachable = |_: &BindingUid| Some(LimitReason::HistoryUnreachable);
    assert_eq!(sent(&mut set, &unreachable), 120);
    assert_eq!(set.held_back().len(), objects - 120);
    assert!(set.held_back().values().all(|reason| *reason == LimitReason::HistoryUnreachable));
    set.retry_held_back();
    let rest = sent(&mut set, &two);
    let held: Vec<_> = set.held_back().iter().map(|(key, reason)| (key.name(), *reason)).collect();
    assert_eq!(rest + held.len(), objects - 120);
    assert!(held.len() <= 2, "{held:?}");
    assert!(held.iter().all(|(_, reason)| *reason == LimitReason::DecisionNotNewest), "{held:?}");
}

/// A random federation: whatever is set, withdrawn, lost and refused, the digests agree after every connection, nothing
/// is removed without proof, and in the end the member holds exactly what is wanted.
#[tokio::test]
async fn random_histories_end_in_what_is_wanted() {
    for seed in 0..300_u64 {
        let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        let mut random = |below: u64| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state >> 11) % below
        };
        let (mut set, mut agent, now) = start();
        let mut wanted: BTreeMap<BindingUid, (String, String)> = BTreeMap::new();
        for step in 0..60 {
            let claim = BindingUid::from(format!("b{}", random(6)));
            match random(10) {
                0..=4 => {
                    // A claim always has the same object; two claims may share one.
                    let name = format!("o{}", claim[1..].parse::<u64>().unwrap() / 2);
                    let hash = format!("h{}", random(3));
                    set.set(&claim, vec![rendered(&name, &claim, &hash)], ABORT);
                    wanted.insert(claim, (name, hash));
                }
                5..=6 => {
                    set.withdraw(&claim, Withdrawal::Remove, Proof::BindingDeleted);
                    wanted.remove(&claim);
                }
                7 => set.session_ended(),
                8 => {
                    agent.refuse = [0, 2, 3][random(3) as usize];
                    agent.connect(&mut set, NONE, now);
                }
                _ => agent.follow(&mut set, now),
            }
            for (claim, (name, _)) in &wanted {
                let gone = agent
                    .log
                    .last()
                    .is_some_and(|line| line.starts_with(&format!("remove {name} ")));
                assert!(!gone, "seed {seed} step {step}: {claim} wants {name}: {:?}", agent.log);
            }
            agent.log.clear();
        }
        agent.refuse = 0;
        agent.connect(&mut set, NONE, now);
        agent.connect(&mut set, NONE, now);
        assert_eq!(agent.log, [""; 0], "seed {seed}: a second connection changes nothing");
        let mut expected: BTreeMap<Key, Mark> = BTreeMap::new();
        for (claim, (name, hash)) in &wanted {
            let mark = expected.entry(key(name)).or_insert_with(|| Mark {
                hash: hash.as_str().into(),
                claims: Vec::new(),
                preserve: false,
            });
            mark.claims.push(claim.clone());
        }
        let holds: BTreeMap<_, _> =
            agent.objects.iter().map(|(key, held)| (key.clone(), (*held.mark).clone())).collect();
        assert_eq!(holds, expected, "seed {seed}");
        assert!(set.withdrawn.is_empty(), "seed {seed}: {:?}", set.withdrawn);
        set.take_confirmed();
    }
}
