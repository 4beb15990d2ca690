//! The way of a list through the members: pages, one member after the other.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use atoll_apimachinery::ApiError;
use bytes::Bytes;
use futures::{StreamExt, stream};
use tokio::time::Instant;

use super::FleetRequest;
use super::ask::Failure;
use super::memory::Held;
use super::merge::{Merger, Page};
use super::versions::{Continue, Versions};

/// Members that are asked at the same time. Their pages are in memory together.
pub(super) const PARALLEL: usize = 8;
/// Members that are asked at the same time whether they answer at all.
const PROBES: usize = 64;
/// Pages of a member without any object, one after the other: an API server sends few.
const EMPTY_PAGES: usize = 20;
/// Limit of the time for one answer.
const LIMIT: Duration = Duration::from_secs(600);
/// Limit of the time for one member: a list that does not end must not take that of all others.
const OF_A_MEMBER: Duration = Duration::from_secs(60);

/// Entries as they are sent, with their memory.
pub(super) struct Part {
    pub(super) text: Bytes,
    _memory: Vec<Held>,
}

impl Part {
    /// A short text.
    pub(super) fn of(text: impl Into<Bytes>) -> Self {
        Self { text: text.into(), _memory: Vec::new() }
    }
}

/// The entries of a step, or what is to be done about those before it.
pub(super) enum Step {
    Entries {
        part: Part,
        count: usize,
    },
    /// A member has failed after its first page: what it has sent is taken back, from this place on.
    TakenBack(Mark),
}

/// Where the entries of a member begin.
#[derive(Debug, Clone, Copy)]
pub(super) struct Mark {
    /// Parts before the one in which they begin.
    pub(super) parts: usize,
    /// Bytes of that part before them.
    pub(super) bytes: usize,
    /// Entries before them.
    pub(super) count: usize,
    /// Whether there are any.
    written: bool,
    began: Instant,
}

/// The way through the members.
pub(super) struct Walk {
    pub(super) request: Arc<FleetRequest>,
    /// Those that follow.
    members: VecDeque<String>,
    /// The place in the first of them.
    token: Option<String>,
    /// Where the entries of the first one begin; `None` if those of earlier pages of this list belong to it.
    mark: Option<Mark>,
    /// Members that are asked at the same time: few while members have more than one page, since the pages after that of
    /// such a member were asked for in vain.
    width: usize,
    /// Pages of it without an object, one after the other.
    empty: usize,
    pub(super) merger: Merger,
    pub(super) versions: Versions,
    pub(super) failed: Vec<(String, Failure)>,
    /// The warnings are sent: from now on a failure is one of the whole answer.
    pub(super) warned: bool,
    /// All members were asked whether they answer.
    pub(super) probed: bool,
    /// It is the first page of a list.
    pub(super) begins: bool,
    parts: usize,
    count: usize,
    end: Instant,
}

impl Walk {
    pub(super) fn new(request: FleetRequest, members: Vec<String>) -> Self {
        let from = request.query.from.clone();
        let first = from.as_ref().map_or("", |from| from.member.as_str());
        let members: VecDeque<String> =
            members.into_iter().filter(|member| member.as_str() >= first).collect();
        // The member may be gone by now.
        let is_there = members.front().is_some_and(|member| member == first);
        let begins = from.is_none();
        let (token, form, versions) = from.map_or_else(Default::default, |from| {
            // Later pages have the versions of the first, as far as there is room for them.
            (from.token, Some(from.form), from.versions)
        });
        Self {
            request: Arc::new(request),
            members,
            token: token.filter(|_| is_there),
            mark: None,
            width: PARALLEL,
            empty: 0,
            merger: Merger::new(form),
            versions,
            failed: Vec::new(),
            warned: false,
            probed: false,
            begins,
            parts: 0,
            count: 0,
            end: Instant::now() + LIMIT,
        }
    }

    pub(super) fn is_done(&self) -> bool {
        self.members.is_empty()
    }

    /// Members that silent ones would hold up: a few at a time are asked for pages.
    pub(super) fn is_wide(&self) -> bool {
        self.members.len() > PARALLEL
    }

    /// The place of the next page; `None` at the end.
    pub(super) fn next(&self) -> Option<Continue> {
        let (member, form) = (self.members.front()?.clone(), self.merger.form()?.clone());
        let versions = self.versions.clone();
        Some(Continue { member, token: self.token.clone(), form, versions })
    }

