//! One request of a user through a member's tunnel.

use std::sync::Arc;
use std::time::Duration;

use atoll_access::headers::{self, HeaderError, Upgrade};
use atoll_access::identity::User;
use atoll_protocol::tunnel::CHUNK;
use atoll_protocol::v1::tunnel_request::Message as Sent;
use atoll_protocol::v1::tunnel_response::Message;
use atoll_protocol::v1::{self, ProxyExtra, ProxyHeader, ProxyUser, TunnelRequest, TunnelResponse};
use bytes::Bytes;
use futures::{Stream, StreamExt, stream};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use tokio::time::Instant;
use tonic::{Code, Status, Streaming};

use super::limits::{Busy, Slot};
use super::message::{Chunks, HEAD_LIMIT, MemberAnswer, MemberRequest, ProxyError};
use super::tunnels::Tunnel;
use crate::member::context::Context;
use crate::member::metrics::ProxiedLabels;

/// A stream on which nothing arrives for this long ends, as the kubelet's do.
const IDLE: Duration = Duration::from_secs(4 * 60 * 60);
/// Characters of an agent's error that users see.
const SHOWN: usize = 512;

/// Sends a request and waits for the head of its answer.
///
/// # Errors
/// When the member cannot be reached, or a rule refuses request or answer.
pub(crate) async fn call(
    cx: &Arc<Context>,
    member: &str,
    request: MemberRequest,
) -> Result<MemberAnswer, ProxyError> {
    // Only of members, so that users cannot add names.
    let is_known = cx.registry.get(member).is_some();
    let result = attempt(cx, member, request).await;
    let result_label = match &result {
        Ok(answer) if answer.status.is_server_error() => "server_error",
        Ok(answer) if answer.status.is_client_error() => "client_error",
        Ok(_) => "ok",
        Err(_) => "not_answered",
    };
    if is_known {
        let labels = ProxiedLabels { cluster: member.to_owned(), result: result_label };
        cx.metrics.proxied.get_or_create(&labels).inc();
    }
    result
}

async fn attempt(
    cx: &Arc<Context>,
    member: &str,
    request: MemberRequest,
) -> Result<MemberAnswer, ProxyError> {
    let tunnel = find(cx, member)?;
    let slot = cx.sessions.tunnels.traffic.enter(&request.user.name, member, Instant::now());
    let slot = slot.map_err(|busy: Busy| ProxyError::Busy(busy.to_string()))?;
    // After the limits, so that nobody fills history with requests that never reach a member.
    let session = cx.sessions.tunnels.rows.begin(&cx.clock, member, &request);
    let result = ask(cx, member, &tunnel, slot, request).await;
    match session {
        Some(session) => session.answered(result),
        None => result,
    }
}

/// Passes a request to the member and reads the head of its answer.
async fn ask(
    cx: &Arc<Context>,
    member: &str,
    tunnel: &Tunnel,
    slot: Slot,
    request: MemberRequest,
) -> Result<MemberAnswer, ProxyError> {
    let passed = headers::of_request(&request.headers);
    let passed = passed.map_err(|error: HeaderError| ProxyError::Invalid(error.to_string()))?;
    let base = request.base.clone();
    let asked = request.upgrade;
    let head = head(tunnel.term.get(), &request, &passed);
    let messages = messages(head, request.body);
    let mut client = tunnel.client.clone();
    let answered = tokio::time::timeout(HEAD_LIMIT, async {
        let mut stream = client.tunnel(messages).await?.into_inner();
        let first = stream.message().await?;
        Ok::<_, Status>((stream, first))
    });
    let answered = answered.await.map_err(|_| ProxyError::Timeout { member: member.to_owned() })?;
    let (stream, first) = answered.map_err(|status| refused(member, &status))?;
    let bad = |why: String| ProxyError::BadAnswer { member: member.to_owned(), why };
    let Some(TunnelResponse { message: Some(Message::Head(head)) }) = first else {
        return Err(bad("it has no head".to_owned()));
    };
    let (status, headers) = checked(head, asked, &base).map_err(bad)?;
    let (cx, term, name) = (cx.clone(), tunnel.term, member.to_owned());
    let broken = move |status: &Status| match cx.term() == Some(term) && !cx.token.is_cancelled() {
        true => ProxyError::Lost { member: name.clone(), why: shown(status) },
        // The end of the leadership ended the tunnel.
        false => ProxyError::LeaderChanged,
    };
    Ok(MemberAnswer { status, headers, body: rest(member, stream, slot, broken) })
}

/// The member's tunnel.
fn find(cx: &Context, member: &str) -> Result<Tunnel, ProxyError> {
    let term = cx.term().ok_or(ProxyError::NotLeader)?;
    let Some(known) = cx.registry.get(member).filter(|known| known.lock().cluster.is_some()) else {
        let complete = cx.leadership.is_any_complete();
        return Err(match complete {
            true => ProxyError::Unknown(member.to_owned()),
            // The leader has not read all Clusters yet.
            false => ProxyError::NotLeader,
        });
    };
    match cx.sessions.tunnels.get(member) {
        Some(tunnel) if tunnel.term == term => Ok(tunnel),
        Some(_) => Err(ProxyError::NotLeader),
        None if known.lock().session.is_none() => Err(ProxyError::NotConnected(member.to_owned())),
        None => Err(ProxyError::NotAllowed(member.to_owned())),
    }
}

