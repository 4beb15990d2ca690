//! watch: the current state if requested, then every change, as newline-delimited JSON.
//!
//! A watch has no queue of its own: it reads the table's log from its cursor, in batches, when the table
//! signals. A reader that falls behind the log gets `410 Expired` and lists again, as with upstream's watch cache.

use std::{collections::VecDeque, convert::Infallible, time::Duration};

use bytes::Bytes;
use futures::{StreamExt, stream};
use http::Response;
use http_body::Frame;
use http_body_util::{BodyExt, StreamBody};
use serde_json::Value;
use tokio::{sync::watch, time::Instant};
use tokio_util::sync::CancellationToken;

use super::{Call, read};
use crate::{
    core::Core,
    error::{ApiError, FieldError},
    http::{Body, query::VersionMatch},
    kinds::{Kind, Origin},
    meta,
    selector::{FieldRequirement, Selectors},
    store::{Change, ChangeType, Changes, Record, encode},
    view::{FrameType, Item, View, line},
    virtual_resource::{VirtualEvent, VirtualStream},
};

/// Default duration of a watch in seconds. Upstream draws between 30 and 60 minutes.
const DEFAULT_TIMEOUT: u64 = 1800;
/// Maximum duration of a watch in seconds: a day. Clients start a new one when theirs ends.
const MAX_TIMEOUT: u64 = 24 * 60 * 60;
/// Interval of bookmarks without other events; upstream's is about a minute too.
const BOOKMARK_EVERY: Duration = Duration::from_secs(60);
/// Changes taken from the log under one lock.
const BATCH: usize = 256;

pub(crate) async fn watch(call: &Call) -> Result<Response<Body>, ApiError> {
    read::selectable(call)?;
    let mut selectors = call.query.selectors.clone();
    if !call.name.is_empty() {
        selectors.fields.push(FieldRequirement {
            field: "metadata.name".to_owned(),
            value: call.name.clone(),
            equal: true,
        });
    }
    let initial = initial_events(call)?;
    let timeout = call.query.timeout_seconds.filter(|s| *s > 0).unwrap_or(DEFAULT_TIMEOUT);
    let deadline = Instant::now() + Duration::from_secs(timeout.min(MAX_TIMEOUT));
    if let Origin::Virtual(resource, _) = &call.kind.origin {
        let events = resource.watch(read::virtual_query(call)).await?;
        return Ok(respond(call, relay(events, call.view()?, deadline, call)));
    }

    let store = &call.core.store;
    let table = &call.kind.table;
    let signal = store.subscribe(table);
    let mut state = State {
        core: call.core.clone(),
        kind: call.kind.clone(),
        view: call.view()?,
        namespace: call.namespace.clone(),
        selectors,
        cursor: 0,
        signal,
        closing: call.closing.clone(),
        deadline,
        bookmarks: call.query.bookmarks,
        next_bookmark: Instant::now() + BOOKMARK_EVERY,
        ready: VecDeque::new(),
        first: true,
        ended: false,
    };
    match initial {
        Initial::None(after) => {
            store.reaches_back_to(table, after)?;
            state.cursor = after;
        }
        Initial::Objects { end_mark } => {
            let page = match read::only_object(&call.kind, &state.namespace, &state.selectors) {
                Some(key) => store.point(table, &key),
                None => store.page(table, state.namespace.as_deref(), None, None)?,
            };
            store.durable(page.revision).await?;
            state.cursor = page.revision;
            for record in page.records {
                if state.selects(&record) {
                    let frame = state.frame(FrameType::Added, &Item::Stored(record));
                    state.ready.push_back(frame);
                }
            }
            if end_mark {
                state.ready.push_back(state.view.bookmark(&page.revision.to_string(), true));
            }
        }
    }
    let frames = stream::unfold(state, |mut state| async move {
        let frame = state.next().await?;
        Some((frame, state))
    });
    Ok(respond(call, frames))
}

/// The start of a watch.
enum Initial {
    /// Changes after this revision.
    None(u64),
    /// All objects as ADDED, then a marked bookmark if requested.
    Objects { end_mark: bool },
}

/// apimachinery's rules for list options of a watch.
fn initial_events(call: &Call) -> Result<Initial, ApiError> {
    let query = &call.query;
    let refuse = |error| Err(ApiError::invalid("meta.k8s.io", "ListOptions", "", &[error]));
    let current = call.core.store.revision();
    match (query.send_initial_events, query.version_match) {
        (None, Some(_)) => refuse(FieldError::forbidden(
            "resourceVersionMatch",
            "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided",
        )),
        (Some(_), Some(VersionMatch::NotOlderThan)) => {
            let asked = query.resource_version.unwrap_or(0);
            if asked > current {
                return Err(ApiError::resource_version_too_large(asked, current));
            }
            if query.send_initial_events == Some(true) {
                return Ok(Initial::Objects { end_mark: query.bookmarks });
            }
            Ok(Initial::None(if asked == 0 { current } else { asked }))
        }
        (Some(_), _) => refuse(FieldError::forbidden(
            "resourceVersionMatch",
            "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan",
        )),
        (None, None) => match query.resource_version {
            None | Some(0) => Ok(Initial::Objects { end_mark: false }),
            Some(after) => Ok(Initial::None(after)),
        },
    }
}

/// An answer with a streaming body.
fn respond(
    call: &Call,
    frames: impl futures::Stream<Item = Bytes> + Send + 'static,
) -> Response<Body> {
    let body = StreamBody::new(frames.map(|bytes| Ok::<_, Infallible>(Frame::data(bytes))));
    let mut response = call.respond(200, Bytes::new());
    *response.body_mut() = body.boxed_unsync();
    response
}

