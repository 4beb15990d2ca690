//! The state of hub and members, from their watches.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use atoll_api::marks;
use serde_json::Value;

use super::kinds::{DEPLOYMENT, Kind, RESOURCE_BINDING};
use super::tap::HUB;

static NOTHING: Value = Value::Null;

/// Objects of every site by kind and key (`ns/name`, or `name` for kinds without namespace). Each watch is in order;
/// across kinds and sites the order is that of arrival.
#[derive(Debug, Clone, Default)]
pub struct View {
    sites: BTreeMap<String, BTreeMap<Kind, BTreeMap<String, Value>>>,
    off: BTreeSet<String>,
    restored: BTreeSet<String>,
}

impl View {
    /// An object of the hub; `Null` if it does not exist.
    #[must_use]
    pub fn hub(&self, kind: &Kind, key: &str) -> &Value {
        self.on(HUB, kind, key)
    }

    /// An object of a member (or of `hub`); `Null` if it does not exist.
    #[must_use]
    pub fn on(&self, site: &str, kind: &Kind, key: &str) -> &Value {
        self.kind(site, kind).and_then(|objects| objects.get(key)).unwrap_or(&NOTHING)
    }

    /// All objects of a kind, in the order of their keys.
    pub fn all(&self, site: &str, kind: &Kind) -> impl Iterator<Item = (&String, &Value)> {
        self.kind(site, kind).into_iter().flatten()
    }

    /// Members that have power, in the order of their names.
    pub fn running(&self) -> impl Iterator<Item = &str> {
        let names = self.sites.keys().map(String::as_str);
        names.filter(|name| *name != HUB && !self.off.contains(*name))
    }

    /// Ready replicas of an object on each member that has power and holds it.
    #[must_use]
    pub fn ready(&self, kind: &Kind, key: &str) -> BTreeMap<String, i64> {
        self.counts(kind, key, "/status/readyReplicas")
    }

    /// Replicas that an object asks for on each member that has power and holds it.
    #[must_use]
    pub fn wanted(&self, kind: &Kind, key: &str) -> BTreeMap<String, i64> {
        self.counts(kind, key, "/spec/replicas")
    }

    /// Objects of a member that Atoll applied, with their kind and key; namespaces are not counted.
    pub fn managed(&self, member: &str) -> impl Iterator<Item = (&Kind, &String, &Value)> {
        let kinds = self.sites.get(member).into_iter().flatten();
        let objects = kinds.flat_map(|(kind, objects)| {
            objects.iter().map(move |(key, object)| (kind, key, object))
        });
        objects.filter(|(kind, _, object)| kind.kind != "Namespace" && is_managed(object))
    }

    /// Observed and desired replicas in a few lines.
    #[must_use]
    pub fn summary(&self) -> String {
        let mut text = String::new();
        for (key, binding) in self.all(HUB, &RESOURCE_BINDING) {
            let spec = &binding["spec"];
            let decision = &spec["decision"];
            let _ = writeln!(
                text,
                "binding {key}: {} of {} replicas, tasks {}, pending {}, shares {}",
                decision["trigger"],
                spec["replicas"],
                spec["gracefulEvictionTasks"],
                decision["pending"],
                spec["clusters"],
            );
            for condition in binding["status"]["conditions"].as_array().into_iter().flatten() {
                let _ = writeln!(
                    text,
                    "  {}={} {} {}",
                    condition["type"],
                    condition["status"],
                    condition["reason"],
                    condition["message"]
                );
            }
        }
        for (key, object) in self.all(HUB, &DEPLOYMENT) {
            let _ = writeln!(text, "hub Deployment {key}: {}", object["status"]);
        }
        for member in self.sites.keys().filter(|site| *site != HUB) {
            let power = if self.off.contains(member) { " (no power)" } else { "" };
            let _ = writeln!(text, "{member}{power}:");
            for (kind, key, object) in self.managed(member) {
                let _ = writeln!(
                    text,
                    "  {} {key}: {} wanted, {} ready",
                    kind.kind, object["spec"]["replicas"], object["status"]["readyReplicas"]
                );
            }
        }
        text
    }

    fn counts(&self, kind: &Kind, key: &str, path: &str) -> BTreeMap<String, i64> {
        let running = self.running().map(|member| (member, self.on(member, kind, key)));
        let held = running.filter(|(_, object)| !object.is_null());
        let count = |object: &Value| object.pointer(path).and_then(Value::as_i64).unwrap_or(0);
        held.map(|(member, object)| (member.to_owned(), count(object))).collect()
    }

    fn kind(&self, site: &str, kind: &Kind) -> Option<&BTreeMap<String, Value>> {
        self.sites.get(site)?.get(kind)
    }

    pub(super) fn set(&mut self, site: &str, kind: Kind, key: &str, object: Value) {
        let kinds = self.sites.entry(site.to_owned()).or_default();
        kinds.entry(kind).or_default().insert(key.to_owned(), object);
    }

    pub(super) fn remove(&mut self, site: &str, kind: &Kind, key: &str) {
        if let Some(objects) = self.sites.get_mut(site).and_then(|kinds| kinds.get_mut(kind)) {
            objects.remove(key);
        }
    }

    pub(super) fn keys(&self, site: &str, kind: &Kind) -> BTreeSet<String> {
        self.kind(site, kind).into_iter().flat_map(|objects| objects.keys().cloned()).collect()
    }

    /// Whether a member was ever restored from a backup.
    pub(super) fn was_restored(&self, member: &str) -> bool {
        self.restored.contains(member)
    }

    /// Drops all state of a member, because another store replaces it.
    pub(super) fn forget(&mut self, member: &str) {
        self.sites.insert(member.to_owned(), BTreeMap::new());
        self.restored.insert(member.to_owned());
    }

    pub(super) fn power(&mut self, member: &str, on: bool) {
        match on {
            true => self.off.remove(member),
            false => self.off.insert(member.to_owned()),
        };
    }
}

/// Whether Atoll applied the object.
fn is_managed(object: &Value) -> bool {
    object["metadata"]["labels"][marks::MANAGED_BY] == marks::MANAGED_BY_VALUE
}

/// Status of a condition; empty if it is missing.
#[must_use]
pub fn condition<'a>(object: &'a Value, type_: &str) -> &'a str {
    let conditions = object["status"]["conditions"].as_array();
    let found = conditions.into_iter().flatten().find(|condition| condition["type"] == type_);
    found.and_then(|condition| condition["status"].as_str()).unwrap_or_default()
}

/// Shares of a binding by cluster.
#[must_use]
pub fn shares(binding: &Value) -> BTreeMap<String, i64> {
    let clusters = binding["spec"]["clusters"].as_array().into_iter().flatten();
    let share = |target: &Value| {
        (
            target["name"].as_str().unwrap_or_default().to_owned(),
            target["replicas"].as_i64().unwrap_or(0),
        )
    };
    clusters.map(share).collect()
}
