//! Events of a member, from the difference between two versions of its Cluster.
//!
//! Times are the object's own where it has them (the condition's, the taint's), so that a new leader that sees a
//! Cluster for the first time records the same events again and history stores each once.

use std::collections::BTreeSet;

use atoll_api::cluster::SessionState;
use atoll_api::{Cluster, ClusterName, conditions, marks};
use atoll_history::{MemberEvent, MemberEventKind as Kind};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Taint;
use kube::ResourceExt;

/// Reasons of a Ready condition before the member's first connection, which are no event.
const BEFORE_IT_CAME: [&str; 2] = ["NotJoined", "Joining"];

/// Events between two versions of a Cluster; `None` before it was known, and after its deletion.
pub(crate) fn between(
    old: Option<&Cluster>,
    new: Option<&Cluster>,
    now: Timestamp,
) -> Vec<MemberEvent> {
    match (old, new) {
        (Some(old), Some(new)) if old.metadata.uid == new.metadata.uid => {
            changes(Some(old), new, now)
        }
        (old, new) => {
            let left = old.map(|old| {
                event(old, Kind::Left, now, "Deleted", "the Cluster is gone".to_owned())
            });
            let came = new.map(|new| changes(None, new, now)).unwrap_or_default();
            left.into_iter().chain(came).collect()
        }
    }
}

/// The controller's self-suspicion because of these members' silence begins or ends.
pub(crate) fn suspected(
    cluster: &ClusterName,
    begins: bool,
    message: &str,
    now: Timestamp,
) -> MemberEvent {
    MemberEvent {
        cluster: cluster.clone(),
        uid: None,
        at: now,
        kind: if begins { Kind::Suspected } else { Kind::Cleared },
        reason: "ControllerSuspectsItself".to_owned(),
        message: message.to_owned(),
    }
}

pub(super) fn event(
    cluster: &Cluster,
    kind: Kind,
    at: Timestamp,
    reason: &str,
    message: String,
) -> MemberEvent {
    MemberEvent {
        cluster: cluster.name_any().into(),
        uid: cluster.metadata.uid.clone(),
        at,
        kind,
        reason: reason.to_owned(),
        message,
    }
}

fn changes(old: Option<&Cluster>, new: &Cluster, now: Timestamp) -> Vec<MemberEvent> {
    let mut events = Vec::new();
    events.extend(joined(old, new, now));
    events.extend(ready(old, new, now));
    events.extend(drained(old, new));
    taints(old, new, now, &mut events);
    let deleted = |cluster: &Cluster| cluster.metadata.deletion_timestamp.clone();
    if let Some(at) = deleted(new).filter(|_| old.is_none_or(|old| deleted(old).is_none())) {
        let message = "the Cluster is being deleted".to_owned();
        events.push(event(new, Kind::Terminating, at.0, "Deleted", message));
    }
    events
}

/// It has an id once an agent has enrolled. The Cluster does not record when.
fn joined(old: Option<&Cluster>, new: &Cluster, now: Timestamp) -> Option<MemberEvent> {
    let id = |cluster: &Cluster| cluster.status.as_ref()?.cluster_id.clone();
    let new_id = id(new).filter(|_| old.is_some_and(|old| id(old).is_none()))?;
    Some(event(new, Kind::Joined, now, "Enrolled", format!("its cluster id is {new_id}")))
}

fn condition<'a>(
    cluster: &'a Cluster,
    type_: &str,
) -> Option<&'a k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition> {
    cluster.status.as_ref().and_then(|status| conditions::find(&status.conditions, type_))
}

