//! Objects by their identity, so that those of files replace those of the hub.

use std::collections::BTreeMap;

use atoll_scheduler::offline::default_namespace;
use serde_json::Value;

/// What identifies an object on a hub, whatever the version of its API.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Identity {
    pub(super) group: String,
    pub(super) kind: String,
    pub(super) namespace: String,
    pub(super) name: String,
}

impl Identity {
    pub(super) fn of(object: &Value) -> Self {
        let text = |pointer: &str| {
            object.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned()
        };
        let api_version = text("/apiVersion");
        let group = api_version.split_once('/').map_or("", |(group, _)| group);
        Self {
            group: group.to_owned(),
            kind: text("/kind"),
            namespace: text("/metadata/namespace"),
            name: text("/metadata/name"),
        }
    }

    /// Of an object to which another refers by apiVersion, kind, namespace and name.
    pub(super) fn of_reference(reference: &Value) -> Self {
        let text = |field: &str| reference[field].as_str().unwrap_or_default().to_owned();
        let api_version = text("apiVersion");
        let group = api_version.split_once('/').map_or("", |(group, _)| group).to_owned();
        Self { group, kind: text("kind"), namespace: text("namespace"), name: text("name") }
    }
}

/// A set of objects.
#[derive(Debug, Clone, Default)]
pub(super) struct Objects(BTreeMap<Identity, Value>);

impl Objects {
    /// Adds an object, in place of an earlier one with its identity.
    pub(super) fn put(&mut self, mut object: Value) {
        default_namespace(&mut object);
        self.0.insert(Identity::of(&object), object);
    }

    /// Adds an object of a file. What only a controller writes stays: a file has no status, or an old one.
    pub(super) fn put_over(&mut self, mut object: Value) {
        default_namespace(&mut object);
        let identity = Identity::of(&object);
        if let Some(status) = self.0.get(&identity).and_then(|held| held.get("status")) {
            object["status"] = status.clone();
        }
        self.0.insert(identity, object);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn has(&self, identity: &Identity) -> bool {
        self.0.contains_key(identity)
    }

    pub(super) fn get(&self, identity: &Identity) -> Option<&Value> {
        self.0.get(identity)
    }

    pub(super) fn get_mut(&mut self, identity: &Identity) -> Option<&mut Value> {
        self.0.get_mut(identity)
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = (&Identity, &mut Value)> {
        self.0.iter_mut()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&Identity, &Value)> {
        self.0.iter()
    }

    /// Keeps the objects for which this holds.
    pub(super) fn retain(&mut self, keep: impl Fn(&Identity, &Value) -> bool) {
        self.0.retain(|identity, object| keep(identity, object));
    }

    pub(super) fn into_values(self) -> Vec<Value> {
        self.0.into_values().collect()
    }
}
