mod decisions;

use super::*;

type Pools = Queue<&'static str, u8>;

impl WakesOn for u8 {
    type Change = u8;
    type Topic = bool;

    /// Coarser than the condition, as topics may be.
    fn topics(&self) -> Vec<bool> {
        vec![self.is_multiple_of(2)]
    }

    fn topics_of(change: &u8) -> Vec<bool> {
        vec![change.is_multiple_of(2)]
    }

    /// Conditions from 100 on are less urgent, and met by the same changes.
    fn is_met_by(&self, change: &u8) -> bool {
        self % 100 == *change
    }

    fn urgency(&self) -> Urgency {
        if *self < 100 { Urgency::Now } else { Urgency::Later }
    }
}

/// By priority, then by urgency, like `PrioritySort`.
fn by_priority<K>() -> Order<K> {
    Order::new(|_, priority, urgency| [-i64::from(priority), i64::from(urgency == Urgency::Later)])
}

fn pools() -> Pools {
    Queue::new(by_priority(), BACKOFF)
}

/// Pools of which the key `a` is in flight.
fn a_in_flight(now: Instant) -> Pools {
    let mut queue = pools();
    queue.add("a", Urgency::Now, now);
    assert_eq!(queue.pop(now), Some("a"));
    queue
}

fn after(start: Instant, seconds: u64) -> Instant {
    start + Duration::from_secs(seconds)
}

#[tokio::test(start_paused = true)]
async fn one_of_a_key_is_in_flight_and_news_bring_it_back_once() {
    let now = Instant::now();
    let mut queue = pools();
    queue.add("a", Urgency::Later, now);
    queue.add("b", Urgency::Now, now);
    assert_eq!(queue.pop(now), Some("b"), "somebody waits for b");
    assert_eq!(queue.pop(now), Some("a"));
    queue.add("a", Urgency::Now, now);
    queue.add("a", Urgency::Now, now);
    assert_eq!(queue.pop(now), None, "a is in flight");
    queue.done(&"a", Done::Settled, now);
    assert_eq!(queue.pop(now), Some("a"));
    queue.done(&"a", Done::Settled, now);
    assert_eq!(queue.pop(now), None);
    assert_eq!(queue.lengths(), Lengths { in_flight: 1, ..Lengths::default() });
}

#[tokio::test(start_paused = true)]
async fn waiting_keys_are_counted_by_why_they_wait() {
    let now = Instant::now();
    let mut queue = pools();
    for (key, how) in [
        ("placed", Done::Watches(vec![1], None)),
        ("refused", Done::Waits(vec![2], None)),
        ("mistaken", Done::Mistake),
        ("blocked", Done::Waits(Vec::new(), None)),
    ] {
        queue.add(key, Urgency::Now, now);
        assert_eq!(queue.pop(now), Some(key));
        queue.done(&key, how, now);
    }
    let waiting = WaitingLengths { unplaced: 1, mistaken: 1, blocked: 1, improvable: 1 };
    assert_eq!(queue.lengths(), Lengths { waiting, ..Lengths::default() });
    queue.wake(&1, now);
    let waiting = WaitingLengths { improvable: 0, ..waiting };
    assert_eq!(queue.lengths(), Lengths { waiting, active: 1, ..Lengths::default() });
    let later = now + Duration::from_secs(3);
    assert_eq!(queue.pop(later), Some("placed"));
    assert_eq!(queue.waited(&"placed"), Duration::from_secs(3));
}

#[tokio::test(start_paused = true)]
async fn failures_back_off_from_one_to_ten_seconds_and_an_edit_starts_over() {
    let start = Instant::now();
    let mut queue = pools();
    let mut now = start;
    queue.add("a", Urgency::Now, now);
    for wait in [1, 2, 4, 8, 10, 10] {
        assert_eq!(queue.pop(now), Some("a"));
        queue.done(&"a", Done::Failed, now);
        assert_eq!(queue.next_timer(), Some(after(now, wait)));
        assert_eq!(queue.pop(after(now, wait) - Duration::from_millis(1)), None);
        now = after(now, wait);
    }
    queue.add("a", Urgency::Later, now);
    assert_eq!(queue.pop(now), Some("a"), "its time has come");
    queue.done(&"a", Done::Failed, now);
    queue.add("a", Urgency::Later, now);
    assert_eq!(queue.pop(now), None, "a second look does not cut the backoff short");
    queue.add("a", Urgency::Now, now);
    assert_eq!(queue.pop(now), Some("a"));
    queue.done(&"a", Done::Failed, now);
    assert_eq!(queue.next_timer(), Some(after(now, 1)));
}

