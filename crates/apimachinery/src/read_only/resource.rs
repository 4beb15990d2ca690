//! What a read-only kind has to implement.

use futures::{future::BoxFuture, stream::BoxStream};
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::ApiError;
use crate::selector::{SelectableField, Selectors};

/// A column of the tables that `kubectl get` prints.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Column {
    /// Heading; kubectl prints it in capitals.
    pub name: String,
    /// OpenAPI type of the cells: `string`, `integer`, `number`, `boolean`, `date`.
    pub kind: String,
    /// OpenAPI format; `name` marks the column that holds the object's name.
    pub format: String,
    /// Description for users.
    pub description: String,
    /// 0 is always shown, larger ones only with `-o wide`.
    pub priority: i64,
}

impl Column {
    /// A column of text that is always shown.
    pub fn text(name: &str) -> Self {
        Column {
            name: name.to_owned(),
            kind: "string".to_owned(),
            format: String::new(),
            description: String::new(),
            priority: 0,
        }
    }

    /// The column in `columnDefinitions`.
    pub fn definition(&self) -> Value {
        json!({
            "name": self.name,
            "type": self.kind,
            "format": self.format,
            "description": self.description,
            "priority": self.priority,
        })
    }

    /// The same column, shown with `-o wide` only.
    pub fn wide(mut self) -> Self {
        self.priority = 1;
        self
    }
}

/// How a virtual kind appears in discovery, tables and selectors.
#[derive(Clone, Debug)]
pub struct VirtualKind {
    /// API group.
    pub group: String,
    /// API version.
    pub version: String,
    /// Kind, for example `Decision`.
    pub kind: String,
    /// Plural, the name in paths.
    pub plural: String,
    /// Singular.
    pub singular: String,
    /// Short names for kubectl.
    pub short_names: Vec<String>,
    /// Categories for kubectl.
    pub categories: Vec<String>,
    /// Whether objects have a namespace.
    pub namespaced: bool,
    /// Field selectors in addition to `metadata.name` and `metadata.namespace`. Others are refused before they reach
    /// the implementation.
    pub selectable: Vec<SelectableField>,
    /// Columns, of which the first holds the name.
    pub columns: Vec<Column>,
    /// OpenAPI v3 schema for `kubectl explain`.
    pub schema: Option<Value>,
}

/// The parameters of a list or watch.
#[derive(Clone, Debug, Default)]
pub struct VirtualQuery {
    /// `None` for all namespaces.
    pub namespace: Option<String>,
    /// Label and field requirements. The server checks their syntax, the implementation applies them.
    pub selectors: Selectors,
    /// Maximum number of items; 0 for no limit.
    pub limit: usize,
    /// The token of the previous page.
    pub continue_token: Option<String>,
    /// A watch starts after this version. `None` (or `0`) means now, after all current objects.
    pub resource_version: Option<String>,
}

/// A page of objects.
#[derive(Clone, Debug, Default)]
pub struct VirtualList {
    /// Whole objects with apiVersion, kind and metadata.
    pub items: Vec<Value>,
    /// Where a watch can continue: a decimal number, as in Kubernetes.
    pub resource_version: String,
    /// Set when more objects follow.
    pub continue_token: Option<String>,
    /// Number of remaining objects, if known.
    pub remaining: Option<u64>,
}

/// One event of a watch.
#[derive(Clone, Debug)]
pub enum VirtualEvent {
    /// A new object.
    Added(Value),
    /// A changed object.
    Modified(Value),
    /// A deleted object, in its last state.
    Deleted(Value),
    /// No further changes up to this version.
    Bookmark(String),
}

/// The events of a watch; it ends when the stream ends.
pub type VirtualStream = BoxStream<'static, Result<VirtualEvent, ApiError>>;

/// A read-only kind whose objects are stored outside the server.
pub trait VirtualResource: Send + Sync + 'static {
    /// Describes the kind. Called once, when a server begins to serve it.
    fn kind(&self) -> VirtualKind;

    /// The cells of an object's table row, one for each column of [`VirtualKind::columns`].
    fn cells(&self, object: &Value, now: Timestamp) -> Vec<Value>;

    /// One object; `None` if it does not exist.
    fn get<'a>(
        &'a self,
        namespace: Option<&'a str>,
        name: &'a str,
    ) -> BoxFuture<'a, Result<Option<Value>, ApiError>>;

    /// A page of objects.
    fn list(&self, query: VirtualQuery) -> BoxFuture<'_, Result<VirtualList, ApiError>>;

    /// Changes from now on or from a version. An unusable version is [`ApiError::expired`].
    fn watch(&self, query: VirtualQuery) -> BoxFuture<'_, Result<VirtualStream, ApiError>>;
}