fn ready(old: Option<&Cluster>, new: &Cluster, now: Timestamp) -> Option<MemberEvent> {
    let is = condition(new, conditions::READY)?;
    let was = old.and_then(|old| condition(old, conditions::READY));
    if was.is_some_and(|was| (&was.status, &was.reason) == (&is.status, &is.reason))
        || BEFORE_IT_CAME.contains(&is.reason.as_str())
    {
        return None;
    }
    // The condition's time is that of its status; a new reason with the same status is from now.
    let same_status = was.is_some_and(|was| was.status == is.status);
    let at = if same_status { now } else { is.last_transition_time.0 };
    let session = new.status.as_ref().and_then(|status| status.session.as_ref());
    let kind = match is.status.as_str() {
        "True" => Kind::Ready,
        _ if session.is_some_and(|session| session.state == SessionState::Lost) => Kind::Lost,
        _ => Kind::Other("NotReady".to_owned()),
    };
    Some(event(new, kind, at, &is.reason, is.message.clone()))
}

fn drained(old: Option<&Cluster>, new: &Cluster) -> Option<MemberEvent> {
    let holds = |cluster: &Cluster| {
        condition(cluster, conditions::EMPTIED).is_some_and(|c| c.status == "True")
    };
    if !holds(new) || old.is_some_and(holds) {
        return None;
    }
    let is = condition(new, conditions::EMPTIED)?;
    Some(event(new, Kind::Drained, is.last_transition_time.0, &is.reason, is.message.clone()))
}

fn taints(old: Option<&Cluster>, new: &Cluster, now: Timestamp, events: &mut Vec<MemberEvent>) {
    type Id<'a> = (&'a str, &'a str);
    let id = |taint: &'_ Taint| (taint.key.clone(), taint.effect.clone());
    let before: BTreeSet<_> = old.iter().flat_map(|old| &old.spec.taints).map(id).collect();
    for taint in &new.spec.taints {
        if before.contains(&id(taint)) {
            continue;
        }
        // On first sight of a Cluster, the time of a taint without `timeAdded` is unknown.
        let added = taint.time_added.as_ref().map(|at| at.0);
        let Some(at) = added.or_else(|| old.map(|_| now)) else { continue };
        let kind = match taint.key.as_str() {
            marks::TAINT_CORDONED => Kind::Cordoned,
            marks::TAINT_DRAIN => Kind::Draining,
            _ => Kind::Tainted,
        };
        events.push(event(new, kind, at, &taint.key, in_words(taint)));
    }
    let after: BTreeSet<Id<'_>> =
        new.spec.taints.iter().map(|t| (t.key.as_str(), t.effect.as_str())).collect();
    for taint in old.iter().flat_map(|old| &old.spec.taints) {
        if after.contains(&(taint.key.as_str(), taint.effect.as_str())) {
            continue;
        }
        let kind = match taint.key.as_str() {
            marks::TAINT_CORDONED => Kind::Uncordoned,
            _ => Kind::Untainted,
        };
        events.push(event(new, kind, now, &taint.key, in_words(taint)));
    }
}

