//! Whether history has every decision that the hub showed.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use atoll_history::{Filter, Record, SqliteStore, Store};
use kube::Api;
use kube::api::DynamicObject;

use super::wait;

/// More rows than a run writes.
const ROWS: usize = 1_000_000;

/// Decisions of bindings as observed on the hub: (binding's uid, decision's id), each once.
pub(crate) fn decisions(api: Api<DynamicObject>) -> Arc<Mutex<Vec<(String, String)>>> {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let log = seen.clone();
    wait::follow(api, move |object| {
        let id = object.data["spec"]["decision"]["id"].as_str().map(str::to_owned);
        if let Some(entry) = object.metadata.uid.zip(id) {
            let mut log = log.lock().unwrap();
            if !log.contains(&entry) {
                log.push(entry);
            }
        }
    });
    seen
}

/// Whether history has every observed decision once, and those of each binding in one chain.
pub(crate) fn complete(rows: &[Record], seen: &[(String, String)]) -> Result<(), String> {
    let mut last: BTreeMap<&str, &str> = BTreeMap::new();
    let mut times: BTreeMap<&str, u32> = BTreeMap::new();
    for row in rows {
        let (binding, record) = (row.binding.uid.as_str(), &row.record);
        let before = last.insert(binding, &record.id);
        if record.parent.as_deref() != before {
            let parent = &record.parent;
            return Err(format!(
                "{} has parent {parent:?} and stands behind {before:?}",
                record.id
            ));
        }
        *times.entry(&record.id).or_default() += 1;
    }
    for (binding, id) in seen {
        let found = times.get(id.as_str()).copied().unwrap_or(0);
        if found != 1 {
            return Err(format!("decision {id} of binding {binding} has {found} rows"));
        }
    }
    Ok(())
}

pub(crate) async fn rows(store: &SqliteStore) -> Vec<Record> {
    let rows = store.tail(&Filter::default(), 0, ROWS).await.unwrap();
    rows.iter().map(|row| row.entry.record().expect("a row that can be read").clone()).collect()
}
