//! Whether history keeps up.

use std::time::Duration;

use atoll_history::Progress;
use tokio::sync::watch;

/// History keeps up again once no record has waited longer than this.
const KEEPS_UP: Duration = Duration::from_secs(5);

/// Waits until history falls behind, or keeps up again. Its progress changes with every decision; this ignores other
/// changes.
pub(crate) async fn turned(progress: &mut watch::Receiver<Progress>, behind: bool) {
    let is = |progress: &Progress| {
        let late = progress.oldest.is_some_and(|since| since.elapsed() > KEEPS_UP);
        progress.failing.is_some() || (behind && late)
    };
    let ended = progress.wait_for(|progress| is(progress) != behind).await.is_err();
    if ended {
        // The recorder has ended, and the event loop will end too.
        std::future::pending::<()>().await;
    }
}
