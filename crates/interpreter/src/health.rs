//! The health of an object.

use std::fmt;

use atoll_api::binding::ResourceHealth;

/// The health of an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum HealthState {
    /// It works as intended.
    Healthy,
    /// It is in progress, without failures.
    Progressing,
    /// It does not work, and needs an intervention.
    Unhealthy,
    /// Its state is unknown.
    Unknown,
}

impl From<HealthState> for ResourceHealth {
    /// Bindings have no intermediate state: an object in progress is not healthy.
    fn from(state: HealthState) -> Self {
        match state {
            HealthState::Healthy => Self::Healthy,
            HealthState::Progressing | HealthState::Unhealthy => Self::Unhealthy,
            HealthState::Unknown => Self::Unknown,
        }
    }
}

/// An object's health and the reason for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Health {
    /// The state.
    pub state: HealthState,
    /// The reason, as one CamelCase word.
    pub reason: String,
    /// The reason, for people; may be empty.
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