/// One watch between frames.
struct State {
    core: std::sync::Arc<Core>,
    kind: std::sync::Arc<Kind>,
    view: View,
    namespace: Option<String>,
    selectors: Selectors,
    cursor: u64,
    signal: watch::Receiver<u64>,
    closing: CancellationToken,
    deadline: Instant,
    bookmarks: bool,
    next_bookmark: Instant,
    ready: VecDeque<Bytes>,
    /// No frame was sent yet: the next table includes the columns.
    first: bool,
    ended: bool,
}

impl State {
    /// The next line; `None` ends the watch. Cancel-safe: state changes only between awaits.
    async fn next(&mut self) -> Option<Bytes> {
        loop {
            if let Some(frame) = self.ready.pop_front() {
                return Some(frame);
            }
            if self.ended {
                return None;
            }
            self.signal.mark_unchanged();
            self.fill();
            if self.ended || !self.ready.is_empty() {
                continue;
            }
            let wake =
                if self.bookmarks { self.deadline.min(self.next_bookmark) } else { self.deadline };
            tokio::select! {
                biased;
                () = self.closing.cancelled() => self.ended = true,
                changed = self.signal.changed() => {
                    // Closed: the kind was removed.
                    self.ended |= changed.is_err();
                }
                () = tokio::time::sleep_until(wake) => self.timer(),
            }
        }
    }

    /// Handles a due bookmark or the timeout.
    fn timer(&mut self) {
        let now = Instant::now();
        if self.bookmarks {
            self.ready.push_back(self.view.bookmark(&self.cursor.to_string(), false));
            self.next_bookmark = now + BOOKMARK_EVERY;
        }
        self.ended |= now >= self.deadline;
    }

    /// Reads the durable part of the log and turns it into lines.
    fn fill(&mut self) {
        match self.core.store.changes(&self.kind.table, self.cursor, BATCH) {
            Changes::Gone => self.ended = true,
            Changes::Expired(floor) => {
                let error = ApiError::too_old(self.cursor, floor);
                self.ready.push_back(line("ERROR", &encode(&error.status())));
                self.ended = true;
            }
            Changes::Batch(changes, upto) => {
                self.cursor = upto;
                for change in changes {
                    if let Some(frame) = self.change(&change) {
                        self.ready.push_back(frame);
                    }
                }
            }
        }
    }

    fn selects(&self, record: &Record) -> bool {
        if self.namespace.is_none() && self.selectors.is_empty() {
            return true;
        }
        let value = record.value();
        self.namespace.as_deref().is_none_or(|ns| meta::namespace(&value) == ns)
            && self.selectors.matches(&value, &self.kind.selectable)
    }

    /// A line for an object.
    fn frame(&mut self, kind: FrameType, item: &Item) -> Bytes {
        let first = std::mem::take(&mut self.first);
        self.view.frame(kind, item, self.core.now(), first)
    }

    /// An object that starts to match is ADDED, one that stops is DELETED with its last matching state under
    /// the revision of the change.
    fn change(&mut self, change: &Change) -> Option<Bytes> {
        let before = change.previous.as_ref().is_some_and(|r| self.selects(r));
        let after = change.kind != ChangeType::Deleted && self.selects(&change.object);
        let kind = match (before, after) {
            (false, false) => return None,
            (false, true) => FrameType::Added,
            (true, true) => FrameType::Modified,
            (true, false) if change.kind == ChangeType::Deleted => FrameType::Deleted,
            (true, false) => {
                let mut last = Value::clone(&change.previous.as_ref()?.value());
                let version = change.revision.to_string();
                meta::set(&mut last, "resourceVersion", Some(version.into()));
                let shown = self.kind.outgoing(&last).into_owned();
                return Some(self.frame(FrameType::Deleted, &Item::plain(shown)));
            }
        };
        Some(self.frame(kind, &Item::Stored(change.object.clone())))
    }
}

/// The frames of a virtual kind's watch.
fn relay(
    events: VirtualStream,
    view: View,
    deadline: Instant,
    call: &Call,
) -> impl futures::Stream<Item = Bytes> + Send + 'static {
    let (core, bookmarks) = (call.core.clone(), call.query.bookmarks);
    let closing = call.closing.clone();
    let state = (events, view, true, false);
    stream::unfold(state, move |(mut events, view, mut first, ended)| {
        let (core, closing) = (core.clone(), closing.clone());
        async move {
            if ended {
                return None;
            }
            loop {
                let event = tokio::select! {
                    biased;
                    () = closing.cancelled() => return None,
                    event = events.next() => event?,
                    () = tokio::time::sleep_until(deadline) => return None,
                };
                let (kind, object) = match event {
                    Ok(VirtualEvent::Added(object)) => (FrameType::Added, object),
                    Ok(VirtualEvent::Modified(object)) => (FrameType::Modified, object),
                    Ok(VirtualEvent::Deleted(object)) => (FrameType::Deleted, object),
                    Ok(VirtualEvent::Bookmark(version)) => {
                        if !bookmarks {
                            continue;
                        }
                        let frame = view.bookmark(&version, false);
                        return Some((frame, (events, view, first, false)));
                    }
                    Err(error) => {
                        let frame = line("ERROR", &encode(&error.status()));
                        return Some((frame, (events, view, first, true)));
                    }
                };
                let now = core.now();
                let frame = view.frame(kind, &Item::plain(object), now, std::mem::take(&mut first));
                return Some((frame, (events, view, first, false)));
            }
        }
    })
}
