//! Objects as clients see them: whole, as table rows, or metadata only; alone, in lists, in watch frames.

use std::{borrow::Cow, sync::Arc};

use bytes::Bytes;
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::{
    http::accept::Shape,
    kinds::Kind,
    meta,
    store::{Record, encode},
    table,
};

/// An object for an answer.
#[derive(Clone)]
pub(crate) enum Item {
    /// From the store, in stored form.
    Stored(Arc<Record>),
    /// From anywhere else, in the form of the request's version.
    Plain(Arc<Value>),
}

impl Item {
    pub(crate) fn plain(value: Value) -> Self {
        Item::Plain(Arc::new(value))
    }
}

/// `metadata` of a list.
#[derive(Clone, Debug, Default)]
pub(crate) struct ListMeta {
    pub(crate) resource_version: String,
    pub(crate) continue_token: Option<String>,
    pub(crate) remaining: Option<u64>,
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
pub(crate) enum FrameType {
    Added,
    Modified,
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
#[derive(Clone)]
pub(crate) struct View {
    pub(crate) kind: Arc<Kind>,
    pub(crate) shape: Shape,
    pub(crate) include: table::Include,
}

impl View {
    fn value(&self, item: &Item) -> Arc<Value> {
        match item {
            Item::Stored(record) => {
                let stored = record.value();
                match self.kind.outgoing(&stored) {
                    Cow::Borrowed(_) => stored,
                    Cow::Owned(shown) => Arc::new(shown),
                }
            }
            Item::Plain(value) => value.clone(),
        }
    }

    /// One object as JSON.
    fn json(&self, item: &Item) -> Bytes {
        match item {
            Item::Stored(record) if self.kind.shows_as_is(record.api_version()) => {
                record.json().clone()
            }
            item => encode(&self.value(item)),
        }
    }

    fn metadata_only(object: &Value) -> Value {
        json!({
            "apiVersion": "meta.k8s.io/v1",
            "kind": "PartialObjectMetadata",
            "metadata": object.get("metadata").cloned().unwrap_or_default(),
        })
    }

    fn table(&self, items: &[Item], meta: Value, now: Timestamp, columns: bool) -> Value {
        let rows: Vec<Value> = items
            .iter()
            .map(|item| {
                let shown = self.value(item);
                // Cells are computed from the stored form, whose fields the kind's printer reads.
                let cells = match item {
                    Item::Stored(record) => table::cells(&self.kind, &record.value(), now),
                    Item::Plain(value) => table::cells(&self.kind, value, now),
                };
                let mut row = json!({"cells": cells});
                match self.include {
                    table::Include::Metadata => row["object"] = Self::metadata_only(&shown),
                    table::Include::Object => row["object"] = Arc::unwrap_or_clone(shown),
                    table::Include::Nothing => {}
                }
                row
            })
            .collect();
        let definitions =
            if columns { table::definitions(&self.kind) } else { Value::Array(vec![]) };
        json!({
            "apiVersion": "meta.k8s.io/v1",
            "kind": "Table",
            "metadata": meta,
            "columnDefinitions": definitions,
            "rows": rows,
        })
    }

    /// One object as an answer.
    pub(crate) fn object(&self, item: &Item, now: Timestamp) -> Bytes {
        match self.shape {
            Shape::Object => self.json(item),
            Shape::Metadata => encode(&Self::metadata_only(&self.value(item))),
            Shape::Table => {
                let version = meta::text(&self.value(item), "resourceVersion").to_owned();
                let meta = json!({"resourceVersion": version});
                encode(&self.table(std::slice::from_ref(item), meta, now, true))
            }
        }
    }

    /// Many objects as an answer.
    pub(crate) fn list(&self, items: &[Item], meta: &ListMeta, now: Timestamp) -> Bytes {
        match self.shape {
            Shape::Object => {
                // Items are copied as text: most of them are serialised already.
                let parts: Vec<Bytes> = items.iter().map(|item| self.json(item)).collect();
                let size: usize = parts.iter().map(|p| p.len() + 1).sum();
                let mut out = Vec::with_capacity(size + 256);
                let head = json!({
                    "apiVersion": self.kind.api_version(),
                    "kind": self.kind.list_kind,
                    "metadata": meta.value(),
                });
                let head = encode(&head);
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
            Shape::Metadata => {
                let items: Vec<Value> =
                    items.iter().map(|item| Self::metadata_only(&self.value(item))).collect();
                encode(&json!({
                    "apiVersion": "meta.k8s.io/v1",
                    "kind": "PartialObjectMetadataList",
                    "metadata": meta.value(),
                    "items": items,
                }))
            }
            Shape::Table => encode(&self.table(items, meta.value(), now, true)),
        }
    }

    /// One line of a watch. `first` asks for column definitions, which later frames leave out.
    pub(crate) fn frame(&self, kind: FrameType, item: &Item, now: Timestamp, first: bool) -> Bytes {
        match self.shape {
            Shape::Object => line(kind.text(), &self.json(item)),
            Shape::Metadata => line(kind.text(), &encode(&Self::metadata_only(&self.value(item)))),
            Shape::Table => {
                let version = meta::text(&self.value(item), "resourceVersion").to_owned();
                let meta = json!({"resourceVersion": version});
                let table = self.table(std::slice::from_ref(item), meta, now, first);
                line(kind.text(), &encode(&table))
            }
        }
    }

    /// A BOOKMARK line.
    pub(crate) fn bookmark(&self, version: &str, initial_events_end: bool) -> Bytes {
        let mut meta = json!({"resourceVersion": version, "creationTimestamp": null});
        if initial_events_end {
            meta["annotations"] = json!({"k8s.io/initial-events-end": "true"});
        }
        let object = match self.shape {
            Shape::Object => json!({
                "apiVersion": self.kind.api_version(),
                "kind": self.kind.kind,
                "metadata": meta,
            }),
            Shape::Metadata => json!({
                "apiVersion": "meta.k8s.io/v1",
                "kind": "PartialObjectMetadata",
                "metadata": meta,
            }),
            Shape::Table => self.table(&[], meta, Timestamp::UNIX_EPOCH, false),
        };
        line("BOOKMARK", &encode(&object))
    }
}

/// One watch frame: a JSON object on a line of its own.
pub(crate) fn line(kind: &str, object: &[u8]) -> Bytes {
    let mut out = Vec::with_capacity(object.len() + kind.len() + 24);
    out.extend_from_slice(b"{\"type\":\"");
    out.extend_from_slice(kind.as_bytes());
    out.extend_from_slice(b"\",\"object\":");
    out.extend_from_slice(object);
    out.extend_from_slice(b"}\n");
    out.into()
}

impl From<crate::store::ChangeType> for FrameType {
    fn from(kind: crate::store::ChangeType) -> Self {
        match kind {
            crate::store::ChangeType::Added => FrameType::Added,
            crate::store::ChangeType::Modified => FrameType::Modified,
            crate::store::ChangeType::Deleted => FrameType::Deleted,
        }
    }
}
