//! `Cluster`.

use serde_json::{Value, json};

use crate::Converter;
use crate::draft::Draft;
use crate::keys;
use crate::path::Path;
use crate::report::Class;
use crate::rules::{Rule, Rules, Table, When};

const JOIN: &str = "not needed: the member's agent connects to the hub. Join the member with `atoll join NAME`, or with \
                    `atoll join NAME --mode Hosted` and its kubeconfig if the hub must connect to it";
const PROXY: &str = "Atoll has no proxy to members: the agent, or the controller for a hosted one, needs a direct route";
const REPORT: &str = "a report of Karmada's controllers; no decision uses it";

pub(super) const RULES: Rules<'static> = Rules(&[("spec", SPEC), ("", STATUS)]);

const SPEC: Table = &[
    ("id", When::Always, Rule::Leave(Class::Changed, "the agent reports it: status.clusterId")),
    ("syncMode", When::Always, Rule::Leave(Class::Changed, JOIN)),
    ("apiEndpoint", When::Always, Rule::Leave(Class::Changed, JOIN)),
    ("secretRef", When::Always, Rule::Leave(Class::Changed, JOIN)),
    ("impersonatorSecretRef", When::Always, Rule::Leave(Class::Changed, JOIN)),
    ("insecureSkipTLSVerification", When::Always, Rule::Leave(Class::Changed, JOIN)),
    ("proxyURL", When::Always, Rule::OnlyEmpty(PROXY)),
    ("proxyHeader", When::Always, Rule::OnlyEmpty(PROXY)),
    ("taints[].key", When::Always, Rule::Map(keys::taint_key)),
];
const STATUS: Table = &[("status", When::Always, Rule::Report(REPORT))];

/// Taints that Karmada's controllers set for a member's health.
const OF_HEALTH: [&str; 3] = [
    "cluster.karmada.io/not-ready",
    "cluster.karmada.io/unreachable",
    "cluster.karmada.io/terminating",
];

pub(super) fn prepare(converter: &Converter, draft: &mut Draft) {
    let spec = Path::of("spec");
    let zone = spec.field("zone");
    let zones = spec.field("zones");
    if draft.len(&zones) > 0 {
        draft.take(&zone, Class::Changed, "deprecated: zones is given and is used");
    } else if let Some(zone) = draft.take(&zone, Class::Changed, "deprecated: moved to zones") {
        draft.take(&zones, Class::Changed, "empty");
        draft.set(&zones, json!([zone]));
    }
    if converter.is_for_hub() {
        health_taints(draft, &spec.field("taints"));
    }
}

/// The hub's controller sets taints for health itself.
fn health_taints(draft: &mut Draft, path: &Path) {
    let is_health =
        |taint: &Value| taint["key"].as_str().is_some_and(|key| OF_HEALTH.contains(&key));
    let Some(Value::Array(taints)) = draft.get(path).cloned() else { return };
    let dropped: Vec<usize> = (0..taints.len()).filter(|at| is_health(&taints[*at])).collect();
    if dropped.is_empty() {
        return;
    }
    for at in dropped {
        draft.line(
            &path.item(at),
            Class::Changed,
            "left out: Atoll's controller sets its own taints for health",
        );
    }
    let kept: Vec<Value> = taints.into_iter().filter(|taint| !is_health(taint)).collect();
    draft.set(path, kept.into());
}
