//! Lists and tables: pages of members, one after the other, in one answer.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use atoll_apimachinery::ApiError;
use atoll_apimachinery::response::{self, Body, JSON};
use bytes::Bytes;
use futures::{StreamExt, stream};
use http::header::CONTENT_TYPE;
use http::{HeaderValue, Response};
use http_body::Frame;
use http_body_util::{BodyExt, Full, StreamBody};
use tokio::time::Instant;

use super::FleetRequest;
use super::ask::Failure;
use super::merge::{Merger, NO_LIST, Page};
use super::query::PAGE;
use super::versions::{Continue, Versions};

type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// Members that are asked at the same time. Their pages are in memory together.
const PARALLEL: usize = 8;
/// Members that are asked at the same time whether they answer at all.
const PROBES: usize = 64;
/// Bytes of an answer that are held back to name the members that do not answer: warnings come before the body.
const HELD: usize = 8 << 20;
/// Pages of a member without any object, one after the other: an API server sends few.
const EMPTY_PAGES: usize = 20;
/// Limit of the time for one answer.
const LIMIT: Duration = Duration::from_secs(600);
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
    let (mut held, mut count, mut bytes) = (Vec::new(), 0, 0);
    let limit = walk.request.query.limit;
    while !walk.is_done() && limit.is_none_or(|limit| count < limit) && bytes < HELD {
        let (text, entries) = walk.step(limit.map_or(PAGE, |limit| limit - count)).await?;
        count += entries;
        bytes += text.len();
        held.push(text);
    }
    let whole = walk.is_done() || limit.is_some_and(|limit| count >= limit);
    if !whole {
        walk.probe().await;
    }
    let warnings = warnings(&walk.failed);
    let Some(form) = walk.merger.form().cloned() else { return nobody(walk.failed) };
    let begin = walk.merger.begin(&form);
    let mut answer = match whole {
        true => {
            let next = walk.next().map(|next| next.write());
            held.insert(0, begin.into());
            held.push(Merger::end(&walk.versions.write(), next.as_deref()).into());
            let body = Full::new(Bytes::from(held.concat()));
            Response::new(body.map_err(|never| match never {}).boxed_unsync())
        }
        false => {
            let start = stream::iter(std::iter::once(begin.into()).chain(held).map(Ok));
            let body = start.chain(walk.rest()).map(|part| part.map(Frame::data));
            Response::new(StreamBody::new(body).boxed_unsync())
        }
    };
    answer.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(JSON));
    response::warn(&mut answer, &warnings);
    Ok(answer)
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
    match failed.iter().any(|(_, failure)| failure.why.starts_with(NO_LIST)) {
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

/// The way through the members.
struct Walk {
    request: Arc<FleetRequest>,
    /// Those that follow.
    members: VecDeque<String>,
    /// The place in the first of them.
    token: Option<String>,
    /// Pages of it without an object, one after the other.
    empty: usize,
    merger: Merger,
    versions: Versions,
    failed: Vec<(String, Failure)>,
    /// The warnings are sent: from now on a failure is one of the whole answer.
    warned: bool,
    end: Instant,
}

impl Walk {
    fn new(request: FleetRequest, members: Vec<String>) -> Self {
        let from = request.query.from.clone();
        let first = from.as_ref().map_or("", |from| from.member.as_str());
        let members: VecDeque<String> =
            members.into_iter().filter(|member| member.as_str() >= first).collect();
        // The member may be gone by now.
        let is_there = members.front().is_some_and(|member| member == first);
        let (token, form) = from.map_or((None, None), |from| (from.token, Some(from.form)));
        Self {
            request: Arc::new(request),
            members,
            token: token.filter(|_| is_there),
            empty: 0,
            merger: Merger::new(form),
            versions: Versions::default(),
            failed: Vec::new(),
            warned: false,
            end: Instant::now() + LIMIT,
        }
    }

    fn is_done(&self) -> bool {
        self.members.is_empty()
    }

    /// The place of the next page; `None` at the end.
    fn next(&self) -> Option<Continue> {
        let (member, form) = (self.members.front()?.clone(), self.merger.form()?.clone());
        Some(Continue { member, token: self.token.clone(), form })
    }

    /// The entries of the next pages, at most this many.
    async fn step(&mut self, limit: usize) -> Result<(Bytes, usize), ApiError> {
        if Instant::now() > self.end {
            let text = format!("the list took longer than {} s: set a limit", LIMIT.as_secs());
            return Err(ApiError::gateway_timeout(text));
        }
        let request = self.request.clone();
        let token = self.token.clone();
        // The pages after that of a member with more pages would be asked for in vain.
        let many = if token.is_some() { 1 } else { PARALLEL };
        let batch: Vec<String> = self.members.iter().take(many).cloned().collect();
        let asked = batch.into_iter().enumerate().map(|(place, member)| {
            let path = request.query.page(limit, token.as_deref().filter(|_| place == 0));
            let request = &request;
            async move {
                let page = request.page(&member, &path).await;
                (member, page)
            }
        });
        let mut answers = stream::iter(asked).buffered(PARALLEL);
        let (mut text, mut count) = (Vec::new(), 0);
        while let Some((member, answer)) = answers.next().await {
            let page = answer.and_then(|raw| Page::read(&raw.text));
            // What does not fit is asked for again, with the rest of the limit.
            if page.as_ref().is_ok_and(|page| count > 0 && count + page.len() > limit) {
                break;
            }
            let added = page.and_then(|page| {
                let (entries, next, version) =
                    (page.len(), page.next.clone(), page.version.clone());
                self.empty = if entries == 0 { self.empty + 1 } else { 0 };
                if next.is_some() && self.empty > EMPTY_PAGES {
                    return Err(Failure::of("its list does not end"));
                }
                self.merger.add(&member, page, &mut text)?;
                Ok((entries, next, version))
            });
            match added {
                Ok((entries, next, version)) => {
                    count += entries;
                    self.versions.insert(&member, &version);
                    self.token = next;
                }
                Err(failure) if self.warned || self.token.is_some() => {
                    return Err(failure.ends_request(&member));
                }
                Err(failure) => self.failed.push((member, failure)),
            }
            if self.token.is_some() {
                break;
            }
            self.empty = 0;
            self.members.pop_front();
            if count >= limit {
                break;
            }
        }
        Ok((text.into(), count))
    }

    /// Finds the members that do not answer, before the header is sent.
    async fn probe(&mut self) {
        // The first one has answered.
        let rest = self.members.split_off(usize::from(self.token.is_some()));
        let request = self.request.clone();
        let path = request.query.page(1, None);
        let asked = rest.into_iter().map(|member| {
            let (request, path) = (&request, &path);
            async move {
                let answer = request.page(&member, path).await;
                (member, answer.map(drop))
            }
        });
        let answers: Vec<_> = stream::iter(asked).buffered(PROBES).collect().await;
        for (member, answer) in answers {
            match answer {
                Ok(()) => self.members.push_back(member),
                Err(failure) => self.failed.push((member, failure)),
            }
        }
        self.warned = true;
    }

    /// The rest of an answer, as it arrives. An error means that the answer is incomplete.
    fn rest(self) -> impl futures::Stream<Item = Result<Bytes, BoxError>> {
        stream::try_unfold(Some(self), |walk| async move {
            let Some(mut walk) = walk else { return Ok(None) };
            if walk.is_done() {
                return Ok(Some((Merger::end(&walk.versions.write(), None).into(), None)));
            }
            let (text, _) = walk.step(PAGE).await.map_err(|error| BoxError::from(error.message))?;
            Ok(Some((text, Some(walk))))
        })
    }
}
