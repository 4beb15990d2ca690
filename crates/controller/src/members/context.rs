//! State shared by all parts of this module.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use atoll_api::Clock;
use atoll_protocol::ca::CertificateAuthority;
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::bounds::Rooms;
use super::health::HealthTimes;
use super::health::suspicion::Suspicion;
use super::metrics::Metrics;
use super::outbox::Outbox;
use super::registry::Registry;
use super::types::Oracle;
use super::writes::Due;
use crate::leader::LeaderTerm;

/// Limit of one call to the hub.
pub(super) const HUB_TIMEOUT: Duration = Duration::from_secs(10);
/// Rate of session starts: 5,000 agents are back within 10 s of a leader change, and each start costs a handshake and
/// an inventory.
pub(super) const ADMISSIONS: Rate = Rate { burst: 1_000.0, per_second: 1_000.0 };

pub(super) struct Context {
    pub(super) client: kube::Client,
    pub(super) clock: Clock,
    pub(super) times: HealthTimes,
    /// `None` = not the leader.
    pub(super) term: watch::Receiver<Option<LeaderTerm>>,
    /// The term in which all desired state has been set.
    pub(super) complete: watch::Sender<Option<LeaderTerm>>,
    /// Node label keys that templates use.
    pub(super) labels: watch::Sender<Vec<String>>,
    pub(super) authority: watch::Sender<Option<Arc<CertificateAuthority>>>,
    pub(super) oracle: Arc<dyn Oracle>,
    pub(super) registry: Registry,
    pub(super) outbox: Outbox,
    /// Memory budgets for data from members.
    pub(super) room: Rooms,
    /// Clusters whose status or taints may have to be written.
    pub(super) due: Due,
    /// Clusters that are being deleted, or have open requests.
    pub(super) chores: Due,
    pub(super) metrics: Metrics,
    pub(super) suspicion: Mutex<Suspicion>,
    /// Until when a new leader judges no member.
    pub(super) grace: Mutex<Option<Instant>>,
    pub(super) admission: Mutex<Bucket>,
    pub(super) sessions: AtomicU64,
    /// Last publication by member and event.
    pub(super) published: Mutex<BTreeMap<(String, &'static str), Instant>>,
    pub(super) tasks: TaskTracker,
    pub(super) token: CancellationToken,
}

impl Context {
    pub(super) fn suspicion(&self) -> MutexGuard<'_, Suspicion> {
        self.suspicion.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn published(&self) -> MutexGuard<'_, BTreeMap<(String, &'static str), Instant>> {
        self.published.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The leader's term; `None` when this is not the leader.
    pub(super) fn term(&self) -> Option<LeaderTerm> {
        *self.term.borrow()
    }

    /// Waits until the term differs from the one last seen in `term`. `None` once the sender is gone.
    pub(super) async fn next_term(
        &self,
        term: &mut watch::Receiver<Option<LeaderTerm>>,
    ) -> Option<Option<LeaderTerm>> {
        self.token.run_until_cancelled(term.changed()).await?.ok()?;
        Some(*term.borrow_and_update())
    }

    /// Whether no new taint may be written now: a new leader has not waited long enough, or suspects itself.
    pub(super) fn is_frozen(&self, now: Instant) -> bool {
        let grace = *self.grace.lock().unwrap_or_else(PoisonError::into_inner);
        grace.is_none_or(|until| now < until) || self.suspicion().is_active()
    }

    pub(super) fn next_session(&self) -> u64 {
        self.sessions.fetch_add(1, Ordering::Relaxed)
    }

    /// Takes one admission, if there is one.
    pub(super) fn admit(&self, now: Instant) -> bool {
        self.admission.lock().unwrap_or_else(PoisonError::into_inner).take(now)
    }
}

/// Rate of a token bucket.
#[derive(Debug, Clone, Copy)]
pub(super) struct Rate {
    /// Size of a burst after an idle time.
    pub(super) burst: f64,
    pub(super) per_second: f64,
}

/// A token bucket.
#[derive(Debug)]
pub(super) struct Bucket {
    rate: Rate,
    left: f64,
    at: Instant,
}

impl Bucket {
    pub(super) fn new(rate: Rate, now: Instant) -> Self {
        Self { rate, left: rate.burst, at: now }
    }

    /// Takes a token, if there is one.
    pub(super) fn take(&mut self, now: Instant) -> bool {
        self.refill(now);
        if self.left < 1.0 {
            return false;
        }
        self.left -= 1.0;
        true
    }

    /// Whether the bucket is full, as if new.
    pub(super) fn is_full(&mut self, now: Instant) -> bool {
        self.refill(now);
        self.left >= self.rate.burst
    }

    fn refill(&mut self, now: Instant) {
        let refill = now.saturating_duration_since(self.at).as_secs_f64() * self.rate.per_second;
        self.left = (self.left + refill).min(self.rate.burst);
        self.at = now;
    }
}

#[cfg(test)]
mod tests {
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
