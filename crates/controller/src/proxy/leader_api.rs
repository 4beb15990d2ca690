//! Requests for the leader itself, which other controllers pass on as they pass on those for members.

use std::sync::Arc;

use futures::future::BoxFuture;

use super::message::{MemberAnswer, MemberRequest, ProxyError};

/// Stands for the leader where requests name a member. No member has this name.
pub(crate) const LEADER: &str = "";

/// Answers the requests that other controllers pass on to this one while it leads. They name the user.
pub trait LeaderApi: Send + Sync + 'static {
    /// Answers one of them; it is never passed on again.
    fn answer(
        self: Arc<Self>,
        request: MemberRequest,
    ) -> BoxFuture<'static, Result<MemberAnswer, ProxyError>>;
}
