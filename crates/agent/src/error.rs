//! Why an agent ends.

use crate::session::enrol::EnrolError;

/// Why [`crate::run`] gave up. Everything that may pass by itself (no controller, no API server) is waited out instead.
#[derive(Debug, thiserror::Error)]
pub enum AgentError {
    /// No address of the controller.
    #[error("no address of the controller: name at least one `host:port`")]
    NoAddress,
    /// No identity, and no way to get one.
    #[error("enrol with the controller")]
    Enrol(#[from] EnrolError),
    /// A task of the agent's panicked: a defect.
    #[error("the agent's {0} ended badly")]
    Task(&'static str),
}
