//! The handle by which the rest of the controller ends a session.

use std::sync::{Arc, Mutex, PoisonError};

use atoll_protocol::ca::PublicKeyHash;
use jiff::Timestamp;
use tokio_util::sync::CancellationToken;
use tonic::Status;

use crate::leader::LeaderTerm;

/// Longest version of an agent, in characters; the same as in the schema of Clusters.
const MAX_VERSION: usize = 64;

/// A member's current session, as the rest of the controller uses it.
#[derive(Debug, Clone)]
pub(crate) struct SessionHandle {
    pub(crate) id: u64,
    pub(crate) issued: Timestamp,
    /// The leader's term of the session; it ends with the term.
    pub(crate) term: LeaderTerm,
    /// Version of the agent's program, as it says.
    pub(crate) agent_version: Arc<str>,
    /// The authority of its certificate; `None` if it needs none.
    pub(crate) authority: Option<PublicKeyHash>,
    end: Arc<Mutex<Option<Status>>>,
    pub(crate) token: CancellationToken,
}

impl SessionHandle {
    pub(crate) fn new(
        id: u64,
        issued: Timestamp,
        term: LeaderTerm,
        parent: &CancellationToken,
    ) -> Self {
        let (agent_version, authority) = ("".into(), None);
        let (end, token) = (Arc::default(), parent.child_token());
        Self { id, issued, term, agent_version, authority, end, token }
    }

    /// The same session of an agent of this version, with a certificate of this authority; longer texts are cut.
    pub(crate) fn of_agent(self, version: &str, authority: Option<PublicKeyHash>) -> Self {
        let agent_version = version.chars().take(MAX_VERSION).collect::<String>().into();
        Self { agent_version, authority, ..self }
    }

    /// Ends it; the agent receives the first reason given.
    pub(crate) fn end(&self, reason: Status) {
        self.end.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(reason);
        self.token.cancel();
    }

    pub(crate) fn reason(&self) -> Status {
        let reason = self.end.lock().unwrap_or_else(PoisonError::into_inner).clone();
        reason.unwrap_or_else(|| Status::unavailable("the controller is stopping"))
    }
}

/// The status with which a session of the term `ended` ends. `now` is the term in which the controller leads, if it
/// does; that it is still the same one only means that its end is not known everywhere yet.
pub(crate) fn term_ended(ended: LeaderTerm, now: Option<LeaderTerm>) -> Status {
    Status::unavailable(match now {
        Some(now) if now != ended => "the leadership has a new term: connect again",
        _ => "not leader",
    })
}
