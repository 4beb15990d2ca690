//! A map of few entries: almost every object has one claim, and almost every claim one object. A sorted list takes a tenth
//! of the memory of a `BTreeMap` with one entry, which has room for eleven.

/// Entries in the order of their keys.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Few<K, V = ()>(Vec<(K, V)>);

impl<K, V> Default for Few<K, V> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<K: Ord, V> Few<K, V> {
    /// Adds or replaces an entry.
    pub(crate) fn insert(&mut self, key: K, value: V) {
        match self.0.binary_search_by(|(held, _)| held.cmp(&key)) {
            Ok(at) => self.0[at].1 = value,
            Err(at) => {
                if self.0.is_empty() {
                    self.0.reserve_exact(1);
                }
                self.0.insert(at, (key, value));
            }
        }
    }

    pub(crate) fn remove(&mut self, key: &K) -> Option<V> {
        let at = self.0.binary_search_by(|(held, _)| held.cmp(key)).ok()?;
        Some(self.0.remove(at).1)
    }

    pub(crate) fn get(&self, key: &K) -> Option<&V> {
        let at = self.0.binary_search_by(|(held, _)| held.cmp(key)).ok()?;
        Some(&self.0[at].1)
    }

    pub(crate) fn first(&self) -> Option<&V> {
        self.0.first().map(|(_, value)| value)
    }

    pub(crate) fn keys(&self) -> impl Iterator<Item = &K> {
        self.0.iter().map(|(key, _)| key)
    }

    pub(crate) fn values(&self) -> impl Iterator<Item = &V> {
        self.0.iter().map(|(_, value)| value)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (&K, &V)> {
        self.0.iter().map(|(key, value)| (key, value))
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn clear(&mut self) {
        self.0.clear();
    }
}
