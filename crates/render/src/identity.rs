//! The identity of a manifest.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;

use crate::{RenderError, type_of};

/// Identity of an object on a member, independent of its API version. Clones share one text: the desired set of a member
/// holds several for each object.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key(Arc<ObjectName>);

/// Group, kind, namespace and name of an object on a member.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ObjectName {
    /// API group, empty for core.
    pub group: String,
    /// For example `Deployment`.
    pub kind: String,
    /// `None` for cluster-scoped objects.
    pub namespace: Option<String>,
    /// Name.
    pub name: String,
}

impl Key {
    /// The key of an object of either scope.
    #[must_use]
    pub fn new(group: String, kind: String, namespace: Option<String>, name: String) -> Self {
        Self(Arc::new(ObjectName { group, kind, namespace, name }))
    }
}

impl Deref for Key {
    type Target = ObjectName;

    fn deref(&self) -> &ObjectName {
        &self.0
    }
}

impl Serialize for Key {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.0.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Key {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Ok(Self(Arc::new(ObjectName::deserialize(deserializer)?)))
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.kind)?;
        if !self.group.is_empty() {
            write!(f, ".{}", self.group)?;
        }
        match &self.namespace {
            Some(namespace) => write!(f, " {namespace}/{}", self.name),
            None => write!(f, " {}", self.name),
        }
    }
}

/// Key and apiVersion of a template.
pub(crate) fn of(template: &Value) -> Result<(Key, String), RenderError> {
    let api_version = text(template, "apiVersion", "/apiVersion")?;
    let kind = text(template, "kind", "/kind")?;
    let name = text(template, "metadata.name", "/metadata/name")?;
    let namespace = match template.pointer("/metadata/namespace") {
        None | Some(Value::Null) => None,
        Some(_) => Some(text(template, "metadata.namespace", "/metadata/namespace")?),
    };
    let group = api_version.split_once('/').map_or("", |(group, _)| group).to_owned();
    Ok((Key::new(group, kind, namespace, name), api_version))
}

fn text(template: &Value, field: &str, pointer: &str) -> Result<String, RenderError> {
    let value = template.pointer(pointer);
    match value.and_then(Value::as_str) {
        Some(text) if !text.is_empty() => Ok(text.to_owned()),
        _ => Err(RenderError::Malformed {
            field: field.to_owned(),
            expected: "a string with text",
            found: type_of(value),
        }),
    }
}
