//! The leader's end of the connections of other controllers: serves the requests that they pass on. The listener admits
//! only certificates of the controller's identity, because such a connection may name any user.

use std::io;
use std::sync::Arc;

use atoll_access::headers::Upgrade;
use atoll_access::identity::User;
use atoll_access::path::MemberPath;
use atoll_protocol::tunnel;
use atoll_protocol::v1::member_proxy_server::MemberProxy;
use atoll_protocol::v1::tunnel_request::Message as Sent;
use atoll_protocol::v1::tunnel_response::Message;
use atoll_protocol::v1::{self, ProxyAnswer, ProxyHeader, TunnelRequest, TunnelResponse};
use bytes::Bytes;
use futures::stream::{self, BoxStream};
use futures::{StreamExt, TryStreamExt};
use http::Method;
use tonic::{Code, Request, Response, Status, Streaming};

use super::call;
use super::leader_api::LEADER;
use super::message::{MemberAnswer, MemberRequest, ProxyError};
use crate::member::context::Context;

/// The requests of one controller.
pub(crate) struct Forwarded(pub(crate) Arc<Context>);

#[tonic::async_trait]
impl MemberProxy for Forwarded {
    type TunnelStream = BoxStream<'static, Result<TunnelResponse, Status>>;

    async fn tunnel(
        &self,
        request: Request<Streaming<TunnelRequest>>,
    ) -> Result<Response<Self::TunnelStream>, Status> {
        let mut inbound = request.into_inner();
        let head = tunnel::head(&mut inbound).await?;
        let member = head.member.clone();
        let request = read(head, inbound)?;
        // Never passed on again: this controller leads, or says that it does not.
        let answer = match member == LEADER {
            true => self.own(request).await,
            false => call::call(&self.0, &member, request).await,
        };
        answer.map(|answer| Response::new(messages(answer))).map_err(|error| status_of(&error))
    }
}

impl Forwarded {
    /// Answers a request for the leader itself.
    async fn own(&self, request: MemberRequest) -> Result<MemberAnswer, ProxyError> {
        if self.0.term().is_none() {
            return Err(ProxyError::NotLeader);
        }
        match self.0.sessions.leader_api.get() {
            Some(api) => Arc::clone(api).answer(request).await,
            None => Err(ProxyError::Invalid("the leader serves no API of its own".to_owned())),
        }
    }
}

fn read(
    head: v1::ProxyRequest,
    inbound: Streaming<TunnelRequest>,
) -> Result<MemberRequest, Status> {
    let invalid = |error: &dyn std::error::Error| Status::invalid_argument(error.to_string());
    let upgrade = match head.upgrade.as_str() {
        "" => None,
        text => Some(Upgrade::parse(text).ok_or_else(|| {
            Status::invalid_argument("only upgrades to SPDY/3.1 and websocket are possible")
        })?),
    };
    let user = head.user.unwrap_or_default();
    let extra = user.extra.into_iter().map(|extra| (extra.key, extra.values)).collect();
    Ok(MemberRequest {
        user: User { name: user.name, uid: user.uid, groups: user.groups, extra },
        method: Method::from_bytes(head.method.as_bytes()).map_err(|error| invalid(&error))?,
        path: MemberPath::parse(&head.path).map_err(|error| invalid(&error))?,
        headers: call::header_map(head.headers).map_err(Status::invalid_argument)?,
        upgrade,
        body: chunks(inbound),
        base: head.base,
    })
}

/// The body of a request. Whatever is no chunk ends it with an error: half a body must not pass for a whole one.
fn chunks(inbound: Streaming<TunnelRequest>) -> BoxStream<'static, io::Result<Bytes>> {
    let chunks = inbound.map(|message| match message {
        Ok(TunnelRequest { message: Some(Sent::Body(bytes)) }) => Ok(bytes),
        Ok(_) => Err(io::ErrorKind::InvalidData.into()),
        Err(status) => Err(io::Error::other(status)),
    });
    chunks.boxed()
}

