//! Deployment: a rolling change from old ReplicaSets to the one of the current template.
//!
//! Each pass takes one step of upstream's sync loop: adopt, find or create the new ReplicaSet, update its annotations,
//! scale, clean up, and report only if none of these wrote anything. The answers to a step trigger the next pass at
//! once.

mod revision;
mod scale;
mod status;

use std::sync::Arc;

use serde_json::Value;

use super::children::{claim, is_active};
use crate::engine::brain::View;
use crate::index::fields::{scaled, selector};
use crate::index::kind::Kind;
use crate::index::object::Object;
use crate::writes::{Plan, Write};

/// `progressDeadlineSeconds` if the API server did not default it.
const DEFAULT_PROGRESS_DEADLINE: i64 = 600;
/// `revisionHistoryLimit` if the API server did not default it.
const DEFAULT_HISTORY_LIMIT: i64 = 10;
/// `maxSurge` and `maxUnavailable` if the API server did not default them.
const DEFAULT_MARGIN: &str = "25%";

/// How old replicas are replaced by new ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Strategy {
    Recreate,
    /// With both margins resolved against `spec.replicas`.
    Rolling {
        max_surge: i64,
        max_unavailable: i64,
    },
}

/// A Deployment as its controller reads it.
#[derive(Debug)]
struct Deployment<'a> {
    object: &'a Object,
    replicas: i64,
    strategy: Strategy,
    paused: bool,
    min_ready_seconds: i64,
    /// `None` if the deadline is disabled.
    progress_deadline: Option<i64>,
    history_limit: usize,
    template: &'a Value,
}

impl<'a> Deployment<'a> {
    fn read(object: &'a Object) -> Self {
        static NO_TEMPLATE: Value = Value::Null;
        let replicas = object.int("/spec/replicas").unwrap_or(1);
        let deadline =
            object.int("/spec/progressDeadlineSeconds").unwrap_or(DEFAULT_PROGRESS_DEADLINE);
        let history = object.int("/spec/revisionHistoryLimit").unwrap_or(DEFAULT_HISTORY_LIMIT);
        Self {
            object,
            replicas,
            strategy: Strategy::read(object, replicas),
            paused: object.flag("/spec/paused"),
            min_ready_seconds: object.count("/spec/minReadySeconds"),
            progress_deadline: (deadline != i64::from(i32::MAX)).then_some(deadline),
            history_limit: usize::try_from(history).unwrap_or(0),
            template: object.data.pointer("/spec/template").unwrap_or(&NO_TEMPLATE),
        }
    }

    /// How many Pods may exist above `spec.replicas`.
    fn max_surge(&self) -> i64 {
        match self.strategy {
            Strategy::Recreate => 0,
            Strategy::Rolling { max_surge, .. } => max_surge,
        }
    }

    /// How many of `spec.replicas` may be unavailable: none if there is nothing to roll.
    fn max_unavailable(&self) -> i64 {
        match self.strategy {
            Strategy::Rolling { max_unavailable, .. } if self.replicas > 0 => {
                max_unavailable.min(self.replicas)
            }
            _ => 0,
        }
    }
}

impl Strategy {
    /// Percentages round up for surge and down for unavailable; if both are zero the rollout could never move, so one
    /// may be unavailable (`ResolveFenceposts`).
    fn read(object: &Object, replicas: i64) -> Self {
        if object.text("/spec/strategy/type") == Some("Recreate") {
            return Self::Recreate;
        }
        let default = Value::String(DEFAULT_MARGIN.to_owned());
        let margin = |field: &str, round_up| {
            let value = object.data.pointer(field).unwrap_or(&default);
            scaled(Some(value), replicas, round_up).unwrap_or(0).max(0)
        };
        let max_surge = margin("/spec/strategy/rollingUpdate/maxSurge", true);
        let max_unavailable = margin("/spec/strategy/rollingUpdate/maxUnavailable", false);
        Self::Rolling {
            max_surge,
            max_unavailable: if max_surge == 0 { max_unavailable.max(1) } else { max_unavailable },
        }
    }
}

/// A ReplicaSet with the counters that drive the rollout.
#[derive(Debug, Clone)]
struct Set {
    object: Arc<Object>,
    /// `spec.replicas`.
    wanted: i64,
    /// `status.replicas`.
    actual: i64,
    ready: i64,
    available: i64,
}

impl Set {
    fn read(object: Arc<Object>) -> Self {
        Self {
            wanted: object.int("/spec/replicas").unwrap_or(1),
            actual: object.count("/status/replicas"),
            ready: object.count("/status/readyReplicas"),
            available: object.count("/status/availableReplicas"),
            object,
        }
    }

    fn name(&self) -> &str {
        &self.object.key.name
    }
}

/// The ReplicaSets of a Deployment.
#[derive(Debug)]
struct Sets {
    /// Of the current template.
    new: Option<Set>,
    /// The others, oldest first.
    old: Vec<Set>,
}

impl Sets {
    fn all(&self) -> impl Iterator<Item = &Set> {
        self.old.iter().chain(&self.new)
    }
}

/// Reconciles a Deployment.
pub(crate) fn reconcile(view: &View<'_>, object: &Object) -> Plan {
    let Some(selector) = selector(&object.data, "/spec/selector") else {
        return Plan::default();
    };
    let deployment = Deployment::read(object);
    let claim = claim(view, object, Kind::ReplicaSet, &selector, |_| true);
    if !claim.writes.is_empty() {
        return Plan::of(claim.writes);
    }
    let sets = revision::split(&deployment, claim.owned);
    if object.is_deleting() {
        return status::report(view, &deployment, &sets);
    }
    let step = step(view, &deployment, &sets);
    if step.is_empty() { status::report(view, &deployment, &sets) } else { Plan::of(step) }
}

fn step(view: &View<'_>, deployment: &Deployment<'_>, sets: &Sets) -> Vec<Write> {
    let kept = revision::annotate(deployment, sets);
    if !kept.is_empty() {
        return kept;
    }
    if deployment.paused || scale::is_scaling_event(deployment, sets) {
        let writes = scale::in_proportion(deployment, sets);
        if writes.is_empty() && deployment.paused {
            return revision::clean_up(deployment, sets);
        }
        return writes;
    }
    let writes = match deployment.strategy {
        Strategy::Rolling { .. } => match &sets.new {
            None => revision::create(view, deployment, sets),
            Some(new) => scale::roll(deployment, sets, new),
        },
        Strategy::Recreate => recreate(view, deployment, sets),
    };
    if writes.is_empty() && status::is_complete(deployment, sets) {
        return revision::clean_up(deployment, sets);
    }
    writes
}

/// Strategy Recreate: all old Pods are deleted before the first new one is created.
fn recreate(view: &View<'_>, deployment: &Deployment<'_>, sets: &Sets) -> Vec<Write> {
    let down: Vec<_> = sets.old.iter().filter_map(|set| scale::to(deployment, set, 0)).collect();
    if !down.is_empty() {
        return down;
    }
    let old_pods_run = sets.old.iter().any(|set| {
        let mut pods = view.index.owned(&set.object.uid, Kind::Pod);
        pods.any(|pod| is_active(pod) || (pod.is_deleting() && !pod.pod().is_finished()))
    });
    if old_pods_run {
        return Vec::new();
    }
    match &sets.new {
        None => revision::create(view, deployment, sets),
        Some(new) => scale::to(deployment, new, deployment.replicas).into_iter().collect(),
    }
}
