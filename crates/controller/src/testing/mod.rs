//! Shared test helpers: a hub in this process whose requests are recorded and can be made to fail, and members that
//! carry out orders.

pub(crate) mod hub;
pub(crate) mod members;
pub(crate) mod webhook;

use std::time::Duration;

use tokio::time::Instant;

/// Waits on virtual time until a condition holds; fails with `what` after `limit`.
pub(crate) async fn eventually<F: Future<Output = bool>>(
    what: &str,
    limit: Duration,
    mut holds: impl FnMut() -> F,
) {
    let until = Instant::now() + limit;
    while !holds().await {
        assert!(Instant::now() < until, "{what}: not within {limit:?}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}
