//! What keeps a workload or a member from being as it should be.

use atoll_api::binding::{ResourceBindingSpec, ResourceBindingStatus, ResourceHealth};
use atoll_api::{Cluster, conditions};
use jiff::Timestamp;
use kube::ResourceExt;
use serde::Serialize;

/// Most members that a row names.
const MEMBERS: usize = 3;

/// Kinds of concerns, the most urgent first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub(crate) enum State {
    /// A member reports that it is unhealthy or cannot be applied.
    Failing,
    /// Replicas have no place, or nothing was decided.
    Waiting,
    /// A user or a limit holds it.
    Held,
    /// An old copy stays until its replacement is healthy.
    Moving,
}

/// One concern.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Concern {
    pub(crate) state: State,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) since: Option<Timestamp>,
    /// `namespace/kind/name`; absent for a member's own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) workload: Option<String>,
    pub(crate) members: Vec<String>,
    pub(crate) why: String,
}

impl Concern {
    /// Sorts by state, then the oldest first.
    pub(crate) fn urgency(&self) -> (State, Timestamp) {
        (self.state, self.since.unwrap_or(Timestamp::MAX))
    }

    pub(crate) fn shown_members(&self) -> String {
        match self.members.len().checked_sub(MEMBERS) {
            None | Some(0) => self.members.join(", "),
            Some(more) => format!("{} and {more} more", self.members[..MEMBERS].join(", ")),
        }
    }
}

/// Removals that are held on a member.
pub(crate) fn of_member(cluster: &Cluster) -> Option<Concern> {
    let status = cluster.status.as_ref()?;
    let held = conditions::find(&status.conditions, conditions::PRUNE_HELD)?;
    (held.status == "True").then(|| Concern {
        state: State::Held,
        since: Some(held.last_transition_time.0),
        workload: None,
        members: vec![cluster.name_any()],
        why: held.message.clone(),
    })
}

/// The concerns of one workload.
pub(crate) fn of_binding(
    spec: &ResourceBindingSpec,
    status: Option<&ResourceBindingStatus>,
) -> Vec<Concern> {
    let resource = &spec.resource;
    let kind = resource.kind.to_lowercase();
    let workload = match &resource.namespace {
        Some(namespace) => format!("{namespace}/{kind}/{}", resource.name),
        None => format!("{kind}/{}", resource.name),
    };
    let (guarded, moving) = (status.and_then(guarded), moving(spec));
    let found = [status.and_then(failing), waiting(spec, status), held(spec), guarded, moving];
    found
        .into_iter()
        .flatten()
        .map(|concern| Concern { workload: Some(workload.clone()), ..concern })
        .collect()
}

fn failing(status: &ResourceBindingStatus) -> Option<Concern> {
    let reports = &status.aggregated_status;
    let unhealthy = |health: ResourceHealth| health == ResourceHealth::Unhealthy;
    let sick: Vec<_> = reports.iter().filter(|r| unhealthy(r.health)).collect();
    let not_applied =
        reports.iter().filter(|report| !report.applied && report.applied_message.is_some());
    let not_applied: Vec<_> = not_applied.collect();
    let condition =
        |type_: &str| conditions::find(&status.conditions, type_).filter(|c| c.status == "False");
    if let Some(first) = not_applied.first() {
        return Some(Concern {
            state: State::Failing,
            since: condition(conditions::FULLY_APPLIED).map(|c| c.last_transition_time.0),
            workload: None,
            members: not_applied.iter().map(|report| report.cluster_name.clone()).collect(),
            why: first.applied_message.clone().unwrap_or_default(),
        });
    }
    let first = sick.iter().min_by_key(|r| r.unhealthy_since.as_ref().map(|since| since.0))?;
    let since = sick.iter().filter_map(|report| report.unhealthy_since.as_ref()).map(|t| t.0).min();
    let reason = first.health_reason.as_deref().unwrap_or("Unhealthy");
    Some(Concern {
        state: State::Failing,
        since: since.or_else(|| condition(conditions::HEALTHY).map(|c| c.last_transition_time.0)),
        workload: None,
        members: sick.iter().map(|report| report.cluster_name.clone()).collect(),
        why: match &first.health_message {
            Some(message) => format!("{reason}: {message}"),
            None => reason.to_owned(),
        },
    })
}

/// That replicas have no place, or nothing was decided.
pub(crate) fn waiting(
    spec: &ResourceBindingSpec,
    status: Option<&ResourceBindingStatus>,
) -> Option<Concern> {
    let conditions = status.map(|status| status.conditions.as_slice()).unwrap_or_default();
    let scheduled =
        conditions::find(conditions, conditions::SCHEDULED).filter(|c| c.status != "True");
    let pending = spec.decision.as_ref().map(|d| d.pending.as_slice()).unwrap_or_default();
    if scheduled.is_none() && pending.is_empty() {
        return None;
    }
    let decided = spec.decision.as_ref().map(|decision| decision.at.0);
    let since = scheduled.map(|c| c.last_transition_time.0).or(decided);
    let why = match pending {
        [] => scheduled.map(|c| format!("{}: {}", c.reason, c.message)).unwrap_or_default(),
        pending => pending
            .iter()
            .map(|pending| {
                format!(
                    "{} of {}: {}",
                    pending.replicas,
                    spec.replicas.unwrap_or(1),
                    pending.reason
                )
            })
            .collect::<Vec<_>>()
            .join("; "),
    };
    Some(Concern { state: State::Waiting, since, workload: None, members: Vec::new(), why })
}

