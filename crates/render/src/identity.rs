//! The identity of a manifest.

use std::fmt;

use arcstr::ArcStr;
use serde_json::Value;

use crate::{RenderError, type_of};

/// Between the names. It is smaller than every character of a name, so keys are ordered by group, kind, namespace and name.
const SEPARATOR: char = '\0';

/// Identity of an object on a member, independent of its API version: group, kind, namespace and name. Clones share one
/// text: the desired set of a member holds several for each object, and searches in it compare many of them. So the names
/// are in one text, which is next to its count of references: a comparison follows one pointer.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key(ArcStr);

impl Key {
    /// The key of an object of either scope. The group is empty for core; an empty namespace is none.
    #[must_use]
    pub fn new(group: &str, kind: &str, namespace: Option<&str>, name: &str) -> Self {
        let namespace = namespace.unwrap_or_default();
        Self(arcstr::format!("{group}{SEPARATOR}{kind}{SEPARATOR}{namespace}{SEPARATOR}{name}"))
    }

    /// Group, kind, namespace and name. No API server accepts a separator in one of them.
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

impl fmt::Display for Key {
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

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
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
    let group = api_version.split_once('/').map_or("", |(group, _)| group);
    Ok((Key::new(group, kind, namespace, name), api_version.to_owned()))
}

fn text<'a>(template: &'a Value, field: &str, pointer: &str) -> Result<&'a str, RenderError> {
    let value = template.pointer(pointer);
    match value.and_then(Value::as_str) {
        Some(text) if !text.is_empty() => Ok(text),
        _ => Err(RenderError::Malformed {
            field: field.to_owned(),
            expected: "a string with text",
            found: type_of(value),
        }),
    }
}