pub(super) fn in_words(taint: &Taint) -> String {
    let value = taint.value.as_deref().filter(|value| !value.is_empty());
    let value = value.map_or(String::new(), |value| format!("={value}"));
    format!("{}{value}:{}", taint.key, taint.effect)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn cluster(taints: Value, ready: Option<(&str, &str, &str)>, more: Value) -> Cluster {
        let conditions = ready.map(|(status, reason, at)| {
            json!({"type": "Ready", "status": status, "reason": reason, "message": "why",
                   "lastTransitionTime": at})
        });
        let mut object = json!({
            "apiVersion": "cluster.atoll.dev/v1alpha1", "kind": "Cluster",
            "metadata": {"name": "m1", "uid": "u1"}, "spec": {"taints": taints},
            "status": {"conditions": conditions.into_iter().collect::<Vec<_>>()},
        });
        for (path, value) in more.as_object().into_iter().flatten() {
            let (section, field) = path.split_once('.').unwrap();
            object[section][field] = value.clone();
        }
        serde_json::from_value(object).unwrap()
    }

    fn told(old: Option<&Cluster>, new: Option<&Cluster>) -> Vec<(String, String, String)> {
        let now = "2026-01-09T00:00:00Z".parse().unwrap();
        let short =
            |e: MemberEvent| (e.kind.to_string(), e.at.to_string()[8..10].to_owned(), e.reason);
        between(old, new, now).into_iter().map(short).collect()
    }

    fn line(kind: &str, day: &str, reason: &str) -> (String, String, String) {
        (kind.to_owned(), day.to_owned(), reason.to_owned())
    }

    #[test]
    fn the_life_of_a_member() {
        let none = json!([]);
        let registered = cluster(
            none.clone(),
            Some(("Unknown", "NotJoined", "2026-01-01T00:00:00Z")),
            json!({}),
        );
        assert_eq!(told(None, Some(&registered)), []);
        let id = json!({"status.clusterId": "kube-system-uid"});
        let well = cluster(
            none.clone(),
            Some(("True", "MemberReady", "2026-01-02T00:00:00Z")),
            id.clone(),
        );
        assert_eq!(
            told(Some(&registered), Some(&well)),
            [line("Joined", "09", "Enrolled"), line("Ready", "02", "MemberReady")]
        );
        // First seen by a new leader: events with a time of their own are recorded again, and stored once.
        assert_eq!(told(None, Some(&well)), [line("Ready", "02", "MemberReady")]);
        assert_eq!(told(Some(&well), Some(&well)), []);
        let lost = cluster(
            json!([{"key": "cluster.atoll.dev/unreachable", "effect": "NoSchedule",
                    "timeAdded": "2026-01-03T00:00:00Z"}]),
            Some(("Unknown", "SessionLost", "2026-01-03T00:00:00Z")),
            json!({"status.session": {"state": "Lost", "epoch": 1, "since": "2026-01-03T00:00:00Z"}}),
        );
        assert_eq!(
            told(Some(&well), Some(&lost)),
            [
                line("Lost", "03", "SessionLost"),
                line("Tainted", "03", "cluster.atoll.dev/unreachable")
            ]
        );
        assert_eq!(
            told(Some(&lost), Some(&well))[1..],
            [
                line("Ready", "02", "MemberReady"),
                line("Untainted", "09", "cluster.atoll.dev/unreachable")
            ]
        );
        let sick = cluster(
            none.clone(),
            Some(("False", "MemberApiUnhealthy", "2026-01-04T00:00:00Z")),
            id.clone(),
        );
        assert_eq!(told(Some(&well), Some(&sick)), [line("NotReady", "04", "MemberApiUnhealthy")]);
        let cordoned = cluster(
            json!([{"key": "cluster.atoll.dev/cordoned", "effect": "NoSchedule"},
                   {"key": "cluster.atoll.dev/drain", "effect": "NoExecute"}]),
            Some(("True", "MemberReady", "2026-01-02T00:00:00Z")),
            id.clone(),
        );
        assert_eq!(
            told(Some(&well), Some(&cordoned)),
            [
                line("Cordoned", "09", "cluster.atoll.dev/cordoned"),
                line("Draining", "09", "cluster.atoll.dev/drain")
            ]
        );
        assert_eq!(
            told(None, Some(&cordoned)),
            [line("Ready", "02", "MemberReady")],
            "no times made up"
        );
        assert_eq!(
            told(Some(&cordoned), Some(&well))[0],
            line("Uncordoned", "09", "cluster.atoll.dev/cordoned")
        );
        let going = cluster(
            none,
            Some(("True", "MemberReady", "2026-01-02T00:00:00Z")),
            json!({"metadata.deletionTimestamp": "2026-01-05T00:00:00Z", "status.clusterId": "kube-system-uid"}),
        );
        assert_eq!(told(Some(&well), Some(&going)), [line("Terminating", "05", "Deleted")]);
        assert_eq!(told(Some(&going), None), [line("Left", "09", "Deleted")]);
        let mut again = registered.clone();
        again.metadata.uid = Some("u2".to_owned());
        assert_eq!(told(Some(&going), Some(&again)), [line("Left", "09", "Deleted")]);
    }
}
