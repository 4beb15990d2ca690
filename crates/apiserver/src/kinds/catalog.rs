//! The currently served kinds. Requests take a snapshot; installing a CRD or mounting a kind replaces it.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, OnceLock, PoisonError, RwLock},
};

use kube::core::Version;
use serde_json::Value;

use super::{Conversion, Kind, Origin, Scale, api_version, builtin};
use crate::{
    crd,
    selector::SelectableField,
    store::TableId,
    virtual_resource::{VirtualKind, VirtualResource},
};

type KindKey = (String, String, String);

/// A consistent snapshot of the kinds.
#[derive(Default)]
pub(crate) struct Snapshot {
    /// By group, version, plural.
    kinds: BTreeMap<KindKey, Arc<Kind>>,
    /// Increases with every change; the cache key of discovery documents.
    pub(crate) generation: u64,
    tables: OnceLock<Arc<BTreeMap<TableId, Arc<Kind>>>>,
}

impl Snapshot {
    fn new(kinds: BTreeMap<KindKey, Arc<Kind>>, generation: u64) -> Arc<Self> {
        Arc::new(Snapshot { kinds, generation, tables: OnceLock::new() })
    }

    pub(crate) fn find(&self, group: &str, version: &str, plural: &str) -> Option<&Arc<Kind>> {
        // Three short strings; a lookup structure that borrows would be more code than it saves.
        self.kinds.get(&(group.to_owned(), version.to_owned(), plural.to_owned()))
    }

    pub(crate) fn all(&self) -> impl Iterator<Item = &Arc<Kind>> {
        self.kinds.values()
    }

    pub(crate) fn of_version<'a>(
        &'a self,
        group: &'a str,
        version: &'a str,
    ) -> impl Iterator<Item = &'a Arc<Kind>> {
        self.all().filter(move |k| k.group == group && k.version == version)
    }

    /// One kind for each table, preferably the storage version.
    pub(crate) fn tables(&self) -> Arc<BTreeMap<TableId, Arc<Kind>>> {
        let made = self.tables.get_or_init(|| {
            let mut tables: BTreeMap<TableId, Arc<Kind>> = BTreeMap::new();
            for kind in self.all().filter(|k| k.is_stored()) {
                if kind.is_storage_version() {
                    tables.insert(kind.table.clone(), kind.clone());
                } else {
                    tables.entry(kind.table.clone()).or_insert_with(|| kind.clone());
                }
            }
            Arc::new(tables)
        });
        made.clone()
    }

    /// The versions of each group, the preferred one first.
    pub(crate) fn groups(&self) -> BTreeMap<&str, Vec<&str>> {
        let mut groups: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
        for kind in self.all() {
            groups.entry(&kind.group).or_default().insert(&kind.version);
        }
        groups
            .into_iter()
            .map(|(group, versions)| {
                let mut versions: Vec<&str> = versions.into_iter().collect();
                sort_versions(&mut versions);
                (group, versions)
            })
            .collect()
    }
}

/// Sorts the versions of a group as discovery lists them: GA before beta before alpha, larger numbers first, anything
/// else last.
fn sort_versions(versions: &mut [&str]) {
    versions.sort_by_cached_key(|version| Reverse(Version::parse(version).priority()));
}

/// The current snapshot; see the module.
pub(crate) struct Catalog {
    current: RwLock<State>,
}

struct State {
    snapshot: Arc<Snapshot>,
    mounted: Vec<Arc<Kind>>,
}

impl Catalog {
    pub(crate) fn new(builtins: bool) -> Self {
        let kinds = builtin::ALL.iter().filter(|_| builtins).map(|b| Arc::new(from_builtin(b)));
        let snapshot = Snapshot::new(keyed(kinds), 1);
        Catalog { current: RwLock::new(State { snapshot, mounted: Vec::new() }) }
    }

    pub(crate) fn snapshot(&self) -> Arc<Snapshot> {
        self.current.read().unwrap_or_else(PoisonError::into_inner).snapshot.clone()
    }

    fn change(&self, work: impl FnOnce(&mut State)) {
        let mut state = self.current.write().unwrap_or_else(PoisonError::into_inner);
        work(&mut state);
    }

    /// Serves a virtual kind. Mounting a kind again replaces it.
    pub(crate) fn mount(&self, resource: Arc<dyn VirtualResource>) {
        let kind = Arc::new(from_virtual(resource));
        self.change(|state| {
            state.mounted.retain(|k| k.table != kind.table);
            state.mounted.push(kind.clone());
            let mut kinds = state.snapshot.kinds.clone();
            kinds.extend(keyed([kind].into_iter()));
            let generation = state.snapshot.generation + 1;
            state.snapshot = Snapshot::new(kinds, generation);
        });
    }

