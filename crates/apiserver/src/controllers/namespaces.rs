//! Empties terminating namespaces and removes their finalizer (kubernetes `pkg/controller/namespace/deletion`).

use std::{collections::BTreeSet, sync::Arc};

use atoll_apimachinery::{ApiError, meta};
use futures::StreamExt;
use serde_json::{Value, json};

use super::call::{CONCURRENCY, RETRY, call};
use crate::{
    core::Core,
    kinds::rules::set_condition,
    store::{Changes, ObjectKey},
    verbs::{Part, delete, write},
};

const NAME: &str = "namespace-controller";

pub(super) async fn run(core: &Arc<Core>) {
    let table = Core::namespaces();
    let mut signal = core.store.subscribe(&table);
    let mut anything = core.store.subscribe_all();
    let mut terminating = BTreeSet::new();
    let mut cursor = None;
    loop {
        signal.mark_unchanged();
        anything.mark_unchanged();
        follow(core, &mut cursor, &mut terminating);
        let mut failed = false;
        for name in terminating.clone() {
            match empty(core, &name).await {
                Ok(()) => {}
                Err(error) => {
                    tracing::warn!(namespace = name, %error, "namespace cannot be emptied");
                    failed = true;
                }
            }
        }
        if failed {
            tokio::time::sleep(RETRY).await;
            continue;
        }
        // Changes of other kinds matter only while a namespace is terminating.
        let changed = tokio::select! {
            biased;
            changed = signal.changed() => changed,
            changed = anything.changed(), if !terminating.is_empty() => changed,
        };
        if changed.is_err() {
            return;
        }
    }
}

/// Updates the set of terminating namespaces.
fn follow(core: &Core, cursor: &mut Option<u64>, terminating: &mut BTreeSet<String>) {
    let table = Core::namespaces();
    let changes = cursor.map(|c| core.store.changes(&table, c, usize::MAX));
    if let Some(Changes::Batch(batch, upto)) = changes {
        for change in batch {
            let value = &*change.object.value();
            let gone = change.kind == crate::store::ChangeType::Deleted;
            if !gone && meta::is_deleting(value) {
                terminating.insert(meta::name(value).to_owned());
            } else {
                terminating.remove(meta::name(value));
            }
        }
        *cursor = Some(upto);
        return;
    }
    // The first read, or the log is too short.
    let (revision, all) = core.store.list(&table, None);
    *terminating = all
        .iter()
        .filter(|r| meta::is_deleting(&r.value()))
        .map(|r| meta::name(&r.value()).to_owned())
        .collect();
    *cursor = Some(revision);
}

/// Deletes everything in the namespace and, once it is empty, removes its finalizer.
async fn empty(core: &Arc<Core>, name: &str) -> Result<(), ApiError> {
    let kinds = core.kinds().tables();
    let tables = core.store.step(|step| Ok::<_, ApiError>(step.tables_with(name)))?;
    let mut remaining = Vec::new();
    for table in tables {
        let Some(kind) = kinds.get(&table) else { continue };
        let records = core.store.list(&table, Some(name)).1;
        let errors: Vec<ApiError> = futures::stream::iter(records)
            .map(|record| async move {
                let options = delete::Options::background(meta::uid(&record.value()));
                delete::one(core, kind, &ObjectKey::of(&record.value()), &options).await
            })
            .buffer_unordered(CONCURRENCY)
            .filter_map(|result| async { result.err().filter(|e| e.code < 400 || e.code >= 500) })
            .collect()
            .await;
        if let Some(error) = errors.into_iter().next() {
            return Err(error);
        }
        let left = core.store.list(&table, Some(name)).1;
        if !left.is_empty() {
            remaining.push((kind.clone(), left));
        }
    }
    let namespace = ObjectKey::new("", name);
    let Some(kind) = kinds.get(&Core::namespaces()) else { return Ok(()) };
    let mut request = call(core, kind, &namespace, NAME);
    if !remaining.is_empty() {
        request.subresource = Some("status".to_owned());
        let conditions = conditions(core, &remaining);
        return ignore_missing(
            write::modify(&request, Part::Status, |live| {
                let mut object = live.clone();
                for condition in &conditions {
                    put(&mut object, condition);
                }
                Ok(write::draft(object))
            })
            .await,
        );
    }
    request.subresource = Some("finalize".to_owned());
    ignore_missing(
        write::modify(&request, Part::Internal, |live| {
            // The namespace is still empty: creates are refused in a terminating namespace, and they check that in the
            // same step that would create the object.
            let mut object = live.clone();
            meta::child(&mut object, "spec").remove("finalizers");
            Ok(write::draft(object))
        })
        .await,
    )
}

fn ignore_missing<T>(result: Result<T, ApiError>) -> Result<(), ApiError> {
    match result {
        Err(error) if error.code == 404 => Ok(()),
        other => other.map(drop),
    }
}

/// Sets a condition, keeping its time when nothing else changed.
fn put(object: &mut Value, condition: &Value) {
    let status = meta::child(object, "status");
    let same = status.get("conditions").and_then(Value::as_array).is_some_and(|list| {
        list.iter().any(|c| {
            ["type", "status", "reason", "message"].iter().all(|f| c.get(*f) == condition.get(*f))
        })
    });
    if !same {
        set_condition(status, condition.clone());
    }
}

type Left = (Arc<crate::kinds::Kind>, Vec<Arc<crate::store::Record>>);

/// The remaining objects, and the finalizers they wait for.
fn conditions(core: &Core, remaining: &[Left]) -> Vec<Value> {
    let now = meta::seconds(core.now());
    let content: Vec<String> = remaining
        .iter()
        .map(|(kind, left)| {
            let resource = atoll_apimachinery::qualified(&kind.group, &kind.plural);
            format!("{resource} has {} resource instances", left.len())
        })
        .collect();
    let mut finalizers: std::collections::BTreeMap<String, usize> =
        std::collections::BTreeMap::new();
    for record in remaining.iter().flat_map(|(_, left)| left) {
        for finalizer in meta::finalizers(&record.value()) {
            *finalizers.entry(finalizer.to_owned()).or_default() += 1;
        }
    }
    let condition = |kind: &str, reason: &str, message: String| {
        json!({
            "type": kind,
            "status": "True",
            "reason": reason,
            "message": message,
            "lastTransitionTime": now,
        })
    };
    let mut all = vec![condition(
        "NamespaceContentRemaining",
        "SomeResourcesRemain",
        format!("Some resources are remaining: {}", content.join(", ")),
    )];
    if !finalizers.is_empty() {
        let list: Vec<String> =
            finalizers.iter().map(|(f, n)| format!("{f} in {n} resource instances")).collect();
        all.push(condition(
            "NamespaceFinalizersRemaining",
            "SomeFinalizersRemain",
            format!("Some content in the namespace has finalizers remaining: {}", list.join(", ")),
        ));
    }
    all
}
