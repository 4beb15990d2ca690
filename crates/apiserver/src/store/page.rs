//! Paginated lists. All pages of one list show the same revision: changes since the first page are undone from the
//! table's log; if the log no longer reaches back that far, the list has expired.

use std::{collections::BTreeMap, sync::Arc};

use atoll_apimachinery::ApiError;
use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use serde::{Deserialize, Serialize};

use super::{Changes, ObjectKey, Record, Store, Table, TableId};

/// The position after a page. Opaque to clients.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Continue {
    /// The revision that all pages show.
    #[serde(rename = "rv")]
    pub(crate) revision: u64,
    /// The last object sent.
    #[serde(rename = "ns")]
    namespace: String,
    #[serde(rename = "n")]
    name: String,
}

impl Continue {
    pub(crate) fn after(revision: u64, key: &ObjectKey) -> Self {
        Continue { revision, namespace: key.namespace.clone(), name: key.name.clone() }
    }

    pub(crate) fn key(&self) -> ObjectKey {
        ObjectKey::new(self.namespace.clone(), self.name.clone())
    }

    pub(crate) fn encode(&self) -> String {
        URL_SAFE_NO_PAD.encode(serde_json::to_vec(self).expect("plain strings and a number"))
    }

    pub(crate) fn decode(token: &str) -> Result<Self, ApiError> {
        let parse = || serde_json::from_slice(&URL_SAFE_NO_PAD.decode(token).ok()?).ok();
        parse().ok_or_else(|| {
            ApiError::bad_request("continue key is not valid: it is not a token of this server")
        })
    }
}

/// Objects of one table at one revision, in key order.
pub(crate) struct Page {
    pub(crate) revision: u64,
    pub(crate) records: Vec<Arc<Record>>,
}

impl Store {
    /// The objects after `start` at revision `at`, or current ones. `Err` when `at` is older than the log.
    pub(crate) fn page(
        &self,
        table: &TableId,
        namespace: Option<&str>,
        start: Option<&ObjectKey>,
        at: Option<u64>,
    ) -> Result<Page, ApiError> {
        let inner = self.lock();
        let revision = at.unwrap_or(inner.revision);
        if revision > inner.revision {
            return Err(ApiError::resource_version_too_large(revision, inner.revision));
        }
        let Some(t) = inner.tables.get(table) else {
            return Ok(Page { revision, records: Vec::new() });
        };
        if t.log.back().is_none_or(|c| c.revision <= revision) && revision >= t.floor {
            let records = t.range(namespace, start).map(|(_, r)| r.clone()).collect();
            return Ok(Page { revision, records });
        }
        let records = rewind(t, namespace, start, revision)?;
        Ok(Page { revision, records })
    }

    /// One object as a page.
    pub(crate) fn point(&self, table: &TableId, key: &ObjectKey) -> Page {
        let inner = self.lock();
        let found = inner.tables.get(table).and_then(|t| t.objects.get(key)).cloned();
        Page { revision: inner.revision, records: found.into_iter().collect() }
    }

    /// Whether a watch may start after `revision`.
    pub(crate) fn reaches_back_to(&self, table: &TableId, revision: u64) -> Result<(), ApiError> {
        match self.changes(table, revision, 0) {
            Changes::Expired(floor) => Err(ApiError::too_old(revision, floor)),
            Changes::Batch(..) | Changes::Gone => Ok(()),
        }
    }
}

/// The table as it was at `revision`: an object's first later change contains its earlier state.
fn rewind(
    table: &Table,
    namespace: Option<&str>,
    start: Option<&ObjectKey>,
    revision: u64,
) -> Result<Vec<Arc<Record>>, ApiError> {
    if revision < table.floor {
        return Err(ApiError::expired(
            "The provided continue parameter is too old to display a consistent list result. You must start a new list without the continue parameter.",
        ));
    }
    let wanted = |key: &ObjectKey| {
        namespace.is_none_or(|ns| key.namespace == ns) && start.is_none_or(|s| key > s)
    };
    let mut state: BTreeMap<ObjectKey, Option<Arc<Record>>> =
        table.range(namespace, start).map(|(k, r)| (k.clone(), Some(r.clone()))).collect();
    let from = table.log.partition_point(|c| c.revision <= revision);
    for change in table.log.range(from..).rev() {
        let key = ObjectKey::of(&change.object.value());
        if wanted(&key) {
            state.insert(key, change.previous.clone());
        }
    }
    Ok(state.into_values().flatten().collect())
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn put(store: &Store, table: &TableId, name: &str, data: u32) {
        let value = json!({"metadata": {"name": name, "namespace": "n"}, "data": data});
        store.step(|s| Ok::<_, ApiError>(s.put(table, &ObjectKey::new("n", name), value))).unwrap();
    }

    #[test]
    fn pages_of_one_list_show_one_revision() {
        let (store, table) = (Store::memory(), TableId::new("", "things"));
        for name in ["a", "b", "c"] {
            put(&store, &table, name, 1);
        }
        let first = store.page(&table, None, None, None).unwrap();
        put(&store, &table, "b", 2);
        put(&store, &table, "d", 2);
        store
            .step(|s| {
                let key = ObjectKey::new("n", "c");
                let last = Value::clone(&s.get(&table, &key).unwrap().value());
                Ok::<_, ApiError>(s.remove(&table, &key, last))
            })
            .unwrap();
        let token = Continue::after(first.revision, &ObjectKey::new("n", "a")).encode();
        let token = Continue::decode(&token).unwrap();
        let rest = store.page(&table, Some("n"), Some(&token.key()), Some(token.revision)).unwrap();
        let seen: Vec<_> = rest
            .records
            .iter()
            .map(|r| {
                (atoll_apimachinery::meta::name(&r.value()).to_owned(), r.value()["data"].clone())
            })
            .collect();
        assert_eq!(seen, [("b".to_owned(), json!(1)), ("c".to_owned(), json!(1))]);
    }

    #[tokio::test(start_paused = true)]
    async fn the_log_keeps_young_changes_and_a_few_old_ones_and_pages_older_than_it_expire() {
        let (store, table) = (Store::memory(), TableId::new("", "things"));
        put(&store, &table, "a", 0);
        let first = store.revision();
        let kept = super::super::LOG_KEPT as u32;
        for n in 0..2 * kept {
            put(&store, &table, "b", n);
        }
        assert!(store.page(&table, None, None, Some(first)).is_ok());
        tokio::time::advance(super::super::LOG_AGE * 2).await;
        put(&store, &table, "b", 0);
        let floor = store.revision() - u64::from(kept);
        assert!(store.reaches_back_to(&table, floor).is_ok());
        assert!(store.reaches_back_to(&table, floor - 1).is_err());
        assert_eq!(store.page(&table, None, None, Some(first)).err().unwrap().code, 410);
        assert_eq!(store.reaches_back_to(&table, first).err().unwrap().reason, "Expired");
        assert_eq!(store.page(&table, None, None, Some(u64::MAX)).err().unwrap().code, 504);
    }
}
