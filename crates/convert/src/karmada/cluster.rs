//! `Cluster`.

use serde_json::{Value, json};

use crate::draft::Draft;
use crate::keys;
use crate::path::Path;
use crate::report::Class;
use crate::rules::{Rule, Rules, Table, When};

const JOIN: &str = "not needed: the member's agent connects to the hub. Join the member with `atoll join NAME`, or with \
                    `atoll join NAME --mode Hosted` and its kubeconfig if the hub must connect to it";
const PROXY: &str = "Atoll has no proxy to members: the agent, or the controller for a hosted one, needs a direct route";
const REPORT: &str = "a report of Karmada's controllers; no decision uses it";

const RULES: Rules<'static> = Rules(&[("spec", SPEC), ("", STATUS)]);
const HUB_RULES: Rules<'static> = Rules(&[("spec", HUB), ("spec", SPEC), ("", STATUS)]);

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

/// Additional rules for a hub, whose controller sets taints for health itself.
const HUB: Table = &[("taints[]", When::Always, Rule::LeaveIf(health_taint))];

/// Taints that Karmada's controllers set for a member's health.
const OF_HEALTH: [&str; 3] = [
    "cluster.karmada.io/not-ready",
    "cluster.karmada.io/unreachable",
    "cluster.karmada.io/terminating",
];

fn health_taint(taint: &Value) -> Option<(Class, &'static str)> {
    let of_health = taint["key"].as_str().is_some_and(|key| OF_HEALTH.contains(&key));
    of_health
        .then_some((Class::Changed, "left out: Atoll's controller sets its own taints for health"))
}

pub(super) fn rules(hub: bool) -> Rules<'static> {
    if hub { HUB_RULES } else { RULES }
}

/// Moves the deprecated zone to zones.
pub(super) fn prepare(draft: &mut Draft) {
    let spec = Path::of("spec");
    let zone = spec.field("zone");
    let zones = spec.field("zones");
    if draft.len(&zones) > 0 {
        draft.take(&zone, Class::Changed, "deprecated: zones is given and is used");
    } else if let Some(zone) = draft.take(&zone, Class::Changed, "deprecated: moved to zones") {
        draft.take(&zones, Class::Changed, "empty");
        draft.set(&zones, json!([zone]));
    }
}
