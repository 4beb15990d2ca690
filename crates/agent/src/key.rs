//! Identifiers: a kind, and one object of the member.

use std::fmt;

use atoll_protocol::v1;

/// A kind whatever its version.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct GroupKind {
    /// API group, empty for core.
    pub group: String,
    /// Kind.
    pub kind: String,
}

/// One object of the member.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Key {
    /// Its kind.
    pub kind: GroupKind,
    /// Empty for cluster-scoped objects.
    pub namespace: String,
    /// Name.
    pub name: String,
}

impl GroupKind {
    /// From group and kind.
    pub(crate) fn new(group: impl Into<String>, kind: impl Into<String>) -> Self {
        Self { group: group.into(), kind: kind.into() }
    }

    /// Whether this is the given kind.
    #[must_use]
    pub(crate) fn is(&self, group: &str, kind: &str) -> bool {
        self.group == group && self.kind == kind
    }

    /// Whether this is one of Atoll's own kinds, which are not propagated to members.
    #[must_use]
    pub(crate) fn is_own(&self) -> bool {
        self.group == "atoll.dev" || self.group.ends_with(".atoll.dev")
    }

    /// Reads `Kind` or `Kind.group`, as [`fmt::Display`] writes it.
    #[must_use]
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let (kind, group) = text.split_once('.').unwrap_or((text, ""));
        (!kind.is_empty()).then(|| Self::new(group, kind))
    }
}

impl fmt::Display for GroupKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.group.as_str() {
            "" => f.write_str(&self.kind),
            group => write!(f, "{}.{group}", self.kind),
        }
    }
}

impl Key {
    /// The key in a message; `None` where kind or name is missing.
    #[must_use]
    pub(crate) fn from_wire(key: Option<v1::ObjectKey>) -> Option<Self> {
        let key = key.filter(|key| !key.kind.is_empty() && !key.name.is_empty())?;
        Some(Self {
            kind: GroupKind { group: key.group, kind: key.kind },
            namespace: key.namespace,
            name: key.name,
        })
    }

    /// Protobuf form.
    #[must_use]
    pub(crate) fn to_wire(&self) -> v1::ObjectKey {
        v1::ObjectKey {
            group: self.kind.group.clone(),
            kind: self.kind.kind.clone(),
            namespace: self.namespace.clone(),
            name: self.name.clone(),
        }
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.namespace.as_str() {
            "" => write!(f, "{} {}", self.kind, self.name),
            namespace => write!(f, "{} {namespace}/{}", self.kind, self.name),
        }
    }
}