    /// Replaces the custom kinds by those of the CRDs that `read` returns. `read` runs under the catalogue's lock, so
    /// that of two concurrent syncs the later one has seen the newer CRDs.
    pub(crate) fn sync<'a>(&self, read: impl FnOnce() -> Vec<Arc<crate::store::Record>> + 'a) {
        self.change(|state| {
            let definitions = read();
            let previous = &state.snapshot;
            let builtin = previous.kinds.values().filter(|k| k.builtin().is_some()).cloned();
            let mut kinds = keyed(builtin.chain(state.mounted.iter().cloned()));
            for record in &definitions {
                for kind in crd::served(&record.value(), record.revision, previous) {
                    kinds.insert(key(&kind), kind);
                }
            }
            let generation = previous.generation + 1;
            state.snapshot = Snapshot::new(kinds, generation);
        });
    }
}

/// The kind's key in paths.
fn key(kind: &Kind) -> KindKey {
    (kind.group.clone(), kind.version.clone(), kind.plural.clone())
}

fn keyed(kinds: impl Iterator<Item = Arc<Kind>>) -> BTreeMap<KindKey, Arc<Kind>> {
    kinds.map(|kind| (key(&kind), kind)).collect()
}

fn owned(list: &[&str]) -> Vec<String> {
    list.iter().map(|s| (*s).to_owned()).collect()
}

/// Converts a row of the table.
fn from_builtin(b: &'static builtin::Builtin) -> Kind {
    let (storage_group, conversion) = match (b.group, b.kind) {
        ("events.k8s.io", "Event") => ("", Conversion::Event),
        _ => (b.group, Conversion::ApiVersion),
    };
    let stored_version = if conversion == Conversion::Event { "v1" } else { b.version };
    let scale = b.scale.then(|| Scale {
        spec_replicas: "spec.replicas".to_owned(),
        status_replicas: "status.replicas".to_owned(),
        selector: None,
    });
    Kind {
        group: b.group.to_owned(),
        version: b.version.to_owned(),
        kind: b.kind.to_owned(),
        list_kind: format!("{}List", b.kind),
        plural: b.plural.to_owned(),
        singular: b.kind.to_lowercase(),
        short_names: owned(b.short),
        categories: owned(b.categories),
        namespaced: b.namespaced,
        table: TableId::new(storage_group, b.plural),
        stored_api_version: api_version(storage_group, stored_version),
        conversion,
        status: b.status,
        scale,
        selectable: b
            .selectable
            .iter()
            .map(|(label, path, missing)| SelectableField {
                label: (*label).to_owned(),
                path: (*path).to_owned(),
                missing: (*missing).to_owned(),
            })
            .collect(),
        origin: Origin::Builtin(b),
        schema: std::sync::OnceLock::new(),
    }
}

/// A mounted kind.
fn from_virtual(resource: Arc<dyn VirtualResource>) -> Kind {
    let v: VirtualKind = resource.kind();
    Kind {
        group: v.group.clone(),
        version: v.version.clone(),
        kind: v.kind.clone(),
        list_kind: format!("{}List", v.kind),
        plural: v.plural.clone(),
        singular: v.singular.clone(),
        short_names: v.short_names.clone(),
        categories: v.categories.clone(),
        namespaced: v.namespaced,
        table: TableId::new(&v.group, &v.plural),
        stored_api_version: api_version(&v.group, &v.version),
        conversion: Conversion::ApiVersion,
        status: false,
        scale: None,
        selectable: v.selectable.clone(),
        origin: Origin::Virtual(resource, v),
        schema: std::sync::OnceLock::new(),
    }
}

impl Kind {
    /// Whether objects of this kind are in the store.
    pub(crate) fn is_stored(&self) -> bool {
        match &self.origin {
            Origin::Builtin(b) => !b.review,
            Origin::Custom(_) => true,
            Origin::Virtual(..) => false,
        }
    }
}

/// The `spec.versions` entries of a CRD value, read-only.
pub(crate) fn versions(definition: &Value) -> impl Iterator<Item = &Value> {
    definition.pointer("/spec/versions").and_then(Value::as_array).into_iter().flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_ordered_as_kube_aware_version_strings() {
        let mut versions =
            vec!["foo1", "v1alpha2", "v2beta1", "v10", "v1", "v2", "v1beta1", "v1alpha1"];
        sort_versions(&mut versions);
        assert_eq!(
            versions,
            ["v10", "v2", "v1", "v2beta1", "v1beta1", "v1alpha2", "v1alpha1", "foo1"]
        );
    }
}
