//! Lists and tables: pages of members, one after the other, in one answer.

use std::sync::Arc;
use std::time::Duration;

use atoll_apimachinery::ApiError;
use atoll_apimachinery::response::{self, Body, JSON};
use bytes::Bytes;
use futures::{Stream, StreamExt, stream};
use http::header::CONTENT_TYPE;
use http::{HeaderValue, Response};
use http_body::Frame;
use http_body_util::{BodyExt, Full, StreamBody};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::FleetRequest;
use super::ask::Failure;
use super::merge::Merger;
use super::query::PAGE;
use super::walk::{PARALLEL, Part, Step, Walk};

type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// Bytes of an answer that are held back to name the members that do not answer: warnings come before the body.
const HELD: usize = 8 << 20;
/// An answer that the client does not read for this long ends: it holds memory.
const UNREAD: Duration = Duration::from_secs(60);
/// Answers up to this size in bytes are sent as a whole, and hold no memory.
const SMALL: usize = 64 << 10;
/// Members that a warning names.
const NAMED: usize = 20;

/// Answers a list.
///
/// # Errors
/// When no member answers, or one fails after its first page.
pub(super) async fn answer(
    request: FleetRequest,
    members: Vec<String>,
) -> Result<Response<Body>, ApiError> {
    if request.query.is_discovery() {
        return documents(&request, &members).await;
    }
    let mut walk = Walk::new(request, members);
    if walk.begins && walk.is_wide() {
        walk.probe().await;
    }
    let (mut parts, mut count, mut bytes) = (Vec::<Part>::new(), 0, 0);
    let limit = walk.request.query.limit;
    while !walk.is_done() && limit.is_none_or(|limit| count < limit) && bytes < HELD {
        match walk.step(limit.map_or(PAGE, |limit| limit - count)).await? {
            Step::Entries { part, count: more } => {
                count += more;
                parts.push(part);
            }
            Step::TakenBack(mark) => {
                parts.truncate(mark.parts + 1);
                if let Some(part) = parts.get_mut(mark.parts) {
                    part.text.truncate(mark.bytes);
                }
                count = mark.count;
            }
        }
        bytes = parts.iter().map(|part| part.text.len()).sum();
    }
    let whole = walk.is_done() || limit.is_some_and(|limit| count >= limit);
    // A watch needs the versions of all members, also of those that later pages are of.
    if !walk.probed && (!whole || walk.begins && !walk.is_done()) {
        walk.probe().await;
    }
    let warnings = warnings(&walk.failed);
    let Some(form) = walk.merger.form().cloned() else { return nobody(walk.failed) };
    parts.insert(0, Part::of(walk.merger.begin(&form)));
    let mut answer = match whole {
        true => {
            let next = walk.next().map(|next| next.write());
            parts.push(Part::of(Merger::end(&walk.versions.write(), next.as_deref())));
            match bytes <= SMALL {
                true => {
                    let texts: Vec<Bytes> = parts.into_iter().map(|part| part.text).collect();
                    let body = Full::new(Bytes::from(texts.concat()));
                    Response::new(body.map_err(|never| match never {}).boxed_unsync())
                }
                false => streamed(stream::iter(parts.into_iter().map(Ok)), walk.request),
            }
        }
        false => {
            walk.warned = true;
            let request = walk.request.clone();
            streamed(stream::iter(parts.into_iter().map(Ok)).chain(rest(walk)), request)
        }
    };
    answer.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(JSON));
    response::warn(&mut answer, &warnings);
    Ok(answer)
}

/// The rest of an answer, as it arrives. An error means that the answer is incomplete.
fn rest(walk: Walk) -> impl Stream<Item = Result<Part, BoxError>> + Send {
    stream::try_unfold(Some(walk), |walk| async move {
        let Some(mut walk) = walk else { return Ok(None) };
        if walk.is_done() {
            let end = Part::of(Merger::end(&walk.versions.write(), None));
            return Ok(Some((end, None)));
        }
        match walk.step(PAGE).await.map_err(|error| BoxError::from(error.message))? {
            Step::Entries { part, .. } => Ok(Some((part, Some(walk)))),
            // The warnings are sent.
            Step::TakenBack(_) => Err("a member failed after its first page".into()),
        }
    })
}

/// An answer of these parts. It ends with an error if the client does not read it.
fn streamed(
    parts: impl Stream<Item = Result<Part, BoxError>> + Send + 'static,
    request: Arc<FleetRequest>,
) -> Response<Body> {
    let (sender, received) = mpsc::channel(1);
    // Belongs to the body, and ends with it.
    let mut sending = JoinSet::new();
    sending.spawn(async move {
        // The user's place is free when all is sent.
        let _request = request;
        let mut parts = std::pin::pin!(parts);
        while let Some(part) = parts.next().await {
            if !matches!(timeout(UNREAD, sender.send(Some(part))).await, Ok(Ok(()))) {
                return;
            }
        }
        // An answer without this is not complete.
        let _ = timeout(UNREAD, sender.send(None)).await;
    });
    let body = stream::unfold(Some((received, sending)), |state| async move {
        let (mut received, sending) = state?;
        match received.recv().await {
            Some(Some(part)) => {
                let frame = part.map(|part| Frame::data(part.text));
                Some((frame, Some((received, sending))))
            }
            Some(None) => None,
            None => {
                let why: BoxError = format!("not read for {} s", UNREAD.as_secs()).into();
                Some((Err(why), None))
            }
        }
    });
    Response::new(StreamBody::new(body).boxed_unsync())
}

/// The members that gave no answer, as warnings.
pub(super) fn warnings(failed: &[(String, Failure)]) -> Vec<String> {
    let named =
        failed.iter().take(NAMED).map(|(member, failure)| format!("{member}: {}", failure.why));
    let others = failed.len().saturating_sub(NAMED);
    let others = (others > 0).then(|| format!("{others} more members did not answer"));
    named.chain(others).collect()
}

/// The answer when no member gave one: that of the first which refused, or what happened.
fn nobody(failed: Vec<(String, Failure)>) -> Result<Response<Body>, ApiError> {
    let refused = failed.iter().find_map(|(_, failure)| failure.status.clone());
    if let Some((status, text)) = refused {
        let mut answer = response::respond(status.as_u16(), JSON, text);
        response::warn(&mut answer, &warnings(&failed));
        return Ok(answer);
    }
    let all = warnings(&failed).join("; ");
    match failed.iter().any(|(_, failure)| failure.is_no_list) {
        true => Err(ApiError::bad_request(all)),
        false => Err(ApiError::unavailable_for(format!("no member answered: {all}"), 1)),
    }
}

/// Documents about the API, from the first member that answers.
async fn documents(request: &FleetRequest, members: &[String]) -> Result<Response<Body>, ApiError> {
    let mut failed = Vec::new();
    for member in members {
        match request.page(member, &request.query.plain()).await {
            Ok(page) => return Ok(response::respond(200, JSON, page.text)),
            Err(failure) => failed.push((member.clone(), failure)),
        }
        // Members differ little: more of them would not know more.
        if failed.len() == PARALLEL {
            break;
        }
    }
    nobody(failed)
}
