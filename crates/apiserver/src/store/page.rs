//! Paginated lists. All pages of one list show the same revision: changes since the first page are undone from the
//! table's log; if the log no longer reaches back that far, the list has expired.

use std::{
    cmp::Ordering,
    collections::{BTreeMap, btree_map},
    iter::Peekable,
    sync::Arc,
};

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
    /// Key of the last one.
    pub(crate) last: Option<ObjectKey>,
    /// Number of objects after it.
    pub(crate) remaining: usize,
}

impl Store {
    /// At most `most` objects after `start` at revision `at`, or current ones. `Err` when `at` is older than the log.
    pub(crate) fn page(
        &self,
        table: &TableId,
        namespace: Option<&str>,
        start: Option<&ObjectKey>,
        at: Option<u64>,
        most: usize,
    ) -> Result<Page, ApiError> {
        let inner = self.lock();
        let revision = at.unwrap_or(inner.revision);
        if revision > inner.revision {
            return Err(ApiError::resource_version_too_large(revision, inner.revision));
        }
        let Some(table) = inner.tables.get(table) else {
            return Ok(Page { revision, records: Vec::new(), last: None, remaining: 0 });
        };
        let mut objects = table.at(revision, namespace, start)?;
        let mut last = None;
        let taken = objects.by_ref().take(most).map(|(key, record)| {
            last = Some(key);
            record.clone()
        });
        let records = taken.collect();
        Ok(Page { revision, records, last: last.cloned(), remaining: objects.count() })
    }

    /// One object as a page.
    pub(crate) fn point(&self, table: &TableId, key: &ObjectKey) -> Page {
        let inner = self.lock();
        let found = inner.tables.get(table).and_then(|t| t.objects.get(key)).cloned();
        let records = found.into_iter().collect();
        Page { revision: inner.revision, records, last: None, remaining: 0 }
    }

    /// Whether a watch may start after `revision`.
    pub(crate) fn reaches_back_to(&self, table: &TableId, revision: u64) -> Result<(), ApiError> {
        match self.changes(table, revision, 0) {
            Changes::Expired(floor) => Err(ApiError::too_old(revision, floor)),
            Changes::Batch(..) | Changes::Gone => Ok(()),
        }
    }
}

impl Table {
    /// The objects after `start` as they were at `revision`.
    fn at(
        &self,
        revision: u64,
        namespace: Option<&str>,
        start: Option<&ObjectKey>,
    ) -> Result<impl Iterator<Item = (&ObjectKey, &Arc<Record>)>, ApiError> {
        if revision < self.floor {
            return Err(ApiError::expired(
                "The provided continue parameter is too old to display a consistent list result. You must start a new list without the continue parameter.",
            ));
        }
        let wanted = |key: &ObjectKey| {
            namespace.is_none_or(|ns| key.namespace == ns) && start.is_none_or(|s| key > s)
        };
        // An object's first later change contains its earlier state.
        let from = self.log.partition_point(|change| change.revision <= revision);
        let later = self.log.range(from..).rev().filter(|change| wanted(&change.key));
        let changed: BTreeMap<&ObjectKey, Option<&Arc<Record>>> =
            later.map(|change| (&change.key, change.previous.as_ref())).collect();
        Ok(Rewound {
            current: self.range(namespace, start).peekable(),
            changed: changed.into_iter().peekable(),
        })
    }
}

/// The current objects, but those that were changed since then as they were before: `None` if they did not exist.
struct Rewound<'a, Current: Iterator<Item = (&'a ObjectKey, &'a Arc<Record>)>> {
    current: Peekable<Current>,
    changed: Peekable<btree_map::IntoIter<&'a ObjectKey, Option<&'a Arc<Record>>>>,
}

