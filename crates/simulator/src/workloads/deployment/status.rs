//! Status of a Deployment: counters, and the conditions Available, Progressing and ReplicaFailure.

use jiff::Timestamp;

use super::super::children::put_count;
use super::{Deployment, Set, Sets};
use crate::engine::brain::View;
use crate::index::fields::{list, text};
use crate::writes::conditions::{Condition, Conditions, Custom};
use crate::writes::{Plan, Write};

const NEW_SET_AVAILABLE: &str = "NewReplicaSetAvailable";
const TIMED_OUT: &str = "ProgressDeadlineExceeded";

/// The counters of a status.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Counts {
    replicas: i64,
    updated: i64,
    ready: i64,
    available: i64,
    unavailable: i64,
}

impl Counts {
    fn of(sets: &Sets) -> Self {
        let sum = |field: fn(&Set) -> i64| sets.all().map(field).sum::<i64>();
        let available = sum(|set| set.available);
        Self {
            replicas: sum(|set| set.actual),
            updated: sets.new.as_ref().map_or(0, |new| new.actual),
            ready: sum(|set| set.ready),
            available,
            unavailable: (sum(|set| set.wanted) - available).max(0),
        }
    }

    fn reported(deployment: &Deployment<'_>) -> Self {
        let count = |field: &str| deployment.object.count(field);
        Self {
            replicas: count("/status/replicas"),
            updated: count("/status/updatedReplicas"),
            ready: count("/status/readyReplicas"),
            available: count("/status/availableReplicas"),
            unavailable: count("/status/unavailableReplicas"),
        }
    }

    fn complete(self, deployment: &Deployment<'_>) -> bool {
        let wanted = deployment.replicas;
        self.updated == wanted && self.replicas == wanted && self.available == wanted
    }

    fn progressed_from(self, old: Self) -> bool {
        self.updated > old.updated
            || self.replicas - self.updated < old.replicas - old.updated
            || self.ready > old.ready
            || self.available > old.available
    }
}

/// Whether every replica is of the new template and available.
pub(super) fn is_complete(deployment: &Deployment<'_>, sets: &Sets) -> bool {
    Counts::of(sets).complete(deployment)
}

fn conditions(view: &View<'_>, deployment: &Deployment<'_>) -> Conditions {
    Conditions::of(deployment.object, Custom::Workload { has_update_time: true }, view.now)
}

/// Reports that a new ReplicaSet was created, which starts the progress deadline.
pub(super) fn created(view: &View<'_>, deployment: &Deployment<'_>, set: &str) -> Option<Write> {
    deployment.progress_deadline?;
    let mut conditions = conditions(view, deployment);
    let message = format!("Created new replica set \"{set}\"");
    conditions.set(Condition {
        type_: "Progressing",
        status: "True",
        reason: "NewReplicaSetCreated",
        message: &message,
    });
    let mut status = deployment.object.status();
    status["conditions"] = conditions.into_value();
    Write::status(deployment.object, status)
}

/// Updates the status, and schedules another pass for the progress deadline.
pub(super) fn report(view: &View<'_>, deployment: &Deployment<'_>, sets: &Sets) -> Plan {
    let object = deployment.object;
    let counts = Counts::of(sets);
    let mut conditions = conditions(view, deployment);
    if !object.is_deleting() {
        pause(deployment, &mut conditions);
        if !deployment.paused {
            progress(view, deployment, sets, counts, &mut conditions);
        }
        replica_failure(sets, &mut conditions);
    }
    let minimum = deployment.replicas - deployment.max_unavailable();
    conditions.set(if counts.available >= minimum {
        Condition {
            type_: "Available",
            status: "True",
            reason: "MinimumReplicasAvailable",
            message: "Deployment has minimum availability.",
        }
    } else {
        Condition {
            type_: "Available",
            status: "False",
            reason: "MinimumReplicasUnavailable",
            message: "Deployment does not have minimum availability.",
        }
    });
    let mut plan = Plan::default();
    if let Some(at) = deadline(deployment, &conditions).filter(|at| *at > view.now) {
        plan.again_at(at);
    }
    let mut status = object.status();
    put_count(&mut status, "observedGeneration", object.generation());
    put_count(&mut status, "replicas", counts.replicas);
    put_count(&mut status, "updatedReplicas", counts.updated);
    put_count(&mut status, "readyReplicas", counts.ready);
    put_count(&mut status, "availableReplicas", counts.available);
    put_count(&mut status, "unavailableReplicas", counts.unavailable);
    status["conditions"] = conditions.into_value();
    plan.push(Write::status(object, status));
    plan
}