fn messages(answer: MemberAnswer) -> BoxStream<'static, Result<TunnelResponse, Status>> {
    let headers = answer.headers.iter().map(|(name, value)| ProxyHeader {
        name: name.as_str().to_owned(),
        value: Bytes::copy_from_slice(value.as_bytes()),
    });
    let status = u32::from(answer.status.as_u16());
    let head = Message::Head(ProxyAnswer { status, headers: headers.collect() });
    let head = TunnelResponse { message: Some(head) };
    let chunks = answer.body.map_ok(|bytes| TunnelResponse { message: Some(Message::Body(bytes)) });
    stream::iter([Ok(head)]).chain(chunks.map_err(|error| status_of(&error))).boxed()
}

/// An error between controllers. [`error_of`] reads it.
fn status_of(error: &ProxyError) -> Status {
    let (code, text) = match error {
        ProxyError::NotLeader => (Code::Unavailable, String::new()),
        ProxyError::Unknown(_) => (Code::NotFound, String::new()),
        ProxyError::NotConnected(_) => (Code::FailedPrecondition, String::new()),
        ProxyError::NotAllowed(_) => (Code::Unauthenticated, String::new()),
        ProxyError::Timeout { .. } => (Code::DeadlineExceeded, String::new()),
        ProxyError::Busy(text) => (Code::ResourceExhausted, text.clone()),
        ProxyError::Invalid(text) => (Code::InvalidArgument, text.clone()),
        ProxyError::Forbidden(text) => (Code::PermissionDenied, text.clone()),
        ProxyError::TooLarge(text) => (Code::OutOfRange, text.clone()),
        ProxyError::Lost { why, .. } => (Code::Aborted, why.clone()),
        ProxyError::LeaderChanged => (Code::Cancelled, String::new()),
        ProxyError::BadAnswer { why, .. } => (Code::DataLoss, why.clone()),
    };
    Status::new(code, text)
}

/// The error that the leader answered a request for this member with.
pub(super) fn error_of(member: &str, status: &Status) -> ProxyError {
    let (name, text) = (member.to_owned(), status.message().to_owned());
    match status.code() {
        Code::NotFound => ProxyError::Unknown(name),
        Code::FailedPrecondition => ProxyError::NotConnected(name),
        Code::Unauthenticated => ProxyError::NotAllowed(name),
        Code::DeadlineExceeded => ProxyError::Timeout { member: name },
        Code::ResourceExhausted => ProxyError::Busy(text),
        Code::InvalidArgument => ProxyError::Invalid(text),
        Code::PermissionDenied => ProxyError::Forbidden(text),
        Code::OutOfRange => ProxyError::TooLarge(text),
        Code::Aborted => ProxyError::Lost { member: name, why: text },
        Code::Cancelled => ProxyError::LeaderChanged,
        Code::DataLoss => ProxyError::BadAnswer { member: name, why: text },
        // It does not lead any more.
        _ => ProxyError::NotLeader,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_reach_the_user_of_another_controller_unchanged() {
        let (member, why) = ("m1".to_owned(), "why".to_owned());
        for error in [
            ProxyError::NotLeader,
            ProxyError::Unknown(member.clone()),
            ProxyError::NotConnected(member.clone()),
            ProxyError::NotAllowed(member.clone()),
            ProxyError::Busy(why.clone()),
            ProxyError::Invalid(why.clone()),
            ProxyError::Forbidden(why.clone()),
            ProxyError::TooLarge(why.clone()),
            ProxyError::Timeout { member: member.clone() },
            ProxyError::Lost { member: member.clone(), why: why.clone() },
            ProxyError::LeaderChanged,
            ProxyError::BadAnswer { member: member.clone(), why: why.clone() },
        ] {
            assert_eq!(error_of("m1", &status_of(&error)), error);
        }
    }
}
