//! Shared code of the workload controllers: claiming children, creating Pods from a template, choosing Pods to delete.

use std::cmp::Reverse;
use std::sync::Arc;

use atoll_api::selector::Selector;
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use serde_json::{Map, Value, json};

use crate::engine::brain::View;
use crate::index::fields::strings;
use crate::index::kind::Kind;
use crate::index::object::{Key, Object};
use crate::index::pod::Phase;
use crate::writes::Write;

/// The children found in a namespace.
#[derive(Debug, Default)]
pub(crate) struct Claim {
    /// Children that it controls and that match its selector, by name.
    pub(crate) owned: Vec<Arc<Object>>,
    /// Adoptions and releases to write first.
    pub(crate) writes: Vec<Write>,
}

/// Finds an owner's children: owned ones stay while they match the selector and are released when they no longer do;
/// matching objects without a controller are adopted (`ControllerRefManager`). `fits` narrows adoption further.
pub(crate) fn claim(
    view: &View<'_>,
    owner: &Object,
    kind: Kind,
    selector: &Selector,
    fits: impl Fn(&Object) -> bool,
) -> Claim {
    let mut claim = Claim::default();
    for child in view.index.owned(&owner.uid, kind) {
        if selector.matches(child.labels()) {
            claim.owned.push(Arc::clone(child));
        } else if !owner.is_deleting() && !child.is_deleting() {
            let others: Vec<_> = child
                .meta
                .owner_references
                .iter()
                .flatten()
                .filter(|reference| reference.uid != owner.uid)
                .collect();
            claim
                .writes
                .extend(Write::fields(child, json!({"metadata": {"ownerReferences": others}})));
        }
    }
    if owner.is_deleting() {
        return claim;
    }
    for orphan in view.index.orphans(kind, &owner.key.namespace) {
        let finished = orphan.pod.as_ref().is_some_and(|pod| pod.is_finished());
        if selector.matches(orphan.labels()) && !orphan.is_deleting() && !finished && fits(orphan) {
            let mut owners = orphan.meta.owner_references.clone().unwrap_or_default();
            owners.push(owner_reference(owner));
            claim
                .writes
                .extend(Write::fields(orphan, json!({"metadata": {"ownerReferences": owners}})));
        }
    }
    claim
}

/// The controller reference of an owner.
pub(crate) fn owner_reference(owner: &Object) -> OwnerReference {
    OwnerReference {
        api_version: owner.kind.api_version(),
        kind: owner.kind.name().to_owned(),
        name: owner.key.name.clone(),
        uid: owner.uid.clone(),
        controller: Some(true),
        block_owner_deletion: Some(true),
    }
}

/// A Pod to create from a template; labels, annotations and spec can be changed before.
#[derive(Debug)]
pub(crate) struct PodDraft {
    pub(crate) name: String,
    pub(crate) generate_name: Option<String>,
    pub(crate) labels: Map<String, Value>,
    pub(crate) annotations: Map<String, Value>,
    pub(crate) finalizers: Vec<Value>,
    pub(crate) spec: Value,
}

impl PodDraft {
    /// Copies the template.
    pub(crate) fn from_template(template: &Value, name: String) -> Self {
        let texts = |pointer| {
            strings(template, pointer)
                .into_iter()
                .map(|(key, value)| (key, Value::String(value)))
                .collect()
        };
        Self {
            name,
            generate_name: None,
            labels: texts("/metadata/labels"),
            annotations: texts("/metadata/annotations"),
            finalizers: crate::index::fields::list(template, "/metadata/finalizers").to_vec(),
            spec: template.get("spec").cloned().unwrap_or_else(|| json!({})),
        }
    }

    /// The write that creates it.
    pub(crate) fn create(self, owner: &Object) -> Write {
        let mut metadata = json!({"ownerReferences": [owner_reference(owner)]});
        let mut put = |field: &str, value: Value, empty: bool| {
            if !empty {
                metadata[field] = value;
            }
        };
        put("labels", json!(self.labels), self.labels.is_empty());
        put("annotations", json!(self.annotations), self.annotations.is_empty());
        put("finalizers", json!(self.finalizers), self.finalizers.is_empty());
        put("generateName", json!(self.generate_name), self.generate_name.is_none());
        let key = Key::new(&owner.key.namespace, self.name);
        Write::create(Kind::Pod, key, metadata, json!({"spec": self.spec}))
    }
}

/// Whether a Pod counts as a replica: it is not being deleted and has not terminated (`FilterActivePods`).
pub(crate) fn is_active(pod: &Object) -> bool {
    !pod.is_deleting() && !pod.pod().is_finished()
}

/// Whether a Pod is running and Ready.
pub(crate) fn is_running_and_ready(pod: &Object) -> bool {
    pod.pod().phase == Phase::Running && pod.pod().ready_since.is_some()
}

/// The order in which a ReplicaSet deletes Pods, first deleted first (`ActivePodsWithRanks`): unassigned, Pending, not
/// Ready, low `pod-deletion-cost`, on a node with more siblings, Ready for a shorter time, restarted more often,
/// younger; then by name, where the real one chooses at random between Pods of about the same age.
pub(crate) fn by_dispensability(pods: &mut [Arc<Object>], siblings: &[Arc<Object>]) {
    let neighbours = |pod: &Object| {
        let node = &pod.pod().node;
        siblings.iter().filter(|other| node.is_some() && other.pod().node == *node).count()
    };
    pods.sort_by_cached_key(|pod| {
        let facts = pod.pod();
        let cost: i64 = pod
            .annotation("controller.kubernetes.io/pod-deletion-cost")
            .and_then(|cost| cost.parse::<i32>().ok())
            .map_or(0, i64::from);
        (
            facts.node.is_some(),
            facts.phase,
            facts.ready_since.is_some(),
            cost,
            Reverse(neighbours(pod)),
            Reverse(facts.ready_since),
            Reverse(facts.restarts),
            Reverse(pod.created()),
            Reverse(pod.key.name.clone()),
        )
    });
}

/// When the next of these Pods becomes available, if any is Ready but not yet available.
pub(crate) fn next_available<'a>(
    pods: impl Iterator<Item = &'a Arc<Object>>,
    min_ready_seconds: i64,
    now: Timestamp,
) -> Option<Timestamp> {
    pods.filter_map(|pod| pod.pod().ready_since)
        .filter_map(|since| Timestamp::from_second(since.as_second() + min_ready_seconds).ok())
        .filter(|at| *at > now)
        .min()
}

/// Sets a counter in a status, or omits it when it is zero, as `omitempty` does.
pub(crate) fn put_count(status: &mut Value, field: &str, count: i64) {
    status[field] = if count == 0 { Value::Null } else { json!(count) };
}
