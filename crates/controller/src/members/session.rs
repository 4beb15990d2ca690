//! One agent's session: admission, then a reader and a writer that share only the member's state.
//!
//! The writer gets the next message from the desired set whenever the connection has room, so an agent that does not
//! read costs a set of keys, not queued messages. The reader never waits for the writer: a member that does not read is
//! still read from.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use atoll_protocol::transport::{EPOCH_FLOOR, INVENTORY_PAGE};
use atoll_protocol::v1;
use atoll_render::Key;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_stream::{Stream, StreamExt};
use tonic::Status;

use super::context::Context;
use super::desired::Held;
use super::listener::Peer;
use super::registry::{ClusterIdError, Member, Session};
use super::terms::{self, Refusal};
use super::types::{ApplyResult, MemberEvent};
use super::{bounds, events, revocation, wire};
use crate::leader::LeaderTerm;

/// Limit of the wait for the agent's Hello.
const HELLO_TIMEOUT: Duration = Duration::from_secs(10);
/// Limit of inventory entries: 200 pages. Atoll's agents never send more.
const MAX_INVENTORY: usize = 200 * INVENTORY_PAGE;
/// Inventories in one session before it is closed: if both ends do not agree by then, they never will, and the agent's
/// backoff limits the cost.
const MAX_INVENTORIES: usize = 5;

/// Messages to the agent: bounded, in front of HTTP/2's own window.
pub(super) type Sender = mpsc::Sender<Result<v1::ControllerMessage, Status>>;
/// Messages between the writer and HTTP/2. The desired set is the real queue, so a few are enough to keep the
/// connection busy.
pub(super) const OUTBOUND: usize = 16;

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
            "the controller is behind with this member's reports: connect again later",
        )),
        Ok(hello) => admit(&cx, &member, &peer, &hello).map(|session| (session, hello)),
        Err(status) => Err(status),
    };
    let (session, hello) = match admitted {
        Ok(admitted) => admitted,
        Err(status) => {
            tracing::info!(cluster = member.name, %status, "session refused");
            // The queue is new and has room.
            let _ = out.try_send(Err(status));
            return;
        }
    };
    tracing::info!(
        cluster = member.name,
        epoch = hello.epoch,
        version = wire::text(hello.agent_version.clone()),
        "session started"
    );
    cx.metrics.sessions.inc();
    cx.outbox.push(MemberEvent::Connected { cluster: member.name.clone() });
    cx.due.mark(&member.name);

    // The writer is a task of its own, so that it also sends while the agent sends without pause; it ends with this
    // one.
    let mut writer = JoinSet::new();
    writer.spawn(write(cx.clone(), member.clone(), session.clone(), out.clone(), hello));
    let reading = read(&cx, &member, &session, &mut inbound);
    let expiry = expiry(&cx, &peer);
    let mut term = cx.term.clone();
    let deposed = async {
        // An error means that the election has ended, and the leadership with it.
        let _ = term.wait_for(|term| *term != Some(session.term)).await;
    };
    let status = tokio::select! {
        biased;
        () = session.token.cancelled() => session.reason(),
        () = deposed => term_ended(cx.term()),
        () = tokio::time::sleep(expiry) => Status::unauthenticated("the certificate has ended"),
        status = reading => status,
        written = writer.join_next() => match written {
            Some(Ok(status)) => status,
            // The set is not empty and is never aborted: only a panic is left.
            _ => Status::internal("the session's writer failed"),
        },
    };
    writer.shutdown().await;
    close(&cx, &member, &session);
    tracing::info!(cluster = member.name, %status, "session ended");
    // If the agent does not read, closing the connection has to do.
    let _ = out.try_send(Err(status));
}

/// Remaining validity of the certificate.
fn expiry(cx: &Context, peer: &Peer) -> Duration {
    peer.not_after.duration_since(cx.clock.now()).try_into().unwrap_or_default()
}

