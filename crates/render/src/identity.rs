//! The identity of a manifest.

use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{RenderError, type_of};

/// An object on a member, independent of its API version.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Key {
    /// API group, empty for core.
    pub group: String,
    /// For example `Deployment`.
    pub kind: String,
    /// `None` for cluster-scoped objects.
    pub namespace: Option<String>,
    /// Name.
    pub name: String,
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
    Ok((Key { group, kind, namespace, name }, api_version))
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
