//! Admission of sessions.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use tokio::time::Instant;

use crate::member::token_bucket::{Bucket, Rate};

/// Rate of session starts: 5,000 agents are back within 10 s of a leader change, and each start costs a handshake and
/// an inventory.
const ADMISSIONS: Rate = Rate { burst: 1_000.0, per_second: 1_000.0 };

/// Limits the rate of session starts, and numbers the sessions.
#[derive(Debug)]
pub(crate) struct Admission {
    bucket: Mutex<Bucket>,
    next: AtomicU64,
}

impl Admission {
    pub(crate) fn new(now: Instant) -> Self {
        Self { bucket: Mutex::new(Bucket::new(ADMISSIONS, now)), next: AtomicU64::new(1) }
    }

    /// Whether another session may start now.
    pub(crate) fn admit(&self, now: Instant) -> bool {
        self.bucket.lock().unwrap_or_else(PoisonError::into_inner).take(now)
    }

    /// The number of a new session.
    pub(crate) fn next_id(&self) -> u64 {
        self.next.fetch_add(1, Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    /// The size of a whole federation, all at once and again whenever they are refused.
    #[tokio::test]
    async fn five_thousand_at_once_are_in_within_seconds_and_never_too_many_at_a_time() {
        let start = Instant::now();
        let mut bucket = Bucket::new(ADMISSIONS, start);
        let (mut waiting, mut within) = (5_000, Vec::new());
        for tick in 0..100 {
            let now = start + Duration::from_millis(100) * tick;
            let admitted = (0..waiting).filter(|_| bucket.take(now)).count();
            waiting -= admitted;
            within.push(admitted);
        }
        assert_eq!(waiting, 0);
        assert!(within[..41].iter().sum::<usize>() == 5_000, "{within:?}");
        assert_eq!(within[0], 1_000, "those that the bucket holds");
        let most = within[1..].iter().max();
        assert!(most.is_some_and(|most| *most <= 101), "{within:?}");
        // Idle time adds no more than a full bucket.
        let late = start + Duration::from_secs(3_600);
        assert_eq!((0..5_000).filter(|_| bucket.take(late)).count(), 1_000);
    }
}
