//! The leader's housekeeping of history.

use std::sync::Arc;
use std::time::Duration;

use atoll_api::Clock;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::Store;
use crate::recorder::chain;

/// How long decisions are kept by default: 90 days, a quarter's review.
pub const RETENTION: Duration = Duration::from_secs(90 * DAY);
const DAY: u64 = 24 * 60 * 60;
/// Time between two rounds. A week's table is made four weeks ahead and dropped once: an hour is often enough for both.
const EVERY: Duration = Duration::from_secs(60 * 60);
/// Time to the next round after one that failed.
const AGAIN: Duration = Duration::from_secs(60);

/// Keeps house while this process leads: one leader, one housekeeper.
pub struct Keeper {
    store: Arc<dyn Store>,
    clock: Clock,
    retention: Duration,
}

impl Keeper {
    /// Keeps decisions of this store for so long.
    #[must_use]
    pub fn new(store: Arc<dyn Store>, clock: Clock, retention: Duration) -> Self {
        Self { store, clock, retention }
    }

    /// Runs until the token ends. `leading` is `Some` while this process leads.
    pub async fn run(self, mut leading: watch::Receiver<Option<u64>>, token: CancellationToken) {
        let rounds = async {
            // An error means that nobody will ever lead here again.
            while leading.wait_for(Option::is_some).await.is_ok() {
                let pause = self.round().await;
                // A leader that is one no more has its round cut short only between rounds: they are safe to share.
                let ended = leading.wait_for(Option::is_none);
                if let Ok(Err(_)) = tokio::time::timeout(pause, ended).await {
                    return;
                }
            }
        };
        token.run_until_cancelled(rounds).await;
    }

    /// One round; tells when the next is due.
    async fn round(&self) -> Duration {
        match self.store.maintain(self.clock.now(), self.retention).await {
            Ok(done) => {
                if done.weeks > 0 || done.decisions > 0 {
                    let (weeks, decisions) = (done.weeks, done.decisions);
                    tracing::info!(
                        weeks,
                        decisions,
                        "history gave up what is older than its retention"
                    );
                }
                EVERY
            }
            Err(error) => {
                tracing::warn!(reason = chain(&error), "history was not kept in order");
                AGAIN
            }
        }
    }
}
