//! Stored objects, and how tables and objects are named.

use std::{
    fmt,
    sync::{Arc, Mutex, MutexGuard},
};

use atoll_apimachinery::meta;
use bytes::Bytes;
use serde_json::Value;

use super::outline::{Content, Parts, Unread};

/// Names a table: `<group>/<plural>`, with an empty group for core.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct TableId(pub(super) Arc<str>);

impl TableId {
    pub(crate) fn new(group: &str, plural: &str) -> Self {
        TableId(format!("{group}/{plural}").into())
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for TableId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Names an object within its table. Cluster-scoped objects have an empty namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct ObjectKey {
    pub(crate) namespace: String,
    pub(crate) name: String,
}

impl ObjectKey {
    pub(crate) fn new(namespace: impl Into<String>, name: impl Into<String>) -> Self {
        ObjectKey { namespace: namespace.into(), name: name.into() }
    }

    pub(crate) fn of(object: &Value) -> Self {
        Self::new(meta::namespace(object), meta::name(object))
    }
}

/// One version of one object. `metadata.resourceVersion` in it is `revision`.
pub(crate) struct Record {
    pub(crate) revision: u64,
    api_version: Box<str>,
    json: Bytes,
    apart: Mutex<Option<Apart>>,
}

/// What of a record is kept parsed.
#[derive(Clone)]
enum Apart {
    Whole(Arc<Value>),
    /// Without the parts that the write left alone.
    Outline(Arc<Value>),
}

impl Apart {
    fn value(self) -> Arc<Value> {
        match self {
            Apart::Whole(value) | Apart::Outline(value) => value,
        }
    }
}

impl Record {
    pub(super) fn new(mut content: Content<'_>, revision: u64) -> Arc<Self> {
        let version = revision.to_string().into();
        meta::set(&mut content.outline, "resourceVersion", Some(version));
        let json = serde_json::to_vec(&content).expect("it is made of JSON values");
        // Its buffer has grown to up to twice the size of the text, and would keep it as long as the record.
        let json = Bytes::from(json.into_boxed_slice());
        let whole = content.is_whole();
        let value = Arc::new(content.outline);
        let api_version = value.get("apiVersion").and_then(Value::as_str).unwrap_or("").into();
        let apart = if whole { Apart::Whole(value) } else { Apart::Outline(value) };
        Arc::new(Record { revision, api_version, json, apart: Mutex::new(Some(apart)) })
    }

    /// The version under which it is stored.
    pub(crate) fn api_version(&self) -> &str {
        &self.api_version
    }

    /// The object as JSON.
    pub(crate) fn json(&self) -> &Bytes {
        &self.json
    }

    /// The object.
    pub(crate) fn value(&self) -> Arc<Value> {
        match self.apart().clone() {
            Some(Apart::Whole(value)) => value,
            Some(Apart::Outline(_)) | None => self.parse(),
        }
    }

    /// The object, perhaps without open parts: for readers of its metadata.
    pub(crate) fn outline(&self) -> Arc<Value> {
        let apart = self.apart().clone();
        apart.map_or_else(|| self.parse(), Apart::value)
    }

    /// The object without the parts that a write does not read, and those that stay.
    pub(crate) fn split<'a>(&'a self, unread: &Unread<'a>) -> (Arc<Value>, Parts<'a>) {
        let split = if unread.is_empty() { None } else { Parts::split(&self.json, unread) };
        match split {
            Some((outline, parts)) => (Arc::new(outline), parts),
            None => (self.value(), Parts::default()),
        }
    }

    fn parse(&self) -> Arc<Value> {
        Arc::new(serde_json::from_slice(&self.json).expect("it was made of a JSON value"))
    }

    /// Keeps only the text. The parsed value is returned, because dropping it takes a while.
    pub(super) fn fold(&self) -> Option<Arc<Value>> {
        self.apart().take().map(Apart::value)
    }

    fn apart(&self) -> MutexGuard<'_, Option<Apart>> {
        self.apart.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}
