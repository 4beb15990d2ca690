//! The leadership as the tasks for members see it.

use tokio::sync::watch;

use crate::leader::LeaderTerm;

/// The leader's term, and the term in which all desired state was set.
#[derive(Debug)]
pub(crate) struct LeadershipView {
    /// `None` = not the leader.
    term: watch::Receiver<Option<LeaderTerm>>,
    complete: watch::Sender<Option<LeaderTerm>>,
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
        *self.complete.borrow() == Some(term)
    }

    /// Whether all desired state was set in the current term.
    pub(crate) fn is_any_complete(&self) -> bool {
        self.complete.borrow().is_some()
    }

    /// Waits until all desired state was set in this term. Returns whether that happened before the controller stopped.
    pub(crate) async fn completed(&self, term: LeaderTerm) -> bool {
        self.complete.subscribe().wait_for(|complete| *complete == Some(term)).await.is_ok()
    }

    /// Sets the term in which all desired state was set; returns the previous one.
    pub(crate) fn set_complete(&self, term: Option<LeaderTerm>) -> Option<LeaderTerm> {
        self.complete.send_replace(term)
    }
}
