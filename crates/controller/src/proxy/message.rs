//! A user's request to a member, and its answer.

use std::pin::Pin;
use std::time::Duration;

use atoll_access::headers::Upgrade;
use atoll_access::identity::User;
use atoll_access::path::MemberPath;
use bytes::Bytes;
use futures::Stream;
use http::{HeaderMap, Method, StatusCode};

/// Limit of the wait for a member's answer: kube-apiserver ends requests after 60 s.
pub(super) const HEAD_LIMIT: Duration = Duration::from_secs(70);

/// The chunks of a body.
pub type Chunks<E> = Pin<Box<dyn Stream<Item = Result<Bytes, E>> + Send>>;

/// A request to a member.
pub struct MemberRequest {
    /// The hub's user.
    pub user: User,
    /// The method.
    pub method: Method,
    /// The path on the member.
    pub path: MemberPath,
    /// The user's headers; those that must not cross are left out.
    pub headers: HeaderMap,
    /// The protocol that the request asks for. Its body is then the bytes after the answer.
    pub upgrade: Option<Upgrade>,
    /// The body. An error ends the request.
    pub body: Chunks<std::io::Error>,
    /// Path of the member's root on the hub, for redirects within the member.
    pub base: String,
}

/// A member's answer.
pub struct MemberAnswer {
    /// The status.
    pub status: StatusCode,
    /// The headers that may reach the user.
    pub headers: HeaderMap,
    /// The body; after 101 the raw bytes. An error means that it is incomplete.
    pub body: Chunks<ProxyError>,
}

/// Why there is no answer, or no complete one.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ProxyError {
    /// This controller does not lead.
    #[error("this controller does not lead: try again")]
    NotLeader,
    /// There is no such member.
    #[error("there is no member {0:?}")]
    Unknown(String),
    /// The member has no session.
    #[error("member {0} is not connected")]
    NotConnected(String),
    /// The member's agent does not proxy.
    #[error(
        "member {0} cannot be reached through the hub: its administrator allows it with `atoll join --rights proxy`, see docs/access.md"
    )]
    NotAllowed(String),
    /// A limit is reached.
    #[error("{0}: try again")]
    Busy(String),
    /// The request breaks a rule.
    #[error("{0}")]
    Invalid(String),
    /// The member does not admit the user.
    #[error("{0}")]
    Forbidden(String),
    /// The body is too large.
    #[error("{0}")]
    TooLarge(String),
    /// The member did not answer in time.
    #[error("member {member} did not answer within {} s", HEAD_LIMIT.as_secs())]
    Timeout {
        /// The member.
        member: String,
    },
    /// The connection to the member ended, or the member's API server does not answer.
    #[error("the connection to member {member} ended: {why}")]
    Lost {
        /// The member.
        member: String,
        /// What happened.
        why: String,
    },
    /// The answer ends early, because this controller does not lead any more, or the connection to the one that does ended.
    #[error("the leading controller changed, which ended this answer: run the command again")]
    LeaderChanged,
    /// The member's answer breaks a rule.
    #[error("the answer of member {member} was refused: {why}")]
    BadAnswer {
        /// The member.
        member: String,
        /// The rule.
        why: String,
    },
}
