//! The leader's maintenance of history.

use std::sync::Arc;
use std::time::Duration;

use atoll_api::Clock;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::Store;
use crate::recorder::chain;

/// Default retention of decisions: 90 days, enough for a quarterly review.
pub const RETENTION: Duration = Duration::from_secs(90 * DAY);
const DAY: u64 = 24 * 60 * 60;
/// Interval of maintenance. A week's table is created four weeks ahead and dropped once: hourly is enough for both.
const EVERY: Duration = Duration::from_secs(60 * 60);
/// Delay after a failed run.
const AGAIN: Duration = Duration::from_secs(60);

/// Runs maintenance while this process leads, so that only one process does.
pub struct Keeper {
    store: Arc<dyn Store>,
    clock: Clock,
    retention: Duration,
}

impl Keeper {
    /// Keeps this store's decisions for `retention`.
    #[must_use]
    pub fn new(store: Arc<dyn Store>, clock: Clock, retention: Duration) -> Self {
        Self { store, clock, retention }
    }

    /// Runs until cancelled. `leading` is `Some` while this process leads; the value (the term) does not matter.
    pub async fn run<T>(self, mut leading: watch::Receiver<Option<T>>, token: CancellationToken) {
        let rounds = async {
            // An error means that the sender was dropped: this process will not lead again.
            while leading.wait_for(Option::is_some).await.is_ok() {
                let pause = self.round().await;
                // Loss of leadership interrupts the pause, never a run: concurrent runs are safe.
                let ended = leading.wait_for(Option::is_none);
                if let Ok(Err(_)) = tokio::time::timeout(pause, ended).await {
                    return;
                }
            }
        };
        token.run_until_cancelled(rounds).await;
    }

    /// Runs once; returns the delay until the next run.
    async fn round(&self) -> Duration {
        match self.store.maintain(self.clock.now(), self.retention).await {
            Ok(done) => {
                if done.weeks > 0 || done.decisions > 0 {
                    let (weeks, decisions) = (done.weeks, done.decisions);
                    tracing::info!(
                        weeks,
                        decisions,
                        "history deleted decisions older than the retention"
                    );
                }
                EVERY
            }
            Err(error) => {
                tracing::warn!(
                    reason = chain(&error),
                    "maintenance of the history database failed"
                );
                AGAIN
            }
        }
    }
}