#[tokio::test(start_paused = true)]
async fn rejections_and_errors_have_clocks_of_their_own() {
    let mut now = Instant::now();
    let mut queue = pools();
    queue.add("a", Urgency::Now, now);
    for wait in [1, 2, 4, 8, 10, 10] {
        assert_eq!(queue.pop(now), Some("a"));
        queue.done(&"a", Done::Waits(vec![7], None), now);
        queue.wake(&7, now);
        assert_eq!(queue.next_timer(), Some(after(now, wait)), "refused again");
        now = after(now, wait);
    }
    assert_eq!(queue.pop(now), Some("a"));
    queue.done(&"a", Done::Failed, now);
    assert_eq!(queue.next_timer(), Some(after(now, 1)), "the first failure");
    assert_eq!(queue.pop(after(now, 1)), Some("a"));
    queue.done(&"a", Done::Settled, after(now, 1));
    queue.add("a", Urgency::Later, after(now, 1));
    assert_eq!(queue.pop(after(now, 1)), Some("a"));
    queue.done(&"a", Done::Failed, after(now, 1));
    assert_eq!(queue.next_timer(), Some(after(now, 2)), "what was settled starts over");
}

#[tokio::test(start_paused = true)]
async fn a_refused_key_wakes_by_its_condition_or_by_the_flush() {
    let now = Instant::now();
    let mut queue = a_in_flight(now);
    queue.done(&"a", Done::Waits(vec![7], None), now);
    queue.wake(&6, now);
    assert_eq!(queue.pop(after(now, 299)), None, "6 does not meet the condition");
    queue.wake(&7, now);
    assert_eq!(queue.pop(after(now, 1)), Some("a"));
    queue.done(&"a", Done::Waits(vec![7], None), now);
    assert_eq!(queue.pop(after(now, 300)), Some("a"), "the flush");
}

#[tokio::test(start_paused = true)]
async fn after_its_backoff_a_key_goes_before_mere_rechecks() {
    let now = Instant::now();
    let mut failed = a_in_flight(now);
    failed.done(&"a", Done::Failed, now);
    let mut refused = a_in_flight(now);
    refused.done(&"a", Done::Waits(vec![107], None), now);
    refused.wake(&7, now);
    for queue in [&mut failed, &mut refused] {
        queue.add("recheck", Urgency::Later, now);
        assert_eq!(queue.pop(after(now, 1)), Some("a"));
        assert_eq!(queue.pop(after(now, 1)), Some("recheck"));
    }
}

#[tokio::test(start_paused = true)]
async fn a_placed_key_is_flushed_every_hour() {
    let now = Instant::now();
    let mut queue = a_in_flight(now);
    queue.done(&"a", Done::Watches(vec![7], None), now);
    assert_eq!(queue.pop(after(now, 3599)), None);
    assert_eq!(queue.pop(after(now, 3600)), Some("a"));
    let due = after(now, 3610);
    queue.done(&"a", Done::Watches(vec![7], Some(due)), after(now, 3600));
    assert_eq!(queue.next_timer(), Some(due), "its own time comes first");
}

#[tokio::test(start_paused = true)]
async fn an_event_that_comes_during_the_flight_is_not_missed() {
    let now = Instant::now();
    let mut queue = a_in_flight(now);
    queue.wake(&7, now);
    queue.done(&"a", Done::Waits(vec![7], None), now);
    assert_eq!(queue.pop(after(now, 1)), Some("a"));
}

#[tokio::test(start_paused = true)]
async fn an_event_about_a_key_wakes_it_if_it_is_placed_or_in_flight() {
    let now = Instant::now();
    let mut queue = a_in_flight(now);
    queue.wake_placed(&"a", now);
    queue.done(&"a", Done::Watches(Vec::new(), None), now);
    assert_eq!(queue.pop(now), Some("a"), "the event came during the flight");
    queue.done(&"a", Done::Watches(Vec::new(), None), now);
    assert_eq!(queue.pop(now), None);
    queue.wake_placed(&"a", now);
    assert_eq!(queue.pop(now), Some("a"));
    queue.done(&"a", Done::Waits(Vec::new(), None), now);
    queue.wake_placed(&"a", now);
    queue.wake_placed(&"unknown", now);
    assert_eq!(
        queue.pop(now),
        None,
        "a refused key waits for the event's topic, after its backoff"
    );
}

