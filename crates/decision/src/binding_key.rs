//! The identity of a binding.

use std::ops::Deref;
use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Identity of a ResourceBinding or ClusterResourceBinding. Clones share one text: a controller's tables and messages hold
/// a dozen of them for each binding.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct BindingKey(Arc<BindingName>);

/// Namespace and name of a ResourceBinding, or the name of a ClusterResourceBinding.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct BindingName {
    /// Namespace; absent for cluster-scoped bindings.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// Name.
    pub name: String,
}

impl BindingKey {
    /// The key of a namespaced binding.
    pub fn new(namespace: impl Into<String>, name: impl Into<String>) -> Self {
        Self::of(Some(namespace.into()), name.into())
    }

    /// The key of a binding of either scope.
    #[must_use]
    pub fn of(namespace: Option<String>, name: String) -> Self {
        Self(Arc::new(BindingName { namespace, name }))
    }
}

impl Deref for BindingKey {
    type Target = BindingName;

    fn deref(&self) -> &BindingName {
        &self.0
    }
}

impl Serialize for BindingKey {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.0.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for BindingKey {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Ok(Self(Arc::new(BindingName::deserialize(deserializer)?)))
    }
}

impl std::fmt::Display for BindingKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.namespace {
            Some(namespace) => write!(f, "{namespace}/{}", self.name),
            None => f.write_str(&self.name),
        }
    }
}
