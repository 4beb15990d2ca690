//! Objects as clients see them: whole, as table rows, or metadata only; alone, in lists, in watch frames.

use std::sync::Arc;

use bytes::Bytes;
use jiff::Timestamp;
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use crate::ApiError;
use crate::kind::ServedKind;
use crate::meta;
use crate::request::Query;
use crate::request::accept::Shape;
use crate::response::encode;

/// An object of kind `K` in an answer.
pub trait Item<K> {
    /// The object in the version of `kind`.
    fn value(&self, kind: &K) -> Arc<Value>;

    /// The same as JSON.
    fn json(&self, kind: &K) -> Bytes {
        encode(&self.value(kind))
    }

    /// The cells of its table row, one for each of [`ServedKind::columns`].
    fn cells(&self, kind: &K, now: Timestamp) -> Vec<Value>;
}

/// How much of each object is included in its table row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Include {
    /// Nothing.
    Nothing,
    /// Its metadata.
    Metadata,
    /// The whole object.
    Object,
}

impl Include {
    fn of(query: &Query) -> Result<Self, ApiError> {
        match query.include_object.as_deref() {
            None | Some("Metadata") => Ok(Self::Metadata),
            Some("None") => Ok(Self::Nothing),
            Some("Object") => Ok(Self::Object),
            Some(other) => {
                Err(ApiError::bad_request(format!("unrecognized includeObject value: \"{other}\"")))
            }
        }
    }
}

/// `metadata` of a list.
#[derive(Clone, Debug, Default)]
pub struct ListMeta {
    /// The version of the list.
    pub resource_version: String,
    /// Where the next page begins, if there is one.
    pub continue_token: Option<String>,
    /// Number of objects on the following pages, if known.
    pub remaining: Option<u64>,
}

impl ListMeta {
    fn value(&self) -> Value {
        let mut meta = json!({"resourceVersion": self.resource_version});
        if let Some(token) = &self.continue_token {
            meta["continue"] = token.as_str().into();
        }
        if let Some(remaining) = self.remaining {
            meta["remainingItemCount"] = remaining.into();
        }
        meta
    }
}

/// The types of watch frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FrameType {
    /// A new object, or one that begins to match.
    Added,
    /// A changed object.
    Modified,
    /// A deleted object, or one that no longer matches.
    Deleted,
}

impl FrameType {
    fn text(self) -> &'static str {
        match self {
            FrameType::Added => "ADDED",
            FrameType::Modified => "MODIFIED",
            FrameType::Deleted => "DELETED",
        }
    }
}

/// The representation that one request asks for.
pub struct View<K> {
    kind: Arc<K>,
    shape: Shape,
    include: Include,
}

impl<K: ServedKind> View<K> {
    /// The representation of objects of this kind.
    ///
    /// # Errors
    /// When `includeObject` has an unknown value.
    pub fn new(kind: Arc<K>, shape: Shape, query: &Query) -> Result<Self, ApiError> {
        Ok(Self { kind, shape, include: Include::of(query)? })
    }

    fn metadata_only(object: &Value) -> Value {
        json!({
            "apiVersion": "meta.k8s.io/v1",
            "kind": "PartialObjectMetadata",
            "metadata": object.get("metadata").cloned().unwrap_or_default(),
        })
    }

    fn table<I: Item<K>>(&self, items: &[I], meta: Value, now: Timestamp, columns: bool) -> Value {
        let rows: Vec<Value> = items
            .iter()
            .map(|item| {
                let mut row = json!({"cells": item.cells(&self.kind, now)});
                match self.include {
                    Include::Metadata => {
                        row["object"] = Self::metadata_only(&item.value(&self.kind));
                    }
                    Include::Object => {
                        row["object"] = Arc::unwrap_or_clone(item.value(&self.kind));
                    }
                    Include::Nothing => {}
                }
                row
            })
            .collect();
        let columns = if columns { self.kind.columns() } else { Value::Array(vec![]) };
        Self::table_with(rows, meta, columns)
    }

    fn table_with(rows: Vec<Value>, meta: Value, columns: Value) -> Value {
        json!({
            "apiVersion": "meta.k8s.io/v1",
            "kind": "Table",
            "metadata": meta,
            "columnDefinitions": columns,
            "rows": rows,
        })
    }

    /// A table of one object.
    fn table_of<I: Item<K>>(&self, item: &I, now: Timestamp, columns: bool) -> Value {
        let version = meta::text(&item.value(&self.kind), "resourceVersion").to_owned();
        let meta = json!({"resourceVersion": version});
        self.table(std::slice::from_ref(item), meta, now, columns)
    }

