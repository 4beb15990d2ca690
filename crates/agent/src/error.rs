//! Why an agent ends.

use crate::session::enrol::EnrolError;

/// Why [`crate::run`] returned. Transient failures (no controller, no API server) are waited out instead.
#[derive(Debug, thiserror::Error)]
pub enum AgentError {
    /// No controller address was given.
    #[error("no address of the controller: give at least one as HOST:PORT")]
    NoAddress,
    /// No identity, and no way to get one.
    #[error("enrol with the controller")]
    Enrol(#[from] EnrolError),
    /// A task of the agent panicked: a defect.
    #[error("a task of the agent panicked")]
    Task,
}
