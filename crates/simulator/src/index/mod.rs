//! The member's objects in memory, with the secondary indexes that its controllers need. Synchronous, no I/O.
//!
//! Its inputs are the watches and the answers to our own writes. The answers are applied at once, so that the next
//! decision never acts on state that the previous one has already changed. Resource versions decide which input is
//! newer.

pub(crate) mod fields;
pub(crate) mod kind;
pub(crate) mod object;
pub(crate) mod pod;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use kind::Kind;
use object::{Key, Object};

/// What one event did: the object before and after.
#[derive(Debug, Clone)]
pub(crate) struct Change {
    pub(crate) old: Option<Arc<Object>>,
    pub(crate) new: Option<Arc<Object>>,
}

impl Change {
    /// The object after the change, or its last state if it was deleted.
    pub(crate) fn latest(&self) -> Option<&Arc<Object>> {
        self.new.as_ref().or(self.old.as_ref())
    }

    /// The existing sides, the older one first.
    pub(crate) fn sides(&self) -> impl Iterator<Item = &Arc<Object>> {
        self.old.iter().chain(self.new.iter())
    }
}

/// A list in progress: the objects it has returned, and those that our own writes touched since (the list may be
/// older).
#[derive(Debug, Default)]
struct Relist {
    seen: BTreeSet<Key>,
    touched: BTreeSet<Key>,
}

/// The tables.
#[derive(Debug, Default)]
pub(crate) struct Index {
    tables: BTreeMap<Kind, BTreeMap<Key, Arc<Object>>>,
    /// By the uid of the controlling owner.
    owned: BTreeMap<String, BTreeSet<(Kind, Key)>>,
    /// Objects that no controller owns, by kind and namespace.
    orphans: BTreeMap<(Kind, String), BTreeSet<Key>>,
    /// Pods by the node that they are bound to.
    on_node: BTreeMap<String, BTreeSet<Key>>,
    /// Pods bound to no node.
    unbound: BTreeSet<Key>,
    relists: BTreeMap<Kind, Relist>,
    /// Uids that our own writes removed and whose DELETED event is still pending: older events must not revive them.
    removed: BTreeMap<Kind, BTreeSet<String>>,
}

impl Index {
    pub(crate) fn get(&self, kind: Kind, key: &Key) -> Option<&Arc<Object>> {
        self.tables.get(&kind)?.get(key)
    }

    /// All objects of a kind, by namespace and name.
    pub(crate) fn all(&self, kind: Kind) -> impl Iterator<Item = &Arc<Object>> {
        self.tables.get(&kind).into_iter().flat_map(BTreeMap::values)
    }

