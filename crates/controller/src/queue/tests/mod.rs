mod decisions;

use super::*;

type Pools = Queue<&'static str, u8>;

impl Cures for u8 {
    type Change = u8;
    type Topic = bool;

    /// Coarser than the cure, as topics may be.
    fn topics(&self) -> Vec<bool> {
        vec![self.is_multiple_of(2)]
    }

    fn topics_of(change: &u8) -> Vec<bool> {
        vec![change.is_multiple_of(2)]
    }

    fn is_met_by(&self, change: &u8) -> bool {
        self == change
    }
}

fn after(start: Instant, seconds: u64) -> Instant {
    start + Duration::from_secs(seconds)
}

#[tokio::test(start_paused = true)]
async fn one_of_a_key_is_in_flight_and_news_bring_it_back_once() {
    let now = Instant::now();
    let mut queue = Pools::default();
    queue.add("a", Priority::Later);
    queue.add("b", Priority::Now);
    assert_eq!(queue.pop(now), Some("b"), "somebody waits for b");
    assert_eq!(queue.pop(now), Some("a"));
    queue.add("a", Priority::Now);
    queue.add("a", Priority::Now);
    assert_eq!(queue.pop(now), None, "a is in flight");
    queue.done(&"a", Done::Settled, now);
    assert_eq!(queue.pop(now), Some("a"));
    queue.done(&"a", Done::Settled, now);
    assert_eq!(queue.pop(now), None);
    assert_eq!(queue.lengths(), Lengths { in_flight: 1, ..Lengths::default() });
}

#[tokio::test(start_paused = true)]
async fn failures_back_off_from_one_to_ten_seconds_and_an_edit_starts_over() {
    let start = Instant::now();
    let mut queue = Pools::default();
    queue.add("a", Priority::Now);
    let mut now = start;
    for wait in [1, 2, 4, 8, 10, 10] {
        assert_eq!(queue.pop(now), Some("a"));
        queue.done(&"a", Done::Failed, now);
        assert_eq!(queue.next_timer(), Some(after(now, wait)));
        assert_eq!(queue.pop(after(now, wait) - Duration::from_millis(1)), None);
        now = after(now, wait);
    }
    queue.add("a", Priority::Later);
    assert_eq!(queue.pop(now), Some("a"), "its time has come");
    queue.done(&"a", Done::Failed, now);
    queue.add("a", Priority::Later);
    assert_eq!(queue.pop(now), None, "a second look does not cut the backoff short");
    queue.add("a", Priority::Now);
    assert_eq!(queue.pop(now), Some("a"));
    queue.done(&"a", Done::Failed, now);
    assert_eq!(queue.next_timer(), Some(after(now, 1)));
}

#[tokio::test(start_paused = true)]
async fn a_refused_key_wakes_by_what_cures_it_or_by_the_flush() {
    let now = Instant::now();
    let mut queue = Pools::default();
    queue.add("a", Priority::Now);
    assert_eq!(queue.pop(now), Some("a"));
    queue.done(&"a", Done::Waits(vec![7], None), now);
    queue.wake(&6, now);
    assert_eq!(queue.pop(after(now, 299)), None, "6 is no cure");
    queue.wake(&7, now);
    assert_eq!(queue.pop(after(now, 1)), Some("a"));
    queue.done(&"a", Done::Waits(vec![7], None), now);
    assert_eq!(queue.pop(after(now, 300)), Some("a"), "the flush");
}

#[tokio::test(start_paused = true)]
async fn a_cure_that_comes_during_the_flight_is_not_missed() {
    let now = Instant::now();
    let mut queue = Pools::default();
    queue.add("a", Priority::Now);
    assert_eq!(queue.pop(now), Some("a"));
    queue.wake(&7, now);
    queue.done(&"a", Done::Waits(vec![7], None), now);
    assert_eq!(queue.pop(after(now, 1)), Some("a"));
}

#[tokio::test(start_paused = true)]
async fn what_is_settled_is_woken_at_once_and_what_is_refused_after_its_backoff() {
    let now = Instant::now();
    let mut queue = Pools::default();
    queue.add("settled", Priority::Now);
    queue.add("refused", Priority::Now);
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
    // A backoff counts from the attempt: this one has run out long before its event.
    queue.wake(&7, after(now, 20));
    assert_eq!(queue.pop(after(now, 20)), Some("refused"));
}

#[tokio::test(start_paused = true)]
async fn a_mistake_waits_for_an_edit_and_for_nothing_else() {
    let now = Instant::now();
    let mut queue = Pools::default();
    queue.add("a", Priority::Now);
    assert_eq!(queue.pop(now), Some("a"));
    queue.done(&"a", Done::Mistake, now);
    assert_eq!(queue.next_timer(), None);
    queue.wake(&7, now);
    assert_eq!(queue.pop(after(now, 3600)), None);
    queue.add("a", Priority::Now);
    assert_eq!(queue.pop(after(now, 3600)), Some("a"));
}

#[tokio::test(start_paused = true)]
async fn more_events_than_are_kept_during_a_flight_cost_a_look_and_none_is_lost() {
    let now = Instant::now();
    let mut queue = Pools::default();
    queue.add("a", Priority::Now);
    assert_eq!(queue.pop(now), Some("a"));
    queue.wake(&7, now);
    (0..MOST_REPLAYED).for_each(|_| queue.wake(&9, now));
    queue.done(&"a", Done::Waits(vec![7], None), now);
    assert_eq!(queue.pop(after(now, 1)), Some("a"));
    assert_eq!(queue.events.len(), 0);
}
