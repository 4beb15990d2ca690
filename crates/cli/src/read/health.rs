//! Health of a workload on its members, for verbs about a decision: a decision that placed everything does not show
//! that an image cannot be pulled.

use atoll_api::binding::{ResourceBindingStatus, ResourceHealth};
use atoll_api::{ClusterResourceBinding, ResourceBinding};
use kube::api::Api;
use serde_json::Value;

use crate::hub::Hub;
use crate::print;

/// Maximum number of members listed.
const MOST: usize = 12;

/// Lines about members where the workload of a decision is not healthy; empty if it is healthy or its binding is gone.
///
/// # Errors
/// When the hub does not answer.
pub(super) async fn of_decision(hub: &Hub, decision: &Value) -> anyhow::Result<Vec<String>> {
    let binding = &decision["spec"]["binding"];
    let Some(name) = binding["name"].as_str() else { return Ok(Vec::new()) };
    let doing = "read the binding of the decision";
    let status = match binding["namespace"].as_str() {
        Some(namespace) => {
            let api: Api<ResourceBinding> = Api::namespaced(hub.client.clone(), namespace);
            hub.call(doing, api.get_opt(name)).await?.and_then(|found| found.status)
        }
        None => {
            let api: Api<ClusterResourceBinding> = Api::all(hub.client.clone());
            hub.call(doing, api.get_opt(name)).await?.and_then(|found| found.status)
        }
    };
    Ok(status.as_ref().map(lines).unwrap_or_default())
}

fn lines(status: &ResourceBindingStatus) -> Vec<String> {
    let items = status.aggregated_status.iter();
    let sick: Vec<_> = items.filter(|item| item.health == ResourceHealth::Unhealthy).collect();
    if sick.is_empty() {
        return Vec::new();
    }
    let width = sick.iter().take(MOST).map(|item| item.cluster_name.chars().count()).max();
    let width = width.unwrap_or_default();
    let mut lines = vec!["Not healthy now".to_owned()];
    for item in sick.iter().take(MOST) {
        let mut line = format!("  {:width$}  ", item.cluster_name);
        line.push_str(item.health_reason.as_deref().unwrap_or("Unhealthy"));
        if let Some(message) = &item.health_message {
            line.push_str(&format!(": {message}"));
        }
        if let Some(since) = &item.unhealthy_since {
            line.push_str(&format!(", since {}", since.0));
        }
        lines.push(line);
    }
    if sick.len() > MOST || status.truncated {
        let unhealthy = status.summary.map_or(0, |summary| summary.unhealthy);
        lines.push(format!("  {} in all", print::counted(unhealthy, "member", "members")));
    }
    lines
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn members_where_it_is_sick_come_with_reason_and_time() {
        let status: ResourceBindingStatus = serde_json::from_value(json!({
            "summary": {"unhealthy": 2},
            "aggregatedStatus": [
                {"clusterName": "a", "health": "Healthy"},
                {"clusterName": "b", "health": "Unhealthy", "healthReason": "ImagePullBackOff",
                 "healthMessage": "cannot pull image \"x\"", "unhealthySince": "2026-01-01T00:00:00Z"},
                {"clusterName": "longer", "health": "Unhealthy", "healthReason": "Updating"},
            ],
        }))
        .unwrap();
        assert_eq!(
            lines(&status),
            [
                "Not healthy now",
                "  b       ImagePullBackOff: cannot pull image \"x\", since 2026-01-01T00:00:00Z",
                "  longer  Updating",
            ]
        );
        assert_eq!(lines(&ResourceBindingStatus::default()), [""; 0]);
    }
}
