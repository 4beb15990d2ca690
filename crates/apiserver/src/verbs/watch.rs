//! watch: the current state if requested, then every change, as newline-delimited JSON.
//!
//! A watch has no queue of its own: it reads the table's log from its cursor, in batches, when the table
//! signals. A reader that falls behind the log gets `410 Expired` and lists again, as with upstream's watch cache.

use std::{collections::VecDeque, sync::Arc, time::Duration};

use atoll_apimachinery::{
    ApiError, meta,
    response::{Body, respond_frames},
    selector::Selectors,
    view::{FrameType, View, error_line},
};
use bytes::Bytes;
use futures::stream;
use http::Response;
use serde_json::Value;
use tokio::{sync::watch, time::Instant};
use tokio_util::sync::CancellationToken;

use super::{call::Call, read};
use crate::{
    core::Core,
    item::Item,
    kinds::Kind,
    store::{Change, ChangeType, Changes, Record},
};

/// Interval of bookmarks without other events; upstream's is about a minute too.
const BOOKMARK_EVERY: Duration = Duration::from_secs(60);
/// Changes taken from the log under one lock.
const BATCH: usize = 256;

pub(crate) async fn watch(call: &Call) -> Result<Response<Body>, ApiError> {
    read::selectable(call)?;
    let initial = initial_events(call)?;
    let deadline = call.query.watch_deadline();
    let selectors = call.query.selectors_of(&call.name);
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
                None => store.page(table, state.namespace.as_deref(), None, None, usize::MAX)?,
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
    Ok(respond_frames(frames))
}

/// The start of a watch.
enum Initial {
    /// Changes after this revision.
    None(u64),
    /// All objects as ADDED, then a marked bookmark if requested.
    Objects { end_mark: bool },
}

/// Where a watch begins.
fn initial_events(call: &Call) -> Result<Initial, ApiError> {
    let query = &call.query;
    query.check_watch()?;
    let Some(send) = query.send_initial_events else {
        return Ok(match query.resource_version {
            None | Some(0) => Initial::Objects { end_mark: false },
            Some(after) => Initial::None(after),
        });
    };
    let current = call.core.store.revision();
    let asked = query.resource_version.unwrap_or(0);
    if asked > current {
        return Err(ApiError::resource_version_too_large(asked, current));
    }
    Ok(match send {
        true => Initial::Objects { end_mark: query.bookmarks },
        false => Initial::None(if asked == 0 { current } else { asked }),
    })
}

/// One watch between frames.
struct State {
    core: Arc<Core>,
    kind: Arc<Kind>,
    view: View<Kind>,
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
                self.ready.push_back(error_line(&error));
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
        let value = record.outline();
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
