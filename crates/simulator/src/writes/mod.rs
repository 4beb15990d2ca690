//! The output of a behaviour: the writes of one pass over one object, in order, and when to run again.

pub(crate) mod conditions;
pub(crate) mod execute;

use jiff::Timestamp;
use serde_json::{Map, Value, json};

use crate::index::fields::merge_patch;
use crate::index::kind::Kind;
use crate::index::object::{Key, Object};

/// The writing component, named in `managedFields` as the real ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Writer {
    ControllerManager,
    Scheduler,
    Kubelet,
}

impl Writer {
    pub(crate) fn field_manager(self) -> &'static str {
        match self {
            Self::ControllerManager => "kube-controller-manager",
            Self::Scheduler => "kube-scheduler",
            Self::Kubelet => "kubelet",
        }
    }
}

/// An existing object at the version that the decision used: a write to another version is refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Target {
    pub(crate) kind: Kind,
    pub(crate) key: Key,
    pub(crate) uid: String,
    pub(crate) version: u64,
}

impl From<&Object> for Target {
    fn from(object: &Object) -> Self {
        Self {
            kind: object.kind,
            key: object.key.clone(),
            uid: object.uid.clone(),
            version: object.version,
        }
    }
}

/// One call to the member's API server.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Write {
    /// POST.
    Create { kind: Kind, key: Key, object: Value },
    /// A JSON merge patch on the object.
    Patch { target: Target, patch: Value },
    /// A JSON merge patch on its `status` subresource.
    PatchStatus { target: Target, patch: Value },
    /// Binds a Pod to a node through the `binding` subresource.
    Bind { target: Target, node: String },
    /// DELETE in the background; `grace` in seconds replaces the object's own.
    Delete { target: Target, grace: Option<u32> },
}

impl Write {
    /// Creates an object of a kind from its other parts.
    pub(crate) fn create(kind: Kind, key: Key, metadata: Value, rest: Value) -> Self {
        let mut object = json!({"apiVersion": kind.api_version(), "kind": kind.name()});
        object["metadata"] = metadata;
        object["metadata"]["name"] = json!(key.name);
        if kind.namespaced() {
            object["metadata"]["namespace"] = json!(key.namespace);
        }
        if let Value::Object(rest) = rest {
            for (name, value) in rest {
                object[name] = value;
            }
        }
        Self::Create { kind, key, object }
    }

    /// Sets the object's `status`; `None` if it is unchanged.
    pub(crate) fn status(object: &Object, status: Value) -> Option<Self> {
        let patch = merge_patch(&object.status(), &status)?;
        Some(Self::PatchStatus { target: object.into(), patch: json!({"status": patch}) })
    }

    /// Sets these fields (a merge patch); `None` if they are unchanged. Metadata other than labels, annotations,
    /// ownerReferences and finalizers is not compared.
    pub(crate) fn fields(object: &Object, fields: Value) -> Option<Self> {
        let mut current = object.data.clone();
        current["metadata"] = json!({
            "labels": object.labels(),
            "annotations": object.annotations(),
            "ownerReferences": object.meta.owner_references.clone().unwrap_or_default(),
            "finalizers": object.meta.finalizers.clone().unwrap_or_default(),
        });
        let patch = needed(&current, &fields)?;
        Some(Self::Patch { target: object.into(), patch })
    }

    /// Deletes the object with its own grace period.
    pub(crate) fn delete(object: &Object) -> Self {
        Self::Delete { target: object.into(), grace: None }
    }

    /// Deletes the object at once, as a kubelet does when the containers are gone.
    pub(crate) fn delete_now(object: &Object) -> Self {
        Self::Delete { target: object.into(), grace: Some(0) }
    }

    pub(crate) fn kind(&self) -> Kind {
        match self {
            Self::Create { kind, .. } => *kind,
            Self::Patch { target, .. }
            | Self::PatchStatus { target, .. }
            | Self::Bind { target, .. }
            | Self::Delete { target, .. } => target.kind,
        }
    }

    pub(crate) fn key(&self) -> &Key {
        match self {
            Self::Create { key, .. } => key,
            Self::Patch { target, .. }
            | Self::PatchStatus { target, .. }
            | Self::Bind { target, .. }
            | Self::Delete { target, .. } => &target.key,
        }
    }

    fn verb(&self) -> &'static str {
        match self {
            Self::Create { .. } => "create",
            Self::Patch { .. } => "patch",
            Self::PatchStatus { .. } => "patch status of",
            Self::Bind { .. } => "bind",
            Self::Delete { .. } => "delete",
        }
    }
}

impl std::fmt::Display for Write {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {} {}", self.verb(), self.kind().name(), self.key())
    }
}

/// The part of a merge patch that would change `current`.
fn needed(current: &Value, patch: &Value) -> Option<Value> {
    let Value::Object(patch) = patch else {
        return (current != patch).then(|| patch.clone());
    };
    let mut rest = Map::new();
    for (key, value) in patch {
        let needed = match current.get(key) {
            None => (!value.is_null()).then(|| value.clone()),
            Some(current) => needed(current, value),
        };
        if let Some(needed) = needed {
            rest.insert(key.clone(), needed);
        }
    }
    (!rest.is_empty()).then_some(Value::Object(rest))
}

/// The result of one pass over one object.
#[derive(Debug, Default)]
pub(crate) struct Plan {
    /// In order of execution; the first failure ends the plan.
    pub(crate) writes: Vec<Write>,
    /// When to run again without a change.
    pub(crate) again: Option<Timestamp>,
}

impl Plan {
    /// A plan of these writes.
    pub(crate) fn of(writes: impl IntoIterator<Item = Write>) -> Self {
        Self { writes: writes.into_iter().collect(), again: None }
    }

    pub(crate) fn push(&mut self, write: impl IntoIterator<Item = Write>) {
        self.writes.extend(write);
    }

    /// Requests another pass at `at`; the earliest request wins.
    pub(crate) fn again_at(&mut self, at: Timestamp) {
        self.again = Some(self.again.map_or(at, |again| again.min(at)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_patch_that_changes_nothing_is_no_write() {
        let value = json!({
            "metadata": {"name": "a", "namespace": "d", "uid": "u", "resourceVersion": "7",
                         "annotations": {"x": "1"}},
            "spec": {"replicas": 2},
            "status": {"ready": 1},
        });
        let object = Object::new(Kind::ReplicaSet, serde_json::from_value(value).unwrap());
        let fields =
            json!({"metadata": {"annotations": {"x": "1"}}, "spec": {"replicas": 2, "gone": null}});
        assert_eq!(Write::fields(&object, fields), None);
        assert_eq!(Write::status(&object, json!({"ready": 1})), None);
        let write = Write::fields(
            &object,
            json!({"spec": {"replicas": 3}, "metadata": {"annotations": {}}}),
        );
        let Some(Write::Patch { target, patch }) = write else { panic!("a patch: {write:?}") };
        assert_eq!((target.version, patch), (7, json!({"spec": {"replicas": 3}})));
    }
}
