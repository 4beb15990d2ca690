//! The currently served kinds. Requests take a snapshot; installing a CRD or mounting a kind replaces it.

use std::{
    collections::BTreeMap,
    ops::Deref,
    sync::{Arc, OnceLock, PoisonError, RwLock},
};

use atoll_apimachinery::{
    kind::{KindNames, ServedKind, ServedKinds, api_version},
    read_only::{ReadOnlyKind, VirtualResource},
    selector::SelectableField,
};

use super::{
    builtin,
    kind::{Conversion, Kind, Origin, Scale},
};
use crate::store::TableId;

/// A consistent snapshot of the kinds.
#[derive(Default)]
pub(crate) struct Snapshot {
    kinds: ServedKinds<Kind>,
    tables: OnceLock<Arc<BTreeMap<TableId, Arc<Kind>>>>,
}

impl Deref for Snapshot {
    type Target = ServedKinds<Kind>;

    fn deref(&self) -> &ServedKinds<Kind> {
        &self.kinds
    }
}

impl Snapshot {
    /// Of two kinds with the same path the later one counts.
    fn new(kinds: impl IntoIterator<Item = Arc<Kind>>, generation: u64) -> Arc<Self> {
        let kinds = ServedKinds::new(kinds, generation);
        Arc::new(Snapshot { kinds, tables: OnceLock::new() })
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
    pub(crate) fn new() -> Self {
        let snapshot = Snapshot::new(builtin::ALL.iter().map(|b| Arc::new(from_builtin(b))), 1);
        Catalog { current: RwLock::new(State { snapshot, mounted: Vec::new() }) }
    }

    pub(crate) fn snapshot(&self) -> Arc<Snapshot> {
        self.current.read().unwrap_or_else(PoisonError::into_inner).snapshot.clone()
    }

    fn change(&self, work: impl FnOnce(&mut State)) {
        let mut state = self.current.write().unwrap_or_else(PoisonError::into_inner);
        work(&mut state);
    }

    /// Serves a kind whose objects are stored elsewhere. Mounting a kind again replaces it.
    pub(crate) fn mount(&self, resource: Arc<dyn VirtualResource>) {
        let kind = Arc::new(from_virtual(resource));
        self.change(|state| {
            state.mounted.retain(|k| k.table != kind.table);
            state.mounted.push(kind.clone());
            let kinds = state.snapshot.all().cloned().chain([kind]);
            state.snapshot = Snapshot::new(kinds, state.snapshot.generation + 1);
        });
    }

    /// Replaces the custom kinds by those that `read` makes of the CRDs, given the previous kinds. `read` runs under
    /// the catalogue's lock, so that of two concurrent syncs the later one has seen the newer CRDs.
    pub(crate) fn sync(&self, read: impl FnOnce(&Snapshot) -> Vec<Arc<Kind>>) {
        self.change(|state| {
            let previous = &state.snapshot;
            let custom = read(previous);
            let builtin = previous.all().filter(|k| k.builtin().is_some()).cloned();
            let kinds = builtin.chain(state.mounted.iter().cloned()).chain(custom);
            state.snapshot = Snapshot::new(kinds, previous.generation + 1);
        });
    }
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
        names: KindNames {
            group: b.group.to_owned(),
            version: b.version.to_owned(),
            kind: b.kind.to_owned(),
            list_kind: format!("{}List", b.kind),
            plural: b.plural.to_owned(),
            singular: b.kind.to_lowercase(),
            short_names: owned(b.short),
            categories: owned(b.categories),
            namespaced: b.namespaced,
        },
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
        schema: OnceLock::new(),
    }
}

/// A mounted kind.
fn from_virtual(resource: Arc<dyn VirtualResource>) -> Kind {
    let kind = Arc::new(ReadOnlyKind::new(resource));
    let names = kind.names().clone();
    Kind {
        table: TableId::new(&names.group, &names.plural),
        stored_api_version: names.api_version(),
        names,
        conversion: Conversion::ApiVersion,
        status: false,
        scale: None,
        // The kind checks selectors itself.
        selectable: Vec::new(),
        origin: Origin::Virtual(kind),
        schema: OnceLock::new(),
    }
}
