//! Health and status, one module per family of kinds.
//!
//! Each family defines: the health of an object (`health`), the part of its status to send (`reflect`), and the status
//! of the template from these parts of its members (`aggregate`).

mod batch;
mod network;
mod other;
mod pods;
mod policy;
mod storage;
mod workloads;

use serde_json::{Map, Value, json};

pub(crate) use self::other::aggregate as aggregate_unknown;
pub(crate) use self::pods::is_ready as pod_is_ready;
pub(crate) use self::workloads::counts as workload_counts;
use crate::{
    Health,
    kind::Kind,
    read::{at, int, text},
    third_party,
};

/// The health of an object, from its own status.
///
/// Workloads are healthy when their controller has observed the latest generation, and every replica is updated and
/// available. An unknown kind is judged by `observedGeneration` and the standard conditions; without any of these it is
/// healthy if it exists.
#[must_use]
pub fn health(obj: &Value) -> Health {
    let kind = Kind::of(obj);
    match kind {
        Kind::Deployment
        | Kind::ReplicaSet
        | Kind::StatefulSet
        | Kind::DaemonSet
        | Kind::ReplicationController => workloads::health(kind, obj),
        Kind::Job => batch::job_health(obj),
        Kind::CronJob => batch::cron_job_health(obj),
        Kind::Pod => pods::health(obj),
        Kind::Service => network::service_health(obj),
        Kind::Ingress => network::ingress_health(obj),
        Kind::PersistentVolumeClaim => storage::claim_health(obj),
        Kind::PersistentVolume => storage::volume_health(obj),
        Kind::HorizontalPodAutoscaler => policy::autoscaler_health(obj),
        Kind::PodDisruptionBudget => policy::budget_health(obj),
        Kind::ServiceAccount | Kind::Secret => Health::healthy("Exists"),
        Kind::Namespace => other::namespace_health(obj),
        Kind::ServiceImport | Kind::Other => {
            third_party::health(obj).unwrap_or_else(|| other::health(obj))
        }
    }
}

/// The part of the status that [`aggregate`] needs; `None` if there is no status.
pub(crate) fn reflect(obj: &Value) -> Option<Value> {
    let status = at(obj, &["status"]).filter(|s| s.as_object().is_some_and(|s| !s.is_empty()))?;
    let kind = Kind::of(obj);
    Some(match kind {
        Kind::Deployment
        | Kind::ReplicaSet
        | Kind::StatefulSet
        | Kind::DaemonSet
        | Kind::ReplicationController => workloads::reflect(kind, status),
        Kind::Job => batch::reflect_job(status),
        Kind::CronJob => batch::reflect_cron_job(status),
        Kind::Pod => pods::reflect(status),
        Kind::HorizontalPodAutoscaler => policy::reflect_autoscaler(status),
        Kind::PodDisruptionBudget => policy::reflect_budget(status),
        Kind::Other => third_party::reflect(obj, status).unwrap_or_else(|| status.clone()),
        _ => status.clone(),
    })
}

/// The template's `.status`, from the statuses that its members report ([`crate::Observed::status`]).
///
/// `members` are (name of the cluster, status), ordered by name. A member that has not reported yet has `null`, so that
/// it counts as incomplete. The result has sums of counts, merged conditions and all addresses. Fields of the current
/// status that no member reports are left out. Times come from the members or the current status, never from a clock.
///
/// `observedGeneration` is not in the result. Only the caller can tell which generation of the *template* the members
/// run, from the hash that they report.
///
/// `None` for a kind whose status cannot be aggregated (a Secret, a Namespace), and for an unknown kind while no member
/// reports a status, because it may have none.
#[must_use]
pub fn aggregate<N: AsRef<str>>(template: &Value, members: &[(N, &Value)]) -> Option<Value> {
    let members: Vec<Member<'_>> = members
        .iter()
        .map(|(name, status)| Member {
            name: name.as_ref(),
            status: Some(*status).filter(|s| s.is_object()),
        })
        .collect();
    let kind = Kind::of(template);
    match kind {
        Kind::ServiceAccount | Kind::Secret | Kind::Namespace => return None,
        Kind::ServiceImport | Kind::Other if reported(&members).is_empty() => return None,
        _ => {}
    }
    let old = &template["status"];
    if kind == Kind::Other
        && let Some(status) = third_party::aggregate(template, &members, old)
    {
        return Some(Value::Object(status));
    }
    Some(Value::Object(aggregate_members(kind, &members, old)))
}

