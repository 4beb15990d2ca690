//! Keys of labels, annotations and taints that mean something to another federation.

use atoll_api::marks;
use serde_json::{Map, Value};

use crate::Converter;
use crate::draft::Draft;
use crate::path::Path;
use crate::report::Class;

/// What to do with a label or annotation.
enum Mark {
    Leave(Class, &'static str),
    Rename(&'static str, Class, &'static str),
    Note(Class, &'static str),
}

/// Domains whose keys Karmada's controllers set to tie objects together.
const BOOKKEEPING: [&str; 7] = [
    "propagationpolicy.karmada.io",
    "clusterpropagationpolicy.karmada.io",
    "resourcebinding.karmada.io",
    "clusterresourcebinding.karmada.io",
    "work.karmada.io",
    "binding.karmada.io",
    "policy.karmada.io",
];
/// Single keys of that sort.
const BOOKKEEPING_KEYS: [&str; 6] = [
    "karmada.io/managed",
    "resourcetemplate.karmada.io/uid",
    "resourcetemplate.karmada.io/generation",
    "resourcetemplate.karmada.io/managed-labels",
    "resourcetemplate.karmada.io/managed-annotations",
    "kubectl.kubernetes.io/last-applied-configuration",
];
/// Keys on bindings that Atoll's bindings have too.
const ON_BINDINGS: [(&str, &str); 3] = [
    ("propagationpolicy.karmada.io/name", marks::POLICY_NAME),
    ("propagationpolicy.karmada.io/namespace", marks::POLICY_NAMESPACE),
    ("clusterpropagationpolicy.karmada.io/name", marks::POLICY_NAME),
];

fn mark(key: &str, on_binding: bool) -> Option<Mark> {
    let domain = key.split_once('/').map_or("", |(domain, _)| domain);
    if on_binding && let Some((_, ours)) = ON_BINDINGS.iter().find(|(theirs, _)| *theirs == key) {
        return Some(Mark::Rename(ours, Class::Changed, "renamed"));
    }
    let of_controllers = "left out: a mark of Karmada's controllers or of kubectl";
    match key {
        "work.karmada.io/conflict-resolution" => {
            Some(Mark::Rename(marks::CONFLICT_RESOLUTION, Class::Changed, "renamed"))
        }
        "resourcetemplate.karmada.io/deletion-protected" => Some(Mark::Rename(
            marks::DELETION_PROTECTED,
            Class::Changed,
            "renamed; on a kube-apiserver, deploy/controller/deletion-protection.yaml gives it effect",
        )),
        "resourcetemplate.karmada.io/retain-replicas" => Some(Mark::Rename(
            "resourcetemplate.atoll.dev/retain-replicas",
            Class::Changed,
            "renamed",
        )),
        "namespace.karmada.io/skip-auto-propagation" => Some(Mark::Leave(
            Class::Changed,
            "not needed: Atoll makes a namespace only on members that get an object in it",
        )),
        _ if BOOKKEEPING_KEYS.contains(&key) || BOOKKEEPING.contains(&domain) => {
            Some(Mark::Leave(Class::Changed, of_controllers))
        }
        _ if domain == "karmada.io" || domain.ends_with(".karmada.io") => Some(Mark::Note(
            Class::NoEquivalent,
            "Atoll gives this key no meaning; it is kept as it is",
        )),
        _ => None,
    }
}

/// Converts the labels and annotations of an object.
pub(crate) fn convert(draft: &mut Draft, on_binding: bool) {
    for map in ["metadata.labels", "metadata.annotations"] {
        let map = Path::of(map);
        let keys: Vec<String> = draft
            .get(&map)
            .and_then(Value::as_object)
            .map(Map::keys)
            .into_iter()
            .flatten()
            .cloned()
            .collect();
        for key in keys {
            let path = map.field(&key);
            match mark(&key, on_binding) {
                None => {}
                Some(Mark::Leave(class, note)) => {
                    draft.take(&path, class, note);
                }
                Some(Mark::Note(class, note)) => draft.line(&path, class, note),
                Some(Mark::Rename(ours, class, note)) => {
                    if let Some(value) = draft.take(&path, class, format!("{note}: {ours}")) {
                        draft.set(&map.field(ours), value);
                    }
                }
            }
        }
        if draft.get(&map).and_then(Value::as_object).is_some_and(Map::is_empty) {
            draft.take(&map, Class::TakenOver, "no entry is left");
        }
    }
}

/// Metadata that an API server sets.
const SET_BY_SERVERS: [&str; 6] =
    ["uid", "resourceVersion", "generation", "creationTimestamp", "managedFields", "selfLink"];

/// For a hub: takes out what an API server or a controller sets. Files for offline verbs keep it.
pub(crate) fn strip(converter: &Converter, draft: &mut Draft, own_kind: bool) {
    if !converter.is_for_hub() {
        return;
    }
    let metadata = Path::of("metadata");
    for name in SET_BY_SERVERS {
        draft.take(&metadata.field(name), Class::Changed, "the hub sets its own");
    }
    let deleting =
        "the object is being deleted: delete it from the output too, unless you want to keep it";
    draft.take(&metadata.field("deletionTimestamp"), Class::Changed, deleting);
    draft.take(&metadata.field("deletionGracePeriodSeconds"), Class::Changed, deleting);
    let owners = "owners have another uid on the hub: set ownerReferences there if they are needed";
    draft.take(&metadata.field("ownerReferences"), Class::Changed, owners);
    draft.take(&Path::of("status"), Class::Changed, "the hub's controllers write their own status");
    if own_kind {
        let note = "Karmada's controllers wait for it: Atoll sets its own finalizers";
        draft.take(&metadata.field("finalizers"), Class::Changed, note);
    }
}

/// Atoll's key for a taint that Karmada sets on Clusters.
pub(crate) fn taint(key: &str) -> Option<&'static str> {
    match key {
        "cluster.karmada.io/not-ready" => Some(marks::TAINT_NOT_READY),
        "cluster.karmada.io/unreachable" => Some(marks::TAINT_UNREACHABLE),
        "cluster.karmada.io/unschedulable" => Some(marks::TAINT_CORDONED),
        _ => None,
    }
}

/// Renames the key of a taint or toleration.
pub(crate) fn taint_key(draft: &mut Draft, path: &Path, value: Value) -> Option<Value> {
    let key = value.as_str().unwrap_or_default();
    match taint(key) {
        Some(ours) => {
            draft.line(path, Class::Changed, format!("renamed: {ours}"));
            Some(ours.into())
        }
        None if key.split_once('/').is_some_and(|(domain, _)| domain.ends_with("karmada.io")) => {
            draft.line(
                path,
                Class::NoEquivalent,
                "Atoll sets no such taint; the key is kept as it is",
            );
            Some(value)
        }
        None => {
            draft.line(path, Class::TakenOver, "");
            Some(value)
        }
    }
}
