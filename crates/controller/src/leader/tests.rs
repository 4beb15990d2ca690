use std::time::Duration;

use atoll_api::marks;
use k8s_openapi::api::coordination::v1::Lease;
use kube::Api;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::*;
use crate::testing::eventually;
use crate::testing::hub::{Hub, Spy};

const LIMIT: Duration = Duration::from_secs(60);

struct Stand {
    election: Election,
    token: CancellationToken,
    task: JoinHandle<()>,
    spy: Spy,
    ready: watch::Sender<Option<LeaderTerm>>,
}

impl Stand {
    fn term(&self) -> Option<u64> {
        self.election
            .state()
            .borrow()
            .and_then(|leadership| leadership.in_force())
            .map(LeaderTerm::get)
    }

    async fn leads(&self, what: &str) -> u64 {
        eventually(what, LIMIT, || async { self.term().is_some() }).await;
        self.term().unwrap()
    }

    async fn stop(self) {
        self.token.cancel();
        self.task.await.unwrap();
    }
}

fn candidate(place: &str, incarnation: &str, exclusive_place: bool) -> Candidate {
    Candidate {
        namespace: "atoll-system".to_owned(),
        name: "atoll-controller".to_owned(),
        place: place.to_owned(),
        incarnation: incarnation.to_owned(),
        address: None,
        exclusive_place,
        times: LeaseTimes::default(),
    }
}

fn stand(hub: &Hub, candidate: Candidate) -> Stand {
    let (client, spy) = hub.spied();
    let (ready, known) = watch::channel(Some(LeaderTerm::default()));
    let (election, elector) = super::election(client, candidate, hub.clock.clone(), known).unwrap();
    let token = CancellationToken::new();
    let task = tokio::spawn(elector.run(token.clone()));
    Stand { election, token, task, spy, ready }
}

async fn lease(hub: &Hub) -> Lease {
    let api: Api<Lease> = Api::namespaced(hub.client.clone(), "atoll-system");
    api.get("atoll-controller").await.unwrap()
}

