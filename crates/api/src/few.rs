//! A map of few entries: labels, a workload's members, the claims of an object. A sorted list takes a tenth of the memory of
//! a `BTreeMap` with one entry, which has room for eleven.

use std::borrow::Borrow;
use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::share_equal;

/// Up to this number of entries there is no spare room.
const FEW: usize = 8;

/// Entries in the order of their keys.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Few<K, V = ()>(Vec<(K, V)>);

/// Labels of a workload's pods.
pub type PodLabels = Few<Box<str>, Box<str>>;

impl<K, V> Default for Few<K, V> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<K: Ord, V> Few<K, V> {
    /// Adds or replaces an entry.
    pub fn insert(&mut self, key: K, value: V) {
        match self.find(&key) {
            Ok(at) => self.0[at].1 = value,
            Err(at) => self.insert_at(at, key, value),
        }
    }

    fn find<Q: Ord + ?Sized>(&self, key: &Q) -> Result<usize, usize>
    where
        K: Borrow<Q>,
    {
        self.0.binary_search_by(|(held, _)| held.borrow().cmp(key))
    }

    fn insert_at(&mut self, at: usize, key: K, value: V) {
        // Otherwise the list would make room for four entries at once, and then for twice as many.
        if self.0.len() < FEW {
            self.0.reserve_exact(1);
        }
        self.0.insert(at, (key, value));
    }

    /// Removes an entry, and returns its value.
    pub fn remove<Q: Ord + ?Sized>(&mut self, key: &Q) -> Option<V>
    where
        K: Borrow<Q>,
    {
        let at = self.find(key).ok()?;
        Some(self.0.remove(at).1)
    }

    /// The value of a key.
    pub fn get<Q: Ord + ?Sized>(&self, key: &Q) -> Option<&V>
    where
        K: Borrow<Q>,
    {
        let at = self.find(key).ok()?;
        Some(&self.0[at].1)
    }

    /// The same, to change it.
    pub fn get_mut<Q: Ord + ?Sized>(&mut self, key: &Q) -> Option<&mut V>
    where
        K: Borrow<Q>,
    {
        let at = self.find(key).ok()?;
        Some(&mut self.0[at].1)
    }

    /// The value of this key, which gets the default if it has none.
    pub fn get_or_default(&mut self, key: &K) -> &mut V
    where
        K: Clone,
        V: Default,
    {
        let at = self.find(key).unwrap_or_else(|at| {
            self.insert_at(at, key.clone(), V::default());
            at
        });
        &mut self.0[at].1
    }

    /// Keeps the entries for which this is true.
    pub fn retain(&mut self, mut keep: impl FnMut(&K, &V) -> bool) {
        self.0.retain(|(key, value)| keep(key, value));
    }

    /// The value of the lowest key.
    pub fn first(&self) -> Option<&V> {
        self.0.first().map(|(_, value)| value)
    }

    /// The keys, ascending.
    pub fn keys(&self) -> impl Iterator<Item = &K> {
        self.0.iter().map(|(key, _)| key)
    }

    /// The values, in the order of their keys.
    pub fn values(&self) -> impl Iterator<Item = &V> {
        self.0.iter().map(|(_, value)| value)
    }

    /// The same, to change them.
    pub fn values_mut(&mut self) -> impl Iterator<Item = &mut V> {
        self.0.iter_mut().map(|(_, value)| value)
    }

    /// The entries, in the order of their keys.
    pub fn iter(&self) -> impl Iterator<Item = (&K, &V)> {
        self.0.iter().map(|(key, value)| (key, value))
    }

    /// How many entries there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Removes all entries.
    pub fn clear(&mut self) {
        self.0.clear();
    }
}

impl<K: Clone + PartialEq, V: Clone + PartialEq> Few<K, V> {
    /// Takes over keys and values of another map where they are equal. For shared texts, so that each is kept once.
    pub fn share(&mut self, other: &Self) {
        for ((key, value), (known_key, known)) in self.0.iter_mut().zip(&other.0) {
            share_equal(key, known_key);
            share_equal(value, known);
        }
    }
}

impl<K, V> Few<K, V> {
    /// Of ascending entries, without spare room: `collect` would make room for four.
    fn ascending(entries: impl ExactSizeIterator<Item = (K, V)>) -> Self {
        let mut held = Vec::with_capacity(entries.len());
        held.extend(entries);
        Self(held)
    }
}

impl<K, V> From<BTreeMap<K, V>> for Few<K, V> {
    fn from(map: BTreeMap<K, V>) -> Self {
        Self::ascending(map.into_iter())
    }
}

/// Of several entries with one key the last counts.
impl<K: Ord, V> FromIterator<(K, V)> for Few<K, V> {
    fn from_iter<I: IntoIterator<Item = (K, V)>>(entries: I) -> Self {
        entries.into_iter().collect::<BTreeMap<K, V>>().into()
    }
}

/// Labels and annotations.
impl<T: for<'a> From<&'a str>> From<&BTreeMap<String, String>> for Few<T, T> {
    fn from(map: &BTreeMap<String, String>) -> Self {
        Self::ascending(map.iter().map(|(key, value)| (key.as_str().into(), value.as_str().into())))
    }
}

impl<T: AsRef<str>> From<&Few<T, T>> for BTreeMap<String, String> {
    fn from(few: &Few<T, T>) -> Self {
        let entries = few.0.iter();
        entries.map(|(key, value)| (key.as_ref().to_owned(), value.as_ref().to_owned())).collect()
    }
}

impl<K: Serialize, V: Serialize> Serialize for Few<K, V> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().map(|(key, value)| (key, value)))
    }
}

impl<'de, K: Deserialize<'de> + Ord, V: Deserialize<'de>> Deserialize<'de> for Few<K, V> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        BTreeMap::deserialize(deserializer).map(Self::from)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_has_the_entries_of_a_map_and_is_written_like_one() {
        let map =
            BTreeMap::from([("tier".to_owned(), "web".to_owned()), ("app".into(), "shop".into())]);
        let labels = PodLabels::from(&map);
        assert_eq!((labels.get("app").map(|v| &**v), labels.get("none")), (Some("shop"), None));
        assert_eq!(labels.keys().map(|key| &**key).collect::<Vec<_>>(), ["app", "tier"]);
        assert_eq!(BTreeMap::from(&labels), map);
        let text = serde_json::to_string(&labels).unwrap();
        assert_eq!(text, serde_json::to_string(&map).unwrap());
        assert_eq!(serde_json::from_str::<PodLabels>(&text).unwrap(), labels);
        let of_one = PodLabels::from(&BTreeMap::from([("app".to_owned(), "shop".to_owned())]));
        assert_eq!((labels.0.capacity(), of_one.0.capacity()), (2, 1), "no spare room");
        let twice: Few<&str, u8> = [("b", 1), ("a", 2), ("b", 3)].into_iter().collect();
        assert_eq!(twice.iter().collect::<Vec<_>>(), [(&"a", &2), (&"b", &3)]);
        assert!(serde_json::from_str::<Few<String, String>>("[]").is_err());
    }
}
