//! Health of third-party kinds.

use serde_json::Value;

use super::{
    path, rules,
    table::{Count, HealthRule, Rules},
};
use crate::{Health, conditions, read::flag};

/// The health of a third-party object; `None` for other kinds.
pub(crate) fn health(obj: &Value) -> Option<Health> {
    let rules = rules(obj)?;
    if let Some(waiting) = not_observed(obj) {
        return Some(waiting);
    }
    Some(judged(rules, obj))
}

/// Waits for the current generation where the controller reports the one that it observed.
fn not_observed(obj: &Value) -> Option<Health> {
    let generation = path::int(obj, "metadata.generation")?;
    let observed = path::int(obj, "status.observedGeneration")?;
    (observed < generation).then(|| {
        let message = format!(
            "generation {generation} is not observed yet; the last observed one is {observed}"
        );
        Health::progressing("NotObserved", message)
    })
}

fn judged(rules: &Rules, obj: &Value) -> Health {
    let status = &obj["status"];
    match rules.health {
        HealthRule::Exists => Health::healthy("Exists"),
        _ if !status.is_object() => Health::progressing("NotObserved", "no status yet"),
        HealthRule::Counts(all) => counts(obj, all),
        HealthRule::Condition(kind) => condition(obj, kind),
        HealthRule::Phase { path: at, healthy, failed } => {
            let phase = path::text(obj, at);
            if healthy.contains(&phase) {
                Health::healthy(phase)
            } else if failed.contains(&phase) {
                Health::unhealthy(phase, message(status))
            } else {
                let reason = if phase.is_empty() { "NotStarted" } else { phase };
                Health::progressing(reason, message(status))
            }
        }
        HealthRule::Job { failed, healthy } => {
            let is_true = |kind: &&&str| conditions::state(status, kind) == "True";
            if let Some(kind) = failed.iter().find(is_true) {
                Health::unhealthy(kind, conditions::message(status, kind))
            } else if let Some(kind) = healthy.iter().find(is_true) {
                Health::healthy(kind)
            } else {
                Health::progressing("NotStarted", "no condition says that it runs")
            }
        }
    }
}

fn counts(obj: &Value, all: &[Count]) -> Health {
    for Count { path: at, name, desired, kept } in all {
        let desired = desired.iter().find_map(|at| path::int(obj, at)).unwrap_or(0);
        let kept: i64 = path::values(obj, kept).into_iter().filter_map(Value::as_i64).sum();
        let count = path::int(obj, at).unwrap_or(0);
        if count.saturating_add(kept) < desired {
            let reason = if *name == "updated" { "Updating" } else { "Unavailable" };
            return Health::progressing(reason, format!("{count} of {desired} {name}"));
        }
    }
    Health::healthy("Available")
}

/// A condition that is true. A suspended object is healthy: its controller does nothing on purpose.
fn condition(obj: &Value, kind: &str) -> Health {
    let status = &obj["status"];
    if flag(obj, &["spec", "suspend"]) {
        return Health::healthy("Suspended");
    }
    if conditions::state(status, "Stalled") == "True" {
        return Health::unhealthy("Stalled", conditions::message(status, "Stalled"));
    }
    let reason = conditions::reason(status, kind);
    let reason = if reason.is_empty() { kind } else { reason };
    match conditions::state(status, kind) {
        "True" => Health::healthy(kind),
        "False" if conditions::state(status, "Reconciling") == "True" => {
            Health::progressing(reason, conditions::message(status, kind))
        }
        "False" => Health::unhealthy(reason, conditions::message(status, kind)),
        _ => Health::progressing(reason, conditions::message(status, kind)),
    }
}

/// The text with which the projects explain a phase.
fn message(status: &Value) -> String {
    let fields = ["message", "state.message", "applicationState.errorMessage", "error", "reason"];
    fields
        .iter()
        .map(|at| path::text(status, at))
        .find(|text| !text.is_empty())
        .unwrap_or_default()
        .to_owned()
}
