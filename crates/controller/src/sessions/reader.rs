//! Reads an agent's messages.

use std::collections::BTreeMap;
use std::sync::Arc;

use atoll_api::BindingUid;
use atoll_protocol::transport::INVENTORY_PAGE;
use atoll_protocol::v1;
use atoll_protocol::v1::agent_message::Message;
use atoll_render::Key;
use tokio::time::Instant;
use tokio_stream::{Stream, StreamExt};
use tonic::Status;

use super::bounds::{self, Reservation};
use super::desired::Held;
use super::handle::SessionHandle;
use super::wire;
use super::writer::publish_inventory;
use crate::member::context::Context;
use crate::member::state::{Member, StoredFacts};
use crate::member::types::{ApplyResult, MemberEvent};

/// Limit of inventory entries: 200 pages. Atoll's agents never send more.
const MAX_INVENTORY: usize = 200 * INVENTORY_PAGE;
/// Inventories in one session before it is closed: if both ends do not agree by then, they never will, and the agent's
/// backoff limits the cost.
const MAX_INVENTORIES: usize = 5;

/// The pages of an inventory received so far, and the memory reserved for them.
struct Inventories {
    pages: Vec<(Key, Held)>,
    memory: Reservation,
    /// Complete inventories received in this session.
    complete: usize,
}