/// Checks the Hello, and makes this the member's current session.
fn admit(
    cx: &Context,
    member: &Arc<Member>,
    peer: &Peer,
    hello: &v1::Hello,
) -> Result<Session, Status> {
    if hello.cluster_uid != peer.uid.as_str() {
        return Err(Status::permission_denied(
            "hello.cluster_uid is not the one of the certificate",
        ));
    }
    let term = cx.term().ok_or_else(|| Status::unavailable("not leader"))?;
    if hello.member_uid.is_empty() || hello.member_uid.len() > bounds::MAX_ID {
        return Err(Status::invalid_argument("hello.member_uid must have 1 to 256 bytes"));
    }
    wire::id("hello.member_uid", &hello.member_uid)?;
    cx.registry.claim_cluster_id(member, &hello.member_uid).map_err(|error| {
        let reason = match &error {
            ClusterIdError::Changed { .. } => "IdentityChanged",
            ClusterIdError::Duplicate { .. } => "DuplicateCluster",
        };
        events::publish(cx, member, reason, &error.to_string());
        Status::failed_precondition(error.to_string())
    })?;
    let known = member.lock().epoch;
    if hello.epoch < known {
        let message = format!(
            "hello.epoch {} is below {known}: another agent of this member took over; where there is none, `atoll rejoin {}`",
            hello.epoch, member.name
        );
        events::publish(cx, member, "EpochBelow", &message);
        let mut refused = Status::failed_precondition(message);
        // The Lease's holder may continue from there: a Lease recreated under a wrong clock starts too low.
        refused.metadata_mut().insert(EPOCH_FLOOR, known.into());
        return Err(refused);
    }
    let limit = terms::epoch_limit(known, cx.clock.now().as_second());
    if hello.epoch > limit {
        let refusal = Refusal::Epoch { named: hello.epoch, limit };
        return Err(terms::refuse(cx, member, refusal));
    }
    let named = LeaderTerm::new(hello.highest_term);
    if named > term {
        let refusal = Refusal::Term { named, ours: term };
        return Err(terms::refuse(cx, member, refusal));
    }
    terms::accepted(cx, member);
    let session = Session::new(cx.next_session(), peer.issued, term, &cx.token);
    let mut state = member.lock();
    // A revocation may have arrived since the call was authorised.
    if revocation::is_revoked(peer.issued, state.revocation.as_ref()) {
        return Err(Status::permission_denied("the certificate is revoked"));
    }
    if hello.epoch < state.epoch {
        return Err(Status::aborted("another session of this member began meanwhile"));
    }
    state.epoch = hello.epoch;
    if let Some(old) = state.session.replace(session.clone()) {
        old.end(Status::aborted("another session of this member took over"));
    }
    state.vitals.started(Instant::now());
    state.desired.begin();
    Ok(session)
}

fn close(cx: &Context, member: &Member, session: &Session) {
    cx.metrics.sessions.dec();
    let mut state = member.lock();
    if state.session.as_ref().is_some_and(|current| current.id == session.id) {
        state.session = None;
        state.vitals.ended();
        state.desired.apart();
        drop(state);
        cx.due.mark(&member.name);
    }
}

/// Sends pending messages in order, as fast as the agent reads.
async fn write(
    cx: Arc<Context>,
    member: Arc<Member>,
    session: Session,
    out: Sender,
    hello: v1::Hello,
) -> Status {
    use v1::controller_message::Message;
    let gone = || Status::cancelled("the agent closed the stream");
    let millis = |span: Duration| u32::try_from(span.as_millis()).unwrap_or(u32::MAX);
    let say = async |message: Message, kind: &'static str| {
        let term = session.term;
        if cx.term() != Some(term) {
            return Err(term_ended(cx.term()));
        }
        cx.metrics.sent.get_or_create(&super::metrics::Sent { kind }).inc();
        let message = v1::ControllerMessage { term: term.get(), message: Some(message) };
        out.send(Ok(message)).await.map_err(|_| gone())
    };
    let welcome = Message::Welcome(v1::Welcome {
        session: session.id.to_string(),
        heartbeat_ms: millis(cx.times.heartbeat),
        facts_ms: millis(cx.times.facts),
        cluster_name: member.name.clone(),
    });
    if let Err(status) = say(welcome, "welcome").await {
        return status;
    }
    let mut labels = cx.labels.subscribe();
    labels.mark_changed();
    let mut complete = cx.complete.subscribe();
    if complete.wait_for(|complete| *complete == Some(session.term)).await.is_err() {
        return Status::unavailable("the controller is stopping");
    }
    // Without our finalizer the Cluster could be deleted with objects left on the member, so nothing is sent.
    while !member.lock().is_held() {
        member.wake.notified().await;
    }
    let agreed = {
        let mut state = member.lock();
        // The term may have ended since: then the desired state is incomplete.
        if *cx.complete.borrow() != Some(session.term) {
            return term_ended(cx.term());
        }
        let agreed = state.desired.intended().matches(&hello.inventory_digest);
        if agreed {
            state.desired.agree();
            state.agreed = true;
        }
        agreed
    };
    if agreed {
        told(&cx, &member);
    } else if let Err(status) =
        say(Message::InventoryRequest(v1::InventoryRequest {}), "inventory_request").await
    {
        return status;
    }
    loop {
        // Reserve first, then take the message: what is not sent yet may still be replaced by something newer.
        let Ok(permit) = out.reserve().await else { return gone() };
        let term = session.term;
        if cx.term() != Some(term) {
            return term_ended(cx.term());
        }
        if labels.has_changed().unwrap_or(false) {
            let keys = labels.borrow_and_update().clone();
            if !keys.is_empty() {
                let message = Some(Message::WatchLabels(v1::WatchLabels { keys }));
                permit.send(Ok(v1::ControllerMessage { term: term.get(), message }));
                continue;
            }
        }
        let (next, reopens) = {
            let mut state = member.lock();
            let held_back = state.desired.held_back().len();
            let next = state.desired.next(Instant::now(), &|claim| cx.oracle.limit(claim));
            if state.desired.held_back().len() != held_back {
                cx.due.mark(&member.name);
            }
            (next, state.desired.reopens())
        };
        if let Some(next) = next {
            let (message, kind) = wire::message(next);
            cx.metrics.sent.get_or_create(&super::metrics::Sent { kind }).inc();
            permit.send(Ok(v1::ControllerMessage { term: term.get(), message: Some(message) }));
            continue;
        }
        drop(permit);
        let reopens = async {
            match reopens {
                Some(at) => tokio::time::sleep_until(at).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            () = member.wake.notified() => (),
            changed = labels.changed() => if changed.is_err() { return gone() },
            () = reopens => (),
        }
    }
}