    /// One object as an answer.
    pub fn object<I: Item<K>>(&self, item: &I, now: Timestamp) -> Bytes {
        match self.shape {
            Shape::Object => item.json(&self.kind),
            Shape::Metadata => metadata_of(&item.json(&self.kind)),
            Shape::Table => encode(&self.table_of(item, now, true)),
        }
    }

    /// Many objects as an answer.
    pub fn list<I: Item<K>>(&self, items: &[I], meta: &ListMeta, now: Timestamp) -> Bytes {
        match self.shape {
            Shape::Object => {
                let parts: Vec<Bytes> = items.iter().map(|item| item.json(&self.kind)).collect();
                let head = json!({
                    "apiVersion": self.kind.names().api_version(),
                    "kind": self.kind.names().list_kind,
                    "metadata": meta.value(),
                });
                joined(&head, &parts)
            }
            Shape::Metadata => {
                let parts: Vec<Bytes> =
                    items.iter().map(|item| metadata_of(&item.json(&self.kind))).collect();
                let mut head = json!({
                    "apiVersion": "meta.k8s.io/v1",
                    "kind": "PartialObjectMetadataList",
                    "metadata": meta.value(),
                });
                if parts.is_empty() {
                    // As kube-apiserver writes it: clients have to understand it.
                    head["items"] = Value::Null;
                    return encode(&head);
                }
                joined(&head, &parts)
            }
            Shape::Table => encode(&self.table(items, meta.value(), now, true)),
        }
    }

    /// One line of a watch. `first` asks for column definitions, which later frames leave out.
    pub fn frame<I: Item<K>>(
        &self,
        kind: FrameType,
        item: &I,
        now: Timestamp,
        first: bool,
    ) -> Bytes {
        let object = match self.shape {
            Shape::Object => item.json(&self.kind),
            Shape::Metadata => metadata_of(&item.json(&self.kind)),
            Shape::Table => encode(&self.table_of(item, now, first)),
        };
        line(kind.text(), &object)
    }

    /// A BOOKMARK line.
    #[must_use]
    pub fn bookmark(&self, version: &str, initial_events_end: bool) -> Bytes {
        let mut meta = json!({"resourceVersion": version, "creationTimestamp": null});
        if initial_events_end {
            meta["annotations"] = json!({"k8s.io/initial-events-end": "true"});
        }
        let object = match self.shape {
            Shape::Object => json!({
                "apiVersion": self.kind.names().api_version(),
                "kind": self.kind.names().kind,
                "metadata": meta,
            }),
            Shape::Metadata => json!({
                "apiVersion": "meta.k8s.io/v1",
                "kind": "PartialObjectMetadata",
                "metadata": meta,
            }),
            Shape::Table => Self::table_with(vec![], meta, Value::Array(vec![])),
        };
        line("BOOKMARK", &encode(&object))
    }
}

/// A list of serialised objects. They are copied as text: as values, a list of all bindings would take ten times as long.
fn joined(head: &Value, parts: &[Bytes]) -> Bytes {
    let size: usize = parts.iter().map(|part| part.len() + 1).sum();
    let mut out = Vec::with_capacity(size + 256);
    let head = encode(head);
    out.extend_from_slice(&head[..head.len() - 1]);
    out.extend_from_slice(b",\"items\":[");
    for (n, part) in parts.iter().enumerate() {
        if n > 0 {
            out.push(b',');
        }
        out.extend_from_slice(part);
    }
    out.extend_from_slice(b"]}");
    out.into()
}

/// The PartialObjectMetadata of a serialised object, whose metadata is copied as text.
fn metadata_of(object: &[u8]) -> Bytes {
    #[derive(Deserialize)]
    struct Whole<'a> {
        #[serde(borrow)]
        metadata: Option<&'a RawValue>,
    }
    let whole: Whole<'_> = serde_json::from_slice(object).expect("we serialised it");
    let metadata = whole.metadata.map_or("{}", RawValue::get);
    format!(
        r#"{{"apiVersion":"meta.k8s.io/v1","kind":"PartialObjectMetadata","metadata":{metadata}}}"#
    )
    .into()
}

/// The line of an error, after which the watch ends.
#[must_use]
pub fn error_line(error: &ApiError) -> Bytes {
    line("ERROR", &encode(&error.status()))
}

/// One watch frame: a JSON object on a line of its own.
fn line(kind: &str, object: &[u8]) -> Bytes {
    let mut out = Vec::with_capacity(object.len() + kind.len() + 24);
    out.extend_from_slice(b"{\"type\":\"");
    out.extend_from_slice(kind.as_bytes());
    out.extend_from_slice(b"\",\"object\":");
    out.extend_from_slice(object);
    out.extend_from_slice(b"}\n");
    out.into()
}
