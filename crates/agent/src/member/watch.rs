//! Follows a kind: list, then watch, forever.
//!
//! kube's own `watcher` does not fit: lists here return whole objects even where metadata is enough afterwards, and
//! waits use the seeded jitter.

use std::time::Duration;

use futures::StreamExt;
use kube::core::WatchEvent;
use serde_json::Value;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::client::{Follow, Member, Target, typed};
use super::error::MemberError;
use atoll_api::{Backoff, Jitter};

/// Length of one watch call. Below client-go's 5 to 10 minutes, so that a dead connection is noticed.
const WATCH_SECONDS: u32 = 240;
/// How long past its end a watch may stay silent.
const WATCH_SLACK: Duration = Duration::from_secs(10);
/// Waits between failed lists and watches.
const BACKOFF: Backoff =
    Backoff { first: Duration::from_millis(500), most: Duration::from_secs(30) };
/// Backoff for a kind that the agent may not read: permissions change rarely, and many kinds may be forbidden.
const FORBIDDEN: Backoff =
    Backoff { first: Duration::from_millis(500), most: Duration::from_secs(300) };

/// Events of a followed kind.
#[derive(Debug)]
pub(crate) enum Followed {
    /// A list begins: objects that are not in its pages are gone.
    ListBegins,
    /// A page of the list.
    Page(Vec<Value>),
    /// The list is complete.
    ListEnds,
    /// An object was created or changed.
    Changed(Value),
    /// An object was deleted, or no longer matches the selector; its last state.
    Deleted(Value),
    /// Following the kind failed; it is retried.
    Failed(MemberError),
}

/// Follows a kind until cancelled or until the receiver is dropped. Events are tagged, so that many kinds can share one
/// channel; a full channel stops the watch.
pub(crate) async fn follow<T: Clone>(
    member: Member,
    target: Target,
    what: Follow,
    jitter: Jitter,
    tag: T,
    events: mpsc::Sender<(T, Followed)>,
    token: CancellationToken,
) {
    let run = async {
        let mut failures = 0;
        loop {
            let error = match list(&member, &target, &what, &tag, &events).await {
                Ok(Some(version)) => {
                    failures = 0;
                    match watch(&member, &target, &what, version, &tag, &events).await {
                        Some(error) => error,
                        None => return,
                    }
                }
                Ok(None) => return,
                Err(error) => error,
            };
            // An expired resourceVersion is normal: list again at once.
            let wait = (!error.is_expired()).then(|| {
                failures += 1;
                let backoff = if error.is_forbidden() { FORBIDDEN } else { BACKOFF };
                backoff.half_jitter(failures, &jitter)
            });
            if events.send((tag.clone(), Followed::Failed(error))).await.is_err() {
                return;
            }
            if let Some(wait) = wait {
                tokio::time::sleep(wait).await;
            }
        }
    };
    tokio::select! {
        biased;
        () = token.cancelled() => {}
        () = run => {}
    }
}

/// Lists in pages; `None` when the receiver was dropped.
async fn list<T: Clone>(
    member: &Member,
    target: &Target,
    what: &Follow,
    tag: &T,
    events: &mpsc::Sender<(T, Followed)>,
) -> Result<Option<String>, MemberError> {
    let mut next = None;
    let mut first = true;
    loop {
        let page =
            member.list(target, what.namespace.as_deref(), what.labels.as_deref(), next).await?;
        // Only now is it certain that a list begins: a failed first page must not empty the receiver's tables.
        let begin = first.then_some(Followed::ListBegins);
        first = false;
        let end = page.next.is_none().then_some(Followed::ListEnds);
        for event in begin.into_iter().chain([Followed::Page(page.objects)]).chain(end) {
            if events.send((tag.clone(), event)).await.is_err() {
                return Ok(None);
            }
        }
        next = page.next;
        if next.is_none() {
            return Ok(Some(page.resource_version));
        }
    }
}

/// Watches from a version on, over any number of calls; `None` when the receiver was dropped.
async fn watch<T: Clone>(
    member: &Member,
    target: &Target,
    what: &Follow,
    mut version: String,
    tag: &T,
    events: &mpsc::Sender<(T, Followed)>,
) -> Option<MemberError> {
    let limit = Duration::from_secs(u64::from(WATCH_SECONDS)) + WATCH_SLACK;
    loop {
        let stream = match member.watch(target, what, &version, WATCH_SECONDS).await {
            Ok(stream) => stream,
            Err(error) => return Some(error),
        };
        let mut stream = std::pin::pin!(stream);
        let started = tokio::time::Instant::now();
        let mut silent = true;
        loop {
            let event = match tokio::time::timeout(limit, stream.next()).await {
                Ok(Some(Ok(event))) => event,
                Ok(Some(Err(error))) => return Some(error.into()),
                Ok(None) => break,
                Err(_) => return Some(MemberError::Timeout { call: "watch", after: limit }),
            };
            silent = false;
            let event = match event {
                WatchEvent::Added(object) | WatchEvent::Modified(object) => {
                    keep_version(&mut version, &object);
                    Followed::Changed(shaped(target, what, object))
                }
                WatchEvent::Deleted(object) => {
                    keep_version(&mut version, &object);
                    Followed::Deleted(shaped(target, what, object))
                }
                WatchEvent::Bookmark(bookmark) => {
                    version = bookmark.metadata.resource_version;
                    continue;
                }
                WatchEvent::Error(status) => return Some(MemberError::Api(status)),
            };
            if events.send((tag.clone(), event)).await.is_err() {
                return None;
            }
        }
        // A server or a proxy that ends every watch at once must not be called in a tight loop.
        if silent && started.elapsed() < Duration::from_secs(1) {
            tokio::time::sleep(BACKOFF.first).await;
        }
    }
}

fn keep_version(version: &mut String, object: &Value) {
    if let Some(newer) = object["metadata"]["resourceVersion"].as_str() {
        newer.clone_into(version);
    }
}

/// Metadata arrives as kind `PartialObjectMetadata`: set the kind of the target.
fn shaped(target: &Target, what: &Follow, mut object: Value) -> Value {
    if what.metadata_only
        && let Some(fields) = object.as_object_mut()
    {
        fields.remove("apiVersion");
        fields.remove("kind");
    }
    typed(target, object)
}
