//! The identity of a binding.

use arcstr::ArcStr;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Between namespace and name. It is smaller than every character of either, so keys are ordered by namespace, then by name.
const SEPARATOR: char = '\0';

/// Identity of a ResourceBinding or ClusterResourceBinding. Clones share one text: a controller's tables and messages hold
/// a dozen of them for each binding, and searches in the tables compare many of them. So both names are in one text, which
/// is next to its count of references: a comparison follows one pointer.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BindingKey(ArcStr);

/// Namespace and name of a ResourceBinding, or the name of a ClusterResourceBinding.
#[derive(Serialize, Deserialize)]
#[serde(rename = "BindingKey", rename_all = "camelCase")]
struct Names<Text> {
    /// Namespace; absent for cluster-scoped bindings.
    #[serde(default = "Option::default", skip_serializing_if = "Option::is_none")]
    namespace: Option<Text>,
    /// Name.
    name: Text,
}

impl BindingKey {
    /// The key of a namespaced binding.
    #[must_use]
    pub fn new(namespace: &str, name: &str) -> Self {
        Self::of(Some(namespace), name)
    }

    /// The key of a binding of either scope.
    #[must_use]
    pub fn of(namespace: Option<&str>, name: &str) -> Self {
        Self(arcstr::format!("{}{SEPARATOR}{name}", namespace.unwrap_or_default()))
    }

    /// Namespace and name.
    fn names(&self) -> (&str, &str) {
        self.0.split_once(SEPARATOR).unwrap_or(("", &self.0))
    }

    /// Its namespace; `None` for a ClusterResourceBinding.
    #[must_use]
    pub fn namespace(&self) -> Option<&str> {
        Some(self.names().0).filter(|namespace| !namespace.is_empty())
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        self.names().1
    }
}

impl Default for BindingKey {
    fn default() -> Self {
        Self::of(None, "")
    }
}

impl Serialize for BindingKey {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        Names { namespace: self.namespace(), name: self.name() }.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for BindingKey {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let Names { namespace, name } = Names::<String>::deserialize(deserializer)?;
        Ok(Self::of(namespace.as_deref(), &name))
    }
}

impl std::fmt::Display for BindingKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.namespace() {
            Some(namespace) => write!(f, "{namespace}/{}", self.name()),
            None => f.write_str(self.name()),
        }
    }
}

impl std::fmt::Debug for BindingKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        std::fmt::Display::fmt(self, f)
    }
}