#[tokio::test(start_paused = true)]
async fn what_is_settled_is_woken_at_once_and_what_is_refused_after_its_backoff() {
    let now = Instant::now();
    let mut queue = pools();
    queue.add("settled", Urgency::Now, now);
    queue.add("refused", Urgency::Now, now);
    for how in [Done::Watches(vec![7], None), Done::Waits(vec![7], None)] {
        let key = queue.pop(now).unwrap();
        queue.done(&key, how, now);
    }
    queue.wake(&7, now);
    assert_eq!(queue.lengths(), Lengths { active: 1, backoff: 1, ..Lengths::default() });
    assert_eq!(queue.pop(now), Some("settled"));
    queue.done(&"settled", Done::Settled, now);
    assert_eq!(queue.pop(after(now, 1)), Some("refused"));
    queue.done(&"refused", Done::Waits(vec![7], None), after(now, 1));
    // A backoff counts from the attempt: this one has passed long before its event.
    queue.wake(&7, after(now, 20));
    assert_eq!(queue.pop(after(now, 20)), Some("refused"));
}

#[tokio::test(start_paused = true)]
async fn a_mistake_waits_for_an_edit_and_for_nothing_else() {
    let now = Instant::now();
    let mut queue = a_in_flight(now);
    queue.done(&"a", Done::Mistake, now);
    assert_eq!(queue.next_timer(), None);
    queue.wake(&7, now);
    assert_eq!(queue.pop(after(now, 3600)), None);
    queue.add("a", Urgency::Now, now);
    assert_eq!(queue.pop(after(now, 3600)), Some("a"));
}

#[tokio::test(start_paused = true)]
async fn a_greater_priority_goes_first_whatever_came_before_and_a_new_one_counts_at_once() {
    let now = Instant::now();
    let mut queue = pools();
    for (key, priority) in [("low", -5), ("none", 0), ("high", 1000), ("later", 1000)] {
        queue.set_info(&key, priority, None);
        let urgency = if key == "later" { Urgency::Later } else { Urgency::Now };
        queue.add(key, urgency, now);
    }
    queue.add("none2", Urgency::Now, now);
    queue.set_info(&"low", 2000, None);
    queue.set_info(&"high", 999, None);
    let order: Vec<_> = std::iter::from_fn(|| queue.pop(now)).collect();
    assert_eq!(order, ["low", "later", "high", "none", "none2"]);
}

#[tokio::test(start_paused = true)]
async fn no_stream_of_greater_priorities_starves_a_failover() {
    let now = Instant::now();
    let mut queue = pools();
    queue.add("failover", Urgency::Now, now);
    queue.set_info(&"busy", i32::MAX, None);
    let mut turns = |at: Instant| {
        queue.add("busy", Urgency::Now, at);
        let key = queue.pop(at).unwrap();
        queue.done(&key, Done::Settled, at);
        key
    };
    for millis in 0..9_999 {
        assert_eq!(turns(now + Duration::from_millis(millis)), "busy", "priority counts");
    }
    assert_eq!(turns(after(now, 10)), "failover");
    assert_eq!(turns(after(now, 10)), "busy");
}

#[tokio::test(start_paused = true)]
async fn under_overload_a_greater_priority_still_has_every_second_turn() {
    let now = Instant::now();
    let mut queue = pools();
    for key in ["a", "b", "c", "d"] {
        queue.add(key, Urgency::Now, now);
    }
    for key in ["x", "y", "z"] {
        queue.set_info(&key, 1, None);
        queue.add(key, Urgency::Now, now);
    }
    let order: Vec<_> = std::iter::from_fn(|| queue.pop(after(now, 60))).collect();
    assert_eq!(order, ["a", "x", "b", "y", "c", "z", "d"]);
}

const SHUT: Held = Held { plugin: "test", why: String::new(), opens: &[Opening::Cluster] };

