//! The bindings of a namespace or group, in a tree that shares unchanged parts with earlier snapshots.

use std::sync::Arc;

use super::tables::BindingFacts;
use atoll_decision::BindingKey;

/// Fan-out of each of the two levels above a namespace's lists. A commit copies one list of pointers and the two levels
/// above it: about 160 pointers with 100,000 bindings in one namespace.
const FAN: usize = 32;

/// Bindings, ordered by key.
type List = Arc<Vec<Arc<BindingFacts>>>;
type Branch = Arc<[Option<List>; FAN]>;

/// Bindings in a tree keyed by a hash of their names.
#[derive(Debug, Clone, Default)]
pub(super) struct BindingTree {
    branches: [Option<Branch>; FAN],
}

impl BindingTree {
    pub(super) fn iter(&self) -> impl Iterator<Item = &Arc<BindingFacts>> {
        let lists = self.branches.iter().flatten().flat_map(|branch| branch.iter().flatten());
        lists.flat_map(|list| list.iter())
    }

    pub(super) fn is_empty(&self) -> bool {
        self.iter().next().is_none()
    }

    /// A binding, by key.
    pub(super) fn get(&self, key: &BindingKey) -> Option<&Arc<BindingFacts>> {
        let hash = crate::hash::fnv1a_64(key.name().as_bytes()) as usize;
        let list = self.branches[hash % FAN].as_ref()?[hash / FAN % FAN].as_ref()?;
        let at = list.binary_search_by(|held| held.key.cmp(key)).ok()?;
        list.get(at)
    }

    /// The list for a binding.
    fn list(&mut self, key: &BindingKey) -> &mut Vec<Arc<BindingFacts>> {
        let hash = crate::hash::fnv1a_64(key.name().as_bytes()) as usize;
        let branch = Arc::make_mut(self.branches[hash % FAN].get_or_insert_default());
        Arc::make_mut(branch[hash / FAN % FAN].get_or_insert_default())
    }

    pub(super) fn insert(&mut self, facts: Arc<BindingFacts>) -> Option<Arc<BindingFacts>> {
        let list = self.list(&facts.key);
        match list.binary_search_by(|held| held.key.cmp(&facts.key)) {
            Ok(at) => Some(std::mem::replace(&mut list[at], facts)),
            Err(at) => {
                list.insert(at, facts);
                None
            }
        }
    }

    pub(super) fn remove(&mut self, key: &BindingKey) -> Option<Arc<BindingFacts>> {
        let list = self.list(key);
        let at = list.binary_search_by(|held| held.key.cmp(key)).ok()?;
        Some(list.remove(at))
    }
}
