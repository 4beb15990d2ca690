//! A controller that does not lead passes requests of its users on to the leader.

use std::sync::Arc;
use std::time::Duration;

use atoll_access::headers::{self, HeaderError};
use atoll_protocol::transport;
use atoll_protocol::v1::TunnelResponse;
use atoll_protocol::v1::tunnel_response::Message;
use http::StatusCode;
use tokio::time::Instant;
use tonic::Status;

use super::call;
use super::forwarded::error_of;
use super::limits::Busy;
use super::link::Dialer;
use super::message::{HEAD_LIMIT, MemberAnswer, MemberRequest, ProxyError};
use crate::member::context::Context;

/// Limit of the wait for the leader's answer: its own limit, and some time for the way.
const ANSWER_LIMIT: Duration = HEAD_LIMIT.saturating_add(Duration::from_secs(5));

/// Passes a request on to the leader, and waits for the head of the answer.
///
/// # Errors
/// Those of the leader, and [`ProxyError::NotLeader`] when it cannot be reached.
pub(crate) async fn pass_on(
    cx: &Arc<Context>,
    member: &str,
    request: MemberRequest,
) -> Result<MemberAnswer, ProxyError> {
    let slot = cx.sessions.tunnels.traffic.enter(&request.user.name, member, Instant::now());
    let slot = slot.map_err(|busy: Busy| ProxyError::Busy(busy.to_string()))?;
    let passed = headers::of_request(&request.headers);
    let passed = passed.map_err(|error: HeaderError| ProxyError::Invalid(error.to_string()))?;
    let authority = cx.authority.borrow().as_ref().map(|known| known.signing().clone());
    let dialer = Dialer { authority, clock: &cx.clock, tasks: &cx.tasks, token: &cx.token };
    let mut client = cx.sessions.leader.client(&dialer).await?;
    let mut head = call::head(0, &request, &passed);
    head.member = member.to_owned();
    head.base.clone_from(&request.base);
    let messages = call::messages(head, request.body);
    let answered = tokio::time::timeout(ANSWER_LIMIT, async {
        let mut stream = client.tunnel(messages).await?.into_inner();
        let first = stream.message().await?;
        Ok::<_, Status>((stream, first))
    });
    let answered = answered.await.map_err(|_| ProxyError::Timeout { member: member.to_owned() })?;
    let (stream, first) = answered.map_err(|status| match transport::answered(&status) {
        true => error_of(member, &status),
        // It may have been carried out.
        false => ProxyError::Lost {
            member: member.to_owned(),
            why: "the connection to the leading controller ended".to_owned(),
        },
    })?;
    let bad = |why: &str| ProxyError::BadAnswer { member: member.to_owned(), why: why.to_owned() };
    let Some(TunnelResponse { message: Some(Message::Head(head)) }) = first else {
        return Err(bad("it has no head"));
    };
    // The leader has applied the rules of answers.
    let status = u16::try_from(head.status).ok().and_then(|code| StatusCode::from_u16(code).ok());
    let status = status.ok_or_else(|| bad("its status is not valid"))?;
    let headers = call::header_map(head.headers).map_err(bad)?;
    let name = member.to_owned();
    let broken = move |status: &Status| match transport::answered(status) {
        true => error_of(&name, status),
        false => ProxyError::LeaderChanged,
    };
    Ok(MemberAnswer { status, headers, body: call::rest(member, stream, slot, broken) })
}