#[tokio::test(start_paused = true)]
async fn a_key_behind_a_shut_gate_is_never_ready_and_its_chores_are_done_apart() {
    let now = Instant::now();
    let mut queue = pools();
    queue.set_info(&"a", 0, Some(SHUT));
    queue.add("a", Urgency::Now, now);
    assert_eq!(queue.pop(now), None);
    assert_eq!(queue.lengths(), Lengths { held: 1, ..Lengths::default() });
    assert_eq!(queue.pop_held(now), Some("a"), "what a first look has to do");
    queue.add("a", Urgency::Later, now);
    queue.done(&"a", Done::Settled, now);
    assert_eq!(queue.pop_held(now), Some("a"), "news came meanwhile");
    queue.done(&"a", Done::Watches(vec![7], Some(after(now, 600))), now);
    queue.wake(&7, now);
    assert_eq!(queue.pop(after(now, 599)), None, "neither an event nor the flush opens a gate");
    assert_eq!(queue.pop_held(after(now, 599)), None);
    queue.expire(after(now, 600));
    assert_eq!(queue.pop(after(now, 600)), None);
    assert_eq!(queue.pop_held(after(now, 600)), Some("a"), "the time of a chore");
    queue.done(&"a", Done::Failed, after(now, 600));
    queue.expire(after(now, 601));
    assert_eq!(queue.pop_held(after(now, 601)), Some("a"), "a chore that failed is tried again");
    queue.done(&"a", Done::Settled, after(now, 601));

    assert_eq!(queue.held_until(Opening::Policy), Vec::<&str>::new());
    assert_eq!(queue.held_until(Opening::Cluster), ["a"]);
    queue.set_info(&"a", 0, None);
    queue.add("a", Urgency::Now, after(now, 700));
    assert_eq!(queue.held_until(Opening::Cluster), Vec::<&str>::new());
    assert_eq!(queue.pop(after(now, 700)), Some("a"));
    queue.done(&"a", Done::Settled, after(now, 700));
    assert_eq!(queue.lengths(), Lengths::default());
}

#[tokio::test(start_paused = true)]
async fn a_gate_that_shuts_takes_a_ready_key_and_one_in_flight_out() {
    let now = Instant::now();
    let mut queue = pools();
    queue.add("flies", Urgency::Now, now);
    queue.add("ready", Urgency::Now, now);
    queue.add("refused", Urgency::Now, now);
    assert_eq!(queue.pop(now), Some("flies"));
    for key in ["flies", "ready"] {
        queue.set_info(&key, 0, Some(SHUT));
    }
    assert_eq!(queue.pop(now), Some("refused"));
    queue.done(&"refused", Done::Waits(vec![7], None), now);
    queue.set_info(&"refused", 0, Some(SHUT));
    queue.wake(&7, now);
    queue.done(&"flies", Done::Again, now);
    assert_eq!(queue.pop(after(now, 3600)), None);
    assert_eq!(queue.lengths(), Lengths { held: 3, ..Lengths::default() });
}

#[tokio::test(start_paused = true)]
async fn more_events_than_are_kept_during_a_flight_cost_a_look_and_none_is_lost() {
    let now = Instant::now();
    let mut queue = a_in_flight(now);
    queue.wake(&7, now);
    (0..events::MOST_REPLAYED).for_each(|_| queue.wake(&9, now));
    queue.done(&"a", Done::Waits(vec![7], None), now);
    assert_eq!(queue.pop(after(now, 1)), Some("a"));
    assert_eq!(queue.events.len(), 0);
}

#[tokio::test(start_paused = true)]
async fn what_a_change_may_only_improve_comes_after_what_it_may_move() {
    let now = Instant::now();
    let mut queue = pools();
    for (key, condition) in [("improves", 101), ("moves", 1)] {
        queue.add(key, Urgency::Now, now);
        assert_eq!(queue.pop(now), Some(key));
        queue.done(&key, Done::Watches(vec![condition], None), now);
    }
    queue.wake(&1, now);
    assert_eq!(queue.pop(now), Some("moves"));
    assert_eq!(queue.pop(now), Some("improves"));

    // The same for a change that arrived during the job.
    queue.wake(&1, now);
    queue.done(&"improves", Done::Watches(vec![101], None), now);
    queue.done(&"moves", Done::Watches(vec![1], None), now);
    assert_eq!(queue.pop(now), Some("moves"));
    assert_eq!(queue.pop(now), Some("improves"));
}
