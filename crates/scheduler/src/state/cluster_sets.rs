//! Which clusters a namespace may use, by ClusterSets.
//!
//! Missing information never moves anything: while the labels of a namespace are unknown, or a set that may concern it is
//! invalid, running shares stay where they are, but nothing is placed on further clusters.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use atoll_api::ClusterSet;
use atoll_api::selector::{Requirement, Selector};
use serde::{Deserialize, Serialize};

use super::cache::{CachedColumn, RowClasses};
use super::row::Row;

/// The label of a namespace with its name.
pub const NAMESPACE_NAME: &str = "kubernetes.io/metadata.name";

/// Labels of an object.
pub type Labels = BTreeMap<String, String>;

/// A ClusterSet with parsed selectors.
#[derive(Debug, Clone, PartialEq)]
struct Set {
    clusters: Selector,
    namespaces: Selector,
}

/// All ClusterSets, and the labels of namespaces.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ClusterSets {
    /// By name; for invalid ones the problem.
    sets: BTreeMap<String, Result<Arc<Set>, String>>,
    namespaces: BTreeMap<String, Arc<Labels>>,
    required: bool,
}

/// [`ClusterSets`] as data, with the labels of one namespace.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StoredSets {
    sets: BTreeMap<String, Result<StoredSet, String>>,
    labels: Option<Labels>,
    required: bool,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct StoredSet {
    clusters: Vec<StoredRequirement>,
    namespaces: Vec<StoredRequirement>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
enum StoredRequirement {
    In(String, Vec<String>),
    NotIn(String, Vec<String>),
    Exists(String),
    DoesNotExist(String),
    GreaterThan(String, i64),
    LessThan(String, i64),
}

impl From<&Requirement> for StoredRequirement {
    fn from(requirement: &Requirement) -> Self {
        match requirement.clone() {
            Requirement::In(key, values) => Self::In(key, values),
            Requirement::NotIn(key, values) => Self::NotIn(key, values),
            Requirement::Exists(key) => Self::Exists(key),
            Requirement::DoesNotExist(key) => Self::DoesNotExist(key),
            Requirement::GreaterThan(key, than) => Self::GreaterThan(key, than),
            Requirement::LessThan(key, than) => Self::LessThan(key, than),
        }
    }
}

impl From<StoredRequirement> for Requirement {
    fn from(stored: StoredRequirement) -> Self {
        match stored {
            StoredRequirement::In(key, values) => Self::In(key, values),
            StoredRequirement::NotIn(key, values) => Self::NotIn(key, values),
            StoredRequirement::Exists(key) => Self::Exists(key),
            StoredRequirement::DoesNotExist(key) => Self::DoesNotExist(key),
            StoredRequirement::GreaterThan(key, than) => Self::GreaterThan(key, than),
            StoredRequirement::LessThan(key, than) => Self::LessThan(key, than),
        }
    }
}

impl StoredSets {
    /// What decisions about a namespace read.
    #[must_use]
    pub fn of(sets: &ClusterSets, namespace: &str) -> Self {
        let stored = |selector: &Selector| selector.requirements().iter().map(Into::into).collect();
        let each = |set: &Arc<Set>| StoredSet {
            clusters: stored(&set.clusters),
            namespaces: stored(&set.namespaces),
        };
        let set = |(name, set): (&String, &Result<Arc<Set>, String>)| {
            (name.clone(), set.as_ref().map(each).map_err(Clone::clone))
        };
        Self {
            sets: sets.sets.iter().map(set).collect(),
            labels: sets.labels(namespace).cloned(),
            required: sets.required,
        }
    }

    /// The sets, with the labels of that namespace only.
    #[must_use]
    pub fn read(self, namespace: &str) -> ClusterSets {
        let read = |stored: Vec<StoredRequirement>| {
            Selector::from(stored.into_iter().map(Requirement::from).collect::<Vec<_>>())
        };
        let each = |set: StoredSet| {
            Arc::new(Set { clusters: read(set.clusters), namespaces: read(set.namespaces) })
        };
        ClusterSets {
            sets: self.sets.into_iter().map(|(name, set)| (name, set.map(each))).collect(),
            namespaces: self
                .labels
                .map(|labels| (namespace.to_owned(), Arc::new(labels)))
                .into_iter()
                .collect(),
            required: self.required,
        }
    }
}

/// The clusters that a namespace may use.
#[derive(Debug, Clone, PartialEq)]
pub enum Reach {
    /// All.
    All,
    /// Those of some ClusterSets.
    Sets(SetsOf),
}

/// The ClusterSets of a namespace.
#[derive(Debug, Clone, PartialEq)]
pub struct SetsOf {
    /// Cluster selectors of the sets.
    clusters: Vec<Selector>,
    /// Why other clusters are rejected.
    pub outside: String,
    /// Whether running shares on other clusters stay, because some information is missing.
    pub uncertain: bool,
}

impl Reach {
    /// Whether a cluster with these labels may be used.
    #[must_use]
    pub fn has(&self, labels: &Labels) -> bool {
        match self {
            Self::All => true,
            Self::Sets(sets) => sets.has(labels),
        }
    }
}

impl SetsOf {
    /// Whether one of the sets selects a cluster with these labels.
    #[must_use]
    pub fn has(&self, labels: &Labels) -> bool {
        self.clusters.iter().any(|selector| selector.matches(labels))
    }
}

impl ClusterSets {
    /// Sets whether namespaces that no set selects may use no cluster, as opposed to all.
    pub fn require(&mut self, required: bool) {
        self.required = required;
    }

    /// Adds or updates a set.
    ///
    /// # Errors
    /// The selector that is invalid. The set counts as uncertain until it is repaired.
    pub fn upsert(&mut self, name: &str, set: &ClusterSet) -> Result<(), String> {
        let parse = |field: &str, selector| {
            Selector::parse(selector).map_err(|error| format!("spec.{field}: {error}"))
        };
        let parsed = parse("clusterSelector", &set.spec.cluster_selector).and_then(|clusters| {
            let namespaces = parse("namespaceSelector", &set.spec.namespace_selector)?;
            Ok(Arc::new(Set { clusters, namespaces }))
        });
        let answer = parsed.as_ref().map(|_| ()).map_err(Clone::clone);
        self.sets.insert(name.to_owned(), parsed);
        answer
    }

    /// Removes a set.
    pub fn remove(&mut self, name: &str) {
        self.sets.remove(name);
    }

    /// Sets the labels of a namespace; `None` = it is not known.
    pub fn set_namespace(&mut self, name: &str, labels: Option<Labels>) {
        match labels {
            Some(mut labels) => {
                // API servers set this label. Files may lack it.
                labels.insert(NAMESPACE_NAME.to_owned(), name.to_owned());
                self.namespaces.insert(name.to_owned(), Arc::new(labels));
            }
            None => {
                self.namespaces.remove(name);
            }
        }
    }

    /// Whether no namespace is limited.
    #[must_use]
    pub fn limits_nothing(&self) -> bool {
        self.sets.is_empty() && !self.required
    }

    /// The clusters that objects of a namespace may use. Objects without a namespace may use all.
    #[must_use]
    pub fn reach(&self, namespace: Option<&str>) -> Reach {
        let Some(namespace) = namespace.filter(|_| !self.limits_nothing()) else {
            return Reach::All;
        };
        let nothing = |outside: String, uncertain| {
            Reach::Sets(SetsOf { clusters: Vec::new(), outside, uncertain })
        };
        if self.sets.is_empty() {
            return nothing(none_selects(namespace), false);
        }
        let Some(labels) = self.namespaces.get(namespace) else {
            let why = format!(
                "the labels of namespace {namespace} are unknown, and ClusterSets select by them"
            );
            return nothing(why, true);
        };
        let selecting = self.sets.iter().filter_map(|(name, set)| {
            let set = set.as_ref().ok().filter(|set| set.namespaces.matches(labels))?;
            Some((name.as_str(), set.clusters.clone()))
        });
        let (names, clusters): (Vec<&str>, Vec<Selector>) = selecting.unzip();
        let invalid = self.sets.iter().find_map(|(name, set)| Some((name, set.as_ref().err()?)));
        let outside = match (names.is_empty(), invalid) {
            (false, _) => format!(
                "is outside the clusters of namespace {namespace}: ClusterSet {}",
                names.join(", ")
            ),
            (true, Some((name, problem))) => {
                format!(
                    "ClusterSet {name} is invalid ({problem}) and may select namespace {namespace}"
                )
            }
            (true, None) if self.required => none_selects(namespace),
            (true, None) => return Reach::All,
        };
        Reach::Sets(SetsOf { clusters, outside, uncertain: invalid.is_some() })
    }

    /// What is wrong with a set; `None` if it is valid.
    #[must_use]
    pub fn problem(&self, name: &str) -> Option<&str> {
        self.sets.get(name)?.as_ref().err().map(String::as_str)
    }

    /// Number of namespaces that a set selects; 0 if it is invalid.
    #[must_use]
    pub fn namespaces_of(&self, name: &str) -> usize {
        let Some(Ok(set)) = self.sets.get(name) else { return 0 };
        self.namespaces.values().filter(|labels| set.namespaces.matches(&**labels)).count()
    }

    /// Whether a set selects a cluster with these labels; false if it is invalid.
    #[must_use]
    pub fn has_cluster(&self, name: &str, labels: &Labels) -> bool {
        matches!(self.sets.get(name), Some(Ok(set)) if set.clusters.matches(labels))
    }

    /// Which of these namespaces may use other clusters under `other`.
    #[must_use]
    pub fn differing<'a>(
        &self,
        other: &Self,
        among: impl IntoIterator<Item = &'a str>,
    ) -> BTreeSet<String> {
        let differs = |name: &&str| self.reach(Some(name)) != other.reach(Some(name));
        among.into_iter().filter(differs).map(str::to_owned).collect()
    }

    /// Labels of a namespace, its name among them; `None` = they are not known.
    #[must_use]
    pub fn labels(&self, namespace: &str) -> Option<&Labels> {
        self.namespaces.get(namespace).map(|labels| &**labels)
    }

    /// Names of the namespaces with known labels.
    pub fn namespaces(&self) -> impl Iterator<Item = &str> {
        self.namespaces.keys().map(String::as_str)
    }
}

fn none_selects(namespace: &str) -> String {
    format!(
        "no ClusterSet selects namespace {namespace}, and the controller requires one (--require-cluster-sets)"
    )
}

/// Rows that a namespace may use.
#[derive(Debug, Clone)]
pub struct SetColumn(pub RowClasses);

impl CachedColumn for SetColumn {
    type Key = SetsOf;

    fn new(_: &SetsOf, rows: usize) -> Self {
        Self(RowClasses::new(rows))
    }

    fn set(&mut self, key: &SetsOf, at: usize, row: &Row) {
        let answer = if key.has(&row.labels) { Ok(()) } else { Err(key.outside.clone()) };
        self.0.set(at, answer, &key.outside);
    }
}
