use super::*;

type Pools = Queue<&'static str, u8, u8>;

fn cures(change: &u8, cure: &u8) -> bool {
    change == cure
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
    queue.done(&"a", Done::Settled, now, cures);
    assert_eq!(queue.pop(now), Some("a"));
    queue.done(&"a", Done::Settled, now, cures);
    assert_eq!(queue.pop(now), None);
    assert_eq!(queue.lengths(), (0, 0, 1));
}

#[tokio::test(start_paused = true)]
async fn failures_back_off_from_one_to_ten_seconds_and_an_edit_starts_over() {
    let start = Instant::now();
    let mut queue = Pools::default();
    queue.add("a", Priority::Now);
    let mut now = start;
    for wait in [1, 2, 4, 8, 10, 10] {
        assert_eq!(queue.pop(now), Some("a"));
        queue.done(&"a", Done::Failed, now, cures);
        assert_eq!(queue.next_timer(), Some(after(now, wait)));
        assert_eq!(queue.pop(after(now, wait) - Duration::from_millis(1)), None);
        now = after(now, wait);
    }
    queue.add("a", Priority::Later);
    assert_eq!(queue.pop(now), Some("a"), "its time has come");
    queue.done(&"a", Done::Failed, now, cures);
    queue.add("a", Priority::Later);
    assert_eq!(queue.pop(now), None, "a second look does not cut the backoff short");
    queue.add("a", Priority::Now);
    assert_eq!(queue.pop(now), Some("a"));
    queue.done(&"a", Done::Failed, now, cures);
    assert_eq!(queue.next_timer(), Some(after(now, 1)));
}

#[tokio::test(start_paused = true)]
async fn a_refused_key_wakes_by_what_cures_it_or_by_the_flush() {
    let now = Instant::now();
    let mut queue = Pools::default();
    queue.add("a", Priority::Now);
    assert_eq!(queue.pop(now), Some("a"));
    queue.done(&"a", Done::Waits(vec![7], None), now, cures);
    queue.wake(&6, now, cures);
    assert_eq!(queue.pop(after(now, 299)), None, "6 is no cure");
    queue.wake(&7, now, cures);
    assert_eq!(queue.pop(after(now, 1)), Some("a"));
    queue.done(&"a", Done::Waits(vec![7], None), now, cures);
    assert_eq!(queue.pop(after(now, 300)), Some("a"), "the flush");
}

#[tokio::test(start_paused = true)]
async fn a_cure_that_comes_during_the_flight_is_not_missed() {
    let now = Instant::now();
    let mut queue = Pools::default();
    queue.add("a", Priority::Now);
    assert_eq!(queue.pop(now), Some("a"));
    queue.wake(&7, now, cures);
    queue.done(&"a", Done::Waits(vec![7], None), now, cures);
    assert_eq!(queue.pop(after(now, 1)), Some("a"));
}
