use std::time::{Duration, Instant};

use atoll_render::{Key, Rendered};
use serde_json::json;
use tokio::sync::{mpsc, oneshot};

use super::*;
use crate::member::state::Member;
use crate::sessions::desired::{Held, Mark, Order};

const ABORT: ConflictResolution = ConflictResolution::Abort;

fn key(name: &str) -> Key {
    Key::new("apps", "Deployment", Some("shop"), name)
}

/// A manifest of 2 KiB, about the size of a Deployment.
fn packed(name: &str, claim: &str) -> Arc<Packed> {
    let annotations = json!({atoll_api::marks::CLAIMS: claim});
    let manifest =
        json!({"metadata": {"name": name, "annotations": annotations}, "spec": "x".repeat(2_048)});
    let (api_version, hash) = ("apps/v1".into(), "h1".into());
    Arc::new(Packed::of(
        &Rendered { key: key(name), api_version, manifest, hash },
        None,
        Some(&"b1".into()),
    ))
}

fn held(name: &str, claim: &str) -> (Key, Held) {
    let mark = Mark { hash: "h1".into(), claims: vec![claim.into()], preserve: false };
    (key(name), Held { mark: Arc::new(mark), uid: format!("uid-{name}").as_str().into() })
}

fn member() -> Member {
    Member::new("member1".into(), tokio::time::Instant::now())
}

#[tokio::test]
async fn an_order_does_not_wait_for_a_busy_member_and_the_next_lock_applies_it() {
    let member = member();
    let busy = member.lock();
    member.mailbox.set(&"b1".into(), vec![packed("web", "b1")], ABORT);
    member.mailbox.set_emptying(Emptying::No);
    assert!(member.try_lock().is_none(), "the event loop does not wait");
    assert!(busy.desired.claims(&key("web")).is_empty());
    drop(busy);
    let state = member.lock();
    assert_eq!(state.desired.claims(&key("web")), ["b1"]);
    assert!(matches!(state.emptying, Emptying::No));
}

/// What a claim wanted, and no longer wants after its withdrawal, is removed, not kept as an orphan.
#[tokio::test]
async fn a_withdrawal_is_not_lost_when_its_claim_is_set_again() {
    let member = member();
    let now = tokio::time::Instant::now();
    {
        let mut state = member.lock();
        state.desired.set(&"b1".into(), vec![packed("web", "b1")], ABORT);
        state.desired.session_started();
        state.desired.inventory(vec![held("web", "b1")], &BTreeMap::new());
    }
    for _ in 0..3 {
        member.mailbox.withdraw(&"b1".into(), Withdrawal::Remove, Proof::BindingDeleted);
        member.mailbox.set(&"b1".into(), vec![packed("api", "b1")], ABORT);
    }
    let mut state = member.lock();
    let mut orders = Vec::new();
    while let Some(order) = state.desired.next(now, &|_| None) {
        match order {
            Order::Upsert(packed, _) => orders.push(format!("upsert {}", packed.key.name())),
            Order::Remove(key, _) => orders.push(format!("remove {}", key.name())),
            Order::Ensure(_) | Order::Release(..) => orders.push("other".to_owned()),
            Order::Synced(_) => {}
        }
    }
    assert_eq!(orders, ["upsert api", "remove web"]);
}

#[tokio::test]
async fn the_mailbox_keeps_the_newest_order_of_each_binding() {
    let member = member();
    for _ in 0..1_000 {
        member.mailbox.set(&"b1".into(), vec![packed("web", "b1")], ABORT);
        member.mailbox.set(&"b2".into(), vec![packed("api", "b2")], ABORT);
    }
    assert_eq!(member.mailbox.take().by_claim.len(), 2);
}

/// The figures in this module's documentation:
/// `cargo nextest run -p atoll-controller --run-ignored only --no-capture mailbox`
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "a measurement"]
#[allow(clippy::print_stdout, reason = "a measurement prints its result")]
async fn measure() {
    const OBJECTS: usize = 20_000;
    const ROUNDS: u32 = 5_000;
    let member = Arc::new(member());
    let objects: Vec<_> = (0..OBJECTS).map(|n| (format!("o{n}"), format!("b{n}"))).collect();
    for (name, claim) in &objects {
        member.lock().desired.set(&claim.into(), vec![packed(name, claim)], ABORT);
    }
    let inventory = objects.iter().map(|(name, claim)| held(name, claim)).collect();
    let start = Instant::now();
    member.lock().desired.inventory(inventory, &BTreeMap::new());
    let inventory = start.elapsed();
    let order = packed("o1", "b1");
    let timed = |each: &dyn Fn()| {
        let start = Instant::now();
        (0..ROUNDS).for_each(|_| each());
        start.elapsed() / ROUNDS
    };
    let direct = timed(&|| member.lock().desired.set(&"b1".into(), vec![order.clone()], ABORT));
    let left = timed(&|| member.mailbox.set(&"b1".into(), vec![order.clone()], ABORT));
    let question = timed(&|| {
        let state = member.lock();
        let _answer =
            (state.desired.claims(&order.key), state.desired.is_current(&order.key, "h1"));
    });
    let (sender, mut questions) =
        mpsc::channel::<(Key, oneshot::Sender<(Vec<BindingUid>, bool)>)>(64);
    let owner = {
        let member = member.clone();
        tokio::spawn(async move {
            while let Some((key, answer)) = questions.recv().await {
                let state = member.lock();
                let _ =
                    answer.send((state.desired.claims(&key), state.desired.is_current(&key, "h1")));
            }
        })
    };
    let start = Instant::now();
    for _ in 0..ROUNDS {
        let (answer, answered) = oneshot::channel();
        sender.send((order.key.clone(), answer)).await.unwrap();
        answered.await.unwrap();
    }
    let round_trip = start.elapsed() / ROUNDS;
    drop(sender);
    owner.await.unwrap();
    let ratio = |a: Duration, b: Duration| a.as_secs_f64() / b.as_secs_f64();
    println!("inventory of {OBJECTS} objects: {:.0} orders", ratio(inventory, direct));
    println!("order left in the mailbox: {:.2} of one applied under the lock", ratio(left, direct));
    println!("question to an owner task: {:.1} times the lock", ratio(round_trip, question));
}