/// The status of a kind from those of its members; `old` is the template's current status.
pub(crate) fn aggregate_members(
    kind: Kind,
    members: &[Member<'_>],
    old: &Value,
) -> Map<String, Value> {
    match kind {
        Kind::Deployment
        | Kind::ReplicaSet
        | Kind::StatefulSet
        | Kind::DaemonSet
        | Kind::ReplicationController => workloads::aggregate(kind, members, old),
        Kind::Job => batch::aggregate_job(members, old),
        Kind::CronJob => batch::aggregate_cron_job(members),
        Kind::Pod => pods::aggregate(members),
        Kind::Service => network::aggregate_service(members, old),
        Kind::Ingress => network::aggregate_ingress(members),
        Kind::PersistentVolumeClaim => storage::aggregate_claim(members),
        Kind::PersistentVolume => storage::aggregate_volume(members),
        Kind::HorizontalPodAutoscaler => policy::aggregate_autoscaler(members),
        Kind::PodDisruptionBudget => policy::aggregate_budget(members),
        Kind::ServiceAccount
        | Kind::Secret
        | Kind::Namespace
        | Kind::ServiceImport
        | Kind::Other => other::aggregate(members, old),
    }
}

/// The report of one member; no status = not reported yet.
pub(crate) struct Member<'a> {
    pub(crate) name: &'a str,
    pub(crate) status: Option<&'a Value>,
}

/// The members that have reported a status, as (name, status).
fn reported<'a>(members: &[Member<'a>]) -> Vec<(&'a str, &'a Value)> {
    members.iter().filter_map(|m| Some((m.name, m.status?))).collect()
}

