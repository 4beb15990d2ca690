//! The kubelet of every node: the life of a Pod from binding to termination.

mod addresses;
pub mod annotations;
mod containers;
mod images;
pub(crate) mod node;
mod status;

use std::time::Duration;

use atoll_api::Backoff;
use jiff::Timestamp;
use serde_json::Value;

use crate::clock;
use crate::engine::brain::View;
use crate::index::fields::{list, time};
use crate::index::kind::Kind;
use crate::index::object::{Key, Object};
use crate::index::pod::Phase;
use crate::writes::{Plan, Write};
use annotations::{Fault, Script};
use containers::{Containers, State};

/// Backoff before a crashed container is restarted, as in the kubelet.
const CRASH: Backoff = Backoff { first: Duration::from_secs(10), most: Duration::from_secs(300) };
/// How long a Pod may stay bound to a node that does not exist (PodGC's quarantine).
const ORPHAN_QUARANTINE: Duration = Duration::from_secs(40);
/// Exit code of a container that was killed.
const KILLED: u8 = 137;

/// Reconciles a Pod that has a node or is being deleted.
pub(crate) fn reconcile(view: &View<'_>, pod: &Object) -> Plan {
    let Some(name) = pod.pod().node.as_deref() else {
        // No kubelet will ever confirm the deletion.
        return if pod.is_deleting() {
            Plan::of([Write::delete_now(pod)])
        } else {
            Plan::default()
        };
    };
    match view.index.get(Kind::Node, &Key::cluster(name)) {
        None => collect_orphan(view, pod, name),
        Some(node) if annotations::is_down(node) => Plan::default(),
        Some(node) => {
            let script = Script::read(pod, &view.settings.member);
            if pod.is_deleting() { stop(view, pod, &script) } else { run(view, pod, node, &script) }
        }
    }
}

fn collect_orphan(view: &View<'_>, pod: &Object, node: &str) -> Plan {
    let due = view.memory.missing_since(node) + ORPHAN_QUARANTINE;
    if due <= view.now {
        return Plan::of([Write::delete_now(pod)]);
    }
    let mut plan = Plan::default();
    plan.again_at(due);
    plan
}

/// A deleted Pod: its containers take a moment to stop; a Pod held by a finalizer shows how it ended.
fn stop(view: &View<'_>, pod: &Object, script: &Script) -> Plan {
    let grace = pod.meta.deletion_grace_period_seconds.unwrap_or(0);
    let grace = Duration::from_secs(u64::try_from(grace).unwrap_or(0));
    let asked = pod.deletion().map_or(view.now, |at| clock::before(at, grace));
    let runs = pod.text("/status/startTime").is_some() && !pod.pod().is_finished();
    let needs = script.stop_after.unwrap_or(view.settings.stop_after).min(grace);
    let due = if runs { clock::after(asked, needs) } else { asked };
    let mut plan = Plan::default();
    if due > view.now {
        plan.again_at(due);
        return plan;
    }
    let held = pod.meta.finalizers.iter().flatten().next().is_some();
    if held && !pod.pod().is_finished() {
        let containers = Containers::of(pod).all_terminated(view.now, KILLED);
        plan.push(status::write(view, pod, Phase::Failed, &containers, script));
    } else if !held || grace > Duration::ZERO {
        plan.push([Write::delete_now(pod)]);
    }
    plan
}

/// A living Pod: compares the state of its containers with the state due by now.
fn run(view: &View<'_>, pod: &Object, node: &Object, script: &Script) -> Plan {
    let mut plan = Plan::default();
    if pod.pod().is_finished() {
        return plan;
    }
    let containers = Containers::of(pod);
    let Some(started) = started(view, pod) else {
        plan.push(status::admit(view, pod, node, &containers, script));
        return plan;
    };
    let up_at = started + script.ready_after.unwrap_or(view.settings.ready_after);
    if up_at > view.now {
        plan.again_at(up_at);
        return plan;
    }
    let (phase, containers) = match script.fault {
        Some(Fault::Pull) if !containers.have_run() => (Phase::Pending, containers.cannot_pull()),
        None if containers.lack_image() && !containers.have_run() => {
            (Phase::Pending, containers.wait_for_images())
        }
        Some(Fault::Exit) => (Phase::Failed, containers.all_terminated(view.now, 1)),
        Some(Fault::Crash) => crash_loop(view, pod, containers, &mut plan),
        _ => keep_running(view, pod, script, containers, &mut plan),
    };
    let containers = match phase {
        Phase::Succeeded | Phase::Failed => containers,
        _ => containers.with_readiness(view.now, pod, script, &mut plan),
    };
    plan.push(status::write(view, pod, phase, &containers, script));
    plan
}

/// When the containers began to start: exact if this process observed it, otherwise to the second.
fn started(view: &View<'_>, pod: &Object) -> Option<Timestamp> {
    let written = time(&pod.data, "/status/startTime")?;
    Some(view.memory.started(&pod.uid).unwrap_or(written))
}

fn keep_running(
    view: &View<'_>,
    pod: &Object,
    script: &Script,
    containers: Containers,
    plan: &mut Plan,
) -> (Phase, Containers) {
    let of_job = pod.controller().is_some_and(|owner| owner.kind == "Job");
    let run_for = script.run_for.or_else(|| of_job.then_some(view.settings.job_duration));
    let start_now = |containers: Containers, plan: &mut Plan| {
        if let Some(run_for) = run_for {
            plan.again_at(clock::after(view.now, run_for));
        }
        (Phase::Running, containers.all_running(pod, view.now))
    };
    match containers.state() {
        State::Waiting => start_now(containers, plan),
        State::BackingOff { until } if until > view.now => {
            plan.again_at(until);
            (Phase::Running, containers)
        }
        State::BackingOff { .. } => start_now(containers, plan),
        State::Running { since } => match run_for.map(|run_for| clock::after(since, run_for)) {
            Some(end) if end <= view.now => exit(view, pod, containers, script.exit_code, plan),
            Some(end) => {
                plan.again_at(end);
                (Phase::Running, containers)
            }
            None => (Phase::Running, containers),
        },
    }
}

/// Containers that crash as soon as they start: each round adds a restart and a longer wait.
fn crash_loop(
    view: &View<'_>,
    pod: &Object,
    containers: Containers,
    plan: &mut Plan,
) -> (Phase, Containers) {
    match containers.state() {
        State::BackingOff { until } if until > view.now => {
            plan.again_at(until);
            (Phase::Running, containers)
        }
        _ => exit(view, pod, containers, 1, plan),
    }
}

/// The containers have exited: the restart policy decides whether the Pod ends or they restart.
fn exit(
    view: &View<'_>,
    pod: &Object,
    containers: Containers,
    code: u8,
    plan: &mut Plan,
) -> (Phase, Containers) {
    match (pod.text("/spec/restartPolicy").unwrap_or("Always"), code) {
        ("Never" | "OnFailure", 0) => (Phase::Succeeded, containers.all_terminated(view.now, 0)),
        ("Never", code) => (Phase::Failed, containers.all_terminated(view.now, code)),
        (_, code) => {
            let containers = containers.all_crashed(view.now, code);
            if let State::BackingOff { until } = containers.state() {
                plan.again_at(until);
            }
            (Phase::Running, containers)
        }
    }
}

/// Wait before the start after this many restarts.
fn backoff(restarts: i64) -> Duration {
    CRASH.ceiling(u32::try_from(restarts.max(0)).unwrap_or(u32::MAX))
}

/// The main containers of a Pod's spec.
fn main_containers(pod: &Object) -> &[Value] {
    list(&pod.data, "/spec/containers")
}
