//! A controller that does not lead passes requests of its users on to the leader, over mutual TLS.

use std::sync::Arc;
use std::time::Duration;

use atoll_access::headers::{self, HeaderError};
use atoll_protocol::tls::forward_config;
use atoll_protocol::tunnel::{self, FORWARD_STREAMS};
use atoll_protocol::v1::TunnelResponse;
use atoll_protocol::v1::member_proxy_client::MemberProxyClient;
use atoll_protocol::v1::tunnel_response::Message;
use http::StatusCode;
use tokio::io::copy_bidirectional_with_sizes;
use tokio::net::TcpStream;
use tokio::sync::{Mutex, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tonic::Status;
use tonic::transport::Channel;

use super::call;
use super::forwarded::error_of;
use super::limits::Busy;
use super::message::{HEAD_LIMIT, MemberAnswer, MemberRequest, ProxyError};
use crate::member::context::Context;

/// Limit of the wait for the leader's answer: its own limit, and some time for the way.
const ANSWER_LIMIT: Duration = HEAD_LIMIT.saturating_add(Duration::from_secs(5));
/// Limit of connecting to the leader. It is near: a client should hear soon that it has to try again.
const CONNECT: Duration = Duration::from_secs(3);
/// After a failed attempt, further requests fail at once for this long.
const PAUSE: Duration = Duration::from_secs(1);
/// Bytes that are copied at once in one direction.
const BUFFER: usize = 64 << 10;

/// The connection to the controller that leads.
pub(crate) struct LeaderLink {
    /// Where it is reached.
    address: watch::Receiver<Option<String>>,
    state: Mutex<LinkState>,
}

#[derive(Default)]
struct LinkState {
    open: Option<Open>,
    /// The last attempt that failed.
    failed: Option<(String, Instant)>,
}

struct Open {
    address: String,
    client: MemberProxyClient<Channel>,
    /// Cancelled when the connection has ended.
    closed: CancellationToken,
}

impl LeaderLink {
    /// A link to the controller at this address. When the address changes, the connection and all its streams end.
    pub(crate) fn new(address: watch::Receiver<Option<String>>) -> Self {
        Self { address, state: Mutex::default() }
    }

    async fn client(&self, cx: &Context) -> Result<MemberProxyClient<Channel>, ProxyError> {
        let address = self.address.borrow().clone().ok_or(ProxyError::NotLeader)?;
        let mut state = self.state.lock().await;
        let is_open = |open: &&Open| open.address == address && !open.closed.is_cancelled();
        if let Some(open) = state.open.as_ref().filter(is_open) {
            return Ok(open.client.clone());
        }
        let now = Instant::now();
        if state.failed.as_ref().is_some_and(|(at, when)| *at == address && now < *when + PAUSE) {
            return Err(ProxyError::NotLeader);
        }
        state.open = None;
        let connected = tokio::time::timeout(CONNECT, self.connect(cx, &address)).await;
        let why = match connected {
            Ok(Ok(open)) => {
                let client = open.client.clone();
                state.open = Some(open);
                return Ok(client);
            }
            Ok(Err(why)) => why,
            Err(_) => "no connection in time".to_owned(),
        };
        tracing::warn!(address, why, "the leader could not be reached for requests to members");
        state.failed = Some((address, Instant::now()));
        Err(ProxyError::NotLeader)
    }

    async fn connect(&self, cx: &Context, address: &str) -> Result<Open, String> {
        let authority = cx.authority.borrow().clone().ok_or("there is no authority yet")?;
        let tls =
            forward_config(authority.signing(), cx.clock.clone()).map_err(|error| chain(&error))?;
        let tcp = TcpStream::connect(address).await.map_err(|error| error.to_string())?;
        tcp.set_nodelay(true).map_err(|error| error.to_string())?;
        let mut io = atoll_protocol::transport::secured(tcp, tls).await.map_err(|e| chain(&e))?;
        let (near, mut far) = tokio::io::duplex(BUFFER);
        let closed = CancellationToken::new();
        let (ended, token) = (closed.clone(), cx.token.clone());
        let (mut now, mine) = (self.address.clone(), address.to_owned());
        cx.tasks.spawn(async move {
            tokio::select! {
                _ = copy_bidirectional_with_sizes(&mut io, &mut far, BUFFER, BUFFER) => {}
                _ = now.wait_for(|now| now.as_ref() != Some(&mine)) => {}
                () = token.cancelled() => {}
            }
            ended.cancel();
        });
        let client = tunnel::client(near, FORWARD_STREAMS).await.map_err(|error| chain(&error))?;
        Ok(Open { address: address.to_owned(), client, closed })
    }
}

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
    let mut client = cx.sessions.leader.client(cx).await?;
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
    let (stream, first) = answered.map_err(|status| error_of(member, &status))?;
    let bad = |why: &str| ProxyError::BadAnswer { member: member.to_owned(), why: why.to_owned() };
    let Some(TunnelResponse { message: Some(Message::Head(head)) }) = first else {
        return Err(bad("it has no head"));
    };
    // The leader has applied the rules of answers.
    let status = u16::try_from(head.status).ok().and_then(|code| StatusCode::from_u16(code).ok());
    let status = status.ok_or_else(|| bad("its status is not valid"))?;
    let headers = call::header_map(head.headers).map_err(bad)?;
    Ok(MemberAnswer { status, headers, body: call::rest(member, stream, slot) })
}

/// An error with its causes.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text.push_str(": ");
        text.push_str(&error.to_string());
        cause = error.source();
    }
    text
}