/// The sums of these fields over all members; 0 if no member has the field.
pub(crate) fn sums(members: &[Member<'_>], fields: &[&str]) -> Map<String, Value> {
    let sum = |field: &str| -> i64 {
        let values = reported(members).into_iter().filter_map(|(_, s)| int(s, &[field]));
        values.fold(0, i64::saturating_add)
    };
    fields.iter().map(|field| ((*field).to_owned(), json!(sum(field)))).collect()
}

/// Compares the generations of an object. `Some` while its controller has not observed the current one. An observed
/// generation above the object's own belongs to an earlier object of this name.
fn not_observed(obj: &Value) -> Option<Health> {
    let generation = int(obj, &["metadata", "generation"]).unwrap_or(0);
    let observed = int(obj, &["status", "observedGeneration"]).unwrap_or(0);
    (observed != generation).then(|| {
        let message = format!(
            "generation {generation} is not observed yet; the last observed one is {observed}"
        );
        Health::progressing("NotObserved", message)
    })
}

/// The first phase of `order` that any member is in. Members that have not reported count as `waiting`.
fn worst_phase(members: &[Member<'_>], order: &[&str], waiting: &str) -> Option<String> {
    let phases: Vec<&str> =
        members.iter().map(|m| m.status.map_or(waiting, |s| text(s, &["phase"]))).collect();
    order.iter().find(|phase| phases.contains(*phase)).map(|phase| (*phase).to_owned())
}

#[cfg(test)]
pub(crate) mod testing {
    //! Helpers for the tests of the families.

    use serde_json::{Value, json};

    use crate::{HealthState, aggregate, health};

    /// The template's status from these members.
    pub(crate) fn aggregated(template: &Value, members: &[(&str, Value)]) -> Value {
        let members: Vec<(&str, &Value)> =
            members.iter().map(|(name, status)| (*name, status)).collect();
        aggregate(template, &members).expect("the kind has a status that adds up")
    }

    /// An object of a kind in generation 2 with this spec and status.
    pub(crate) fn object(api_version: &str, kind: &str, spec: Value, status: Value) -> Value {
        json!({
            "apiVersion": api_version, "kind": kind, "metadata": {"name": "a", "generation": 2},
            "spec": spec, "status": status,
        })
    }

    /// State and reason of an object's health.
    pub(crate) fn judged(object: &Value) -> (HealthState, String) {
        let health = health(object);
        (health.state, health.reason)
    }
}

#[cfg(test)]
mod tests {
    use super::testing::{aggregated, object};
    use super::*;

    /// A status with the fields of all kinds.
    fn full() -> Value {
        let mut status = json!({
            "observedGeneration": 2, "collisionCount": 1, "phase": "Bound",
            "startTime": "2024-01-01T00:00:00Z", "completionTime": "2024-01-02T00:00:00Z",
            "lastScheduleTime": "2024-01-03T00:00:00Z", "active": 3, "hostIP": "10.0.0.1",
            "loadBalancer": {"ingress": [{"ip": "1.2.3.4"}]}, "capacity": {"storage": "1Gi"},
            "disruptedPods": {"p": "2024-01-01T00:00:00Z"},
            "containerStatuses": [{"name": "c", "ready": true, "state": {}, "imageID": "i"}],
            "conditions": [],
        });
        let counts = [
            "replicas",
            "readyReplicas",
            "updatedReplicas",
            "availableReplicas",
            "currentReplicas",
            "unavailableReplicas",
            "fullyLabeledReplicas",
            "desiredReplicas",
            "numberReady",
            "currentNumberScheduled",
            "desiredNumberScheduled",
            "numberAvailable",
            "expectedPods",
            "numberMisscheduled",
            "numberUnavailable",
            "updatedNumberScheduled",
            "currentHealthy",
            "desiredHealthy",
            "disruptionsAllowed",
            "succeeded",
            "failed",
            "ready",
        ];
        for (i, name) in counts.iter().enumerate() {
            status[name] = json!(i + 1);
        }
        let conditions =
            ["Available", "Progressing", "ReplicaFailure", "Complete", "Ready", "Failed"];
        for kind in conditions {
            let condition = json!({
                "type": kind, "status": "True", "reason": "R", "message": "m",
                "lastTransitionTime": "2024-01-01T00:00:00Z", "lastProbeTime": "x",
            });
            status["conditions"].as_array_mut().unwrap().push(condition);
        }
        status
    }

    #[test]
    fn what_is_reflected_is_all_that_is_aggregated() {
        for (api_version, kind) in [
            ("apps/v1", "Deployment"),
            ("apps/v1", "ReplicaSet"),
            ("apps/v1", "StatefulSet"),
            ("apps/v1", "DaemonSet"),
            ("v1", "ReplicationController"),
            ("batch/v1", "Job"),
            ("batch/v1", "CronJob"),
            ("v1", "Pod"),
            ("v1", "Service"),
            ("networking.k8s.io/v1", "Ingress"),
            ("v1", "PersistentVolumeClaim"),
            ("v1", "PersistentVolume"),
            ("autoscaling/v2", "HorizontalPodAutoscaler"),
            ("policy/v1", "PodDisruptionBudget"),
            ("x.io/v1", "Thing"),
        ] {
            let on_member = object(api_version, kind, json!({}), full());
            let reflected = reflect(&on_member).unwrap();
            let template = object(api_version, kind, json!({}), json!({}));
            let from_part = aggregated(&template, &[("a", reflected.clone()), ("b", reflected)]);
            let from_whole = aggregated(&template, &[("a", full()), ("b", full())]);
            assert_eq!(from_part, from_whole, "{kind}");
            assert_ne!(from_part, json!({}), "{kind}");
        }
    }
}
