//! Requests to one member, within limits of time and memory.

use std::sync::Arc;
use std::time::Duration;

use atoll_access::path::MemberPath;
use atoll_apimachinery::ApiError;
use atoll_controller::members::{Chunks, MemberRequest, ProxyError};
use bytes::{Bytes, BytesMut};
use futures::StreamExt;
use http::{Method, StatusCode};
use serde_json::Value;
use tokio::time::{Instant, sleep, timeout, timeout_at};

use super::FleetRequest;
use super::memory::Held;
use crate::bounded;
use crate::print::visible_line;
use crate::reach::ANSWER;

/// Limit of one page in bytes: 500 objects of 16 KiB.
const PAGE_BYTES: usize = 8 << 20;
/// Limit of the time for a page after its head.
const PAGE_TIME: Duration = Duration::from_secs(15);
/// Limit of an error's text in bytes.
const ERROR_BYTES: usize = 64 << 10;
/// Characters of an error that the caller sees.
const SHOWN: usize = 256;
/// Longest event of a watch in bytes: etcd's limit of an object is 1.5 MiB.
const EVENT_BYTES: usize = 2 << 20;
/// Bytes of an event that is not complete which every watch may hold; above that it takes its part of the memory.
const EVENT_FREE: usize = 64 << 10;
/// Wait before a member is asked again, because the limits of open requests or of their rate are reached.
const BUSY: Duration = Duration::from_millis(100);

/// Why a member gave no answer.
#[derive(Debug, Clone)]
pub(super) struct Failure {
    /// The status of its answer, if there was one.
    pub(super) status: Option<(StatusCode, Bytes)>,
    pub(super) why: String,
    /// It answered, with something else than a list.
    pub(super) is_no_list: bool,
}

impl Failure {
    /// The text may be a member's: it stays on one line, and short.
    pub(super) fn of(why: impl ToString) -> Self {
        let why: String = why.to_string().chars().take(SHOWN).collect();
        Self { status: None, why: visible_line(&why).into_owned(), is_no_list: false }
    }

    /// The path leads to something else than a list.
    pub(super) fn no_list(why: &str) -> Self {
        Self { is_no_list: true, ..Self::of(why) }
    }

    fn silent() -> Self {
        Self::of(format!("no answer within {} s", ANSWER.as_secs()))
    }

    pub(super) fn code(&self) -> Option<u16> {
        self.status.as_ref().map(|(code, _)| code.as_u16())
    }

    /// The whole request fails because of this member.
    pub(super) fn ends_request(&self, member: &str) -> ApiError {
        match self.code() {
            Some(410) => ApiError::expired(format!("member {member}: {}", self.why)),
            _ => ApiError::unavailable_for(format!("member {member}: {}", self.why), 1),
        }
    }
}

/// A page as it arrived, with its share of the memory for pages.
pub(super) struct RawPage {
    pub(super) text: Bytes,
    pub(super) memory: Vec<Held>,
}

impl FleetRequest {
    /// Reads one whole answer.
    pub(super) async fn page(&self, member: &str, path: &str) -> Result<RawPage, Failure> {
        let mut chunks = self.open(member, path).await?;
        let (mut text, mut memory) = (BytesMut::new(), Vec::new());
        let read = async {
            while let Some(chunk) =
                timeout(ANSWER, chunks.next()).await.map_err(|_| Failure::silent())?
            {
                let chunk = chunk.map_err(Failure::of)?;
                if text.len() + chunk.len() > PAGE_BYTES {
                    let mib = PAGE_BYTES >> 20;
                    return Err(Failure::of(format!(
                        "a page has more than {mib} MiB: set a lower limit"
                    )));
                }
                memory.push(self.shared.memory.take(&self.caller.user, member, chunk.len()).await?);
                text.extend_from_slice(&chunk);
            }
            Ok(())
        };
        let slow = || Failure::of(format!("a page took longer than {} s", PAGE_TIME.as_secs()));
        timeout(PAGE_TIME, read).await.map_err(|_| slow())??;
        Ok(RawPage { text: text.freeze(), memory })
    }

