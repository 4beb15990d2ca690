//! Maps templates to ReplicaSets, and numbers the revisions for `kubectl rollout history`.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Value, json};

use super::super::children::owner_reference;
use super::super::names;
use super::{Deployment, Set, Sets, scale, status};
use crate::engine::brain::View;
use crate::index::fields::strings;
use crate::index::kind::Kind;
use crate::index::object::{Key, Object};
use crate::writes::Write;

/// Label that distinguishes the Pods of different templates.
const TEMPLATE_HASH: &str = "pod-template-hash";
/// Annotation on Deployment and ReplicaSet: the revision.
const REVISION: &str = "deployment.kubernetes.io/revision";
/// Annotation on a ReplicaSet: its earlier revision numbers, from rollbacks.
const REVISION_HISTORY: &str = "deployment.kubernetes.io/revision-history";
/// Annotations that a Deployment does not copy to its ReplicaSets.
const NOT_PASSED_ON: [&str; 6] = [
    "kubectl.kubernetes.io/last-applied-configuration",
    REVISION,
    REVISION_HISTORY,
    scale::DESIRED,
    scale::MAXIMUM,
    "deprecated.deployment.rollback.to",
];

/// Splits ReplicaSets into the new one (of the current template; the oldest if several match) and the others.
pub(super) fn split(deployment: &Deployment<'_>, owned: Vec<Arc<Object>>) -> Sets {
    let mut sets: Vec<_> = owned.into_iter().map(Set::read).collect();
    sets.sort_by(|a, b| (a.object.created(), a.name()).cmp(&(b.object.created(), b.name())));
    let hash = hash(deployment);
    let position = sets.iter().position(|set| is_of(deployment, set, &hash));
    let new = position.map(|at| sets.remove(at));
    Sets { new, old: sets }
}

fn hash(deployment: &Deployment<'_>) -> String {
    names::template_hash(deployment.template, deployment.object.int("/status/collisionCount"))
}

/// Whether a ReplicaSet was made from the current template: by the hash in its label, or, if another tool or hash made
/// it, by the template itself.
fn is_of(deployment: &Deployment<'_>, set: &Set, hash: &str) -> bool {
    if set.object.label(TEMPLATE_HASH) == Some(hash) {
        return true;
    }
    let without_hash = |template: Option<&Value>| {
        let mut template = template.cloned().unwrap_or_default();
        if let Some(labels) =
            template.pointer_mut("/metadata/labels").and_then(Value::as_object_mut)
        {
            labels.remove(TEMPLATE_HASH);
        }
        template
    };
    let theirs = without_hash(set.object.data.pointer("/spec/template"));
    theirs == without_hash(Some(deployment.template))
}

fn revision_of(object: &Object) -> i64 {
    object.annotation(REVISION).and_then(|revision| revision.parse().ok()).unwrap_or(0)
}

fn next_revision(sets: &Sets) -> i64 {
    sets.old.iter().map(|set| revision_of(&set.object)).max().unwrap_or(0) + 1
}

/// Annotations that the Deployment copies to the new ReplicaSet.
fn passed_on(deployment: &Deployment<'_>) -> BTreeMap<String, String> {
    let mut annotations = deployment.object.annotations().clone();
    annotations.retain(|key, _| !NOT_PASSED_ON.contains(&key.as_str()));
    annotations
}

/// Updates revision, annotations and `minReadySeconds` of the new ReplicaSet, and the Deployment's revision.
pub(super) fn annotate(deployment: &Deployment<'_>, sets: &Sets) -> Vec<Write> {
    let Some(new) = &sets.new else {
        return Vec::new();
    };
    let mut annotations = passed_on(deployment);
    let (has, due) = (revision_of(&new.object), next_revision(sets));
    let revision = has.max(due);
    annotations.insert(REVISION.to_owned(), revision.to_string());
    if has > 0 && has < due {
        // A rollback to an old template: the ReplicaSet keeps its earlier revision numbers.
        let history = match new.object.annotation(REVISION_HISTORY) {
            Some(history) if !history.is_empty() => format!("{history},{has}"),
            _ => has.to_string(),
        };
        annotations.insert(REVISION_HISTORY.to_owned(), history);
    }
    let mut fields = json!({"metadata": {"annotations": annotations}});
    if new.object.count("/spec/minReadySeconds") != deployment.min_ready_seconds {
        fields["spec"] = json!({"minReadySeconds": deployment.min_ready_seconds});
    }
    let own = json!({"metadata": {"annotations": {REVISION: revision.to_string()}}});
    Write::fields(&new.object, fields)
        .into_iter()
        .chain(Write::fields(deployment.object, own))
        .collect()
}

/// Creates the ReplicaSet of the current template and reports it in the status. A name that another object has taken
/// counts as a collision and changes the hash.
pub(super) fn create(view: &View<'_>, deployment: &Deployment<'_>, sets: &Sets) -> Vec<Write> {
    let hash = hash(deployment);
    let key = Key::new(
        &deployment.object.key.namespace,
        format!("{}-{hash}", deployment.object.key.name),
    );
    if view.index.get(Kind::ReplicaSet, &key).is_some() {
        let mut status = deployment.object.status();
        status["collisionCount"] = json!(deployment.object.count("/status/collisionCount") + 1);
        return Write::status(deployment.object, status).into_iter().collect();
    }
    let mut template = deployment.template.clone();
    template["metadata"]["labels"][TEMPLATE_HASH] = json!(hash);
    let mut selector_json = deployment.object.data["spec"]["selector"].clone();
    selector_json["matchLabels"][TEMPLATE_HASH] = json!(hash);
    let replicas = scale::first_size(deployment, sets);
    let mut annotations = passed_on(deployment);
    annotations.insert(REVISION.to_owned(), next_revision(sets).to_string());
    annotations.extend(scale::annotations(deployment));
    let metadata = json!({
        "labels": strings(&template, "/metadata/labels"),
        "annotations": annotations,
        "ownerReferences": [owner_reference(deployment.object)],
    });
    let mut spec = json!({"replicas": replicas, "selector": selector_json, "template": template});
    if deployment.min_ready_seconds > 0 {
        spec["minReadySeconds"] = json!(deployment.min_ready_seconds);
    }
    let name = key.name.clone();
    let mut writes = vec![Write::create(Kind::ReplicaSet, key, metadata, json!({"spec": spec}))];
    writes.extend(status::created(view, deployment, &name));
    writes
}

/// Deletes the oldest ReplicaSets beyond `revisionHistoryLimit` that have no Pods left.
pub(super) fn clean_up(deployment: &Deployment<'_>, sets: &Sets) -> Vec<Write> {
    let mut candidates: Vec<_> = sets.old.iter().filter(|set| !set.object.is_deleting()).collect();
    let surplus = candidates.len().saturating_sub(deployment.history_limit);
    candidates.sort_by_key(|set| revision_of(&set.object));
    candidates
        .into_iter()
        .take(surplus)
        .filter(|set| {
            let seen = set.object.count("/status/observedGeneration") >= set.object.generation();
            set.wanted == 0 && set.actual == 0 && seen
        })
        .map(|set| Write::delete(&set.object))
        .collect()
}
