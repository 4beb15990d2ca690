//! Read-only kinds whose objects are stored elsewhere. The server handles paths, discovery, the syntax of selectors,
//! tables and watch frames; a [`VirtualResource`] answers queries.

mod resource;
mod service;

use std::borrow::Cow;
use std::sync::Arc;

use bytes::Bytes;
use futures::{Stream, StreamExt, stream};
use http::Response;
use jiff::Timestamp;
use serde_json::{Value, json};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

pub use self::resource::{
    Column, VirtualEvent, VirtualKind, VirtualList, VirtualQuery, VirtualResource, VirtualStream,
};
pub use self::service::ReadOnlyApi;
use crate::ApiError;
use crate::kind::{KindNames, KindSchema, ServedKind};
use crate::request::Query;
use crate::request::accept::Shape;
use crate::response::{Body, JSON, respond, respond_frames};
use crate::view::{FrameType, Item, ListMeta, View, error_line};

/// Wall time.
pub type Clock = Arc<dyn Fn() -> Timestamp + Send + Sync>;

/// A read-only kind as a server serves it.
pub struct ReadOnlyKind {
    names: KindNames,
    described: VirtualKind,
    resource: Arc<dyn VirtualResource>,
}

/// A read of one kind.
pub struct Read {
    /// Its query parameters.
    pub query: Query,
    /// The requested representation.
    pub shape: Shape,
    /// `None`: all namespaces, or a cluster-scoped kind.
    pub namespace: Option<String>,
    /// Empty for a collection.
    pub name: String,
    /// Cancelled when the request's listener stops, which ends watches.
    pub closing: CancellationToken,
    /// For ages in tables.
    pub clock: Clock,
}

impl ServedKind for ReadOnlyKind {
    fn names(&self) -> &KindNames {
        &self.names
    }

    fn verbs(&self) -> &'static [&'static str] {
        &["get", "list", "watch"]
    }

    fn openapi(&self) -> KindSchema<'_> {
        KindSchema::Own(match &self.described.schema {
            Some(schema) => Cow::Borrowed(schema),
            None => Cow::Owned(json!({"type": "object"})),
        })
    }

    fn columns(&self) -> Value {
        self.described.columns.iter().map(Column::definition).collect()
    }
}

/// An object of a read-only kind.
struct Object(Arc<Value>);

impl Item<ReadOnlyKind> for Object {
    fn value(&self, _: &ReadOnlyKind) -> Arc<Value> {
        self.0.clone()
    }

    fn cells(&self, kind: &ReadOnlyKind, now: Timestamp) -> Vec<Value> {
        kind.resource.cells(&self.0, now)
    }
}

impl ReadOnlyKind {
    /// The kind that a resource describes.
    pub fn new(resource: Arc<dyn VirtualResource>) -> Self {
        let described = resource.kind();
        let names = KindNames {
            group: described.group.clone(),
            version: described.version.clone(),
            kind: described.kind.clone(),
            list_kind: format!("{}List", described.kind),
            plural: described.plural.clone(),
            singular: described.singular.clone(),
            short_names: described.short_names.clone(),
            categories: described.categories.clone(),
            namespaced: described.namespaced,
        };
        Self { names, described, resource }
    }

    /// Answers a get, list or watch.
    ///
    /// # Errors
    /// When the query is invalid, the object does not exist, or the resource fails.
    pub async fn answer(self: &Arc<Self>, read: &Read) -> Result<Response<Body>, ApiError> {
        if read.query.watch {
            self.watch(read).await
        } else if read.name.is_empty() {
            self.list(read).await
        } else {
            self.get(read).await
        }
    }

    /// The cells of an object's table row.
    #[must_use]
    pub fn cells(&self, object: &Value, now: Timestamp) -> Vec<Value> {
        self.resource.cells(object, now)
    }

    fn view(self: &Arc<Self>, read: &Read) -> Result<View<Self>, ApiError> {
        View::new(self.clone(), read.shape, &read.query)
    }