    /// Opens an answer, whose head must arrive in time. A limit of requests makes it wait, so that a list of many members
    /// does not fail by the rate of its own requests.
    pub(super) async fn open(
        &self,
        member: &str,
        path: &str,
    ) -> Result<Chunks<ProxyError>, Failure> {
        let path = MemberPath::parse(path).map_err(Failure::of)?;
        let end = Instant::now() + ANSWER;
        let answer = loop {
            let request = MemberRequest {
                user: self.user(),
                method: Method::GET,
                path: path.clone(),
                headers: self.headers.clone(),
                upgrade: None,
                body: futures::stream::empty().boxed(),
                base: String::new(),
            };
            let answer = timeout_at(end, self.shared.reach.ask(member, request)).await;
            match answer.map_err(|_| Failure::silent())? {
                Err(ProxyError::Busy(_)) if Instant::now() + BUSY < end => sleep(BUSY).await,
                answer => break answer.map_err(Failure::of)?,
            }
        };
        if answer.status == StatusCode::OK {
            return Ok(answer.body);
        }
        let text = timeout(ANSWER, start_of(answer.body)).await.unwrap_or_default();
        let said: Option<Value> = serde_json::from_slice(&text).ok();
        let said = said.as_ref().and_then(|said| said["message"].as_str());
        let why = said.map_or_else(|| format!("HTTP status {}", answer.status), str::to_owned);
        Err(Failure { status: Some((answer.status, text)), ..Failure::of(why) })
    }
}

async fn start_of(mut body: Chunks<ProxyError>) -> Bytes {
    let mut text = BytesMut::new();
    while let Some(Ok(chunk)) = body.next().await {
        text.extend_from_slice(&chunk[..chunk.len().min(ERROR_BYTES - text.len())]);
        if text.len() == ERROR_BYTES {
            break;
        }
    }
    text.freeze()
}

/// The events of a watch.
pub(super) struct Events {
    request: Arc<FleetRequest>,
    member: String,
    chunks: Chunks<ProxyError>,
    rest: BytesMut,
    /// The memory of an event that is not complete.
    memory: Vec<Held>,
}

impl Events {
    pub(super) fn of(
        request: &Arc<FleetRequest>,
        member: &str,
        chunks: Chunks<ProxyError>,
    ) -> Self {
        let (request, member) = (request.clone(), member.to_owned());
        Self { request, member, chunks, rest: BytesMut::new(), memory: Vec::new() }
    }

    /// The next event; `None` when the member ended the watch.
    pub(super) async fn next(&mut self) -> Result<Option<Value>, Failure> {
        let mut searched = 0;
        loop {
            if let Some(end) = self.rest[searched..].iter().position(|byte| *byte == b'\n') {
                let line = self.rest.split_to(searched + end + 1);
                let event = bounded::from_slice(&line);
                if self.rest.len() <= EVENT_FREE {
                    self.memory.clear();
                }
                return event
                    .map(Some)
                    .map_err(|error| Failure::of(format!("its answer is not JSON: {error}")));
            }
            searched = self.rest.len();
            if searched > EVENT_BYTES {
                return Err(Failure::of(format!(
                    "an event has more than {} MiB",
                    EVENT_BYTES >> 20
                )));
            }
            match self.chunks.next().await {
                Some(Ok(chunk)) => {
                    if self.rest.len() + chunk.len() > EVENT_FREE {
                        let (memory, user) =
                            (&self.request.shared.memory, &self.request.caller.user);
                        self.memory.push(memory.take(user, &self.member, chunk.len()).await?);
                    }
                    self.rest.extend_from_slice(&chunk);
                }
                Some(Err(error)) => return Err(Failure::of(error)),
                None => return Ok(None),
            }
        }
    }
}
