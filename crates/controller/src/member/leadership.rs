//! The leadership as the tasks for members see it.

use std::sync::Arc;

use tokio::sync::watch;

use super::types::Oracle;
use crate::leader::LeaderTerm;

/// The leader's term, and the term in which all desired state was set.
pub(crate) struct LeadershipView {
    /// `None` = not the leader.
    term: watch::Receiver<Option<LeaderTerm>>,
    complete: watch::Sender<Option<Complete>>,
}

/// All desired state was set in a term, and its verdicts can be asked.
struct Complete {
    term: LeaderTerm,
    oracle: Arc<dyn Oracle>,
}

impl LeadershipView {
    pub(crate) fn new(term: watch::Receiver<Option<LeaderTerm>>) -> Self {
        Self { term, complete: watch::Sender::new(None) }
    }

    /// The leader's term; `None` when this is not the leader.
    pub(crate) fn term(&self) -> Option<LeaderTerm> {
        *self.term.borrow()
    }

    /// Receives changes of the term.
    pub(crate) fn watch_term(&self) -> watch::Receiver<Option<LeaderTerm>> {
        self.term.clone()
    }

    /// Whether all desired state was set in this term, and the term still lasts.
    pub(crate) fn is_complete(&self, term: LeaderTerm) -> bool {
        self.complete.borrow().as_ref().is_some_and(|complete| complete.term == term)
    }

    /// The verdicts of this term; `None` unless it is complete.
    pub(crate) fn oracle(&self, term: LeaderTerm) -> Option<Arc<dyn Oracle>> {
        let complete = self.complete.borrow();
        complete.as_ref().filter(|complete| complete.term == term).map(|held| held.oracle.clone())
    }

    /// Whether all desired state was set in the current term.
    pub(crate) fn is_any_complete(&self) -> bool {
        self.complete.borrow().is_some()
    }

    /// Waits until all desired state was set in this term. Returns whether that happened before the controller stopped.
    pub(crate) async fn completed(&self, term: LeaderTerm) -> bool {
        let mut complete = self.complete.subscribe();
        complete.wait_for(|held| held.as_ref().is_some_and(|held| held.term == term)).await.is_ok()
    }

    /// All desired state was set in this term.
    pub(crate) fn set_complete(&self, term: LeaderTerm, oracle: Arc<dyn Oracle>) {
        self.complete.send_replace(Some(Complete { term, oracle }));
    }

    /// The term ended: its verdicts are dropped. Returns it, if it was complete.
    pub(crate) fn ended(&self) -> Option<LeaderTerm> {
        self.complete.send_replace(None).map(|held| held.term)
    }
}
