//! Removes the objects of deleted CRDs, then the CRDs (apiextensions `pkg/controller/finalizer`).

use std::sync::Arc;

use atoll_apimachinery::{ApiError, meta};
use futures::StreamExt;
use serde_json::Value;

use super::call::{CONCURRENCY, RETRY, call};
use crate::{
    core::Core,
    crd::{self, definition},
    store::ObjectKey,
    verbs::{Part, delete, write},
};

const NAME: &str = "crd-finalizer";

pub(super) async fn run(core: &Arc<Core>) {
    let mut signal = core.store.subscribe(&crd::table());
    let mut anything = core.store.subscribe_all();
    loop {
        signal.mark_unchanged();
        anything.mark_unchanged();
        let definitions = core.store.list(&crd::table(), None).1;
        let terminating: Vec<Arc<Value>> = definitions
            .iter()
            .map(|record| record.value())
            .filter(|definition| meta::is_deleting(definition))
            .collect();
        let mut failed = false;
        for definition in &terminating {
            if let Err(error) = clean(core, definition).await {
                let name = meta::name(definition);
                tracing::warn!(crd = name, %error, "objects of a deleted CRD cannot be removed");
                failed = true;
            }
        }
        if failed {
            tokio::time::sleep(RETRY).await;
            continue;
        }
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

/// Deletes the objects; when none are left, removes the CRD's finalizer, and with it the CRD.
async fn clean(core: &Arc<Core>, crd: &Value) -> Result<(), ApiError> {
    if !meta::finalizers(crd).contains(&definition::CLEANUP) {
        return Ok(());
    }
    let kinds = core.kinds().tables();
    let table = crd::objects_table(crd);
    // A CRD that was never served has no objects.
    if let Some(kind) = kinds.get(&table).filter(|k| k.custom().is_some()) {
        let records = core.store.list(&table, None).1;
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
        if definition::has_objects(crd, &core.store) {
            return Ok(());
        }
    }
    let Some(kind) = kinds.get(&crd::table()) else { return Ok(()) };
    let request = call(core, kind, &ObjectKey::new("", meta::name(crd)), NAME);
    let written = write::modify(&request, Part::Internal, |live| {
        let mut object = live.clone();
        let left = meta::finalizers(live)
            .into_iter()
            .filter(|f| *f != definition::CLEANUP)
            .map(str::to_owned)
            .collect();
        meta::set_finalizers(&mut object, left);
        Ok(write::draft(object))
    })
    .await;
    match written {
        Err(error) if error.code != 404 => Err(error),
        _ => {
            // Watches of the kind end here.
            if core.store.get(&crd::table(), &ObjectKey::new("", meta::name(crd))).is_none() {
                core.store.drop_table(&table);
            }
            Ok(())
        }
    }
}
