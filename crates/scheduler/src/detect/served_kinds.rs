//! The kinds of the hub that `kind: "*"` selects.

use std::collections::BTreeMap;

use super::GroupKind;

/// Limit of kinds that `kind: "*"` selects: each is one watch and a copy of its objects in memory. A hub with Kubernetes'
/// own kinds serves about 40.
pub const MOST_KINDS: usize = 128;

/// The namespaced kinds that the hub serves, each with its version. Kubernetes' own groups come first, so that the limit
/// leaves out kinds of CustomResourceDefinitions.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ServedKinds {
    rows: BTreeMap<(bool, GroupKind), String>,
}

fn rank(kind: &GroupKind) -> (bool, GroupKind) {
    let own = !kind.group.contains('.') || kind.group.ends_with(".k8s.io");
    (!own, kind.clone())
}

impl FromIterator<GroupKind> for ServedKinds {
    fn from_iter<I: IntoIterator<Item = GroupKind>>(kinds: I) -> Self {
        let mut served = Self::default();
        kinds.into_iter().for_each(|kind| served.insert(kind, String::new()));
        served
    }
}

impl ServedKinds {
    /// Names of all rows.
    pub fn names(&self) -> impl Iterator<Item = String> {
        self.rows.keys().map(|(_, kind)| kind.to_string())
    }

    /// The kinds within the limit, with their versions.
    pub fn selected(&self) -> impl Iterator<Item = (&GroupKind, &str)> {
        let rows = self.rows.iter().take(MOST_KINDS);
        rows.map(|((_, kind), version)| (kind, version.as_str()))
    }

    /// Whether a kind is within the limit.
    #[must_use]
    pub fn selects(&self, kind: &GroupKind) -> bool {
        let rank = rank(kind);
        self.rows.contains_key(&rank)
            && (self.rows.len() <= MOST_KINDS || self.rows.range(..rank).count() < MOST_KINDS)
    }

    /// Kinds beyond the limit.
    pub fn beyond_limit(&self) -> impl Iterator<Item = &GroupKind> {
        self.rows.keys().skip(MOST_KINDS).map(|(_, kind)| kind)
    }

    /// The version of a kind.
    #[must_use]
    pub fn version(&self, kind: &GroupKind) -> Option<&str> {
        self.rows.get(&rank(kind)).map(String::as_str)
    }

    /// Number of all kinds.
    #[must_use]
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Adds a kind, or changes its version.
    pub fn insert(&mut self, kind: GroupKind, version: String) {
        self.rows.insert(rank(&kind), version);
    }

    /// Removes a kind.
    pub fn remove(&mut self, kind: &GroupKind) {
        self.rows.remove(&rank(kind));
    }
}
