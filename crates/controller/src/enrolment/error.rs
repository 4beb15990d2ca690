//! Why an enrolment is refused.

use atoll_protocol::ca::CaError;
use tonic::Status;

use super::identity::ClusterIdError;
use crate::member::hub::HubError;

/// Why an enrolment is refused.
#[derive(Debug, thiserror::Error)]
pub(crate) enum EnrolError {
    /// One error for several causes: unknown, malformed, wrong secret.
    #[error("the token is not valid")]
    Token,
    #[error("the token has expired: create a new one with `atoll token create`")]
    Expired,
    #[error("the token was used by another agent: create a new one with `atoll token create`")]
    Used,
    #[error("the token's Cluster was deleted, or deleted and created again: create a new token")]
    Cluster,
    #[error(
        "the token was created before the Cluster's certificates were revoked: create a new one"
    )]
    Revoked,
    #[error("member_uid must be the uid of the member's kube-system namespace")]
    MemberUid,
    #[error(transparent)]
    Identity(#[from] ClusterIdError),
    #[error(transparent)]
    Request(#[from] CaError),
    #[error("the controller has no certificate authority yet")]
    NoAuthority,
    #[error("the Cluster changed several times meanwhile: try again")]
    Conflicts,
    #[error(transparent)]
    Hub(#[from] HubError),
}

impl EnrolError {
    pub(crate) fn label(&self) -> &'static str {
        match self {
            Self::Token | Self::Used | Self::Expired | Self::Revoked => "token",
            Self::Cluster => "unknown",
            Self::MemberUid | Self::Request(_) => "request",
            Self::Identity(_) => "identity",
            Self::NoAuthority | Self::Conflicts | Self::Hub(_) => "hub",
        }
    }

    pub(crate) fn status(&self) -> Status {
        let text = self.to_string();
        match self {
            Self::Token => Status::unauthenticated(text),
            Self::Expired | Self::Used | Self::Cluster | Self::Revoked => {
                Status::permission_denied(text)
            }
            Self::MemberUid | Self::Request(_) => Status::invalid_argument(text),
            Self::Identity(_) => Status::failed_precondition(text),
            Self::NoAuthority | Self::Conflicts | Self::Hub(_) => Status::unavailable(text),
        }
    }
}
