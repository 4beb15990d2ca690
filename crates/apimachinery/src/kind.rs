//! Kinds as servers describe them to clients, and the set of those that a server serves.

use std::borrow::Cow;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use kube::core::Version;
use schemars::{Schema, SchemaGenerator};
use serde_json::{Map, Value};

/// How discovery and paths name one served version of a kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KindNames {
    /// API group; empty for core.
    pub group: String,
    /// API version.
    pub version: String,
    /// Kind, for example `Deployment`.
    pub kind: String,
    /// Kind of lists, for example `DeploymentList`.
    pub list_kind: String,
    /// Plural, the name in paths.
    pub plural: String,
    /// Singular.
    pub singular: String,
    /// Short names for kubectl.
    pub short_names: Vec<String>,
    /// Categories for kubectl.
    pub categories: Vec<String>,
    /// Whether objects have a namespace.
    pub namespaced: bool,
}

/// `v1` or `apps/v1`.
#[must_use]
pub fn api_version(group: &str, version: &str) -> String {
    if group.is_empty() { version.to_owned() } else { format!("{group}/{version}") }
}

impl KindNames {
    /// `apiVersion` of objects.
    #[must_use]
    pub fn api_version(&self) -> String {
        api_version(&self.group, &self.version)
    }
}

/// A subresource in discovery.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Subresource {
    /// Last segment of its path.
    pub name: &'static str,
    /// Group of the objects that it reads or writes.
    pub group: String,
    /// Version of these objects.
    pub version: String,
    /// Kind of these objects.
    pub kind: String,
    /// Verbs.
    pub verbs: &'static [&'static str],
}

/// Where OpenAPI documents get a kind's schema from.
pub enum KindSchema<'a> {
    /// A Rust type with shared definitions.
    Typed(fn(&mut SchemaGenerator) -> Schema),
    /// The kind's own schema, without the fields that every object has.
    Own(Cow<'a, Value>),
}

/// A kind that a server serves.
pub trait ServedKind: Send + Sync + 'static {
    /// Its names.
    fn names(&self) -> &KindNames;

    /// Its verbs, in discovery's order.
    fn verbs(&self) -> &'static [&'static str];

    /// Its subresources.
    fn subresources(&self) -> Vec<Subresource> {
        Vec::new()
    }

    /// Its schema in OpenAPI documents.
    fn openapi(&self) -> KindSchema<'_>;

    /// Completes the definitions of [`KindSchema::Typed`] kinds, given with the definitions' names.
    fn annotate(_definitions: &mut Map<String, Value>, _kinds: &[(String, &Self)])
    where
        Self: Sized,
    {
    }

    /// `columnDefinitions` of its tables.
    fn columns(&self) -> Value;
}

/// Group, version and plural.
type KindKey = (String, String, String);

/// The kinds of a server at one time.
pub struct ServedKinds<K> {
    kinds: BTreeMap<KindKey, Arc<K>>,
    /// Increases with every change; the cache key of discovery documents.
    pub generation: u64,
}

impl<K> Default for ServedKinds<K> {
    fn default() -> Self {
        Self { kinds: BTreeMap::new(), generation: 0 }
    }
}

impl<K: ServedKind> ServedKinds<K> {
    /// A set of kinds; of two with the same path the later one counts.
    pub fn new(kinds: impl IntoIterator<Item = Arc<K>>, generation: u64) -> Self {
        let key =
            |names: &KindNames| (names.group.clone(), names.version.clone(), names.plural.clone());
        let kinds = kinds.into_iter().map(|kind| (key(kind.names()), kind)).collect();
        Self { kinds, generation }
    }

    /// The kind at this path.
    pub fn find(&self, group: &str, version: &str, plural: &str) -> Option<&Arc<K>> {
        // Three short strings; a lookup structure that borrows would be more code than it saves.
        self.kinds.get(&(group.to_owned(), version.to_owned(), plural.to_owned()))
    }

    /// All kinds, by path.
    pub fn all(&self) -> impl Iterator<Item = &Arc<K>> {
        self.kinds.values()
    }

    /// The kinds of one group version.
    pub fn of_version<'a>(
        &'a self,
        group: &'a str,
        version: &'a str,
    ) -> impl Iterator<Item = &'a Arc<K>> {
        self.all().filter(move |kind| {
            let names = kind.names();
            names.group == group && names.version == version
        })
    }

    /// The versions of each group, the preferred one first.
    pub fn groups(&self) -> BTreeMap<&str, Vec<&str>> {
        let mut groups: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
        for kind in self.all() {
            let names = kind.names();
            groups.entry(&names.group).or_default().insert(&names.version);
        }
        groups
            .into_iter()
            .map(|(group, versions)| {
                let mut versions: Vec<&str> = versions.into_iter().collect();
                sort_versions(&mut versions);
                (group, versions)
            })
            .collect()
    }
}

/// Sorts the versions of a group as discovery lists them: GA before beta before alpha, larger numbers first, anything
/// else last.
fn sort_versions(versions: &mut [&str]) {
    versions.sort_by_cached_key(|version| Reverse(Version::parse(version).priority()));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_ordered_as_kube_aware_version_strings() {
        let mut versions =
            vec!["foo1", "v1alpha2", "v2beta1", "v10", "v1", "v2", "v1beta1", "v1alpha1"];
        sort_versions(&mut versions);
        assert_eq!(
            versions,
            ["v10", "v2", "v1", "v2beta1", "v1beta1", "v1alpha2", "v1alpha1", "foo1"]
        );
    }
}
