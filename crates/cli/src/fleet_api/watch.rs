//! Watches: the changes of all members, as they come.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use atoll_apimachinery::ApiError;
use atoll_apimachinery::response::{self, Body, encode, respond_frames};
use bytes::{BufMut, Bytes, BytesMut};
use futures::future::BoxFuture;
use futures::stream::{self, BoxStream, SelectAll};
use futures::{FutureExt, Stream, StreamExt};
use http::Response;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep_until};

use super::FleetRequest;
use super::ask::{Events, Failure};
use super::list::warnings;
use super::merge::{annotate, definitions, merged_definitions, merged_row, names};
use crate::reach::RETRY;

/// Members whose watches are opened at the same time.
const PARALLEL: usize = 64;
/// How often it is looked which members there are, and which of them the caller may reach.
const LOOK: Duration = Duration::from_secs(30);

/// A client whose list has objects of a member lists again when the member gives no sign of life for this long while it is
/// asked: its new list names the member.
const SILENT: Duration = Duration::from_secs(60);

/// What a member's watch yields.
enum Change {
    Event(Bytes),
    /// The client has to list again.
    Relist(String),
}

/// The columns of a merged table.
#[derive(Default)]
struct Columns {
    names: OnceLock<Vec<String>>,
    /// The first event names them.
    sent: AtomicBool,
}

/// Answers a watch. Members that do not answer are named in warnings, and asked again until they do.
pub(super) async fn answer(request: FleetRequest, members: Vec<String>) -> Response<Body> {
    let (request, columns) = (Arc::new(request), Arc::new(Columns::default()));
    let opening = members.clone().into_iter().map(|member| {
        let mut follower = Follower::new(request.clone(), &member, columns.clone());
        async move {
            let failed = follower.open().await.err();
            (follower, failed)
        }
    });
    let opened: Vec<_> = stream::iter(opening).buffered(PARALLEL).collect().await;
    let mut streams = SelectAll::new();
    let mut failed = Vec::new();
    for (follower, failure) in opened {
        if let Some(failure) = failure {
            failed.push((follower.member.clone(), failure));
        }
        streams.push(follower.changes());
    }
    let now = Instant::now();
    let merged = Merged {
        end: now + request.query.lasts,
        look: now + LOOK,
        known: members.into_iter().collect(),
        request,
        columns,
        streams,
        looking: None,
        ended: false,
    };
    let mut answer = respond_frames(merged.events());
    response::warn(&mut answer, &warnings(&failed));
    answer
}

/// The watches of all members.
struct Merged {
    request: Arc<FleetRequest>,
    columns: Arc<Columns>,
    streams: SelectAll<BoxStream<'static, Change>>,
    known: BTreeSet<String>,
    end: Instant,
    look: Instant,
    /// The hub is being asked for the members.
    looking: Option<BoxFuture<'static, Result<Vec<String>, ApiError>>>,
    ended: bool,
}

impl Merged {
    fn events(self) -> impl Stream<Item = Bytes> {
        stream::unfold(self, |mut merged| async move {
            let event = merged.next().await?;
            Some((event, merged))
        })
    }

    async fn next(&mut self) -> Option<Bytes> {
        if self.ended {
            return None;
        }
        let why = loop {
            tokio::select! {
                () = sleep_until(self.end) => return None,
                () = sleep_until(self.look), if self.looking.is_none() => {
                    let request = self.request.clone();
                    self.looking = Some(async move { request.members().await }.boxed());
                }
                members = looked(&mut self.looking) => {
                    self.looking = None;
                    self.look = Instant::now() + LOOK;
                    // A hub that does not answer is asked again later.
                    if let Some(why) = members.ok().and_then(|members| self.compare(members)) {
                        break why;
                    }
                }
                Some(change) = self.streams.next() => match change {
                    Change::Event(event) => return Some(event),
                    Change::Relist(why) => break why,
                }
            }
        };
        self.ended = true;
        Some(line(&json!({"type": "ERROR", "object": ApiError::expired(why).status()})))
    }

    /// Adds new members. Returns why the client has to list again: what a member had is not part of the answer any more.
    fn compare(&mut self, members: Vec<String>) -> Option<String> {
        let now: BTreeSet<String> = members.into_iter().collect();
        if let Some(gone) = self.known.difference(&now).next() {
            return Some(format!(
                "member {gone} is gone, or you may not reach it any more: list again"
            ));
        }
        for member in now.difference(&self.known) {
            let follower = Follower::new(self.request.clone(), member, self.columns.clone());
            self.streams.push(follower.changes());
        }
        self.known = now;
        None
    }
}

/// The members, once the hub has answered.
async fn looked(
    looking: &mut Option<BoxFuture<'static, Result<Vec<String>, ApiError>>>,
) -> Result<Vec<String>, ApiError> {
    match looking {
        Some(looking) => looking.await,
        None => std::future::pending().await,
    }
}