/// A head and its body as messages.
pub(super) fn messages(
    head: v1::ProxyRequest,
    chunks: Chunks<std::io::Error>,
) -> impl Stream<Item = TunnelRequest> + Send {
    stream::iter([TunnelRequest { message: Some(Sent::Head(head)) }]).chain(body(chunks))
}

/// A request as a head of the tunnel.
pub(super) fn head(term: u64, request: &MemberRequest, headers: &HeaderMap) -> v1::ProxyRequest {
    let User { name, uid, groups, extra } = request.user.clone();
    let extra = extra.into_iter().map(|(key, values)| ProxyExtra { key, values }).collect();
    let headers = headers.iter().map(|(name, value)| ProxyHeader {
        name: name.as_str().to_owned(),
        value: Bytes::copy_from_slice(value.as_bytes()),
    });
    v1::ProxyRequest {
        term,
        method: request.method.to_string(),
        path: request.path.to_string(),
        headers: headers.collect(),
        user: Some(ProxyUser { name, uid, groups, extra }),
        upgrade: request.upgrade.map(Upgrade::as_str).unwrap_or_default().to_owned(),
        member: String::new(),
        base: String::new(),
    }
}

/// The body in messages of limited size. An error of the user's connection ends the request: the agent must not take
/// half a body for a whole one.
fn body(chunks: Chunks<std::io::Error>) -> impl Stream<Item = TunnelRequest> + Send {
    let pieces = chunks.map(|chunk| {
        let mut pieces = Vec::new();
        match chunk {
            Ok(mut bytes) => {
                while !bytes.is_empty() {
                    pieces.push(Some(bytes.split_to(bytes.len().min(CHUNK))));
                }
            }
            Err(_) => pieces.push(None),
        }
        stream::iter(pieces)
    });
    // A message without content is invalid at any place: the agent refuses the request.
    pieces.flatten().map(|piece| TunnelRequest { message: piece.map(Sent::Body) })
}

/// Status and headers of an answer, if they keep the rules.
fn checked(
    head: v1::ProxyAnswer,
    asked: Option<Upgrade>,
    base: &str,
) -> Result<(StatusCode, HeaderMap), String> {
    let status = u16::try_from(head.status).ok().and_then(|code| StatusCode::from_u16(code).ok());
    let status = status.ok_or("its status is not valid")?;
    let given = header_map(head.headers)?;
    let mut passed = headers::of_answer(status, &given, base).map_err(|error| error.to_string())?;
    match (status, asked) {
        (StatusCode::SWITCHING_PROTOCOLS, Some(asked))
            if Upgrade::of(&given) == Ok(Some(asked)) =>
        {
            passed.insert(http::header::CONNECTION, HeaderValue::from_static("Upgrade"));
            passed.insert(http::header::UPGRADE, HeaderValue::from_static(asked.as_str()));
        }
        (status, _) if status.is_informational() => {
            return Err(HeaderError::Switched.to_string());
        }
        _ => {}
    }
    Ok((status, passed))
}

/// The headers of a head.
pub(super) fn header_map(headers: Vec<ProxyHeader>) -> Result<HeaderMap, &'static str> {
    let mut map = HeaderMap::new();
    for header in headers {
        let name = HeaderName::from_bytes(header.name.as_bytes());
        let value = HeaderValue::from_maybe_shared(header.value);
        let (Ok(name), Ok(value)) = (name, value) else { return Err("a header is not valid") };
        map.try_append(name, value).map_err(|_| "it has too many headers")?;
    }
    Ok(map)
}

/// The chunks after the head. They end with an error if the connection ends first; `broken` says with which.
pub(super) fn rest(
    member: &str,
    stream: Streaming<TunnelResponse>,
    slot: Slot,
    broken: impl Fn(&Status) -> ProxyError + Send + 'static,
) -> Chunks<ProxyError> {
    let state = (stream, slot, member.to_owned(), broken);
    Box::pin(stream::try_unfold(state, |(mut stream, slot, member, broken)| async move {
        let lost = |why: &str| ProxyError::Lost { member: member.clone(), why: why.to_owned() };
        let next = tokio::time::timeout(IDLE, stream.message()).await;
        match next.map_err(|_| lost("nothing arrived for a long time"))? {
            Ok(None) => Ok(None),
            Ok(Some(TunnelResponse { message: Some(Message::Body(bytes)) })) => {
                Ok(Some((bytes, (stream, slot, member, broken))))
            }
            Ok(Some(_)) => Err(lost("its agent broke the protocol")),
            Err(status) => Err(broken(&status)),
        }
    }))
}

/// An error that the agent sent instead of an answer, or that ended the connection.
fn refused(member: &str, status: &Status) -> ProxyError {
    let text = format!("member {member}: {}", shown(status));
    match status.code() {
        Code::InvalidArgument => ProxyError::Invalid(text),
        Code::PermissionDenied => ProxyError::Forbidden(text),
        Code::OutOfRange => ProxyError::TooLarge(text),
        Code::ResourceExhausted => ProxyError::Busy(text),
        Code::Internal => ProxyError::BadAnswer { member: member.to_owned(), why: shown(status) },
        _ => ProxyError::Lost { member: member.to_owned(), why: shown(status) },
    }
}

/// The text of an agent is input from outside.
fn shown(status: &Status) -> String {
    status.message().chars().filter(|c| !c.is_control()).take(SHOWN).collect()
}
