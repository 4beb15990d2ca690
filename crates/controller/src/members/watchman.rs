//! Evaluates all members in turn: which are lost, which are back, and whether the controller should suspect itself.

use std::sync::{Arc, PoisonError};
use std::time::Duration;

use tokio::time::{Instant, MissedTickBehavior};
use tonic::Status;

use super::context::Context;
use super::events;
use super::health::draft;
use super::health::suspicion::Change;
use super::health::vitals::{Presence, Standing, Turn};
use super::types::{LostReason, MemberEvent};

/// Longest time between two evaluations.
const LOOK: Duration = Duration::from_secs(1);
/// Evaluations per heartbeat, if that is shorter.
const LOOKS_PER_BEAT: u32 = 4;

/// Evaluates until the context's token is cancelled. Only a leader does.
pub(super) async fn run(cx: Arc<Context>) {
    let mut tick = tokio::time::interval(LOOK.min(cx.times.heartbeat / LOOKS_PER_BEAT));
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut term = cx.term.clone();
    term.mark_changed();
    let mut leading = None;
    let mut swept = Instant::now();
    let mut frozen = true;
    let mut suspected = Vec::new();
    loop {
        tokio::select! {
            biased;
            leads = cx.next_term(&mut term) => {
                let Some(now_leading) = leads else { return };
                if now_leading.is_some() && leading.is_none() {
                    begin(&cx, Instant::now());
                }
                if now_leading.is_some() && leading.is_some() && now_leading != leading {
                    connect_again(&cx, Instant::now());
                }
                if now_leading.is_none() {
                    *cx.grace.lock().unwrap_or_else(PoisonError::into_inner) = None;
                    cx.metrics.removals_held.set(0);
                }
                leading = now_leading;
            }
            _ = tick.tick() => {
                let now = Instant::now();
                // While sessions do not read because the rest of the controller is slow, their members' silence means
                // nothing.
                if leading.is_none() || cx.outbox.is_full() {
                    continue;
                }
                look(&cx, now, &mut frozen, &mut suspected);
                if now.saturating_duration_since(swept) >= cx.times.status_interval {
                    swept = now;
                    for member in cx.registry.all() {
                        cx.due.mark(&member.name);
                    }
                }
            }
        }
    }
}

/// A term begins: agents need time to find this leader.
fn begin(cx: &Context, now: Instant) {
    let until = now + cx.times.leader_grace;
    *cx.grace.lock().unwrap_or_else(PoisonError::into_inner) = Some(until);
    for member in cx.registry.all() {
        let mut state = member.lock();
        let baseline = until.checked_sub(cx.times.silent_after).unwrap_or(now).max(now);
        state.vitals.forgive(baseline);
        state.agreed = false;
        drop(state);
        cx.due.mark(&member.name);
    }
}

/// The leader's term was raised: that ended all sessions, and agents need time to reconnect. A member that is already
/// silent stays so.
fn connect_again(cx: &Context, now: Instant) {
    for member in cx.registry.all() {
        member.lock().vitals.forgive(now);
        cx.due.mark(&member.name);
    }
}

/// Reports the members whose silence may be the controller's own fault.
fn tell(cx: &Context, members: &[String], begins: bool, message: &str) {
    for cluster in members {
        let (cluster, message) = (cluster.clone(), message.to_owned());
        cx.outbox.push(MemberEvent::Suspicion { cluster, begins, message });
    }
}

fn look(cx: &Context, now: Instant, was_frozen: &mut bool, suspected: &mut Vec<String>) {
    let members = cx.registry.all();
    let mut presences = Vec::with_capacity(members.len());
    let mut turns = Vec::new();
    let mut lost = 0;
    let mut held = 0;
    for member in &members {
        let mut state = member.lock();
        let turn = state.vitals.judge(now, &cx.times);
        presences.push(state.vitals.presence(now, &cx.times));
        let standing = state.vitals.standing();
        held += state.desired.held_back().len();
        if turn == Turn::Lost
            && let Some(session) = &state.session
        {
            // The member's state is stale from now on. It returns with a new session, whose inventory and reports make
            // the state certain again; a stream that survived the silence would bring only changes.
            session.end(Status::unavailable("the member was silent for too long: come again"));
        }
        let has_no_execute = state
            .cluster
            .as_deref()
            .is_some_and(|cluster| draft::own(cluster).any(|taint| taint.effect == "NoExecute"));
        drop(state);
        let evicting = match standing {
            Standing::Lost { since } => {
                lost += 1;
                Some(since)
            }
            Standing::Sick { since, .. } => Some(since),
            _ => None,
        };
        // The step to NoExecute depends on time alone.
        let step = evicting
            .is_some_and(|since| now.saturating_duration_since(since) >= cx.times.failover_after)
            && !has_no_execute;
        turns.push((member, turn, step));
    }
    cx.metrics.lost.set(lost);
    cx.metrics.removals_held.set(i64::try_from(held).unwrap_or(i64::MAX));
    let absent: Vec<String> = members
        .iter()
        .zip(&presences)
        .filter(|(_, presence)| matches!(presence, Presence::Quiet | Presence::Lost(_)))
        .map(|(member, _)| member.name.clone())
        .collect();
    let change = cx.suspicion().look(now, cx.times.suspicion_window, presences);
    let frozen = cx.is_frozen(now);
    let thawed = std::mem::replace(was_frozen, frozen) && !frozen;
    for (member, turn, step) in turns {
        if turn != Turn::None || thawed || (step && !frozen) {
            cx.due.mark(&member.name);
        }
        if turn == Turn::Lost {
            let reason = LostReason::Silent(cx.times.silent_after);
            tracing::warn!(cluster = member.name, %reason, "member lost");
            cx.outbox.push(MemberEvent::Lost { cluster: member.name.clone(), reason });
        }
    }
    match change {
        Change::None if suspected.is_empty() || cx.suspicion().is_active() => (),
        Change::None => {
            let message = "a person says that the losses are real: suspicion ends";
            tell(cx, &std::mem::take(suspected), false, message);
        }
        Change::Begins { silent, of } => {
            cx.metrics.suspicion.set(1);
            let message = format!(
                "{silent} of {of} members went silent within {} s: the controller suspects its own network, writes no \
                 taint and evicts nothing until two thirds are back or a person says go",
                cx.times.suspicion_window.as_secs()
            );
            *suspected = absent;
            tell(cx, suspected, true, &message);
            for member in members.iter().take(1) {
                events::publish(cx, member, "ControllerSuspectsItself", &message);
            }
        }
        Change::Ends => {
            cx.metrics.suspicion.set(0);
            for member in &members {
                member.lock().vitals.count_anew(now);
            }
            let message = "two thirds of the members are back: suspicion ends".to_owned();
            tracing::info!("{message}");
            tell(cx, &std::mem::take(suspected), false, &message);
        }
    }
}
