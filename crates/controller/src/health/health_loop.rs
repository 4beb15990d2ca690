//! Evaluates all members in turn: which are lost, which are back, and whether the controller should suspect itself.

use std::sync::Arc;
use std::time::Duration;

use atoll_api::ClusterName;
use tokio::time::{Instant, MissedTickBehavior};
use tonic::Status;

use super::heartbeats::{HealthChange, HealthState, Presence};
use super::suspicion::SuspicionChange;
use super::taints::managed;
use crate::member::context::Context;
use crate::member::events;
use crate::member::state::Member;
use crate::member::types::{LostReason, MemberEvent};

/// Longest time between two evaluations.
const INTERVAL: Duration = Duration::from_secs(1);
/// Evaluations per heartbeat, if that is shorter.
const PER_HEARTBEAT: u32 = 4;

/// Evaluates until the context's token is cancelled. Only a leader does.
pub(crate) async fn run(cx: Arc<Context>) {
    let mut tick = tokio::time::interval(INTERVAL.min(cx.times.heartbeat / PER_HEARTBEAT));
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut term = cx.leadership.watch_term();
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
                    cx.caution.set_grace(None);
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
                evaluate(&cx, now, &mut frozen, &mut suspected);
                if now.saturating_duration_since(swept) >= cx.times.status_interval {
                    swept = now;
                    for member in cx.registry.all() {
                        cx.writes.mark(&member.name);
                    }
                }
            }
        }
    }
}

/// A term begins: agents need time to find this leader.
fn begin(cx: &Context, now: Instant) {
    let until = now + cx.times.leader_grace;
    cx.caution.set_grace(Some(until));
    for member in cx.registry.all() {
        let mut state = member.lock();
        let baseline = until.checked_sub(cx.times.silent_after).unwrap_or(now).max(now);
        state.heartbeats.count_silence_from(baseline);
        state.agreed = false;
        drop(state);
        cx.writes.mark(&member.name);
    }
}

/// The leader's term was raised: that ended all sessions, and agents need time to reconnect. A member that is already
/// silent stays so.
fn connect_again(cx: &Context, now: Instant) {
    for member in cx.registry.all() {
        member.lock().heartbeats.count_silence_from(now);
        cx.writes.mark(&member.name);
    }
}

/// Reports the members whose silence may be the controller's own fault.
fn report_suspicion(cx: &Context, members: &[ClusterName], begins: bool, message: &str) {
    for cluster in members {
        let (cluster, message) = (cluster.clone(), message.to_owned());
        cx.outbox.push(MemberEvent::Suspicion { cluster, begins, message });
    }
}

/// One member's result of an evaluation.
struct Evaluated {
    presence: Presence,
    change: HealthChange,
    /// Whether the taint `NoExecute` is due: that depends on time alone.
    eviction_due: bool,
    lost: bool,
    removals_held: usize,
}

fn evaluate_member(cx: &Context, member: &Member, now: Instant) -> Evaluated {
    let mut state = member.lock();
    let change = state.heartbeats.judge(now, &cx.times);
    let presence = state.heartbeats.presence(now, &cx.times);
    let health = state.heartbeats.health();
    if change == HealthChange::Lost
        && let Some(session) = &state.session
    {
        // The member's state is stale from now on. It returns with a new session, whose inventory and reports make
        // the state certain again; a stream that survived the silence would bring only changes.
        session.end(Status::unavailable("no heartbeat for too long: connect again"));
    }
    let has_no_execute = state
        .cluster
        .as_deref()
        .is_some_and(|cluster| managed(cluster).any(|taint| taint.effect == "NoExecute"));
    let since = match health {
        HealthState::Lost { since } | HealthState::ApiUnhealthy { since, .. } => Some(since),
        _ => None,
    };
    let overdue =
        since.is_some_and(|since| now.saturating_duration_since(since) >= cx.times.failover_after);
    Evaluated {
        presence,
        change,
        eviction_due: overdue && !has_no_execute,
        lost: matches!(health, HealthState::Lost { .. }),
        removals_held: state.desired.held_back().len(),
    }
}

/// Evaluates all members. `was_frozen` is whether taints were frozen at the last evaluation, `suspected` the members
/// that caused the current suspicion.
fn evaluate(cx: &Context, now: Instant, was_frozen: &mut bool, suspected: &mut Vec<ClusterName>) {
    let members = cx.registry.all();
    let results: Vec<_> =
        members.iter().map(|member| (member, evaluate_member(cx, member, now))).collect();
    let count = |count: usize| i64::try_from(count).unwrap_or(i64::MAX);
    cx.metrics.lost.set(count(results.iter().filter(|(_, result)| result.lost).count()));
    let held = results.iter().map(|(_, result)| result.removals_held).sum();
    cx.metrics.removals_held.set(count(held));
    let presences: Vec<_> = results.iter().map(|(_, result)| result.presence).collect();
    let change = cx.caution.suspicion().look(now, cx.times.suspicion_window, presences);
    let frozen = cx.caution.is_frozen(now);
    let thawed = std::mem::replace(was_frozen, frozen) && !frozen;
    for (member, result) in &results {
        if result.change != HealthChange::None || thawed || (result.eviction_due && !frozen) {
            cx.writes.mark(&member.name);
        }
        if result.change == HealthChange::Lost {
            let reason = LostReason::Silent(cx.times.silent_after);
            tracing::warn!(cluster = member.name.as_str(), %reason, "member lost");
            cx.outbox.push(MemberEvent::Lost { cluster: member.name.clone(), reason });
        }
    }
    let absent = || {
        let absent = results
            .iter()
            .filter(|(_, result)| matches!(result.presence, Presence::Quiet | Presence::Lost(_)));
        absent.map(|(member, _)| member.name.clone()).collect()
    };
    match change {
        SuspicionChange::None if suspected.is_empty() || cx.caution.suspicion().is_active() => (),
        SuspicionChange::None => {
            let message = "an operator confirmed that the members are lost: suspicion ends";
            report_suspicion(cx, &std::mem::take(suspected), false, message);
        }
        SuspicionChange::Begins { silent, of } => {
            *suspected = absent();
            begin_suspicion(cx, members.first().map(|member| &**member), suspected, (silent, of));
        }
        SuspicionChange::Ends => {
            cx.metrics.suspicion.set(0);
            for member in &members {
                member.lock().heartbeats.count_loss_from(now);
            }
            let message = "two thirds of the members are connected again: suspicion ends";
            tracing::info!("{message}");
            report_suspicion(cx, &std::mem::take(suspected), false, message);
        }
    }
}

/// Reports that the controller suspects its own network. The Event is about `member`, because an Event needs an object.
fn begin_suspicion(
    cx: &Context,
    member: Option<&Member>,
    suspected: &[ClusterName],
    (silent, of): (usize, usize),
) {
    cx.metrics.suspicion.set(1);
    let message = format!(
        "{silent} of {of} {} silent within {} s: the controller suspects its own network, writes no taint and evicts \
         nothing until two thirds are connected again or an operator confirms the loss (`atoll confirm-lost`)",
        if of == 1 { "member went" } else { "members went" },
        cx.times.suspicion_window.as_secs()
    );
    report_suspicion(cx, suspected, true, &message);
    if let Some(member) = member {
        events::publish(cx, member, "ControllerSuspectsItself", &message);
    }
}
