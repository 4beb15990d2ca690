//! Garbage collection by ownerReferences (kubernetes `pkg/controller/garbagecollector`): dependents of deleted owners
//! are deleted; `foregroundDeletion` makes an owner wait for its blocking dependents; `orphan` removes the references
//! of
//! dependents first.
//!
//! The graph of owners is built from the tables' logs. It is complete up to a revision of the store, so an owner
//! that is not in it does not exist, and no live lookup is needed.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use atoll_apimachinery::{ApiError, meta};
use serde_json::Value;

use super::call::{RETRY, call};
use crate::{
    core::Core,
    kinds::Kind,
    store::{ChangeType, Changes, ObjectKey, Record, TableId},
    verbs::{
        Part,
        delete::{self, FOREGROUND, ORPHAN},
        write,
    },
};

const NAME: &str = "garbage-collector";
/// Tables whose objects neither own nor are owned: Events are many and short-lived (upstream ignores them too).
const IGNORED: [&str; 2] = ["/events", "internal/keys"];

/// An ownerReference.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Owner {
    uid: String,
    blocks: bool,
}

/// A node of the graph.
#[derive(Debug)]
struct Node {
    table: TableId,
    key: ObjectKey,
    owners: Vec<Owner>,
    deleting: bool,
    foreground: bool,
    orphan: bool,
}

impl Node {
    fn of(table: &TableId, object: &Value) -> Self {
        let owners = meta::get(object, "ownerReferences").and_then(Value::as_array);
        let owners = owners
            .into_iter()
            .flatten()
            .filter_map(|o| {
                Some(Owner {
                    uid: o.get("uid")?.as_str()?.to_owned(),
                    blocks: o.get("blockOwnerDeletion") == Some(&Value::Bool(true)),
                })
            })
            .collect();
        let finalizers = meta::finalizers(object);
        let deleting = meta::is_deleting(object);
        Node {
            table: table.clone(),
            key: ObjectKey::of(object),
            owners,
            deleting,
            foreground: deleting && finalizers.contains(&FOREGROUND),
            orphan: deleting && finalizers.contains(&ORPHAN),
        }
    }
}

#[derive(Default)]
struct Graph {
    cursors: BTreeMap<TableId, u64>,
    nodes: BTreeMap<String, Node>,
    /// Owner's uid to dependents' uids; owners may be absent from `nodes`.
    dependents: BTreeMap<String, BTreeSet<String>>,
    /// Uids to process.
    work: BTreeSet<String>,
}

pub(super) async fn run(core: &Arc<Core>) {
    let mut graph = Graph::default();
    let mut signal = core.store.subscribe_all();
    loop {
        signal.mark_unchanged();
        graph.follow(core);
        let mut failed = false;
        while let Some(uid) = graph.work.pop_first() {
            if let Err(error) = graph.attempt(core, &uid).await {
                tracing::warn!(%error, "garbage collection failed, trying again");
                graph.work.insert(uid);
                failed = true;
                break;
            }
        }
        if failed {
            tokio::time::sleep(RETRY).await;
        } else if signal.changed().await.is_err() {
            return;
        }
    }
}

impl Graph {
    /// Reads the changes since the last call.
    fn follow(&mut self, core: &Core) {
        let tables = core.store.tables();
        let known: Vec<TableId> = self.cursors.keys().cloned().collect();
        for dropped in known.iter().filter(|t| !tables.contains(t)) {
            self.cursors.remove(dropped);
        }
        for table in tables.iter().filter(|t| !IGNORED.contains(&t.as_str())) {
            let changes =
                self.cursors.get(table).map(|c| core.store.changes(table, *c, usize::MAX));
            match changes {
                Some(Changes::Batch(batch, upto)) => {
                    for change in batch {
                        self.see(table, &change.object, change.kind == ChangeType::Deleted);
                    }
                    self.cursors.insert(table.clone(), upto);
                }
                Some(Changes::Gone) => {}
                None | Some(Changes::Expired(_)) => self.relist(core, table),
            }
        }
    }

    /// Reads a whole table again: at the start, and when the log is too short.
    fn relist(&mut self, core: &Core, table: &TableId) {
        let (revision, records) = core.store.list(table, None);
        let present: BTreeSet<String> =
            records.iter().map(|r| meta::uid(&r.outline()).to_owned()).collect();
        let gone: Vec<String> = self
            .nodes
            .iter()
            .filter(|(uid, node)| node.table == *table && !present.contains(*uid))
            .map(|(uid, _)| uid.clone())
            .collect();
        for uid in gone {
            self.forget(&uid);
        }
        for record in &records {
            self.see(table, record, false);
        }
        self.cursors.insert(table.clone(), revision);
    }

    /// Applies an object's new state and queues the objects that it affects.
    fn see(&mut self, table: &TableId, record: &Record, gone: bool) {
        let value = record.outline();
        let uid = meta::uid(&value);
        if uid.is_empty() {
            return;
        }
        if gone {
            self.forget(uid);
            return;
        }
        let node = Node::of(table, &value);
        if let Some(old) = self.nodes.remove(uid) {
            self.unlink(uid, &old.owners);
            // A dependent that no longer blocks may release its owner.
            self.work.extend(old.owners.into_iter().map(|o| o.uid));
        }
        for owner in &node.owners {
            self.dependents.entry(owner.uid.clone()).or_default().insert(uid.to_owned());
        }
        if !node.owners.is_empty() || node.foreground || node.orphan {
            self.work.insert(uid.to_owned());
        }
        if node.foreground {
            self.work.extend(self.dependents.get(uid).into_iter().flatten().cloned());
        }
        self.nodes.insert(uid.to_owned(), node);
    }

