//! `PropagationPolicy` and `ClusterPropagationPolicy`.

use serde_json::Value;

use super::placement;
use crate::Converter;
use crate::draft::Draft;
use crate::path::Path;
use crate::report::Class;
use crate::rules::{Rule, Rules, Table, When, is_empty};

/// Name of Karmada's scheduler, which its webhooks fill in.
const KARMADA_SCHEDULER: &str = "default-scheduler";

pub(super) const RULES: Rules<'static> =
    Rules(&[("spec", SPEC), ("spec.placement", placement::TABLE), ("spec.failover", FAILOVER)]);

const SPEC: Table = &[
    ("resourceSelectors[].apiVersion", When::Always, Rule::Map(selected_kind)),
    ("preemption", When::Always, Rule::Map(preemption)),
    ("schedulePriority", When::Always, Rule::Note("the PriorityClass must exist on the hub")),
];

/// Failover, in policies and in the copies that bindings hold.
pub(super) const FAILOVER: Table = &[
    ("application.purgeMode", When::Always, PURGE_MODE),
    ("cluster.purgeMode", When::Always, PURGE_MODE),
];

/// Older versions of Karmada have other words.
pub(super) const PURGE_MODE: Rule = Rule::Words(
    &[("Immediately", "Directly"), ("Graciously", "Gracefully")],
    "renamed, as in later Karmada",
);

fn selected_kind(draft: &mut Draft, path: &Path, value: Value) -> Option<Value> {
    let group = value.as_str().and_then(|text| text.split_once('/')).map_or("", |(group, _)| group);
    if group.ends_with(super::DOMAIN) {
        draft.line(
            path,
            Class::NoEquivalent,
            "Atoll has no objects of this kind to propagate; remove the selector",
        );
    } else {
        draft.line(path, Class::TakenOver, "");
    }
    Some(value)
}

fn preemption(draft: &mut Draft, path: &Path, value: Value) -> Option<Value> {
    if value == "Always" {
        let note = "in force at once; Karmada needs the feature gate PropagationPolicyPreemption";
        draft.line(path, Class::Changed, note);
    } else {
        draft.line(path, Class::TakenOver, "");
    }
    Some(value)
}

/// Converts what needs more than one field.
pub(super) fn prepare(converter: &Converter, draft: &mut Draft) {
    let spec = Path::of("spec");
    scheduler_name(converter, draft, &spec);
    association(draft, &spec);
    placement::prepare(draft, &spec.field("placement"));
    let failover = spec.field("failover");
    let note = "Atoll moves work off a cluster that is lost for 300 s (controller --failover-after); Karmada does so only \
                with its feature gate Failover. Tolerate cluster.atoll.dev/unreachable:NoExecute to keep work there";
    draft.line(&failover.field("cluster"), Class::Changed, note);
}

/// Karmada's scheduler becomes the profile that divides as it does. Its webhooks fill the name in, so a policy in a file
/// may lack it.
pub(super) fn scheduler_name(converter: &Converter, draft: &mut Draft, spec: &Path) {
    let path = spec.field("schedulerName");
    let given = draft.get(&path).and_then(Value::as_str).map(str::to_owned);
    let profile = &converter.options.profile;
    match given.as_deref() {
        None | Some("" | KARMADA_SCHEDULER) => {
            let note = if profile == crate::KARMADA_PROFILE {
                "profile karmada decides as Karmada's scheduler does; profile default has Atoll's own rules".to_owned()
            } else {
                format!(
                    "profile {profile} decides by other rules than Karmada's scheduler: try it with `atoll schedule`"
                )
            };
            draft.take(&path, Class::Changed, note.as_str());
            if given.is_none() {
                draft.line(&path, Class::Changed, note);
            }
            draft.set(&path, profile.as_str().into());
        }
        Some(name) => {
            let note = format!("Atoll needs a scheduler profile of this name: {name}");
            draft.line(&path, Class::Changed, note);
        }
    }
}

/// The deprecated predecessor of `propagateDeps`.
fn association(draft: &mut Draft, spec: &Path) {
    let note = "Karmada's old name of propagateDeps";
    let Some(old) = draft.take(&spec.field("association"), Class::Changed, note) else { return };
    let deps = spec.field("propagateDeps");
    if !is_empty(&old) && draft.get(&deps).is_none() {
        draft.set(&deps, old);
    }
}
