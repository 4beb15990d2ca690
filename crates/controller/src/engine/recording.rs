//! What bindings report about history while its database is unreachable.

use std::time::Duration;

use atoll_api::conditions::{self, RECORDED};
use atoll_history::{Progress, RecordState};
use tokio::sync::watch;

use super::Engine;
use crate::index::rows::Binding;

/// History keeps up again once no record has waited longer than this.
const KEEPS_UP: Duration = Duration::from_secs(5);

/// Waits until history falls behind, or keeps up again. Its progress changes with every decision; this ignores other
/// changes.
pub(super) async fn turned(progress: &mut watch::Receiver<Progress>, behind: bool) {
    let is = |progress: &Progress| {
        let late = progress.oldest.is_some_and(|since| since.elapsed() > KEEPS_UP);
        progress.failing.is_some() || (behind && late)
    };
    let ended = progress.wait_for(|progress| is(progress) != behind).await.is_err();
    if ended {
        // The recorder has ended, and the engine will end too.
        std::future::pending::<()>().await;
    }
}

impl Engine {
    /// History fell behind, or keeps up again: updates the statuses of the bindings concerned.
    pub(super) fn follow_history(&mut self) {
        self.behind = !self.behind;
        if self.led.is_some() {
            self.review_limit();
        }
        let behind = self.behind;
        let concerned: Vec<_> = self
            .index
            .bindings()
            .filter(|binding| match behind {
                true => self.waits_for_history(binding),
                false => conditions::find(&binding.status.conditions, RECORDED)
                    .is_some_and(|said| said.status != "True"),
            })
            .map(|binding| binding.key.clone())
            .collect();
        for key in concerned {
            self.mark_status(&key);
        }
    }

    /// Why history lacks a binding's last decision.
    pub(super) fn unrecorded(&self, binding: &Binding) -> Option<String> {
        if !self.behind || !self.waits_for_history(binding) {
            return None;
        }
        let decision = binding.spec.decision.as_ref()?;
        let why = self.progress.borrow().failing.clone().unwrap_or_default();
        let earlier: i64 = binding.spec.unrecorded.iter().map(|held| held.count).sum();
        Some(format!(
            "decision {} of {} waits for the database, and {earlier} before it: {why}",
            decision.id, decision.at.0
        ))
    }

    fn waits_for_history(&self, binding: &Binding) -> bool {
        let receipt = binding.spec.decision.as_ref().and_then(|last| self.receipts.get(&last.id));
        receipt.is_some_and(|receipt| receipt.state() == RecordState::Queued)
    }
}
