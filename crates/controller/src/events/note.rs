//! One Event to write.

use std::time::Duration;

use atoll_api::binding::ObjectReference;
use jiff::Timestamp;

/// Whether users have to act.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Severity {
    /// No.
    Normal,
    /// Perhaps.
    Warning,
}

/// A common cause of several Events.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Cause {
    /// Events with the same key have the same cause.
    pub key: String,
    /// What follows "and 411 more", for example "of this failover".
    pub words: &'static str,
}

/// An Event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Note {
    /// The object of the Event.
    pub about: ObjectReference,
    /// Identity of the Event: writing it twice leaves one.
    pub id: String,
    /// CamelCase.
    pub reason: String,
    /// Text for users.
    pub message: String,
    /// Severity.
    pub severity: Severity,
    /// When it happened.
    pub at: Timestamp,
    /// Common cause with Events of other objects, by which they are coalesced in a burst.
    pub cause: Option<Cause>,
    /// Minimum time until another one with this reason on the same object. `None`: no limit.
    pub repeat_after: Option<Duration>,
}
