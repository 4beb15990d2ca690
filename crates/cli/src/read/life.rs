//! What followed a decision, as text: how long it took, and on which members.

use atoll_history::api::text;
use jiff::Timestamp;
use serde_json::Value;

use crate::print;

/// Maximum number of members listed; slowest first.
const MOST: usize = 12;
/// The steps of a member, in order.
const STEPS: [&str; 3] = ["dispatched", "applied", "healthy"];

fn time(value: &Value) -> Option<Timestamp> {
    value.as_str()?.parse().ok()
}

/// The member that became healthy last, if all did.
pub(crate) fn slowest(object: &Value) -> String {
    object["status"]["slowest"].as_str().unwrap_or("-").to_owned()
}

/// Lines about the rollout of a decision; empty if its object has no such status.
pub(crate) fn lines(object: &Value) -> Vec<String> {
    let status = &object["status"];
    let Some(committed) = time(&status["committed"]).or_else(|| time(&object["spec"]["at"])) else {
        return Vec::new();
    };
    let members = status["members"].as_array().map(Vec::as_slice).unwrap_or_default();
    if members.is_empty() && status["committed"].is_null() {
        return Vec::new();
    }
    let after = |value: &Value| time(value).map(|at| text::span(at.duration_since(committed)));
    let mut lines = vec!["What followed".to_owned()];
    let mut head = match time(&status["decided"]).filter(|_| !status["committed"].is_null()) {
        Some(decided) => {
            format!(
                "  committed {} after it was decided",
                text::span(committed.duration_since(decided))
            )
        }
        None if status["committed"].is_null() => "  committed: time unknown".to_owned(),
        None => format!("  committed at {committed}"),
    };
    if let Some(took) = after(&status["healthy"]) {
        head.push_str(&format!(", healthy everywhere {took} later"));
    }
    if let Some(superseded) = after(&status["superseded"]) {
        head.push_str(&format!(", superseded after {superseded}"));
    }
    lines.push(head);
    let mut slowest_first: Vec<&Value> = members.iter().collect();
    // Members that were never healthy first, then the slowest.
    slowest_first.sort_by_key(|member| {
        let healthy = time(&member["healthy"]);
        (healthy.is_some(), healthy.map(std::cmp::Reverse), member["name"].to_string())
    });
    let names = slowest_first.iter().take(MOST).filter_map(|member| member["name"].as_str());
    let width = names.map(|name| name.chars().count()).max().unwrap_or(0);
    for member in slowest_first.iter().take(MOST) {
        let name = member["name"].as_str().unwrap_or("?");
        let steps = STEPS.map(|step| match after(&member[step]) {
            Some(took) => format!("{step} {took}"),
            None => format!("{step} unknown"),
        });
        let line = format!("  {name:width$}  {}", steps.join(", "));
        lines.push(line.chars().take(usize::from(print::width())).collect());
    }
    if members.len() > MOST {
        let more = print::counted(members.len() - MOST, "more member", "more members");
        lines.push(format!("  and {more}"));
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn what_nobody_saw_is_unknown() {
        let object = json!({
            "spec": {"at": "2026-01-01T00:00:00Z"},
            "status": {
                "decided": "2026-01-01T00:00:00.1Z", "committed": "2026-01-01T00:00:00.14Z",
                "members": [
                    {"name": "quick", "dispatched": "2026-01-01T00:00:00.15Z",
                     "applied": "2026-01-01T00:00:00.3Z", "healthy": "2026-01-01T00:00:02.14Z"},
                    {"name": "slow", "dispatched": "2026-01-01T00:00:00.15Z",
                     "applied": "2026-01-01T00:00:09Z", "healthy": "2026-01-01T00:03:00.14Z"},
                    {"name": "lost", "dispatched": "2026-01-01T00:00:00.15Z"},
                ],
            },
        });
        assert_eq!(
            lines(&object),
            [
                "What followed",
                "  committed 0.04s after it was decided",
                "  lost   dispatched 0.01s, applied unknown, healthy unknown",
                "  slow   dispatched 0.01s, applied 8.86s, healthy 3m",
                "  quick  dispatched 0.01s, applied 0.16s, healthy 2s",
            ]
        );
        // A controller that started later did not observe it.
        assert_eq!(lines(&json!({"spec": {"at": "2026-01-01T00:00:00Z"}, "status": {}})), [""; 0]);
    }
}
