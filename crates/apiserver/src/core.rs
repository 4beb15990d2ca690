//! The state that verbs and controllers share: objects, kinds, clock, ids and tokens. The layers below (store, kinds,
//! crd, tokens) do not know it.

use std::sync::{Arc, RwLock};

use atoll_apimachinery::{ApiError, meta, raw::RawApi, read_only::Clock};
use jiff::Timestamp;
use serde_json::Value;

use crate::{
    bootstrap, crd,
    ids::Ids,
    kinds::{self, Catalog, Kind, catalog::Snapshot},
    kubelets::Kubelets,
    options::{Authorization, OpenError, Options},
    store::{ObjectKey, Record, Store, TableId},
    tokens::Tokens,
};

/// Namespaces created at the start, as by kube-apiserver's system namespace controller.
pub(crate) const SYSTEM_NAMESPACES: [&str; 4] =
    ["default", "kube-node-lease", "kube-public", "kube-system"];

/// The system namespaces that cannot be deleted (upstream's namespace lifecycle admission).
pub(crate) const IMMORTAL_NAMESPACES: [&str; 3] = ["default", "kube-public", "kube-system"];

/// Store, catalogue, clock and ids of one server.
pub(crate) struct Core {
    pub(crate) store: Store,
    pub(crate) catalog: Catalog,
    pub(crate) clock: Clock,
    pub(crate) ids: Ids,
    pub(crate) garbage_collection: bool,
    pub(crate) authorization: Authorization,
    pub(crate) tokens: Tokens,
    /// APIs whose requests are passed on.
    pub(crate) raw: RwLock<Vec<Arc<dyn RawApi>>>,
    /// What answers for logs and sessions of pods.
    pub(crate) kubelets: RwLock<Option<Arc<dyn Kubelets>>>,
}

impl Core {
    pub(crate) fn open(options: Options) -> Result<Arc<Core>, OpenError> {
        let store = match &options.data {
            None => Store::memory(),
            Some(path) => Store::open(path)?,
        };
        Self::over(store, options)
    }

    /// A server over an open store.
    pub(crate) fn over(store: Store, options: Options) -> Result<Arc<Core>, OpenError> {
        let ids = Ids::new(options.seed, store.opening());
        let core = Core {
            tokens: Tokens::default(),
            raw: RwLock::default(),
            kubelets: RwLock::default(),
            ids,
            store,
            catalog: Catalog::new(),
            clock: options.clock,
            garbage_collection: options.garbage_collection,
            authorization: options.authorization,
        };
        core.sync_catalog();
        for name in SYSTEM_NAMESPACES {
            core.ensure(&Self::namespaces(), bootstrap::namespace(name), &options.data)?;
        }
        if core.authorization == Authorization::Rbac {
            let roles = TableId::new(bootstrap::RBAC_GROUP, "clusterroles");
            core.ensure(&roles, bootstrap::cluster_admin(), &options.data)?;
        }
        Ok(Arc::new(core))
    }

    pub(crate) fn now(&self) -> Timestamp {
        (self.clock)()
    }

    pub(crate) fn kinds(&self) -> Arc<Snapshot> {
        self.catalog.snapshot()
    }

    /// Serves the kinds of the stored CRDs.
    pub(crate) fn sync_catalog(&self) {
        self.catalog.sync(|previous| {
            let definitions = self.store.list(&crd::table(), None).1;
            let served = |r: &Arc<Record>| kinds::custom_kinds(&r.value(), r.revision, previous);
            definitions.iter().flat_map(served).collect()
        });
    }

    /// The namespaces' table.
    pub(crate) fn namespaces() -> TableId {
        TableId::new("", "namespaces")
    }

    /// A stored object, once it is durable.
    pub(crate) async fn read(
        &self,
        kind: &Kind,
        key: &ObjectKey,
    ) -> Result<Option<Arc<Record>>, ApiError> {
        match self.store.get(&kind.table, key) {
            None => Ok(None),
            Some(record) => {
                self.store.durable(record.revision).await?;
                Ok(Some(record))
            }
        }
    }

    /// Sets the metadata that every new object gets.
    pub(crate) fn stamp(&self, object: &mut Value) {
        let (uid, now) = (self.ids.uid(), meta::seconds(self.now()));
        let fields = meta::of(object);
        for gone in [
            "deletionTimestamp",
            "deletionGracePeriodSeconds",
            "resourceVersion",
            "selfLink",
            "generation",
        ] {
            fields.remove(gone);
        }
        fields.insert("uid".to_owned(), uid.into());
        fields.insert("creationTimestamp".to_owned(), now.into());
    }

    /// Creates a cluster-scoped object of a new server.
    fn ensure(
        &self,
        table: &TableId,
        mut object: Value,
        data: &Option<std::path::PathBuf>,
    ) -> Result<(), OpenError> {
        let key = ObjectKey::new("", meta::name(&object));
        if self.store.get(table, &key).is_some() {
            return Ok(());
        }
        self.stamp(&mut object);
        self.store.step(|step| Ok::<_, ApiError>(step.put(table, &key, object))).map(drop).map_err(
            |e| OpenError::Format {
                path: data.clone().unwrap_or_default(),
                reason: format!("{key:?} cannot be created: {e}"),
            },
        )
    }
}
