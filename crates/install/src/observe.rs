//! Alerts and dashboards: a PrometheusRule from `deploy/observe/rules.yaml`, and Grafana dashboards from the tables here.

use serde_json::{Value, json};

use crate::workload::CONTROLLER;
use crate::{Error, Options, Part};

/// Alerts, as Prometheus reads them.
const RULES: &str = include_str!("../../../deploy/observe/rules.yaml");
/// Label by which Grafana's sidecar finds ConfigMaps with dashboards.
const SIDECAR: &str = "grafana_dashboard";
/// Version of the format of dashboards: that of Grafana 10.
const SCHEMA: u32 = 38;
/// Width of a row of panels, of one panel, and height of one, in Grafana's grid.
const GRID: (usize, usize, usize) = (24, 8, 8);

const COMMENT: &str = "\
# Alerts for the Prometheus operator, whose CustomResourceDefinitions must exist, and dashboards for Grafana, whose sidecar finds
# them by the label grafana_dashboard. docs/runbook.md has an entry for each alert.
";

/// A diagram: title, unit, and its series as expression and legend.
type Panel = (&'static str, &'static str, &'static [(&'static str, &'static str)]);

const FEDERATION: &[Panel] = &[
    (
        "Members",
        "short",
        &[
            ("max(atoll_members_known)", "known"),
            ("max(atoll_members_sessions)", "connected"),
            ("sum(max by (cluster) (atoll_member_ready))", "ready"),
            ("max(atoll_members_lost)", "lost"),
        ],
    ),
    (
        "Leader",
        "short",
        &[
            ("max by (instance) (atoll_leader)", "{{instance}} leads"),
            ("max(atoll_members_suspicion)", "suspects its network"),
        ],
    ),
    (
        "Versions of controllers",
        "short",
        &[("count by (version) (atoll_build_info)", "{{version}}")],
    ),
    (
        "Decisions by trigger",
        "ops",
        &[
            ("sum by (trigger) (rate(atoll_decisions_total[5m]))", "{{trigger}}"),
            ("sum(rate(atoll_decisions_avoided_total[5m]))", "without a change"),
        ],
    ),
    ("Queue", "short", &[("sum by (place) (atoll_queue_depth)", "{{place}}")]),
    (
        "Wait in the queue",
        "s",
        &[
            (
                "histogram_quantile(0.5, sum by (le) (rate(atoll_queue_wait_seconds_bucket[5m])))",
                "median",
            ),
            (
                "histogram_quantile(0.99, sum by (le) (rate(atoll_queue_wait_seconds_bucket[5m])))",
                "99 %",
            ),
        ],
    ),
    (
        "Time of decisions, 99 %",
        "s",
        &[(
            "histogram_quantile(0.99, sum by (le, strategy) (rate(atoll_decision_seconds_bucket[5m])))",
            "{{strategy}}",
        )],
    ),
    (
        "Commits",
        "s",
        &[
            (
                "histogram_quantile(0.5, sum by (le) (rate(atoll_commit_seconds_bucket[5m])))",
                "median",
            ),
            (
                "histogram_quantile(0.99, sum by (le) (rate(atoll_commit_seconds_bucket[5m])))",
                "99 %",
            ),
        ],
    ),
    (
        "Requests to the hub",
        "reqps",
        &[("sum by (verb, code) (rate(atoll_hub_request_seconds_count[5m]))", "{{verb}} {{code}}")],
    ),
    (
        "Latency of the hub, 90 %",
        "s",
        &[(
            "histogram_quantile(0.9, sum by (le, verb) (rate(atoll_hub_request_seconds_bucket[5m])))",
            "{{verb}}",
        )],
    ),
    (
        "Commits at once, conflicts",
        "short",
        &[
            ("max(atoll_hub_writes_at_once)", "limit"),
            ("sum(rate(atoll_commit_conflicts_total[5m]))", "conflicts a second"),
        ],
    ),
    (
        "Age of statuses, 90 %",
        "s",
        &[(
            "histogram_quantile(0.9, sum by (le, what) (rate(atoll_status_lag_seconds_bucket[5m])))",
            "{{what}}",
        )],
    ),
    (
        "Writes to the hub",
        "ops",
        &[("sum by (what, result) (rate(atoll_hub_writes_total[5m]))", "{{what}} {{result}}")],
    ),
    (
        "Work that waits for its pace",
        "short",
        &[
            ("max(atoll_evictions_waiting)", "evictions"),
            ("max(atoll_rollouts_waiting)", "changed overrides"),
            ("max(atoll_bindings_held)", "changes that a ChangeGuard holds"),
            ("max(atoll_members_removals_held)", "removals held"),
        ],
    ),
    ("Events", "ops", &[("sum by (result) (rate(atoll_events_total[5m]))", "{{result}}")]),
    (
        "Interpreter webhooks that are not called",
        "short",
        &[("max by (webhook) (atoll_interpreter_webhook_open)", "{{webhook}}")],
    ),
    (
        "Interpreter webhooks, 90 %",
        "s",
        &[(
            "histogram_quantile(0.9, sum by (le, webhook) (rate(atoll_interpreter_webhook_seconds_bucket[5m])))",
            "{{webhook}}",
        )],
    ),
];

const MEMBER: &[Panel] = &[
    (
        "State",
        "short",
        &[
            ("max by (cluster) (atoll_member_ready{cluster=~\"$cluster\"})", "{{cluster}} ready"),
            (
                "max by (cluster) (atoll_member_connected{cluster=~\"$cluster\"})",
                "{{cluster}} connected",
            ),
        ],
    ),
    (
        "Silence",
        "s",
        &[(
            "max by (cluster) (atoll_member_silence_seconds{cluster=~\"$cluster\"})",
            "{{cluster}}",
        )],
    ),
    (
        "Objects",
        "short",
        &[
            ("max by (cluster) (atoll_member_objects{cluster=~\"$cluster\"})", "{{cluster}}"),
            (
                "max by (cluster) (atoll_member_unsent{cluster=~\"$cluster\"})",
                "{{cluster}} to be sent",
            ),
            (
                "max by (cluster) (atoll_member_removals_held{cluster=~\"$cluster\"})",
                "{{cluster}} removals held",
            ),
        ],
    ),
    (
        "Requested of allocatable",
        "percentunit",
        &[(
            "max by (cluster, resource) (atoll_member_allocated{cluster=~\"$cluster\"} / atoll_member_allocatable{cluster=~\"$cluster\"})",
            "{{cluster}} {{resource}}",
        )],
    ),
    (
        "Dispatch until applied, 90 %",
        "s",
        &[(
            "histogram_quantile(0.9, sum by (le, cluster) (rate(atoll_dispatch_applied_seconds_bucket{cluster=~\"$cluster\"}[15m])))",
            "{{cluster}}",
        )],
    ),
    (
        "Dispatch until healthy, 90 %",
        "s",
        &[(
            "histogram_quantile(0.9, sum by (le, cluster) (rate(atoll_dispatch_healthy_seconds_bucket{cluster=~\"$cluster\"}[15m])))",
            "{{cluster}}",
        )],
    ),
    (
        "Requests of users through the hub",
        "reqps",
        &[(
            "sum by (cluster, result) (rate(atoll_members_proxied_total{cluster=~\"$cluster\"}[5m]))",
            "{{cluster}} {{result}}",
        )],
    ),
    (
        "Agents: time of applies, 90 %",
        "s",
        &[(
            "histogram_quantile(0.9, sum by (le, kind) (rate(atoll_agent_apply_seconds_bucket[5m])))",
            "{{kind}}",
        )],
    ),
    (
        "Agents: Lease and session",
        "short",
        &[
            ("sum(atoll_agent_holds_lease)", "hold their Lease"),
            ("sum(atoll_agent_connected)", "connected"),
        ],
    ),
    (
        "Agents: calls",
        "ops",
        &[(
            "sum by (operation, result) (rate(atoll_agent_calls_total[5m]))",
            "{{operation}} {{result}}",
        )],
    ),
];

const HISTORY: &[Panel] = &[
    ("Backlog", "short", &[("max(atoll_history_backlog)", "decisions")]),
    ("Age of the oldest decision that waits", "s", &[("max(atoll_history_lag_seconds)", "age")]),
    (
        "Not stored beside decisions",
        "short",
        &[("max by (what) (atoll_history_dropped)", "{{what}}")],
    ),
    ("Refused for good", "short", &[("max(atoll_history_refused)", "decisions")]),
    (
        "From the commit to the durable row",
        "s",
        &[
            (
                "histogram_quantile(0.5, sum by (le) (rate(atoll_history_record_seconds_bucket[5m])))",
                "median",
            ),
            (
                "histogram_quantile(0.99, sum by (le) (rate(atoll_history_record_seconds_bucket[5m])))",
                "99 %",
            ),
        ],
    ),
    (
        "Rows",
        "ops",
        &[
            ("sum(rate(atoll_history_record_seconds_count[5m]))", "recorded"),
            ("sum(rate(atoll_decisions_total[5m]))", "decided"),
        ],
    ),
    (
        "Decisions by outcome",
        "ops",
        &[("sum by (outcome) (rate(atoll_decisions_total[5m]))", "{{outcome}}")],
    ),
];

/// The Grafana dashboards: name of the file without its ending, and JSON.
#[must_use]
pub fn dashboards() -> Vec<(&'static str, Value)> {
    vec![
        ("federation", dashboard("federation", "Atoll: federation", FEDERATION, None)),
        ("member", dashboard("member", "Atoll: members", MEMBER, Some("cluster"))),
        ("history", dashboard("history", "Atoll: history", HISTORY, None)),
    ]
}

fn dashboard(name: &str, title: &str, panels: &[Panel], by: Option<&str>) -> Value {
    let mut variables = vec![json!({
        "name": "datasource", "type": "datasource", "query": "prometheus", "label": "Data source",
    })];
    if let Some(label) = by {
        variables.push(json!({
            "name": label, "type": "query", "datasource": source(), "includeAll": true, "multi": true,
            "refresh": 2, "sort": 1, "query": format!("label_values(atoll_member_ready, {label})"),
        }));
    }
    json!({
        "uid": format!("atoll-{name}"),
        "title": title,
        "tags": ["atoll"],
        "schemaVersion": SCHEMA,
        "editable": true,
        "refresh": "30s",
        "time": {"from": "now-3h", "to": "now"},
        "templating": {"list": variables},
        "panels": panels.iter().enumerate().map(|(at, shown)| panel(at, shown)).collect::<Vec<_>>(),
    })
}

fn source() -> Value {
    json!({"type": "prometheus", "uid": "${datasource}"})
}

fn panel(at: usize, (title, unit, series): &Panel) -> Value {
    let (row, width, height) = GRID;
    let across = row / width;
    let target = |(at, (expr, legend)): (usize, &(&str, &str))| {
        let name = char::from(b'A' + u8::try_from(at).unwrap_or(25));
        json!({"refId": name.to_string(), "datasource": source(), "expr": expr, "legendFormat": legend})
    };
    json!({
        "id": at + 1,
        "type": "timeseries",
        "title": title,
        "datasource": source(),
        "gridPos": {"x": at % across * width, "y": at / across * height, "w": width, "h": height},
        "fieldConfig": {"defaults": {"unit": unit, "min": 0}, "overrides": []},
        "options": {"legend": {"displayMode": "list", "placement": "bottom"}, "tooltip": {"mode": "multi"}},
        "targets": series.iter().enumerate().map(target).collect::<Vec<_>>(),
    })
}

/// The alerts and dashboards as objects.
pub(crate) fn part(options: &Options) -> Result<Part, Error> {
    let rules: Value =
        serde_saphyr::from_str(RULES).map_err(|error| Error::template("observe", &error))?;
    let mut objects = vec![json!({
        "apiVersion": "monitoring.coreos.com/v1", "kind": "PrometheusRule",
        "metadata": {"name": CONTROLLER, "namespace": options.namespace},
        "spec": rules,
    })];
    for (name, dashboard) in dashboards() {
        let text = serde_json::to_string(&dashboard)
            .map_err(|error| Error::template("observe", &error))?;
        let mut data = json!({});
        data[format!("atoll-{name}.json")] = text.into();
        let mut labels = json!({});
        labels[SIDECAR] = "1".into();
        objects.push(json!({
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {
                "name": format!("atoll-dashboard-{name}"), "namespace": options.namespace, "labels": labels,
            },
            "data": data,
        }));
    }
    Ok(Part { name: "observe", comment: COMMENT.to_owned(), objects })
}