    /// All objects of a kind in a namespace, by name.
    pub(crate) fn in_namespace<'a>(
        &'a self,
        kind: Kind,
        namespace: &'a str,
    ) -> impl Iterator<Item = &'a Arc<Object>> {
        self.tables
            .get(&kind)
            .into_iter()
            .flat_map(move |table| table.range(Key::new(namespace, "")..))
            .take_while(move |(key, _)| key.namespace == namespace)
            .map(|(_, object)| object)
    }

    /// Objects of a kind that the owner with this uid controls.
    pub(crate) fn owned(&self, uid: &str, kind: Kind) -> impl Iterator<Item = &Arc<Object>> {
        self.owned
            .get(uid)
            .into_iter()
            .flatten()
            .filter(move |(child, _)| *child == kind)
            .filter_map(|(kind, key)| self.get(*kind, key))
    }

    /// Objects of a kind in a namespace that no controller owns.
    pub(crate) fn orphans(
        &self,
        kind: Kind,
        namespace: &str,
    ) -> impl Iterator<Item = &Arc<Object>> {
        self.orphans
            .get(&(kind, namespace.to_owned()))
            .into_iter()
            .flatten()
            .filter_map(move |key| self.get(kind, key))
    }

    /// Pods bound to a node.
    pub(crate) fn on_node(&self, node: &str) -> impl Iterator<Item = &Arc<Object>> {
        self.on_node.get(node).into_iter().flatten().filter_map(|key| self.get(Kind::Pod, key))
    }

    /// Pods bound to no node.
    pub(crate) fn unbound(&self) -> impl Iterator<Item = &Arc<Object>> {
        self.unbound.iter().filter_map(|key| self.get(Kind::Pod, key))
    }

    /// The answer to our own write: the current object.
    pub(crate) fn written(&mut self, object: Object) -> Option<Change> {
        if let Some(relist) = self.relists.get_mut(&object.kind) {
            relist.touched.insert(object.key.clone());
        }
        self.upsert(object)
    }

    /// The answer to our own delete that removed the object.
    pub(crate) fn erased(&mut self, kind: Kind, key: &Key, uid: &str) -> Option<Change> {
        if let Some(relist) = self.relists.get_mut(&kind) {
            relist.touched.insert(key.clone());
        }
        self.removed.entry(kind).or_default().insert(uid.to_owned());
        self.remove(kind, key, uid)
    }

    /// A watch event ADDED or MODIFIED.
    pub(crate) fn observed(&mut self, object: Object) -> Option<Change> {
        if self.removed.get(&object.kind).is_some_and(|removed| removed.contains(&object.uid)) {
            return None;
        }
        self.upsert(object)
    }

    /// A watch event DELETED.
    pub(crate) fn vanished(&mut self, kind: Kind, key: &Key, uid: &str) -> Option<Change> {
        if let Some(removed) = self.removed.get_mut(&kind) {
            removed.remove(uid);
        }
        self.remove(kind, key, uid)
    }

    /// A list begins: the watch starts over.
    pub(crate) fn list_begins(&mut self, kind: Kind) {
        // The list is read after this moment, so it cannot return objects that are already gone.
        self.removed.remove(&kind);
        self.relists.insert(kind, Relist::default());
    }

    /// An object of the list.
    pub(crate) fn listed(&mut self, object: Object) -> Option<Change> {
        if let Some(relist) = self.relists.get_mut(&object.kind) {
            relist.seen.insert(object.key.clone());
        }
        self.observed(object)
    }

    /// The list is complete: objects it lacks are gone.
    pub(crate) fn list_ends(&mut self, kind: Kind) -> Vec<Change> {
        let Some(Relist { seen, touched }) = self.relists.remove(&kind) else {
            return Vec::new();
        };
        let lost: Vec<_> = self
            .all(kind)
            .filter(|object| !seen.contains(&object.key) && !touched.contains(&object.key))
            .cloned()
            .collect();
        lost.iter().filter_map(|object| self.remove(kind, &object.key, &object.uid)).collect()
    }

    fn upsert(&mut self, object: Object) -> Option<Change> {
        let (kind, key) = (object.kind, object.key.clone());
        let old = self.get(kind, &key).cloned();
        if let Some(old) = &old {
            if old.version >= object.version {
                return None;
            }
            self.unlink(old);
        }
        let new = Arc::new(object);
        self.link(&new);
        self.tables.entry(kind).or_default().insert(key, Arc::clone(&new));
        Some(Change { old, new: Some(new) })
    }

    fn remove(&mut self, kind: Kind, key: &Key, uid: &str) -> Option<Change> {
        let table = self.tables.get_mut(&kind)?;
        if table.get(key)?.uid != uid {
            return None;
        }
        let old = table.remove(key)?;
        self.unlink(&old);
        Some(Change { old: Some(old), new: None })
    }

    fn link(&mut self, object: &Object) {
        let key = object.key.clone();
        match object.controller() {
            Some(owner) => {
                self.owned.entry(owner.uid.clone()).or_default().insert((object.kind, key.clone()));
            }
            None => {
                let home = (object.kind, key.namespace.clone());
                self.orphans.entry(home).or_default().insert(key.clone());
            }
        }
        if let Some(pod) = &object.pod {
            match &pod.node {
                Some(node) => {
                    self.on_node.entry(node.clone()).or_default().insert(key);
                }
                None => {
                    self.unbound.insert(key);
                }
            }
        }
    }

    fn unlink(&mut self, object: &Object) {
        let key = &object.key;
        match object.controller() {
            Some(owner) => {
                take(&mut self.owned, &owner.uid, &(object.kind, key.clone()));
            }
            None => take(&mut self.orphans, &(object.kind, key.namespace.clone()), key),
        }
        if let Some(pod) = &object.pod {
            match &pod.node {
                Some(node) => take(&mut self.on_node, node, key),
                None => {
                    self.unbound.remove(key);
                }
            }
        }
    }
}

/// Removes `item` from the set under `key`, and the set from the map when it is empty.
fn take<K: Ord, T: Ord>(map: &mut BTreeMap<K, BTreeSet<T>>, key: &K, item: &T) {
    if let Some(set) = map.get_mut(key) {
        set.remove(item);
        if set.is_empty() {
            map.remove(key);
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn pod(name: &str, uid: &str, version: u64, node: Option<&str>) -> Object {
        let value = json!({
            "metadata": {"name": name, "namespace": "d", "uid": uid, "resourceVersion": version.to_string()},
            "spec": {"nodeName": node},
        });
        Object::new(Kind::Pod, serde_json::from_value(value).unwrap())
    }

    fn names(index: &Index) -> Vec<String> {
        index.all(Kind::Pod).map(|pod| pod.key.name.clone()).collect()
    }

    #[test]
    fn the_newer_version_wins_whoever_brings_it() {
        let mut index = Index::default();
        assert!(index.observed(pod("a", "u", 1, None)).is_some());
        assert!(index.written(pod("a", "u", 3, Some("n"))).is_some());
        assert!(index.observed(pod("a", "u", 2, None)).is_none());
        assert_eq!((index.unbound().count(), index.on_node("n").count()), (0, 1));
    }

    #[test]
    fn a_late_event_does_not_revive_what_we_removed() {
        let mut index = Index::default();
        index.observed(pod("a", "u", 1, None));
        let key = Key::new("d", "a");
        assert!(index.erased(Kind::Pod, &key, "u").is_some());
        assert!(index.observed(pod("a", "u", 2, None)).is_none());
        // The name may be reused; the old object's DELETED event does not affect the new one.
        assert!(index.written(pod("a", "v", 4, None)).is_some());
        assert!(index.vanished(Kind::Pod, &key, "u").is_none());
        assert_eq!(names(&index), ["a"]);
    }

    #[test]
    fn a_list_removes_what_it_lacks_but_not_what_was_written_meanwhile() {
        let mut index = Index::default();
        index.observed(pod("lost", "1", 1, Some("n")));
        index.observed(pod("kept", "2", 2, Some("n")));
        index.list_begins(Kind::Pod);
        index.listed(pod("kept", "2", 2, Some("n")));
        index.written(pod("ours", "3", 5, None));
        let changes = index.list_ends(Kind::Pod);
        assert_eq!(changes.len(), 1);
        assert_eq!(names(&index), ["kept", "ours"]);
        assert_eq!(index.on_node("n").count(), 1);
    }
}
