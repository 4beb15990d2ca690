//! Reads conditions, and merges the conditions of several members.

use serde_json::{Map, Value, json};

use crate::read::{list, text};

/// The condition of a type in a status.
pub(crate) fn find<'a>(status: &'a Value, kind: &str) -> Option<&'a Value> {
    list(status, &["conditions"]).iter().find(|c| text(c, &["type"]) == kind)
}

/// The status of a condition: `True`, `False`, `Unknown`, or `""` if there is none.
pub(crate) fn state<'a>(status: &'a Value, kind: &str) -> &'a str {
    find(status, kind).map_or("", |c| text(c, &["status"]))
}

/// The reason of a condition.
pub(crate) fn reason<'a>(status: &'a Value, kind: &str) -> &'a str {
    find(status, kind).map_or("", |c| text(c, &["reason"]))
}

/// The message of a condition.
pub(crate) fn message<'a>(status: &'a Value, kind: &str) -> &'a str {
    find(status, kind).map_or("", |c| text(c, &["message"]))
}

/// The conditions of these types, without probe times, which change without any news.
pub(crate) fn pick(status: &Value, kinds: &[&str]) -> Vec<Value> {
    let wanted = |c: &&Value| kinds.contains(&text(c, &["type"]));
    list(status, &["conditions"]).iter().filter(wanted).map(without_looks).collect()
}

/// All conditions, without probe times.
pub(crate) fn all(status: &Value) -> Vec<Value> {
    list(status, &["conditions"]).iter().map(without_looks).collect()
}

fn without_looks(condition: &Value) -> Value {
    let mut condition = condition.clone();
    if let Some(fields) = condition.as_object_mut() {
        fields.remove("lastProbeTime");
        fields.remove("lastHeartbeatTime");
    }
    condition
}

/// How conditions of one type combine over members.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Merge {
    /// True if true on every member that reports: `Available`.
    All,
    /// True if true on any member: `ReplicaFailure`.
    Any,
}

/// Merges the conditions of one type. `None` if no member has it. Members without it count as `False`.
///
/// Reason and message come from the members that determine the status. The message names those members if not all
/// agree. While the status stays the same, the last transition time of `old`, the template's current status, is kept.
pub(crate) fn merge(
    kind: &str,
    how: Merge,
    members: &[(&str, &Value)],
    old: &Value,
) -> Option<Value> {
    let reports: Vec<(&str, Option<&Value>)> =
        members.iter().map(|(name, status)| (*name, find(status, kind))).collect();
    if reports.iter().all(|(_, condition)| condition.is_none()) {
        return None;
    }
    let status_of = |condition: &Option<&Value>| -> String {
        condition.map_or("False", |c| text(c, &["status"])).to_owned()
    };
    // Statuses in order of precedence.
    let order = match how {
        Merge::All => ["False", "Unknown", "True"],
        Merge::Any => ["True", "Unknown", "False"],
    };
    let status = order
        .into_iter()
        .find(|s| reports.iter().any(|(_, c)| status_of(c) == *s))
        .unwrap_or("Unknown");
    let deciding: Vec<&(&str, Option<&Value>)> =
        reports.iter().filter(|(_, c)| status_of(c) == status).collect();

    let mut merged = Map::new();
    merged.insert("type".to_owned(), json!(kind));
    merged.insert("status".to_owned(), json!(status));
    let reason = deciding.iter().find_map(|(_, c)| c.map(|c| text(c, &["reason"])));
    if let Some(reason) = reason.filter(|r| !r.is_empty()) {
        merged.insert("reason".to_owned(), json!(reason));
    }
    let message = if deciding.len() == reports.len() {
        let first = deciding.iter().find_map(|(_, c)| c.map(|c| text(c, &["message"])));
        first.unwrap_or_default().to_owned()
    } else {
        let names: Vec<&str> = deciding.iter().map(|(name, _)| *name).collect();
        format!("{kind} is {status} in {}", names.join(", "))
    };
    if !message.is_empty() {
        merged.insert("message".to_owned(), json!(message));
    }
    for field in ["lastTransitionTime", "lastUpdateTime"] {
        let latest = deciding.iter().filter_map(|(_, c)| c.map(|c| text(c, &[field]))).max();
        let kept = find(old, kind)
            .filter(|o| field == "lastTransitionTime" && text(o, &["status"]) == status)
            .map(|o| text(o, &[field]));
        let time = kept.filter(|t| !t.is_empty()).or(latest).filter(|t| !t.is_empty());
        if let Some(time) = time {
            merged.insert(field.to_owned(), json!(time));
        }
    }
    Some(Value::Object(merged))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(kind: &str, status: &str, reason: &str, time: &str) -> Value {
        json!({"conditions": [{
            "type": kind, "status": status, "reason": reason, "message": reason.to_lowercase(),
            "lastTransitionTime": time, "lastProbeTime": "x",
        }]})
    }

    #[test]
    fn all_must_agree_or_the_message_names_who_does_not() {
        let yes = status("Available", "True", "Minimum", "2024-01-01T00:00:00Z");
        let no = status("Available", "False", "Short", "2024-01-02T00:00:00Z");
        let merged = merge("Available", Merge::All, &[("a", &yes), ("b", &no)], &json!({}));
        let expected = json!({
            "type": "Available", "status": "False", "reason": "Short",
            "message": "Available is False in b", "lastTransitionTime": "2024-01-02T00:00:00Z",
        });
        assert_eq!(merged, Some(expected));
        let agreed = merge("Available", Merge::All, &[("a", &yes), ("b", &yes)], &json!({}));
        assert_eq!(agreed.as_ref().map(|c| text(c, &["message"])), Some("minimum"));
        let silent = merge("Available", Merge::All, &[("a", &yes), ("b", &json!({}))], &json!({}));
        assert_eq!(silent.as_ref().map(|c| text(c, &["status"])), Some("False"));
        assert_eq!(merge("Available", Merge::All, &[("b", &json!({}))], &json!({})), None);
    }

    #[test]
    fn one_failure_is_enough_and_the_transition_stays_while_the_status_does() {
        let mut bad = status("ReplicaFailure", "True", "Quota", "2024-01-03T00:00:00Z");
        let mut old = status("ReplicaFailure", "True", "Quota", "2024-01-01T00:00:00Z");
        bad["conditions"][0]["lastUpdateTime"] = json!("2024-01-04T00:00:00Z");
        old["conditions"][0]["lastUpdateTime"] = json!("2024-01-02T00:00:00Z");
        let members = [("a", &json!({})), ("b", &bad)];
        let merged = merge("ReplicaFailure", Merge::Any, &members, &old).unwrap();
        assert_eq!(text(&merged, &["status"]), "True");
        assert_eq!(text(&merged, &["lastTransitionTime"]), "2024-01-01T00:00:00Z");
        assert_eq!(text(&merged, &["lastUpdateTime"]), "2024-01-04T00:00:00Z");
    }
}