    async fn get(self: &Arc<Self>, read: &Read) -> Result<Response<Body>, ApiError> {
        let found = self.resource.get(read.namespace.as_deref(), &read.name).await?;
        let names = &self.names;
        let object =
            found.ok_or_else(|| ApiError::not_found(&names.group, &names.plural, &read.name))?;
        let object = Object(Arc::new(object));
        Ok(respond(200, JSON, self.view(read)?.object(&object, (read.clock)())))
    }

    async fn list(self: &Arc<Self>, read: &Read) -> Result<Response<Body>, ApiError> {
        self.check_selectors(&read.query)?;
        let page = self.resource.list(query(read)).await?;
        let meta = ListMeta {
            resource_version: page.resource_version,
            continue_token: page.continue_token,
            remaining: page.remaining,
        };
        let items: Vec<Object> =
            page.items.into_iter().map(|object| Object(Arc::new(object))).collect();
        Ok(respond(200, JSON, self.view(read)?.list(&items, &meta, (read.clock)())))
    }

    async fn watch(self: &Arc<Self>, read: &Read) -> Result<Response<Body>, ApiError> {
        self.check_selectors(&read.query)?;
        read.query.check_watch()?;
        let deadline = read.query.watch_deadline();
        let events = self.resource.watch(query(read)).await?;
        let frames = Frames {
            events,
            view: self.view(read)?,
            first: true,
            bookmarks: read.query.bookmarks,
            clock: read.clock.clone(),
        };
        Ok(respond_frames(frames.until(deadline, read.closing.clone())))
    }

    /// Refuses unknown field selectors, naming the known ones: these kinds depend on field selectors.
    fn check_selectors(&self, query: &Query) -> Result<(), ApiError> {
        let known = &self.described.selectable;
        query.selectors.check(known).map_err(|problem| {
            let labels: Vec<&str> = known.iter().map(|field| field.label.as_ref()).collect();
            ApiError::bad_request(format!(
                "{problem}; fields are metadata.name, metadata.namespace, {}",
                labels.join(", ")
            ))
        })
    }
}

/// The request in the form for resources.
fn query(read: &Read) -> VirtualQuery {
    VirtualQuery {
        namespace: read.namespace.clone(),
        selectors: read.query.selectors_of(&read.name),
        limit: read.query.limit,
        continue_token: read.query.continue_token.clone(),
        resource_version: read.query.resource_version.map(|version| version.to_string()),
    }
}

/// The frames of a watch.
struct Frames {
    events: VirtualStream,
    view: View<ReadOnlyKind>,
    /// No frame was sent yet: the next table includes the columns.
    first: bool,
    bookmarks: bool,
    clock: Clock,
}

impl Frames {
    /// Ends after an error, with the resource's events, at the deadline, or when the listener stops.
    fn until(
        self,
        deadline: Instant,
        closing: CancellationToken,
    ) -> impl Stream<Item = Bytes> + Send + 'static {
        stream::unfold(Some(self), move |frames| {
            let closing = closing.clone();
            async move {
                let mut frames = frames?;
                tokio::select! {
                    biased;
                    () = closing.cancelled() => None,
                    next = frames.next() => match next? {
                        Ok(frame) => Some((frame, Some(frames))),
                        Err(error) => Some((error_line(&error), None)),
                    },
                    () = tokio::time::sleep_until(deadline) => None,
                }
            }
        })
    }

    async fn next(&mut self) -> Option<Result<Bytes, ApiError>> {
        loop {
            let (kind, object) = match self.events.next().await? {
                Ok(VirtualEvent::Added(object)) => (FrameType::Added, object),
                Ok(VirtualEvent::Modified(object)) => (FrameType::Modified, object),
                Ok(VirtualEvent::Deleted(object)) => (FrameType::Deleted, object),
                Ok(VirtualEvent::Bookmark(version)) => {
                    if self.bookmarks {
                        return Some(Ok(self.view.bookmark(&version, false)));
                    }
                    continue;
                }
                Err(error) => return Some(Err(error)),
            };
            let first = std::mem::take(&mut self.first);
            let object = Object(Arc::new(object));
            return Some(Ok(self.view.frame(kind, &object, (self.clock)(), first)));
        }
    }
}
