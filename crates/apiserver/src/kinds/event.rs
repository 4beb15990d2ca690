//! Events are one kind in two groups. They are stored as core/v1, which has all fields of `events.k8s.io/v1`
//! under other names (kubernetes `pkg/apis/events/v1/conversion.go`).

use serde_json::{Map, Value};

/// (core/v1, events.k8s.io/v1); unlisted fields have the same name in both.
const NAMES: &[(&str, &str)] = &[
    ("involvedObject", "regarding"),
    ("message", "note"),
    ("reportingComponent", "reportingController"),
    ("source", "deprecatedSource"),
    ("firstTimestamp", "deprecatedFirstTimestamp"),
    ("lastTimestamp", "deprecatedLastTimestamp"),
    ("count", "deprecatedCount"),
];

fn rename(value: &Value, api_version: &str, to: impl Fn(&str) -> Option<&'static str>) -> Value {
    let Some(fields) = value.as_object() else { return value.clone() };
    let renamed: Map<String, Value> = fields
        .iter()
        .map(|(name, v)| (to(name).map_or_else(|| name.clone(), str::to_owned), v.clone()))
        .collect();
    let mut out = Value::Object(renamed);
    out["apiVersion"] = api_version.into();
    out
}

pub(super) fn to_events_group(stored: &Value) -> Value {
    rename(stored, "events.k8s.io/v1", |name| {
        NAMES.iter().find(|(core, _)| *core == name).map(|(_, new)| *new)
    })
}

pub(super) fn to_core(value: &Value) -> Value {
    rename(value, "v1", |name| NAMES.iter().find(|(_, new)| *new == name).map(|(core, _)| *core))
}