    /// Removes an object from its owners' dependents.
    fn unlink(&mut self, uid: &str, owners: &[Owner]) {
        for owner in owners {
            if let Some(set) = self.dependents.get_mut(&owner.uid) {
                set.remove(uid);
                if set.is_empty() {
                    self.dependents.remove(&owner.uid);
                }
            }
        }
    }

    /// The object is gone: queues its dependents and its waiting owners.
    fn forget(&mut self, uid: &str) {
        if let Some(node) = self.nodes.remove(uid) {
            self.unlink(uid, &node.owners);
            self.work.extend(node.owners.into_iter().map(|o| o.uid));
        }
        self.work.extend(self.dependents.get(uid).into_iter().flatten().cloned());
    }

    /// Whether the owner exists for this dependent: an owner in another namespace does not count.
    fn owner_of(&self, owner: &Owner, dependent: &Node) -> Option<&Node> {
        let found = self.nodes.get(&owner.uid)?;
        let visible =
            found.key.namespace.is_empty() || found.key.namespace == dependent.key.namespace;
        visible.then_some(found)
    }

    /// Takes the next step for one object. The results come back through the log.
    async fn attempt(&mut self, core: &Arc<Core>, uid: &str) -> Result<(), ApiError> {
        let Some(node) = self.nodes.get(uid) else { return Ok(()) };
        let kinds = core.kinds().tables();
        let Some(kind) = kinds.get(&node.table) else { return Ok(()) };
        if node.orphan {
            return self.orphan(core, &kinds, kind, uid).await;
        }
        if node.foreground {
            let blocked = self.dependents.get(uid).into_iter().flatten().any(|d| {
                self.nodes.get(d).is_some_and(|d| d.owners.iter().any(|o| o.uid == uid && o.blocks))
            });
            if !blocked {
                return drop_finalizer(core, kind, &node.key, FOREGROUND).await;
            }
            // Dependents were queued when the deletion began.
            return Ok(());
        }
        if node.deleting || node.owners.is_empty() {
            return Ok(());
        }
        let (mut solid, mut waiting, mut useless) = (0, 0, BTreeSet::new());
        for owner in &node.owners {
            match self.owner_of(owner, node) {
                Some(found) if found.foreground => {
                    waiting += 1;
                    useless.insert(owner.uid.clone());
                }
                Some(_) => solid += 1,
                None => {
                    useless.insert(owner.uid.clone());
                }
            }
        }
        if solid > 0 {
            if useless.is_empty() {
                return Ok(());
            }
            return drop_owners(core, kind, &node.key, uid, &useless).await;
        }
        let has_dependents = self.dependents.get(uid).is_some_and(|d| !d.is_empty());
        let options = if waiting > 0 && has_dependents {
            delete::Options::foreground(uid)
        } else {
            delete::Options::background(uid)
        };
        tracing::debug!(object = ?node.key, kind = kind.kind, "collected: its owners are gone");
        ignore(delete::one(core, kind, &node.key, &options).await)
    }

    /// Removes the dependents' references, then the owner's finalizer.
    async fn orphan(
        &self,
        core: &Arc<Core>,
        kinds: &BTreeMap<TableId, Arc<Kind>>,
        kind: &Arc<Kind>,
        uid: &str,
    ) -> Result<(), ApiError> {
        let owners = BTreeSet::from([uid.to_owned()]);
        for dependent in self.dependents.get(uid).into_iter().flatten() {
            let Some(node) = self.nodes.get(dependent) else { continue };
            let Some(kind) = kinds.get(&node.table) else { continue };
            drop_owners(core, kind, &node.key, dependent, &owners).await?;
        }
        let Some(node) = self.nodes.get(uid) else { return Ok(()) };
        drop_finalizer(core, kind, &node.key, ORPHAN).await
    }
}

/// The object may be gone or replaced by now; the log will show it.
fn ignore<T>(result: Result<T, ApiError>) -> Result<(), ApiError> {
    match result {
        Err(error) if !matches!(error.code, 404 | 409) => Err(error),
        _ => Ok(()),
    }
}

/// The last step of a foreground or orphaning deletion.
async fn drop_finalizer(
    core: &Arc<Core>,
    kind: &Arc<Kind>,
    key: &ObjectKey,
    finalizer: &str,
) -> Result<(), ApiError> {
    let request = call(core, kind, key, NAME);
    let written = write::modify(&request, Part::Internal, |live| {
        let mut object = live.clone();
        let left = meta::finalizers(live)
            .into_iter()
            .filter(|f| *f != finalizer)
            .map(str::to_owned)
            .collect();
        meta::set_finalizers(&mut object, left);
        Ok(write::draft(object))
    });
    ignore(written.await)
}

/// Removes references to deleted or terminating owners from an object that stays.
async fn drop_owners(
    core: &Arc<Core>,
    kind: &Arc<Kind>,
    key: &ObjectKey,
    uid: &str,
    owners: &BTreeSet<String>,
) -> Result<(), ApiError> {
    let request = call(core, kind, key, NAME);
    let written = write::modify(&request, Part::Internal, |live| {
        let mut object = live.clone();
        // Another object with the same name is not affected.
        if meta::uid(live) == uid {
            let left: Vec<Value> = meta::get(live, "ownerReferences")
                .and_then(Value::as_array)
                .into_iter()
                .flatten()
                .filter(|o| o["uid"].as_str().is_none_or(|u| !owners.contains(u)))
                .cloned()
                .collect();
            meta::set(&mut object, "ownerReferences", (!left.is_empty()).then(|| left.into()));
        }
        Ok(write::draft(object))
    });
    ignore(written.await)
}
