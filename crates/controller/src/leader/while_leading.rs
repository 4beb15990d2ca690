//! Tasks beside the event loop that work only while this process leads.

use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::LeaderTerm;

/// Starts `work` with each term and drops it when the term ends. Returns when cancelled, or when the election ends.
pub(crate) async fn while_leading<F: Future<Output = ()>>(
    mut terms: watch::Receiver<Option<LeaderTerm>>,
    token: CancellationToken,
    work: impl Fn() -> F,
) {
    loop {
        let leads = terms.borrow_and_update().is_some();
        let ended = tokio::select! {
            biased;
            () = token.cancelled() => return,
            changed = terms.changed() => changed.is_err(),
            () = work(), if leads => false,
        };
        if ended {
            return;
        }
    }
}