/// Reads until the session must end; returns why.
pub(super) async fn run<S>(
    cx: &Context,
    member: &Member,
    session: &SessionHandle,
    inbound: &mut S,
) -> Status
where
    S: Stream<Item = Result<v1::AgentMessage, Status>> + Unpin,
{
    let memory = cx.sessions.budgets.inventories.none();
    let mut inventories = Inventories { pages: Vec::new(), memory, complete: 0 };
    loop {
        while !cx.outbox.has_room(&member.name) {
            // The rest of the controller is behind: while this session does not read, silence is not the member's.
            member.lock().heartbeats.frame(Instant::now());
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
        member.lock().heartbeats.frame(Instant::now());
        let handled = match message.message {
            Some(Message::Inventory(page)) => {
                take_page(cx, member, session, &mut inventories, page)
            }
            Some(message) => handle(cx, member, message),
            // From a newer agent: not supported.
            None => Ok(()),
        };
        if let Err(status) = handled {
            return status;
        }
    }
}

/// Stores a page of an inventory; the last page completes it.
fn take_page(
    cx: &Context,
    member: &Member,
    session: &SessionHandle,
    inventories: &mut Inventories,
    page: v1::Inventory,
) -> Result<(), Status> {
    if !cx.leadership.is_complete(session.term) {
        return Err(Status::failed_precondition("the controller has not requested an inventory"));
    }
    if page.entries.len() > INVENTORY_PAGE {
        return Err(Status::resource_exhausted("a page of an inventory may have 5,000 entries"));
    }
    bounds::take_page(&mut inventories.memory, &page).inspect_err(|status| {
        tracing::warn!(cluster = member.name.as_str(), %status, "inventory refused");
    })?;
    for entry in page.entries {
        inventories.pages.push(wire::held(entry)?);
    }
    if inventories.pages.len() > MAX_INVENTORY {
        return Err(Status::resource_exhausted("the inventory has too many entries"));
    }
    if !page.last {
        return Ok(());
    }
    inventories.complete += 1;
    if inventories.complete > MAX_INVENTORIES {
        tracing::warn!(
            cluster = member.name.as_str(),
            "controller and agent do not agree on the inventory"
        );
        return Err(Status::aborted("controller and agent do not agree on the inventory"));
    }
    take_inventory(cx, member, session, std::mem::take(&mut inventories.pages));
    inventories.memory = cx.sessions.budgets.inventories.none();
    Ok(())
}

/// Judges the member's inventory. The verdicts are made without the lock; desired state that was set meanwhile takes
/// precedence.
fn take_inventory(
    cx: &Context,
    member: &Member,
    session: &SessionHandle,
    entries: Vec<(Key, Held)>,
) {
    // Without an oracle, or with another one, the term ended meanwhile.
    let Some(oracle) = cx.leadership.oracle(session.term) else { return };
    let undecided = member.lock().desired.undecided(&entries);
    let verdicts: BTreeMap<_, _> = undecided
        .into_iter()
        .map(|(claim, key)| {
            let verdict = oracle.verdict(&member.name, &claim, &key);
            ((claim, key), verdict)
        })
        .collect();
    let mut state = member.lock();
    if state.session.as_ref().is_none_or(|current| current.id != session.id)
        || !cx.leadership.is_complete(session.term)
    {
        return;
    }
    state.desired.inventory(entries, &verdicts);
    state.agreed = true;
    drop(state);
    publish_inventory(cx, member);
    member.wake.notify_one();
}

fn handle(
    cx: &Context,
    member: &Member,
    message: v1::agent_message::Message,
) -> Result<(), Status> {
    let cluster = member.name.clone();
    match message {
        Message::Hello(_) => Err(Status::failed_precondition("a session has one Hello")),
        Message::Inventory(_) => Err(Status::internal("an inventory outside of the reader")),
        Message::Heartbeat(beat) => {
            take_api_report(cx, member, beat.api_healthy, beat.api_message);
            Ok(())
        }
        Message::Facts(facts) => {
            let taken = bounds::take_facts(&cx.sessions.budgets.facts, &facts)?;
            let facts = Arc::new(wire::facts(facts, cx.clock.now())?);
            let mut state = member.lock();
            state.facts = Some(StoredFacts { facts: facts.clone(), _memory: taken });
            drop(state);
            take_api_report(cx, member, facts.api_healthy, facts.api_message.clone());
            cx.writes.mark(&member.name);
            cx.outbox.push(MemberEvent::Facts { cluster, facts });
            Ok(())
        }
        Message::Status(status) => {
            let key = wire::key(status.key.clone())?;
            let (claims, current) = {
                let state = member.lock();
                let conflicting = state.desired.conflicting(&key);
                let mut claims = state.desired.claims(&key);
                claims.retain(|claim| !conflicting.contains(claim));
                (claims, state.desired.is_current(&key, &status.hash))
            };
            let report = wire::report(status, current)?;
            if !claims.is_empty() {
                cx.outbox.push(MemberEvent::Status { cluster, key, claims, report });
            }
            Ok(())
        }
        Message::RuleFailure(failure) => {
            let customizations = cx.sessions.customizations.borrow().clone();
            if let Some(failed) = wire::rule_failure(&customizations, failure)? {
                cx.outbox.push(MemberEvent::RuleFailed { cluster, failed });
            }
            Ok(())
        }
        Message::Applied(applied) => {
            let applied = wire::applied(applied)?;
            let result = wire::apply_result(applied.result())?;
            take_result(cx, member, wire::key(applied.key.clone())?, applied, result);
            Ok(())
        }
    }
}

fn take_result(cx: &Context, member: &Member, key: Key, applied: v1::Applied, result: ApplyResult) {
    let mut state = member.lock();
    let conflicting = state.desired.conflicting(&key);
    let mut claims = state.desired.claims(&key);
    claims.retain(|claim| !conflicting.contains(claim));
    let current = state.desired.is_current(&key, &applied.hash);
    let quiet = state.desired.is_prerequisite(&key) && result == ApplyResult::Applied;
    state.desired.applied(&key, &applied.hash, result, &applied.object_uid);
    let confirmed = state.desired.take_confirmed();
    drop(state);
    if !conflicting.is_empty() {
        let first = claims.first().map(BindingUid::as_str).unwrap_or_default();
        cx.outbox.push(MemberEvent::Applied {
            cluster: member.name.clone(),
            key: key.clone(),
            hash: (&applied.hash).into(),
            current: false,
            result: ApplyResult::Conflict,
            reason: "AnotherBinding".to_owned(),
            message: format!(
                "{key} has the content that the binding with uid {first} wants, which differs from what this binding wants"
            ),
            object_uid: applied.object_uid.clone(),
            drift: applied.drift,
            claims: conflicting,
        });
    }
    if !claims.is_empty() && !quiet {
        cx.outbox.push(MemberEvent::Applied {
            cluster: member.name.clone(),
            key,
            claims,
            hash: applied.hash.into(),
            current,
            result,
            reason: applied.reason,
            message: applied.message,
            object_uid: applied.object_uid,
            drift: applied.drift,
        });
    }
    cx.outbox.push_withdrawn(&member.name, confirmed);
    // A result may require another message, for example when the object was wanted again meanwhile.
    member.wake.notify_one();
}

fn take_api_report(cx: &Context, member: &Member, healthy: bool, message: String) {
    let message = wire::text(message);
    if member.lock().heartbeats.api(Instant::now(), healthy, &message) {
        cx.writes.mark(&member.name);
    }
}
