//! What a control plane has beside policies and placements: rules for kinds, taint policies, quotas, and kinds that Atoll
//! does not have.

use atoll_api::quantity::Quantity;
use serde_json::Value;

use crate::check::{Finding, Severity};
use crate::estate::{Estate, ObjectRef};

const CUSTOMIZATION: &str = "ResourceInterpreterCustomization";
const WEBHOOKS: &str = "ResourceInterpreterWebhookConfiguration";
const TAINTS: &str = "ClusterTaintPolicy";
const QUOTA: &str = "FederatedResourceQuota";
/// Kinds that change the replicas of an object in Karmada.
const SCALERS: [&str; 2] = ["FederatedHPA", "CronFederatedHPA"];

/// Rules for kinds that move: the hub gets them before the policies, so that it reads the objects by them.
pub fn rules(estate: &Estate) -> impl Iterator<Item = &Value> {
    of(estate, &[CUSTOMIZATION, WEBHOOKS])
}

/// Taint policies and quotas that move.
pub fn limits(estate: &Estate) -> impl Iterator<Item = &Value> {
    of(estate, &[TAINTS, QUOTA])
}

fn of<'a>(estate: &'a Estate, kinds: &'a [&str]) -> impl Iterator<Item = &'a Value> {
    kinds.iter().flat_map(move |kind| {
        estate.extras.iter().filter(move |object| object["kind"] == *kind && moves(estate, object))
    })
}

/// Cluster-scoped objects concern all namespaces, so they move with everything. A customization also moves with the first
/// object of its kind: without it, Atoll would read that object by other rules.
fn moves(estate: &Estate, object: &Value) -> bool {
    if estate.namespace.is_none() {
        return true;
    }
    match text(&object["kind"]) {
        QUOTA => object["metadata"]["namespace"].as_str() == estate.namespace.as_deref(),
        CUSTOMIZATION => {
            let target = &object["spec"]["target"];
            estate.moving().any(|binding| {
                target["apiVersion"] == *binding.api_version && target["kind"] == *binding.of.kind
            })
        }
        _ => false,
    }
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

/// What stays in Karmada and what to do about it, and what would refuse the objects that move.
#[must_use]
pub fn findings(estate: &Estate) -> Vec<Finding> {
    let mut found = Vec::new();
    for object in &estate.extras {
        let Some(of) = ObjectRef::of(object) else { continue };
        let mut add = |severity, problem: String| {
            found.push(Finding { severity, object: of.to_string(), problem });
        };
        match text(&object["kind"]) {
            QUOTA if moves(estate, object) => {
                for problem in overused(object) {
                    add(Severity::Blocks, problem);
                }
            }
            kind if SCALERS.contains(&kind) => match scaled(estate, object) {
                Some(target) => add(
                    Severity::Blocks,
                    format!(
                        "it scales {target}, and Atoll has no such kind: after `switch` no member would follow it. Delete it in \
                         Karmada; a HorizontalPodAutoscaler that a policy selects scales each member's copy"
                    ),
                ),
                None if of.namespace.is_none() || estate.covers(&of) => {
                    add(Severity::Changes, nothing_like_it());
                }
                None => {}
            },
            WEBHOOKS | TAINTS if !moves(estate, object) => add(
                Severity::Changes,
                "it is for all namespaces and moves only with everything, without --namespace. If Atoll needs it now, \
                 `atoll convert --from` has it: apply it to Atoll's hub"
                    .to_owned(),
            ),
            CUSTOMIZATION | WEBHOOKS | TAINTS | QUOTA => {}
            _ if of.namespace.is_none() || estate.covers(&of) => {
                add(Severity::Changes, nothing_like_it());
            }
            _ => {}
        }
    }
    found
}

fn nothing_like_it() -> String {
    "Atoll has no such kind, it stays in Karmada: `atoll convert --from` says what to use instead"
        .to_owned()
}

/// The object that moves and that a scaler changes.
fn scaled(estate: &Estate, scaler: &Value) -> Option<ObjectRef> {
    let target = &scaler["spec"]["scaleTargetRef"];
    let group = text(&target["apiVersion"]).rsplit_once('/').map_or("", |(group, _)| group);
    let of = ObjectRef {
        group: group.to_owned(),
        kind: text(&target["kind"]).to_owned(),
        namespace: scaler["metadata"]["namespace"].as_str().map(str::to_owned),
        name: text(&target["name"]).to_owned(),
    };
    estate.moving().any(|binding| binding.of == of).then_some(of)
}

/// Resources of which a namespace uses more than its quota allows. Karmada enforces quotas by a feature gate only; Atoll
/// refuses to start an object above the limit.
fn overused(quota: &Value) -> Vec<String> {
    let used = quota["status"]["overallUsed"].as_object();
    let amount = |value: &Value| Quantity::new(text(value)).milli().ok();
    let each = used.into_iter().flatten().filter_map(|(resource, used)| {
        let limit = &quota["spec"]["overall"][resource];
        (amount(used)? > amount(limit)?).then(|| {
            format!(
                "spec.overall.{resource} is {}, and the namespace uses {}: Atoll would refuse to take objects over. Raise it in \
                 Karmada first",
                text(limit),
                text(used)
            )
        })
    });
    each.collect()
}