fn held(spec: &ResourceBindingSpec) -> Option<Concern> {
    let suspension = spec.suspension.as_ref()?;
    let on = suspension.dispatching_on_clusters.as_ref().map(|on| on.cluster_names.clone());
    let members = on.unwrap_or_default();
    let mut what = Vec::new();
    if suspension.scheduling {
        what.push("no decisions are made");
    }
    if suspension.dispatching {
        what.push("nothing is sent to members");
    } else if !members.is_empty() {
        what.push("nothing is sent to these members");
    }
    (!what.is_empty()).then(|| Concern {
        state: State::Held,
        since: None,
        workload: None,
        members,
        why: format!("suspended by its policy: {}", what.join(", ")),
    })
}

/// A change by people that a ChangeGuard holds.
fn guarded(status: &ResourceBindingStatus) -> Option<Concern> {
    let held = conditions::find(&status.conditions, conditions::HELD)?;
    (held.status == "True").then(|| Concern {
        state: State::Held,
        since: Some(held.last_transition_time.0),
        workload: None,
        members: Vec::new(),
        why: held.message.clone(),
    })
}

fn moving(spec: &ResourceBindingSpec) -> Option<Concern> {
    let tasks = &spec.graceful_eviction_tasks;
    let first = tasks.iter().min_by_key(|task| task.creation_timestamp.0)?;
    let replicas: i64 = tasks.iter().map(|task| task.replicas).sum();
    let gone = tasks.iter().all(|task| !task.keep);
    let targets: Vec<&str> = spec.clusters.iter().map(|target| target.name.as_str()).collect();
    let to = if targets.is_empty() { "no member".to_owned() } else { targets.join(", ") };
    Some(Concern {
        state: State::Moving,
        since: Some(first.creation_timestamp.0),
        workload: None,
        members: tasks.iter().map(|task| task.from_cluster.clone()).collect(),
        why: match gone {
            true => format!("{:?}: old copies go when their members answer", first.reason),
            false => format!(
                "{:?}: {replicas} replicas stay until those on {to} are healthy",
                first.reason
            ),
        },
    })
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn of(spec: Value, status: Value) -> Vec<Concern> {
        let mut whole = json!({
            "resource": {"apiVersion": "apps/v1", "kind": "Deployment", "namespace": "shop", "name": "web"},
            "replicas": 4, "clusters": [{"name": "b", "replicas": 4}],
        });
        whole.as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
        let spec = serde_json::from_value(whole).unwrap();
        of_binding(&spec, Some(&serde_json::from_value(status).unwrap()))
    }

    #[test]
    fn every_state_comes_with_its_time_members_and_reason() {
        let applied = json!({"aggregatedStatus": [{"clusterName": "b", "applied": true, "health": "Healthy"}]});
        assert_eq!(of(json!({}), applied.clone()), []);
        let sick = json!({"aggregatedStatus": [
            {"clusterName": "a", "applied": true, "health": "Unhealthy", "healthReason": "Updating",
             "unhealthySince": "2026-01-02T00:00:00Z"},
            {"clusterName": "b", "applied": true, "health": "Unhealthy", "healthReason": "ImagePullBackOff",
             "healthMessage": "cannot pull x", "unhealthySince": "2026-01-01T00:00:00Z"},
        ]});
        let decision = json!({
            "id": "0", "trigger": "First", "mode": "Steady", "outcome": "Partial", "desired": 4, "term": 1,
            "pending": [{"replicas": 2, "reason": "Insufficient cpu"}], "at": "2026-01-03T00:00:00Z",
        });
        let task = json!({"fromCluster": "a", "replicas": 2, "keep": true, "reason": "Failover",
            "creationTimestamp": "2026-01-04T00:00:00Z"});
        let all = of(
            json!({"decision": decision, "gracefulEvictionTasks": [task], "suspension": {"dispatching": true}}),
            sick,
        );
        let seen: Vec<_> = all
            .iter()
            .map(|c| (c.state, c.since.map(|t| t.to_string()), c.members.join(","), c.why.as_str()))
            .collect();
        let time = |day: u32| Some(format!("2026-01-0{day}T00:00:00Z"));
        assert_eq!(
            seen,
            [
                (State::Failing, time(1), "a,b".to_owned(), "ImagePullBackOff: cannot pull x"),
                (State::Waiting, time(3), String::new(), "2 of 4: Insufficient cpu"),
                (
                    State::Held,
                    None,
                    String::new(),
                    "suspended by its policy: nothing is sent to members"
                ),
                (
                    State::Moving,
                    time(4),
                    "a".to_owned(),
                    "Failover: 2 replicas stay until those on b are healthy"
                ),
            ]
        );
        assert!(all.iter().all(|c| c.workload.as_deref() == Some("shop/deployment/web")));
        let refused = json!({"aggregatedStatus": [
            {"clusterName": "b", "applied": false, "appliedMessage": "Forbidden", "health": "Unknown"}]});
        assert_eq!(of(json!({}), refused)[0].why, "Forbidden");
        let held = json!({"aggregatedStatus": applied["aggregatedStatus"], "conditions": [{
            "type": "Held", "status": "True", "reason": "ChangeGuard", "message": "frozen. Plan 5f0c: atoll approve 5f0c",
            "lastTransitionTime": "2026-01-05T00:00:00Z"}]});
        let held = of(json!({}), held);
        assert_eq!((held.len(), held[0].state), (1, State::Held));
        assert_eq!(held[0].why, "frozen. Plan 5f0c: atoll approve 5f0c");
    }
}
