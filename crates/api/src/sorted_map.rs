//! A map of few entries that does not change: labels, figures of a few members. A `BTreeMap` with one entry has room for
//! eleven.

use std::borrow::Borrow;
use std::collections::BTreeMap;
use std::fmt;
use std::marker::PhantomData;

use serde::de::{MapAccess, Visitor};
use serde::ser::SerializeMap;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Entries in the order of their keys, without spare room.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SortedMap<K, V>(Box<[(K, V)]>);

/// Labels of an object.
pub type PackedLabels = SortedMap<Box<str>, Box<str>>;

impl<K: Ord, V> SortedMap<K, V> {
    /// The value of a key.
    pub fn get<Q: Ord + ?Sized>(&self, key: &Q) -> Option<&V>
    where
        K: Borrow<Q>,
    {
        let at = self.0.binary_search_by(|(held, _)| held.borrow().cmp(key)).ok()?;
        Some(&self.0[at].1)
    }
}

impl<K, V> SortedMap<K, V> {
    /// The entries, in the order of their keys.
    pub fn iter(&self) -> impl Iterator<Item = (&K, &V)> {
        self.0.iter().map(|(key, value)| (key, value))
    }

    /// The keys, ascending.
    pub fn keys(&self) -> impl Iterator<Item = &K> {
        self.0.iter().map(|(key, _)| key)
    }
}

impl<K, V> Default for SortedMap<K, V> {
    fn default() -> Self {
        Self(Box::default())
    }
}

impl<K, V> From<BTreeMap<K, V>> for SortedMap<K, V> {
    fn from(map: BTreeMap<K, V>) -> Self {
        Self(map.into_iter().collect())
    }
}

/// Of several entries with one key the last counts.
impl<K: Ord, V> FromIterator<(K, V)> for SortedMap<K, V> {
    fn from_iter<I: IntoIterator<Item = (K, V)>>(entries: I) -> Self {
        entries.into_iter().collect::<BTreeMap<K, V>>().into()
    }
}

impl From<&BTreeMap<String, String>> for PackedLabels {
    fn from(labels: &BTreeMap<String, String>) -> Self {
        Self(
            labels
                .iter()
                .map(|(key, value)| (key.as_str().into(), value.as_str().into()))
                .collect(),
        )
    }
}

impl From<&PackedLabels> for BTreeMap<String, String> {
    fn from(labels: &PackedLabels) -> Self {
        labels.iter().map(|(key, value)| (key.to_string(), value.to_string())).collect()
    }
}

impl<K: Serialize, V: Serialize> Serialize for SortedMap<K, V> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.0.len()))?;
        for (key, value) in &self.0 {
            map.serialize_entry(key, value)?;
        }
        map.end()
    }
}

impl<'de, K: Deserialize<'de> + Ord, V: Deserialize<'de>> Deserialize<'de> for SortedMap<K, V> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Entries<K, V>(PhantomData<(K, V)>);

        impl<'de, K: Deserialize<'de> + Ord, V: Deserialize<'de>> Visitor<'de> for Entries<K, V> {
            type Value = SortedMap<K, V>;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("a map")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut entries = BTreeMap::new();
                while let Some((key, value)) = map.next_entry()? {
                    entries.insert(key, value);
                }
                Ok(entries.into())
            }
        }

        deserializer.deserialize_map(Entries(PhantomData))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_has_the_entries_of_a_map_and_is_written_like_one() {
        let map =
            BTreeMap::from([("tier".to_owned(), "web".to_owned()), ("app".into(), "shop".into())]);
        let labels = PackedLabels::from(&map);
        assert_eq!((labels.get("app").map(|v| &**v), labels.get("none")), (Some("shop"), None));
        assert_eq!(labels.keys().map(|key| &**key).collect::<Vec<_>>(), ["app", "tier"]);
        assert_eq!(BTreeMap::from(&labels), map);
        let text = serde_json::to_string(&labels).unwrap();
        assert_eq!(text, serde_json::to_string(&map).unwrap());
        assert_eq!(serde_json::from_str::<PackedLabels>(&text).unwrap(), labels);
        let twice: SortedMap<&str, u8> = [("b", 1), ("a", 2), ("b", 3)].into_iter().collect();
        assert_eq!(twice.iter().collect::<Vec<_>>(), [(&"a", &2), (&"b", &3)]);
        assert!(serde_json::from_str::<PackedLabels>("[]").is_err());
    }
}
