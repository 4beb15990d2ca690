//! Karmada's members and those of Atoll's hub.

use std::collections::{BTreeMap, BTreeSet};

use atoll_convert::Converter;
use serde_json::Value;

use crate::check::{Finding, Severity};
use crate::estate::Estate;

/// Members that hold an object which moves, and that do not serve Atoll as they serve Karmada. `hub`: the Clusters of
/// Atoll's hub, by name.
#[must_use]
pub fn findings(
    converter: &Converter,
    estate: &Estate,
    hub: &BTreeMap<String, Value>,
) -> Vec<Finding> {
    let names: BTreeSet<&str> =
        estate.moving().flat_map(|binding| binding.holders().collect::<Vec<_>>()).collect();
    let mut found = Vec::new();
    for name in names {
        let mut blocks = |problem: String| {
            found.push(Finding {
                severity: Severity::Blocks,
                object: format!("Cluster {name}"),
                problem,
            });
        };
        let theirs = estate.clusters.iter().find(|cluster| cluster["metadata"]["name"] == name);
        let theirs = theirs.and_then(|cluster| converter.convert(cluster.clone()).object);
        let Some(theirs) = theirs else {
            blocks("Karmada places work on it but does not have it".to_owned());
            continue;
        };
        let Some(ours) = hub.get(name) else {
            blocks(format!("it has not joined Atoll: `{}`", join(name, &theirs)));
            continue;
        };
        for problem in unlike(&theirs, ours) {
            blocks(problem);
        }
        if !is_ready(ours) {
            blocks("it is not Ready on Atoll's hub: `atoll get members` says why".to_owned());
        }
    }
    found
}

fn is_ready(cluster: &Value) -> bool {
    let conditions = cluster["status"]["conditions"].as_array().into_iter().flatten();
    conditions
        .into_iter()
        .any(|condition| condition["type"] == "Ready" && condition["status"] == "True")
}

/// The command with which the member joins.
fn join(name: &str, cluster: &Value) -> String {
    let mut command = format!("atoll join {name}");
    let spec = &cluster["spec"];
    for field in ["provider", "region"] {
        if let Some(value) = spec[field].as_str().filter(|value| !value.is_empty()) {
            command.push_str(&format!(" --{field} {value}"));
        }
    }
    let list = |items: Vec<String>| (!items.is_empty()).then(|| items.join(","));
    let zones = spec["zones"].as_array().into_iter().flatten();
    let zones = zones.filter_map(Value::as_str).map(str::to_owned).collect();
    let labels = labels(cluster).into_iter().map(|(key, value)| format!("{key}={value}")).collect();
    let taints = spec["taints"].as_array().into_iter().flatten();
    let taints = taints.map(|taint| {
        let text = |field: &str| taint[field].as_str().unwrap_or_default();
        let value = match text("value") {
            "" => String::new(),
            value => format!("={value}"),
        };
        format!("{}{value}:{}", text("key"), text("effect"))
    });
    for (flag, value) in
        [("zones", list(zones)), ("labels", list(labels)), ("taints", list(taints.collect()))]
    {
        if let Some(value) = value {
            command.push_str(&format!(" --{flag} {value}"));
        }
    }
    command
}

fn labels(cluster: &Value) -> BTreeMap<String, String> {
    serde_json::from_value(cluster["metadata"]["labels"].clone()).unwrap_or_default()
}

/// What policies and overrides may select by, and that differs.
fn unlike(theirs: &Value, ours: &Value) -> Vec<String> {
    let mut found = Vec::new();
    let here = labels(ours);
    for (key, value) in labels(theirs) {
        if here.get(&key) != Some(&value) {
            found.push(format!(
                "it lacks the label {key}={value} on Atoll's hub: `kubectl label clusters.cluster.atoll.dev {} {key}={value}`",
                ours["metadata"]["name"].as_str().unwrap_or_default()
            ));
        }
    }
    for field in ["provider", "region", "zones"] {
        let (wanted, given) = (&theirs["spec"][field], &ours["spec"][field]);
        let is_nothing = |value: &Value| {
            value.is_null() || value == "" || value.as_array().is_some_and(Vec::is_empty)
        };
        if wanted != given && !is_nothing(wanted) {
            found.push(format!(
                "spec.{field} is {wanted} in Karmada and {given} on Atoll's hub: make them equal"
            ));
        }
    }
    found
}
