//! One agent's session: handshake, then a reader and a writer that share only the member's state.
//!
//! The reader never waits for the writer: a member that does not read is still read from.

use std::sync::Arc;
use std::time::Duration;

use atoll_protocol::v1;
use tokio::task::JoinSet;
use tokio_stream::{Stream, StreamExt};
use tonic::Status;

use super::handle::{SessionHandle, term_ended};
use super::listener::Peer;
use super::writer::Sender;
use super::{handshake, reader, wire, writer};
use crate::member::context::Context;
use crate::member::state::Member;
use crate::member::types::MemberEvent;

/// Limit of the wait for the agent's Hello.
const HELLO_TIMEOUT: Duration = Duration::from_secs(10);

/// Runs a session until it ends for any reason, which is sent to the agent.
pub(super) async fn run<S>(
    cx: Arc<Context>,
    member: Arc<Member>,
    peer: Peer,
    mut inbound: S,
    out: Sender,
) where
    S: Stream<Item = Result<v1::AgentMessage, Status>> + Unpin,
{
    let hello = match tokio::time::timeout(HELLO_TIMEOUT, inbound.next()).await {
        Err(_) => Err(Status::deadline_exceeded("no Hello within 10 s")),
        Ok(None) => return,
        Ok(Some(message)) => message.and_then(|message| match message.message {
            Some(v1::agent_message::Message::Hello(hello)) => Ok(hello),
            _ => Err(Status::failed_precondition("the first message must be Hello")),
        }),
    };
    // Each session leaves some events: a member that keeps reconnecting waits until its earlier ones were taken.
    let room = tokio::time::timeout(HELLO_TIMEOUT, cx.outbox.room(&member.name)).await;
    let admitted = match hello {
        Ok(_) if room.is_err() => Err(Status::resource_exhausted(
            "the controller has not processed this member's earlier reports yet: connect again later",
        )),
        Ok(hello) => handshake::admit(&cx, &member, &peer, &hello).map(|session| (session, hello)),
        Err(status) => Err(status),
    };
    let (session, hello) = match admitted {
        Ok(admitted) => admitted,
        Err(status) => {
            tracing::info!(cluster = member.name.as_str(), %status, "session refused");
            // The queue is new and has room.
            let _ = out.try_send(Err(status));
            return;
        }
    };
    tracing::info!(
        cluster = member.name.as_str(),
        epoch = hello.epoch,
        version = wire::text(hello.agent_version.clone()),
        "session started"
    );
    cx.metrics.sessions.inc();
    cx.outbox.push(MemberEvent::Connected { cluster: member.name.clone() });
    cx.writes.mark(&member.name);

    // The writer is a task of its own, so that it also sends while the agent sends without pause; it ends with this
    // one.
    let mut writing = JoinSet::new();
    writing.spawn(writer::run(cx.clone(), member.clone(), session.clone(), out.clone(), hello));
    let reading = reader::run(&cx, &member, &session, &mut inbound);
    let expiry = expiry(&cx, &peer);
    let mut term = cx.leadership.watch_term();
    let deposed = async {
        // An error means that the election has ended, and the leadership with it.
        let _ = term.wait_for(|term| *term != Some(session.term)).await;
    };
    let status = tokio::select! {
        biased;
        () = session.token.cancelled() => session.reason(),
        () = deposed => term_ended(session.term, cx.term()),
        () = tokio::time::sleep(expiry) => Status::unauthenticated("the certificate has expired"),
        status = reading => status,
        written = writing.join_next() => match written {
            Some(Ok(status)) => status,
            // The set is not empty and is never aborted: only a panic is left.
            _ => Status::internal("the session's writer failed"),
        },
    };
    writing.shutdown().await;
    close(&cx, &member, &session);
    tracing::info!(cluster = member.name.as_str(), %status, "session ended");
    // An agent that does not read only sees that the connection is closed.
    let _ = out.try_send(Err(status));
}

/// Remaining validity of the certificate.
fn expiry(cx: &Context, peer: &Peer) -> Duration {
    peer.not_after.duration_since(cx.clock.now()).try_into().unwrap_or_default()
}

fn close(cx: &Context, member: &Member, session: &SessionHandle) {
    cx.metrics.sessions.dec();
    // Ends the member's tunnel too.
    session.token.cancel();
    let mut state = member.lock();
    if state.session.as_ref().is_some_and(|current| current.id == session.id) {
        state.session = None;
        state.heartbeats.ended();
        state.desired.session_ended();
        drop(state);
        cx.writes.mark(&member.name);
    }
}
