//! List, then watch, for ever: how the agent follows a kind.
//!
//! Not kube's own `watcher`: the lists here are of whole objects also where metadata is enough afterwards, and waits come
//! from the seeded jitter.

use std::time::Duration;

use futures::StreamExt;
use kube::core::WatchEvent;
use serde_json::Value;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::{Member, MemberError, Target};
use crate::backoff::{Backoff, Jitter};

/// Length of one watch call. Below client-go's 5 to 10 minutes, so that a connection that died in silence is noticed.
const WATCH_SECONDS: u32 = 240;
/// How long after its end a watch may still be silent.
const WATCH_SLACK: Duration = Duration::from_secs(10);
/// Waits between failed lists and watches.
const BACKOFF: Backoff =
    Backoff { first: Duration::from_millis(500), most: Duration::from_secs(30) };
/// The same for a kind that the agent may not read: rights change when people change them, and many kinds may be forbidden.
const FORBIDDEN: Backoff =
    Backoff { first: Duration::from_millis(500), most: Duration::from_secs(300) };

/// What to follow.
#[derive(Debug, Clone, Default)]
pub(crate) struct Follow {
    /// One namespace, or all.
    pub namespace: Option<String>,
    /// Label selector.
    pub labels: Option<String>,
    /// Lists are whole, watch events carry metadata alone.
    pub metadata_only: bool,
}

/// What happens to the objects of a kind.
#[derive(Debug)]
pub(crate) enum Followed {
    /// A list begins: what is not in its pages is gone.
    ListBegins,
    /// A page of the list.
    Page(Vec<Value>),
    /// The list is complete.
    ListEnds,
    /// An object is there, or changed.
    Changed(Value),
    /// An object is gone, or no longer matches the selector; as it was last.
    Deleted(Value),
    /// The kind cannot be followed just now; it is tried again.
    Failed(MemberError),
}

/// Follows a kind until the token ends it or nobody listens any more. Events are tagged, so that many kinds can share one
/// channel; a full channel holds the watch back.
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
            // A place in the log that is gone is ordinary life: list again at once.
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

/// Lists in pages; `None` when nobody listens any more.
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
        // Only now is it sure that a list begins: a failed first page must not empty anybody's tables.
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

/// Watches from a version on, over any number of calls; `None` when nobody listens any more.
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
        // A server or a proxy that ends every watch at once must not be asked in a tight loop.
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

/// Metadata comes as an object of kind `PartialObjectMetadata`: whose metadata it is, the target says.
fn shaped(target: &Target, what: &Follow, mut object: Value) -> Value {
    if what.metadata_only
        && let Some(fields) = object.as_object_mut()
    {
        fields.remove("apiVersion");
        fields.remove("kind");
    }
    super::typed(target, object)
}