impl<'a, Current: Iterator<Item = (&'a ObjectKey, &'a Arc<Record>)>> Iterator
    for Rewound<'a, Current>
{
    type Item = (&'a ObjectKey, &'a Arc<Record>);

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let Some((changed, _)) = self.changed.peek() else { return self.current.next() };
            let order = self.current.peek().map_or(Ordering::Greater, |(key, _)| key.cmp(changed));
            if order == Ordering::Less {
                return self.current.next();
            }
            if order == Ordering::Equal {
                self.current.next();
            }
            if let Some((key, Some(before))) = self.changed.next() {
                return Some((key, before));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn put(store: &Store, table: &TableId, name: &str, data: u32) {
        let value = json!({"metadata": {"name": name, "namespace": "n"}, "data": data});
        store.step(|s| Ok::<_, ApiError>(s.put(table, &ObjectKey::new("n", name), value))).unwrap();
    }

    fn remove(store: &Store, table: &TableId, name: &str) {
        let key = ObjectKey::new("n", name);
        store
            .step(|s| {
                let last = Value::clone(&s.get(table, &key).unwrap().value());
                Ok::<_, ApiError>(s.remove(table, &key, last))
            })
            .unwrap();
    }

    #[test]
    fn pages_of_one_list_show_one_revision() {
        let (store, table) = (Store::memory(), TableId::new("", "things"));
        for name in ["a", "b", "c"] {
            put(&store, &table, name, 1);
        }
        let first = store.page(&table, None, None, None, usize::MAX).unwrap();
        put(&store, &table, "b", 2);
        put(&store, &table, "d", 2);
        remove(&store, &table, "c");
        let token = Continue::after(first.revision, &ObjectKey::new("n", "a")).encode();
        let token = Continue::decode(&token).unwrap();
        let rest = store
            .page(&table, Some("n"), Some(&token.key()), Some(token.revision), usize::MAX)
            .unwrap();
        let seen: Vec<_> = rest
            .records
            .iter()
            .map(|r| {
                (atoll_apimachinery::meta::name(&r.value()).to_owned(), r.value()["data"].clone())
            })
            .collect();
        assert_eq!(seen, [("b".to_owned(), json!(1)), ("c".to_owned(), json!(1))]);
    }

    /// Names and data of all pages of two objects each.
    fn by_pages(store: &Store, table: &TableId, at: u64) -> Vec<(String, Value)> {
        let (mut seen, mut start) = (Vec::new(), None);
        loop {
            let page = store.page(table, None, start.as_ref(), Some(at), 2).unwrap();
            let values = page.records.iter().map(|record| record.value());
            seen.extend(values.map(|value| {
                (atoll_apimachinery::meta::name(&value).to_owned(), value["data"].clone())
            }));
            assert_eq!(
                page.last.as_ref().map(|key| &*key.name),
                seen.last().map(|(name, _)| &**name)
            );
            if page.remaining == 0 {
                return seen;
            }
            let rest = store.page(table, None, page.last.as_ref(), Some(at), usize::MAX).unwrap();
            assert_eq!(page.remaining, rest.records.len());
            start = page.last;
        }
    }

    #[test]
    fn any_revision_is_listed_page_by_page_as_it_was() {
        let (store, table) = (Store::memory(), TableId::new("", "things"));
        let mut lists = Vec::new();
        let mut things = BTreeMap::new();
        // Objects are created, changed and deleted in mixed order.
        for step in 0..60_u32 {
            let name = format!("thing-{}", step * 7 % 11);
            if step % 3 == 2 && things.remove(&name).is_some() {
                remove(&store, &table, &name);
            } else {
                put(&store, &table, &name, step);
                things.insert(name, json!(step));
            }
            lists.push((store.revision(), things.clone().into_iter().collect::<Vec<_>>()));
        }
        for (revision, list) in lists {
            assert_eq!(by_pages(&store, &table, revision), list, "at {revision}");
        }
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
        assert!(store.page(&table, None, None, Some(first), usize::MAX).is_ok());
        tokio::time::advance(super::super::LOG_AGE * 2).await;
        put(&store, &table, "b", 0);
        let floor = store.revision() - u64::from(kept);
        assert!(store.reaches_back_to(&table, floor).is_ok());
        assert!(store.reaches_back_to(&table, floor - 1).is_err());
        assert_eq!(
            store.page(&table, None, None, Some(first), usize::MAX).err().unwrap().code,
            410
        );
        assert_eq!(store.reaches_back_to(&table, first).err().unwrap().reason, "Expired");
        assert_eq!(
            store.page(&table, None, None, Some(u64::MAX), usize::MAX).err().unwrap().code,
            504
        );
    }
}