/// Reads the agent's messages.
async fn read<S>(cx: &Context, member: &Member, session: &Session, inbound: &mut S) -> Status
where
    S: Stream<Item = Result<v1::AgentMessage, Status>> + Unpin,
{
    let mut pages: Vec<(Key, Held)> = Vec::new();
    let mut taken = cx.room.inventories.none();
    let mut inventories = 0;
    loop {
        while !cx.outbox.has_room(&member.name) {
            // The rest of the controller is behind: our not reading is not the member's silence.
            member.lock().vitals.frame(Instant::now());
            if tokio::time::timeout(cx.times.heartbeat, cx.outbox.room(&member.name)).await.is_ok()
            {
                break;
            }
        }
        let message = match inbound.next().await {
            None => return Status::cancelled("the agent closed the stream"),
            Some(Err(status)) => {
                return Status::cancelled(format!("the stream broke: {}", status.message()));
            }
            Some(Ok(message)) => message,
        };
        member.lock().vitals.frame(Instant::now());
        let heard = match message.message {
            Some(v1::agent_message::Message::Inventory(page)) => {
                if *cx.complete.borrow() != Some(session.term) {
                    return Status::failed_precondition(
                        "the controller did not ask for an inventory",
                    );
                }
                if page.entries.len() > INVENTORY_PAGE {
                    return Status::resource_exhausted(
                        "a page of an inventory may have 5,000 entries",
                    );
                }
                if let Err(status) = bounds::take_page(&mut taken, &page) {
                    tracing::warn!(cluster = member.name, %status, "inventory refused");
                    return status;
                }
                let last = page.last;
                for entry in page.entries {
                    match wire::held(entry) {
                        Ok(entry) => pages.push(entry),
                        Err(status) => return status,
                    }
                }
                if pages.len() > MAX_INVENTORY {
                    return Status::resource_exhausted("the inventory has too many entries");
                }
                if !last {
                    continue;
                }
                inventories += 1;
                if inventories > MAX_INVENTORIES {
                    tracing::warn!(cluster = member.name, "inventories do not settle");
                    return Status::aborted("controller and agent do not agree on the inventory");
                }
                take_inventory(cx, member, session, std::mem::take(&mut pages));
                taken = cx.room.inventories.none();
                Ok(())
            }
            Some(message) => hear(cx, member, message),
            // From a newer agent: not supported.
            None => Ok(()),
        };
        if let Err(status) = heard {
            return status;
        }
    }
}

/// Judges the member's inventory. The oracle is asked without the lock; desired state set meanwhile takes precedence.
fn take_inventory(cx: &Context, member: &Member, session: &Session, entries: Vec<(Key, Held)>) {
    let undecided = member.lock().desired.undecided(&entries);
    let verdicts: BTreeMap<_, _> = undecided
        .into_iter()
        .map(|(claim, key)| {
            let verdict = cx.oracle.verdict(&member.name, &claim, &key);
            ((claim, key), verdict)
        })
        .collect();
    let mut state = member.lock();
    if state.session.as_ref().is_none_or(|current| current.id != session.id)
        // The term ended meanwhile, and its verdicts with it.
        || *cx.complete.borrow() != Some(session.term)
    {
        return;
    }
    state.desired.inventory(entries, &verdicts);
    state.agreed = true;
    drop(state);
    told(cx, member);
    member.wake.notify_one();
}

