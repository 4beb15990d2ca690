//! What guards say about a change that nobody has made yet, for `atoll plan`. Pure.

use std::collections::BTreeMap;
use std::sync::Arc;

use atoll_decision::Decision;
use atoll_scheduler::detect::{GroupKind, TemplateKey};
use jiff::Timestamp;
use serde_json::{Value, json};

use super::case::{self, Case};
use super::room::Room;
use super::waiting::Waiting;
use crate::detect;
use crate::index::{Index, Source};

/// Why a ChangeGuard would hold these decisions, which one edit causes; `None` if no guard would. `objects` are those of the hub
/// after the edit, with the ChangeGuards; `namespaces` are the labels of all namespaces.
#[must_use]
pub fn held_by<'a>(
    objects: impl IntoIterator<Item = Value>,
    namespaces: &BTreeMap<String, BTreeMap<String, String>>,
    decisions: impl IntoIterator<Item = (&'a TemplateKey, &'a Decision)>,
    now: Timestamp,
) -> Option<String> {
    let mut index = Index::default();
    for object in objects {
        if let Some(source) = source_of(&object) {
            index.apply(&source, Arc::new(object));
        }
    }
    for (name, labels) in namespaces {
        let object = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}});
        index.apply(&Source::Namespaces, Arc::new(object));
    }
    let mut changes = Vec::new();
    for (key, decision) in decisions {
        let binding_key = key.binding();
        let (Some(template), Some(binding)) = (index.template(key), index.binding(&binding_key))
        else {
            continue; // a first placement moves nothing
        };
        let claim = detect::claim(&index, template, binding.policy().as_ref());
        let case = Case { key: &binding_key, claim: &claim, template, binding: Some(binding) };
        let Some((change, guards, _)) = case::guarded(&index, case, decision) else { continue };
        let cause = case::cause(&index, case, decision);
        let waiting = Waiting { change, guards, cause, since: now, plan: None };
        changes.push((binding_key, waiting));
    }
    let members: Vec<_> = changes.iter().map(|(key, waiting)| (key, waiting)).collect();
    Room::new(&index, now).take(("", now), &members, &[]).err()
}

/// Where an object of the hub belongs; `None` for objects that no guard looks at.
fn source_of(object: &Value) -> Option<Source> {
    let kind = GroupKind::of(object["apiVersion"].as_str()?, object["kind"].as_str()?);
    Some(match (&*kind.group, &*kind.kind) {
        ("cluster.atoll.dev", "Cluster") => Source::Clusters,
        ("policy.atoll.dev", "PropagationPolicy") => Source::PropagationPolicies,
        ("policy.atoll.dev", "ClusterPropagationPolicy") => Source::ClusterPropagationPolicies,
        ("policy.atoll.dev", "WorkloadPolicy") => Source::WorkloadPolicies,
        ("policy.atoll.dev", "WorkloadSpread") => Source::WorkloadSpreads,
        ("policy.atoll.dev", "ChangeGuard") => Source::ChangeGuards,
        ("work.atoll.dev", "ResourceBinding") => Source::ResourceBindings,
        ("work.atoll.dev", "ClusterResourceBinding") => Source::ClusterResourceBindings,
        _ if kind.is_own() => return None,
        _ => Source::Templates(kind),
    })
}