/// Follows one member.
struct Follower {
    request: Arc<FleetRequest>,
    member: String,
    columns: Arc<Columns>,
    /// The member's own columns.
    own: Vec<String>,
    /// The version of the newest event; `None` = the next watch begins with what exists.
    version: Option<String>,
    /// Whether events were passed on: then the next watch must not begin anew.
    passed: bool,
    events: Option<Events>,
    failures: u32,
    /// The last sign of life.
    alive: Instant,
    ended: bool,
}

impl Follower {
    fn new(request: Arc<FleetRequest>, member: &str, columns: Arc<Columns>) -> Self {
        let version = request.query.versions.get(member).map(str::to_owned);
        Self {
            passed: version.is_some(),
            version,
            request,
            member: member.to_owned(),
            columns,
            own: Vec::new(),
            events: None,
            failures: 0,
            alive: Instant::now(),
            ended: false,
        }
    }

    async fn open(&mut self) -> Result<(), Failure> {
        let path = self.request.query.changes(self.version.as_deref());
        let opened = self.request.open(&self.member, &path).await;
        match opened {
            Ok(chunks) => {
                self.events = Some(Events::of(&self.request, &self.member, chunks));
                self.alive = Instant::now();
                Ok(())
            }
            Err(failure) => {
                self.failures += 1;
                // The state that the client knows is lost, as an event of the kind says.
                self.passed |= failure.code() == Some(410);
                if failure.code() == Some(410) {
                    self.version = None;
                }
                Err(failure)
            }
        }
    }

    fn changes(self) -> BoxStream<'static, Change> {
        let changes = stream::unfold(self, |mut follower| async move {
            let change = follower.next().await?;
            Some((change, follower))
        });
        changes.boxed()
    }

    async fn next(&mut self) -> Option<Change> {
        loop {
            if self.ended {
                return None;
            }
            let Some(events) = &mut self.events else {
                if self.passed && self.version.is_none() {
                    self.ended = true;
                    let member = &self.member;
                    return Some(Change::Relist(format!(
                        "changes of member {member} were lost: list again"
                    )));
                }
                // The client believes that it knows the state of this member.
                if self.passed && self.failures > 0 && self.alive.elapsed() > SILENT {
                    self.ended = true;
                    let (member, seconds) = (&self.member, SILENT.as_secs());
                    return Some(Change::Relist(format!(
                        "member {member} has not answered for {seconds} s: list again"
                    )));
                }
                if self.failures > 0 {
                    tokio::time::sleep(RETRY.ceiling(self.failures)).await;
                }
                // Later failures cannot be reported: the headers are sent.
                drop(self.open().await);
                continue;
            };
            match events.next().await {
                Ok(Some(event)) => {
                    self.alive = Instant::now();
                    if let Some(change) = self.take(event) {
                        self.failures = 0;
                        return Some(change);
                    }
                }
                // Its server ends watches after a while.
                Ok(None) => {
                    (self.events, self.alive) = (None, Instant::now());
                    self.failures = self.failures.max(1);
                }
                Err(_) => {
                    (self.events, self.alive) = (None, Instant::now());
                    self.failures += 1;
                }
            }
        }
    }

    fn take(&mut self, mut event: Value) -> Option<Change> {
        if !event.is_object() {
            self.events = None;
            self.failures += 1;
            return None;
        }
        let version = |object: &Value| {
            let of_row = object.pointer("/rows/0/object/metadata/resourceVersion");
            let version = of_row.or_else(|| object.pointer("/metadata/resourceVersion"));
            version.and_then(Value::as_str).filter(|text| !text.is_empty()).map(str::to_owned)
        };
        match event["type"].as_str() {
            Some("ADDED" | "MODIFIED" | "DELETED") if event["object"].is_object() => {
                self.version = version(&event["object"]).or(self.version.take());
                self.passed = true;
                self.merge(&mut event["object"]);
                Some(Change::Event(line(&event)))
            }
            Some("BOOKMARK") => {
                self.failures = 0;
                self.version = version(&event["object"]).or(self.version.take());
                None
            }
            // An error: the version is too old, or the server ends the watch.
            _ => {
                self.events = None;
                self.failures += 1;
                if event["object"]["code"] == 410 {
                    self.version = None;
                    self.passed = true;
                }
                None
            }
        }
    }

    fn merge(&mut self, object: &mut Value) {
        if object["kind"] != "Table" {
            return annotate(object, &self.member);
        }
        let definitions = definitions(object);
        if !definitions.is_empty() {
            self.own = names(&definitions);
        }
        // The first columns that any member sends are those of the answer.
        let columns: &[String] = match self.own.is_empty() {
            true => self.columns.names.get().map_or(&[], Vec::as_slice),
            false => self.columns.names.get_or_init(|| self.own.clone()),
        };
        if !self.own.is_empty() && !self.columns.sent.swap(true, Ordering::Relaxed) {
            object["columnDefinitions"] = merged_definitions(columns, &definitions);
        }
        let rows = object.get_mut("rows").and_then(Value::as_array_mut);
        for row in rows.into_iter().flatten() {
            merged_row(row, &self.member, &self.own, columns);
        }
    }
}

fn line(event: &Value) -> Bytes {
    let mut line = BytesMut::from(encode(event));
    line.put_u8(b'\n');
    line.freeze()
}
