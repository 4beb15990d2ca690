//! The identity of a manifest.

use std::sync::Arc;

use atoll_api::ObjectKey as Key;
use serde_json::Value;

use crate::{RenderError, type_of};

/// Key and apiVersion of a template.
pub(crate) fn of(template: &Value) -> Result<(Key, Arc<str>), RenderError> {
    let api_version = text(template, "apiVersion", "/apiVersion")?;
    let kind = text(template, "kind", "/kind")?;
    let name = text(template, "metadata.name", "/metadata/name")?;
    let namespace = match template.pointer("/metadata/namespace") {
        None | Some(Value::Null) => None,
        Some(_) => Some(text(template, "metadata.namespace", "/metadata/namespace")?),
    };
    let group = api_version.split_once('/').map_or("", |(group, _)| group);
    Ok((Key::new(group, kind, namespace, name), api_version.into()))
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
