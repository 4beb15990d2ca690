//! What is said of an object's health.

use std::fmt;

use atoll_api::binding::ResourceHealth;

/// How an object is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum HealthState {
    /// It does what it should.
    Healthy,
    /// It is on its way there and nothing has failed.
    Progressing,
    /// It does not do what it should, and will not by itself.
    Unhealthy,
    /// Nobody can say.
    Unknown,
}

impl From<HealthState> for ResourceHealth {
    /// A binding knows no way between: what is not there yet is not healthy.
    fn from(state: HealthState) -> Self {
        match state {
            HealthState::Healthy => Self::Healthy,
            HealthState::Progressing | HealthState::Unhealthy => Self::Unhealthy,
            HealthState::Unknown => Self::Unknown,
        }
    }
}

/// An object's health and why it is judged so.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Health {
    /// How it is.
    pub state: HealthState,
    /// Why, in one CamelCase word.
    pub reason: String,
    /// Why, for people; may be empty.
    pub message: String,
}

impl Health {
    pub(crate) fn healthy(reason: &str) -> Self {
        Self::new(HealthState::Healthy, reason, String::new())
    }

    pub(crate) fn progressing(reason: &str, message: impl Into<String>) -> Self {
        Self::new(HealthState::Progressing, reason, message.into())
    }

    pub(crate) fn unhealthy(reason: &str, message: impl Into<String>) -> Self {
        Self::new(HealthState::Unhealthy, reason, message.into())
    }

    pub(crate) fn unknown(reason: &str, message: impl Into<String>) -> Self {
        Self::new(HealthState::Unknown, reason, message.into())
    }

    fn new(state: HealthState, reason: &str, message: String) -> Self {
        Self { state, reason: reason.to_owned(), message }
    }
}

impl fmt::Display for Health {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {}", self.state, self.reason)?;
        if self.message.is_empty() { Ok(()) } else { write!(f, " ({})", self.message) }
    }
}
