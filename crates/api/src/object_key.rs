//! The identity of an object.

use std::fmt;

use arcstr::ArcStr;

/// Between the names. It is smaller than every character of a name, so keys are ordered by group, kind, namespace and name.
const SEPARATOR: char = '\0';

/// Identity of an object, independent of its API version: group, kind, namespace and name. Clones share one text: the tables
/// of a controller and the desired set of a member hold several for each object, and searches compare many of them. So the
/// names are in one text, which is next to its count of references: a comparison follows one pointer.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectKey(ArcStr);

impl ObjectKey {
    /// The key of an object of either scope. The group is empty for core; an empty namespace is none.
    #[must_use]
    pub fn new(group: &str, kind: &str, namespace: Option<&str>, name: &str) -> Self {
        let namespace = namespace.unwrap_or_default();
        Self(arcstr::format!("{group}{SEPARATOR}{kind}{SEPARATOR}{namespace}{SEPARATOR}{name}"))
    }

    /// Group, kind, namespace and name. No object of an API server has a separator in one of them. A reference may have one, and
    /// then refers to no object.
    fn names(&self) -> [&str; 4] {
        let mut names = self.0.splitn(4, SEPARATOR);
        std::array::from_fn(|_| names.next().unwrap_or_default())
    }

    /// API group, empty for core.
    #[must_use]
    pub fn group(&self) -> &str {
        self.names()[0]
    }

    /// For example `Deployment`.
    #[must_use]
    pub fn kind(&self) -> &str {
        self.names()[1]
    }

    /// `None` for cluster-scoped objects.
    #[must_use]
    pub fn namespace(&self) -> Option<&str> {
        Some(self.names()[2]).filter(|namespace| !namespace.is_empty())
    }

    /// Name.
    #[must_use]
    pub fn name(&self) -> &str {
        self.names()[3]
    }
}

impl fmt::Display for ObjectKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [group, kind, namespace, name] = self.names();
        f.write_str(kind)?;
        if !group.is_empty() {
            write!(f, ".{group}")?;
        }
        match namespace {
            "" => write!(f, " {name}"),
            _ => write!(f, " {namespace}/{name}"),
        }
    }
}

impl fmt::Debug for ObjectKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
