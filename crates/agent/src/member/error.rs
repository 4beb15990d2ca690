//! Errors of calls to the member, and the reason that the controller receives for each.

use std::time::Duration;

use kube::core::Status;

use crate::rules::RetentionFailed;

/// A failed call to the member's API.
#[derive(Debug, thiserror::Error)]
pub enum MemberError {
    /// The API server answered with an error.
    #[error("the member's API answered {}: {}", .0.code, .0.message)]
    Api(#[source] Box<Status>),
    /// No answer in time.
    #[error("the member's API did not answer {call} within {after:?}")]
    Timeout {
        /// Which call.
        call: &'static str,
        /// The limit.
        after: Duration,
    },
    /// The connection failed, or the answer was not JSON.
    #[error("the member's API cannot be reached")]
    Transport(#[source] kube::Error),
    /// The request could not be built.
    #[error("cannot build the request")]
    Request(#[source] kube::core::request::Error),
    /// The member does not serve this kind.
    #[error("the member does not serve kind {kind} in {version}")]
    NotServed {
        /// The kind, with its group.
        kind: String,
        /// `apiVersion` asked for, or "any version".
        version: String,
    },
    /// The key does not fit the kind's scope.
    #[error("{0}")]
    Scope(String),
    /// A user's rule does not say which fields the member keeps.
    #[error(transparent)]
    Retention(#[from] RetentionFailed),
    /// The agent's Lease is overdue: another agent may have taken over, so writes are blocked.
    #[error("the agent's lease is overdue, nothing is written")]
    LeaseOverdue,
}

impl MemberError {
    /// The status that the API server returned.
    #[must_use]
    pub fn status(&self) -> Option<&Status> {
        match self {
            Self::Api(status) => Some(status),
            _ => None,
        }
    }

    /// 404 from Kubernetes itself. A 404 of a proxy has another reason and counts as a failed call.
    #[must_use]
    pub fn is_not_found(&self) -> bool {
        self.status().is_some_and(|status| status.code == 404 && status.reason == "NotFound")
    }

    /// 409 with reason Conflict: a precondition (uid, resourceVersion) failed, or another field manager owns the field.
    #[must_use]
    pub fn is_conflict(&self) -> bool {
        self.status().is_some_and(|status| status.code == 409 && status.reason != "AlreadyExists")
    }

    /// 409 with reason `AlreadyExists`.
    #[must_use]
    pub fn is_already_exists(&self) -> bool {
        self.status().is_some_and(|status| status.code == 409 && status.reason == "AlreadyExists")
    }

    /// 403.
    #[must_use]
    pub fn is_forbidden(&self) -> bool {
        self.status().is_some_and(|status| status.code == 403)
    }

    /// The watch's resourceVersion has expired: list again.
    #[must_use]
    pub fn is_expired(&self) -> bool {
        self.status().is_some_and(|status| status.code == 410)
    }

    /// Whether the missing object is a namespace: on creation in a namespace that does not exist.
    #[must_use]
    pub fn lacks_namespace(&self) -> bool {
        self.is_not_found()
            && self
                .status()
                .and_then(|status| status.details.as_ref())
                .is_some_and(|details| details.kind == "namespaces" && details.group.is_empty())
    }

    /// Whether the error is unrelated to the object, so that a retry may succeed.
    #[must_use]
    pub fn is_transient(&self) -> bool {
        match self {
            Self::Timeout { .. } | Self::Transport(_) | Self::LeaseOverdue => true,
            Self::Api(status) => status.code == 429 || status.code >= 500,
            _ => false,
        }
    }

    /// Reason in CamelCase for the controller.
    #[must_use]
    pub fn reason(&self) -> String {
        match self {
            Self::Timeout { .. } => "Timeout".into(),
            Self::Transport(_) => "MemberUnreachable".into(),
            Self::Request(_) => "InvalidRequest".into(),
            Self::NotServed { .. } => "KindNotServed".into(),
            Self::Scope(_) => "InvalidKey".into(),
            Self::Retention(_) => "RetentionFailed".into(),
            Self::LeaseOverdue => "LeaseOverdue".into(),
            Self::Api(status) if status.message.contains("admission webhook") => {
                "AdmissionDenied".into()
            }
            Self::Api(status) if is_immutable(status) => "ImmutableField".into(),
            Self::Api(status) if status.reason.chars().all(|c| c.is_ascii_alphanumeric()) => {
                if status.reason.is_empty() {
                    "Failed".into()
                } else {
                    status.reason.clone()
                }
            }
            Self::Api(_) => "Failed".into(),
        }
    }

    /// Message for users: the server's own message if there is one.
    #[must_use]
    pub fn message(&self) -> String {
        match self {
            Self::Api(status) if !status.message.is_empty() => status.message.clone(),
            Self::Transport(source) => format!("{self}: {source}"),
            Self::Request(source) => format!("{self}: {source}"),
            other => other.to_string(),
        }
    }
}

/// Kubernetes uses one wording for most refusals to change a field (`apimachinery/pkg/api/validation`,
/// `FieldImmutableErrorMsg`); workloads say that updates to other fields are forbidden.
fn is_immutable(status: &Status) -> bool {
    status.code == 422
        && (status.message.contains("field is immutable")
            || status.message.contains("updates to") && status.message.contains("are forbidden")
            || status.message.contains("may not change once set"))
}

impl From<kube::Error> for MemberError {
    fn from(error: kube::Error) -> Self {
        match error {
            kube::Error::Api(status) => Self::Api(status),
            other => Self::Transport(other),
        }
    }
}
