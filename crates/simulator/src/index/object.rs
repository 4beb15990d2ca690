//! An object of the member as the index keeps it.

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use kube::core::DynamicObject;
use serde_json::Value;

use super::fields;
use super::kind::Kind;
use super::pod::PodFacts;

/// Namespace (empty for cluster-scoped kinds) and name.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Default)]
pub(crate) struct Key {
    pub(crate) namespace: String,
    pub(crate) name: String,
}

impl Key {
    pub(crate) fn new(namespace: impl Into<String>, name: impl Into<String>) -> Self {
        Self { namespace: namespace.into(), name: name.into() }
    }

    /// Key of a cluster-scoped object.
    pub(crate) fn cluster(name: impl Into<String>) -> Self {
        Self::new("", name)
    }
}

impl std::fmt::Display for Key {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.namespace.as_str() {
            "" => f.write_str(&self.name),
            namespace => write!(f, "{namespace}/{}", self.name),
        }
    }
}

static NO_LABELS: BTreeMap<String, String> = BTreeMap::new();

/// One version of an object. Everything but the metadata is JSON as the server sent it.
#[derive(Debug, Clone)]
pub(crate) struct Object {
    pub(crate) kind: Kind,
    pub(crate) key: Key,
    pub(crate) uid: String,
    /// The resourceVersion, which orders the versions of one object (Kubernetes 1.35 made that official).
    pub(crate) version: u64,
    pub(crate) meta: ObjectMeta,
    /// `spec`, `status` and all other fields except the metadata.
    pub(crate) data: Value,
    /// Facts of a Pod that the scheduler and the controllers read often.
    pub(crate) pod: Option<Box<PodFacts>>,
}

impl Object {
    /// Converts an object from a list, a watch or an answer.
    pub(crate) fn new(kind: Kind, object: DynamicObject) -> Self {
        let DynamicObject { metadata: meta, data, .. } = object;
        Self {
            kind,
            key: Key::new(
                meta.namespace.clone().unwrap_or_default(),
                meta.name.clone().unwrap_or_default(),
            ),
            uid: meta.uid.clone().unwrap_or_default(),
            version: meta.resource_version.as_deref().and_then(|v| v.parse().ok()).unwrap_or(0),
            pod: (kind == Kind::Pod).then(|| Box::new(PodFacts::read(&data))),
            meta,
            data,
        }
    }

    pub(crate) fn generation(&self) -> i64 {
        self.meta.generation.unwrap_or(0)
    }

    pub(crate) fn created(&self) -> Timestamp {
        self.meta.creation_timestamp.as_ref().map_or(Timestamp::UNIX_EPOCH, |time| time.0)
    }

    /// Deadline of its deletion; `None` if it is not being deleted.
    pub(crate) fn deletion(&self) -> Option<Timestamp> {
        self.meta.deletion_timestamp.as_ref().map(|time| time.0)
    }

    pub(crate) fn is_deleting(&self) -> bool {
        self.meta.deletion_timestamp.is_some()
    }

    pub(crate) fn labels(&self) -> &BTreeMap<String, String> {
        self.meta.labels.as_ref().unwrap_or(&NO_LABELS)
    }

    pub(crate) fn label(&self, key: &str) -> Option<&str> {
        self.labels().get(key).map(String::as_str)
    }

    pub(crate) fn annotations(&self) -> &BTreeMap<String, String> {
        self.meta.annotations.as_ref().unwrap_or(&NO_LABELS)
    }

    pub(crate) fn annotation(&self, key: &str) -> Option<&str> {
        self.annotations().get(key).map(String::as_str)
    }

    pub(crate) fn has_finalizer(&self, finalizer: &str) -> bool {
        self.meta.finalizers.iter().flatten().any(|f| f == finalizer)
    }

    /// The owner that controls it.
    pub(crate) fn controller(&self) -> Option<&OwnerReference> {
        self.meta.owner_references.iter().flatten().find(|owner| owner.controller == Some(true))
    }

    /// The facts about a Pod.
    ///
    /// # Panics
    /// On another kind: callers take Pods from the Pod table only.
    pub(crate) fn pod(&self) -> &PodFacts {
        self.pod.as_deref().expect("objects of the Pod table carry their facts")
    }

    pub(crate) fn text(&self, pointer: &str) -> Option<&str> {
        fields::text(&self.data, pointer)
    }

    pub(crate) fn int(&self, pointer: &str) -> Option<i64> {
        fields::int(&self.data, pointer)
    }

    pub(crate) fn count(&self, pointer: &str) -> i64 {
        fields::count(&self.data, pointer)
    }

    pub(crate) fn flag(&self, pointer: &str) -> bool {
        fields::flag(&self.data, pointer)
    }

    pub(crate) fn list(&self, pointer: &str) -> &[Value] {
        fields::list(&self.data, pointer)
    }

    /// The `status`, or an empty one.
    pub(crate) fn status(&self) -> Value {
        match self.data.get("status") {
            Some(status @ Value::Object(_)) => status.clone(),
            _ => Value::Object(serde_json::Map::new()),
        }
    }
}