#[tokio::test(start_paused = true)]
async fn of_two_candidates_one_leads_and_the_other_follows_with_a_higher_term() {
    let hub = Hub::open().await;
    let a = stand(&hub, candidate("a", "1", false));
    assert_eq!(a.leads("a leads").await, 1);
    let b = stand(&hub, candidate("b", "1", false));
    for _ in 0..100 {
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert!(a.term().is_some() && b.term().is_none());
    }
    let start = Instant::now();
    a.stop().await;
    assert_eq!(b.leads("b follows").await, 2);
    let handed_over = start.elapsed();
    assert!(handed_over <= Duration::from_secs(2), "handed over after {handed_over:?}");
    assert_eq!(record::term(&lease(&hub).await).get(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_leader_that_cannot_renew_stops_before_another_may_start() {
    let hub = Hub::open().await;
    let a = stand(&hub, candidate("a", "1", false));
    let first = a.leads("a leads").await;
    let b = stand(&hub, candidate("b", "1", false));
    tokio::time::sleep(Duration::from_secs(30)).await;
    a.spy.cut(true);
    let start = Instant::now();
    while b.term().is_none() {
        tokio::time::sleep(Duration::from_millis(10)).await;
        assert!(a.term().is_none() || b.term().is_none(), "two leaders");
        assert!(start.elapsed() < LIMIT);
    }
    let times = LeaseTimes::default();
    assert!(start.elapsed() >= times.duration - times.retry, "{:?}", start.elapsed());
    assert!(b.term().unwrap() > first);
    assert_eq!(
        *a.election.state().borrow(),
        None,
        "the leadership was taken back, not only past its deadline"
    );
    a.spy.cut(false);
    tokio::time::sleep(LIMIT).await;
    assert!(a.term().is_none() && b.term().is_some(), "b keeps what it has");
}

#[tokio::test(start_paused = true)]
async fn the_term_is_above_that_of_every_binding_even_with_a_fresh_lease() {
    let hub = Hub::open().await;
    let (client, _) = hub.spied();
    let (ready, known) = watch::channel(None);
    let candidate = candidate("a", "1", false);
    let (election, elector) = super::election(client, candidate, hub.clock.clone(), known).unwrap();
    let token = CancellationToken::new();
    let task = tokio::spawn(elector.run(token.clone()));
    let stand = Stand { election, token, task, spy: Spy::default(), ready };
    tokio::time::sleep(LIMIT).await;
    assert_eq!(stand.term(), None, "a controller that has not read the bindings does not lead");
    stand.ready.send_replace(Some(LeaderTerm::new(41)));
    assert_eq!(stand.leads("leads").await, 42);
    stand.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_higher_term_is_outdone_at_most_once_in_a_while_and_never_out_of_range() {
    let hub = Hub::open().await;
    let a = stand(&hub, candidate("a", "1", false));
    assert_eq!(a.leads("a leads").await, 1);
    a.election.heard_term(LeaderTerm::new(LARGEST_TERM_STEP + 9));
    a.election.heard_term(LeaderTerm::new(7));
    eventually("outdone", LIMIT, || async { a.term() == Some(8) }).await;
    let raised = Instant::now();
    a.election.heard_term(LeaderTerm::new(3));
    for term in 20..40 {
        a.election.heard_term(LeaderTerm::new(term));
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert_eq!(a.term(), Some(8), "a raise has just been");
    }
    eventually("outdone again", LIMIT, || async { a.term() == Some(40) }).await;
    assert!(raised.elapsed() >= RAISE_PAUSE, "{:?}", raised.elapsed());
    tokio::time::sleep(LIMIT).await;
    assert_eq!(a.term(), Some(40), "one raise for all of them");
    assert_eq!(record::term(&lease(&hub).await).get(), 40);
}

/// The Lease in the hub is authoritative, as after another leader's term.
#[tokio::test(start_paused = true)]
async fn a_higher_term_in_the_lease_is_outdone_and_a_lease_from_a_backup_takes_nothing_back() {
    let hub = Hub::open().await;
    let api: Api<Lease> = Api::namespaced(hub.client.clone(), "atoll-system");
    let annotate = async |term: &str| {
        let patch = serde_json::json!({"metadata": {"annotations": {marks::TERM: term}}});
        let (params, patch) = (Default::default(), kube::api::Patch::Merge(patch));
        api.patch("atoll-controller", &params, &patch).await.unwrap();
    };
    let a = stand(&hub, candidate("a", "1", false));
    assert_eq!(a.leads("a leads").await, 1);
    annotate("70").await;
    eventually("outdone", LIMIT, || async { a.term() == Some(71) }).await;
    for backup in ["3", "-1", "99999999999999999999", "9223372036854775807"] {
        annotate(backup).await;
        tokio::time::sleep(LIMIT).await;
        assert_eq!((a.term(), record::term(&lease(&hub).await).get()), (Some(71), 71), "{backup}");
    }
    api.delete("atoll-controller", &Default::default()).await.unwrap();
    eventually("made anew", LIMIT, || async { a.term() == Some(72) }).await;
}

#[tokio::test(start_paused = true)]
async fn a_bindings_term_out_of_range_is_not_taken_over() {
    let hub = Hub::open().await;
    let a = stand(&hub, candidate("a", "1", false));
    a.ready.send_replace(Some(LeaderTerm::new(1 << 60)));
    assert_eq!(a.leads("a leads").await, 1);
}

#[tokio::test(start_paused = true)]
async fn after_a_crash_the_same_place_leads_at_once_where_it_is_exclusive() {
    let hub = Hub::open().await;
    let killed = stand(&hub, candidate("up", "1", true));
    killed.leads("leads").await;
    killed.task.abort();
    let start = Instant::now();
    let again = stand(&hub, candidate("up", "2", true));
    assert_eq!(again.leads("leads again").await, 2);
    assert!(start.elapsed() < Duration::from_secs(1), "{:?}", start.elapsed());
    // Another place has to wait, and so does one that is not exclusive.
    again.task.abort();
    let start = Instant::now();
    let other = stand(&hub, candidate("other", "1", true));
    assert_eq!(other.leads("expired").await, 3);
    assert!(start.elapsed() >= LeaseTimes::default().duration);
}

#[tokio::test(start_paused = true)]
async fn a_renewal_whose_answer_was_lost_loses_nothing() {
    let hub = Hub::open().await;
    let a = stand(&hub, candidate("a", "1", false));
    a.leads("a leads").await;
    for _ in 0..3 {
        a.spy.fail_next(http::Method::PUT, "/leases/", crate::testing::hub::How::LoseAnswer);
        tokio::time::sleep(Duration::from_secs(6)).await;
        assert_eq!(a.term(), Some(1));
    }
}

#[tokio::test(start_paused = true)]
async fn times_that_allow_two_leaders_are_refused() {
    let hub = Hub::open().await;
    let mut candidate = candidate("a", "1", false);
    candidate.times.renew_deadline = candidate.times.duration;
    let known = watch::channel(None).1;
    let error =
        super::election(hub.client.clone(), candidate, hub.clock.clone(), known).err().unwrap();
    assert!(error.to_string().contains("renew deadline"), "{error}");
}