    /// The entries of the next pages, at most this many.
    pub(super) async fn step(&mut self, limit: usize) -> Result<Step, ApiError> {
        if Instant::now() > self.end {
            let text = format!("the list took longer than {} s: set a limit", LIMIT.as_secs());
            return Err(ApiError::gateway_timeout(text));
        }
        let request = self.request.clone();
        let token = self.token.clone();
        let many = if token.is_some() { 1 } else { self.width };
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
        let (mut text, mut memory, mut count) = (Vec::new(), Vec::new(), 0);
        while let Some((member, answer)) = answers.next().await {
            let page = answer.and_then(|raw| Ok((Page::read(&raw.text)?, raw.memory)));
            // What does not fit is asked for again, with the rest of the limit.
            if page.as_ref().is_ok_and(|(page, _)| count > 0 && count + page.len() > limit) {
                break;
            }
            if self.token.is_none() {
                let (bytes, written) = (text.len(), self.merger.has_written());
                let (parts, count, began) = (self.parts, self.count + count, Instant::now());
                self.mark = Some(Mark { parts, bytes, count, written, began });
            }
            match page.and_then(|(page, held)| {
                let entries = self.add(&member, page, &mut text)?;
                memory.extend(held);
                Ok(entries)
            }) {
                Ok(entries) => count += entries,
                Err(failure) if self.token.is_some() => match self.mark.filter(|_| !self.warned) {
                    // A page of a member that has more pages is the only one of its step.
                    Some(mark) => {
                        return Ok(Step::TakenBack(self.take_back(mark, member, failure)));
                    }
                    None => return Err(failure.ends_request(&member)),
                },
                Err(failure) if self.warned => return Err(failure.ends_request(&member)),
                Err(failure) => self.failed.push((member, failure)),
            }
            if self.token.is_some() {
                self.width = 1;
                break;
            }
            if token.is_none() {
                self.width = PARALLEL.min(2 * self.width);
            }
            self.empty = 0;
            self.members.pop_front();
            if count >= limit {
                break;
            }
        }
        self.parts += 1;
        self.count += count;
        Ok(Step::Entries { part: Part { text: text.into(), _memory: memory }, count })
    }

    /// Adds a page; the number of its entries.
    fn add(&mut self, member: &str, page: Page, text: &mut Vec<u8>) -> Result<usize, Failure> {
        let (entries, next, version) = (page.len(), page.next.clone(), page.version.clone());
        self.empty = if entries == 0 { self.empty + 1 } else { 0 };
        if next.is_some() && self.empty > EMPTY_PAGES {
            return Err(Failure::of("its list does not end"));
        }
        if next.is_some() && self.mark.is_some_and(|mark| mark.began.elapsed() > OF_A_MEMBER) {
            let seconds = OF_A_MEMBER.as_secs();
            return Err(Failure::of(format!("its list takes longer than {seconds} s")));
        }
        self.merger.add(member, page, text)?;
        self.versions.add(member, &version);
        self.token = next;
        Ok(entries)
    }

    /// The member is one that gave no answer.
    fn take_back(&mut self, mark: Mark, member: String, failure: Failure) -> Mark {
        self.merger.take_back(mark.written);
        self.versions.remove(&member);
        self.failed.push((member, failure));
        self.members.pop_front();
        (self.token, self.mark, self.empty) = (None, None, 0);
        (self.parts, self.count) = (mark.parts + 1, mark.count);
        mark
    }

    /// Finds the members that do not answer, and the versions of those that do: they are older than all pages that follow.
    pub(super) async fn probe(&mut self) {
        self.probed = true;
        // The first one has answered.
        let rest = self.members.split_off(usize::from(self.token.is_some()));
        let request = self.request.clone();
        let path = request.query.page(1, None);
        let asked = rest.into_iter().map(|member| {
            let (request, path) = (&request, &path);
            async move {
                let answer = request.page(&member, path).await;
                let version = answer.and_then(|raw| Ok(Page::read(&raw.text)?.version));
                (member, version)
            }
        });
        let answers: Vec<_> = stream::iter(asked).buffered(PROBES).collect().await;
        for (member, answer) in answers {
            match answer {
                Ok(version) => {
                    self.versions.add(&member, &version);
                    self.members.push_back(member);
                }
                Err(failure) => self.failed.push((member, failure)),
            }
        }
    }
}