/// Publishes what the member holds, now that both ends agree on it.
fn told(cx: &Context, member: &Member) {
    let mut state = member.lock();
    let (held, orphans) = (state.desired.held(), state.desired.orphans().len());
    let confirmed = state.desired.take_confirmed();
    drop(state);
    let cluster = member.name.clone();
    cx.outbox.push(MemberEvent::Inventory { cluster, held, orphans });
    withdrawn(cx, member, confirmed);
    cx.due.mark(&member.name);
}

pub(super) fn withdrawn(cx: &Context, member: &Member, claims: Vec<String>) {
    for claim in claims {
        cx.outbox.push(MemberEvent::Withdrawn { cluster: member.name.clone(), claim });
    }
}

fn hear(cx: &Context, member: &Member, message: v1::agent_message::Message) -> Result<(), Status> {
    use v1::agent_message::Message;
    let cluster = member.name.clone();
    match message {
        Message::Hello(_) => Err(Status::failed_precondition("Hello may come once")),
        Message::Inventory(_) => Err(Status::internal("an inventory came the wrong way")),
        Message::Heartbeat(beat) => {
            api(cx, member, beat.api_healthy, beat.api_message);
            Ok(())
        }
        Message::Facts(facts) => {
            let taken = bounds::take_facts(&cx.room.facts, &facts)?;
            let facts = Arc::new(wire::facts(facts, cx.clock.now())?);
            let mut state = member.lock();
            state.facts = Some(facts.clone());
            state.facts_room = Some(taken);
            drop(state);
            api(cx, member, facts.api_healthy, facts.api_message.clone());
            cx.due.mark(&member.name);
            cx.outbox.push(MemberEvent::Facts { cluster, facts });
            Ok(())
        }
        Message::Status(status) => {
            let key = wire::key(status.key.clone())?;
            let (claims, current) = {
                let state = member.lock();
                let outvoted = state.desired.outvoted(&key);
                let mut claims = state.desired.claims(&key);
                claims.retain(|claim| !outvoted.contains(claim));
                (claims, state.desired.is_current(&key, &status.hash))
            };
            let report = wire::report(status, current)?;
            if !claims.is_empty() {
                cx.outbox.push(MemberEvent::Status { cluster, key, claims, report });
            }
            Ok(())
        }
        Message::Applied(applied) => {
            let applied = wire::applied(applied)?;
            let result = wire::apply_result(applied.result())?;
            applied_to(cx, member, wire::key(applied.key.clone())?, applied, result);
            Ok(())
        }
    }
}

fn applied_to(cx: &Context, member: &Member, key: Key, applied: v1::Applied, result: ApplyResult) {
    let mut state = member.lock();
    let outvoted = state.desired.outvoted(&key);
    let mut claims = state.desired.claims(&key);
    claims.retain(|claim| !outvoted.contains(claim));
    let current = state.desired.is_current(&key, &applied.hash);
    let quiet = state.desired.is_prerequisite(&key) && result == ApplyResult::Applied;
    state.desired.applied(&key, &applied.hash, result, &applied.object_uid);
    let confirmed = state.desired.take_confirmed();
    drop(state);
    if !outvoted.is_empty() {
        let first = claims.first().map(String::as_str).unwrap_or_default();
        cx.outbox.push(MemberEvent::Applied {
            cluster: member.name.clone(),
            key: key.clone(),
            hash: applied.hash.clone(),
            current: false,
            result: ApplyResult::Conflict,
            reason: "AnotherBinding".to_owned(),
            message: format!("{key} is there as the binding with uid {first} wants it, which differs from what this one wants"),
            object_uid: applied.object_uid.clone(),
            drift: applied.drift,
            claims: outvoted,
        });
    }
    if !claims.is_empty() && !quiet {
        cx.outbox.push(MemberEvent::Applied {
            cluster: member.name.clone(),
            key,
            claims,
            hash: applied.hash,
            current,
            result,
            reason: applied.reason,
            message: applied.message,
            object_uid: applied.object_uid,
            drift: applied.drift,
        });
    }
    withdrawn(cx, member, confirmed);
    // A result may require another message, for example when the object was wanted again meanwhile.
    member.wake.notify_one();
}

fn api(cx: &Context, member: &Member, healthy: bool, message: String) {
    let message = wire::text(message);
    if member.lock().vitals.api(Instant::now(), healthy, &message) {
        cx.due.mark(&member.name);
    }
}

/// Why a session ends with the leader's term, in which the controller leads now, if it does.
pub(super) fn term_ended(now: Option<LeaderTerm>) -> Status {
    Status::unavailable(match now {
        None => "not leader",
        Some(_) => "the leadership has a new term: connect again",
    })
}