/// A pause stops the progress deadline; resuming restarts it.
fn pause(deployment: &Deployment<'_>, conditions: &mut Conditions) {
    if deployment.progress_deadline.is_none() || conditions.reason("Progressing") == Some(TIMED_OUT)
    {
        return;
    }
    let was_paused = conditions.reason("Progressing") == Some("DeploymentPaused");
    if deployment.paused && !was_paused {
        conditions.set(Condition {
            type_: "Progressing",
            status: "Unknown",
            reason: "DeploymentPaused",
            message: "Deployment is paused",
        });
    } else if !deployment.paused && was_paused {
        conditions.set(Condition {
            type_: "Progressing",
            status: "Unknown",
            reason: "DeploymentResumed",
            message: "Deployment is resumed",
        });
    }
}

fn progress(
    view: &View<'_>,
    deployment: &Deployment<'_>,
    sets: &Sets,
    counts: Counts,
    conditions: &mut Conditions,
) {
    if deployment.progress_deadline.is_none() {
        conditions.remove("Progressing");
        return;
    }
    let subject = match &sets.new {
        Some(new) => format!("ReplicaSet \"{}\"", new.name()),
        None => format!("Deployment \"{}\"", deployment.object.key.name),
    };
    if conditions.get("Progressing").is_none()
        && let Some(new) = &sets.new
    {
        conditions.set(Condition {
            type_: "Progressing",
            status: "True",
            reason: "FoundNewReplicaSet",
            message: &format!("Found new replica set \"{}\"", new.name()),
        });
    }
    let settled = counts.replicas == counts.updated
        && conditions.reason("Progressing") == Some(NEW_SET_AVAILABLE);
    if settled {
        return;
    }
    if counts.complete(deployment) {
        conditions.set(Condition {
            type_: "Progressing",
            status: "True",
            reason: NEW_SET_AVAILABLE,
            message: &format!("{subject} has successfully progressed."),
        });
    } else if counts.progressed_from(Counts::reported(deployment)) {
        conditions.put(Condition {
            type_: "Progressing",
            status: "True",
            reason: "ReplicaSetUpdated",
            message: &format!("{subject} is progressing."),
        });
    } else if deadline(deployment, conditions).is_some_and(|at| at <= view.now) {
        conditions.set(Condition {
            type_: "Progressing",
            status: "False",
            reason: TIMED_OUT,
            message: &format!("{subject} has timed out progressing."),
        });
    }
}

/// When the progress deadline expires; `None` if it cannot expire any more.
fn deadline(deployment: &Deployment<'_>, conditions: &Conditions) -> Option<Timestamp> {
    let seconds = deployment.progress_deadline?;
    if deployment.paused
        || matches!(conditions.reason("Progressing")?, NEW_SET_AVAILABLE | TIMED_OUT)
    {
        return None;
    }
    let since = conditions.updated("Progressing")?;
    Timestamp::from_second(since.as_second().checked_add(seconds)?.checked_add(1)?).ok()
}

/// Reports why a ReplicaSet cannot create its Pods; the new set's message takes precedence.
fn replica_failure(sets: &Sets, conditions: &mut Conditions) {
    let failure = sets.new.iter().chain(&sets.old).find_map(|set| {
        list(&set.object.data, "/status/conditions")
            .iter()
            .find(|condition| text(condition, "/type") == Some("ReplicaFailure"))
    });
    match failure {
        Some(failure) => conditions.set(Condition {
            type_: "ReplicaFailure",
            status: "True",
            reason: text(failure, "/reason").unwrap_or("FailedCreate"),
            message: text(failure, "/message").unwrap_or_default(),
        }),
        None => conditions.remove("ReplicaFailure"),
    }
}
