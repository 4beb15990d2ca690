//! Members' API servers, reached through the hub. A member that does not answer costs its own part of an answer only.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::bail;
use atoll_api::{Backoff, Cluster, PROXY_GROUP, VERSION};
use bytes::{Bytes, BytesMut};
use futures::StreamExt;
use futures::stream::BoxStream;
use http::header::{ACCEPT, CONTENT_TYPE};
use http::{HeaderValue, Method, Request};
use http_body_util::BodyExt;
use kube::client::Body;
use kube::{Api, Client, ResourceExt};
use serde_json::Value;

use crate::bounded;
use crate::hub::Hub;
use crate::print::visible_line;
use crate::read::get;

/// Limit of the wait for an answer, and for the next part of one: a slow member costs its own lines only.
pub(crate) const ANSWER: Duration = Duration::from_secs(3);
/// Members that are asked at the same time.
pub(crate) const PARALLEL: usize = 64;
/// Limit of one answer in bytes. A member must not fill the memory of the user's machine.
const ANSWER_BYTES: usize = 64 << 20;
/// Waits after failures of a member.
pub(crate) const RETRY: Backoff =
    Backoff { first: Duration::from_secs(1), most: Duration::from_secs(15) };
/// Limit of the answers of all members to one read, in bytes of JSON. In memory they take a few times as much.
const READ_BYTES: usize = 256 << 20;
/// Characters of a member's error that are shown.
const SHOWN: usize = 1024;
/// Limit of an error's text in bytes.
const ERROR_BYTES: usize = 64 << 10;

/// Why a member did not answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Failure {
    /// The status, if there was an answer.
    pub(crate) code: Option<u16>,
    why: String,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.why)
    }
}

impl Failure {
    pub(crate) fn of(why: impl ToString) -> Self {
        Self::new(None, &why.to_string())
    }

    /// The text may be a member's: it stays on one line, and short.
    fn new(code: Option<u16>, why: &str) -> Self {
        let cut = why.char_indices().nth(SHOWN).map_or(why.len(), |(end, _)| end);
        Self { code, why: visible_line(&why[..cut]).into_owned() }
    }

    /// The same answer, with another text.
    pub(crate) fn saying(&self, why: &str) -> Self {
        Self::new(self.code, why)
    }

    /// Nothing arrived in time.
    pub(crate) fn silent() -> Self {
        Self::slow(ANSWER)
    }

    /// The answer was not complete in time.
    pub(crate) fn slow(limit: Duration) -> Self {
        Self::of(format!("no answer within {} s", limit.as_secs()))
    }

    /// An answer ended before its end. The leader's end is the usual reason: there is no place for a text in a log.
    fn broken(error: &kube::Error) -> Self {
        Self::of(format!(
            "the answer broke off, as when another controller begins to lead; run the command again ({error})"
        ))
    }

    /// The text for a verb that goes on by itself.
    pub(crate) fn retried(&self) -> String {
        let mut why = self.why.clone();
        for advice in [": run the command again", "; run the command again", ": try again"] {
            why = why.replacen(advice, "", 1);
        }
        format!("{why}; trying again")
    }

    /// Whether the leader waited for the member in vain.
    pub(crate) fn is_timeout(&self) -> bool {
        self.code == Some(504)
    }

    /// Whether what was asked for does not exist.
    pub(crate) fn is_not_found(&self) -> bool {
        self.code == Some(404)
    }
}

/// What the members may still send in a read that all of them answer.
pub(crate) struct Budget(AtomicUsize);

impl Budget {
    pub(crate) fn of_a_read() -> Self {
        Self(AtomicUsize::new(READ_BYTES))
    }

    fn take(&self, bytes: usize) -> Result<(), Failure> {
        let taken = self
            .0
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(bytes));
        taken.map(|_| ()).map_err(|_| {
            let mib = READ_BYTES >> 20;
            Failure::of(format!("the answers have more than {mib} MiB together: choose a namespace, labels or --cluster"))
        })
    }
}

/// A member's API server.
#[derive(Clone)]
pub(crate) struct Member {
    pub(crate) name: String,
    /// The hub, or the member itself.
    server: Client,
    /// Where the server has the member's API.
    prefix: String,
}

/// The members that are asked for, in the order of their names; all without names.
///
/// # Errors
/// When one of them does not exist, or the hub does not answer.
pub(crate) async fn members(hub: &Hub, wanted: &[String]) -> anyhow::Result<Vec<Member>> {
    let clusters: Api<Cluster> = Api::all(hub.client.clone());
    let mut names: BTreeSet<String> =
        get::list(hub, &clusters).await?.iter().map(ResourceExt::name_any).collect();
    if let Some(unknown) = wanted.iter().find(|name| !names.contains(*name)) {
        bail!("there is no member {unknown:?}: `atoll get members` lists them");
    }
    names.retain(|name| wanted.is_empty() || wanted.contains(name));
    if names.is_empty() {
        bail!("there are no members: `atoll join` adds them");
    }
    Ok(names.into_iter().map(|name| Member::through(hub.client.clone(), &name)).collect())
}

/// Asks all members at the same time; the answers are in the order of the members.
pub(crate) async fn each<'a, T, F>(
    members: &'a [Member],
    ask: impl Fn(&'a Member) -> F,
) -> Vec<(&'a Member, Result<T, Failure>)>
where
    F: Future<Output = Result<T, Failure>>,
{
    let asked = members.iter().map(|member| {
        let answer = ask(member);
        async move { (member, answer.await) }
    });
    futures::stream::iter(asked).buffered(PARALLEL).collect().await
}

impl Member {
    /// The member of this name, which exists.
    pub(crate) fn of(hub: &Hub, name: &str) -> Self {
        Self::through(hub.client.clone(), name)
    }

    fn through(hub: Client, name: &str) -> Self {
        let prefix = format!("/apis/{PROXY_GROUP}/{VERSION}/clusters/{name}/proxy");
        Self { name: name.to_owned(), server: hub, prefix }
    }

    /// A member that is reached without the hub.
    pub(crate) fn direct(name: &str, server: Client) -> Self {
        Self { name: name.to_owned(), server, prefix: String::new() }
    }

    /// A member that cannot be reached.
    #[cfg(test)]
    pub(crate) fn nowhere(name: &str) -> Self {
        let refuse = |_: Request<Body>| async {
            Err::<http::Response<Body>, _>(std::io::Error::other("there is no network"))
        };
        Self::through(Client::new(tower::service_fn(refuse), "default"), name)
    }

    /// A member that does not answer.
    #[cfg(test)]
    pub(crate) fn silent(name: &str) -> Self {
        let wait = |_: Request<Body>| {
            std::future::pending::<Result<http::Response<Body>, std::io::Error>>()
        };
        Self::through(Client::new(tower::service_fn(wait), "default"), name)
    }

    /// A member whose answers a function gives, by path and query.
    #[cfg(test)]
    pub(crate) fn answering<F>(name: &str, answer: F) -> Self
    where
        F: Fn(&str) -> (u16, String) + Clone + Send + 'static,
    {
        let service = tower::service_fn(move |request: Request<Body>| {
            let path = request.uri().path_and_query().map_or("", |path| path.as_str());
            let (code, text) = answer(path.split_once("/proxy/").map_or("", |(_, path)| path));
            let mut response = http::Response::new(Body::from(text.into_bytes()));
            *response.status_mut() = http::StatusCode::from_u16(code).expect("a status of a test");
            std::future::ready(Ok::<_, std::io::Error>(response))
        });
        Self::through(Client::new(service, "default"), name)
    }

    /// Reads JSON. `accept` is the representation, if not plain JSON.
    ///
    /// # Errors
    /// When the member refuses, answers too much, or does not answer in time.
    pub(crate) async fn get(&self, path: &str, accept: Option<&str>) -> Result<Value, Failure> {
        self.get_within(path, accept, None).await
    }

    /// As [`Member::get`], within what all members may send.
    ///
    /// # Errors
    /// As [`Member::get`], and when the budget is used up.
    pub(crate) async fn get_within(
        &self,
        path: &str,
        accept: Option<&str>,
        budget: Option<&Budget>,
    ) -> Result<Value, Failure> {
        let answered = tokio::time::timeout(ANSWER, async {
            let body = self.send(Method::GET, path, accept, Body::empty()).await?;
            whole(body, ANSWER_BYTES, budget).await
        });
        let bytes = answered.await.map_err(|_| Failure::silent())??;
        bounded::from_slice(&bytes)
            .map_err(|error| Failure::of(format!("its answer is not JSON: {error}")))
    }

    /// Sends a merge patch.
    ///
    /// # Errors
    /// When the member refuses, or does not answer in time.
    pub(crate) async fn merge_patch(&self, path: &str, patch: &Value) -> Result<(), Failure> {
        let body = Body::from(patch.to_string().into_bytes());
        let sent = self.send(Method::PATCH, path, None, body);
        let answered = tokio::time::timeout(ANSWER, sent).await;
        answered.map_err(|_| Failure::silent())?.map(|_| ())
    }

    /// Reads a text as it arrives.
    ///
    /// # Errors
    /// When the answer does not begin in time, or is an error.
    pub(crate) async fn open(&self, path: &str, accept: Option<&str>) -> Result<Chunks, Failure> {
        let opened = tokio::time::timeout(ANSWER, self.follow(path, accept)).await;
        opened.map_err(|_| Failure::silent())?
    }

    /// Reads a text that may begin at any time: the log of a quiet container has not even a head before its first line.
    ///
    /// # Errors
    /// When the answer is an error.
    pub(crate) async fn follow(&self, path: &str, accept: Option<&str>) -> Result<Chunks, Failure> {
        let body = self.send(Method::GET, path, accept, Body::empty()).await?;
        Ok(Chunks { body: body.into_data_stream().boxed(), rest: BytesMut::new() })
    }

    async fn send(
        &self,
        method: Method,
        path: &str,
        accept: Option<&str>,
        body: Body,
    ) -> Result<Body, Failure> {
        let url = format!("{}{path}", self.prefix);
        let mut request = Request::new(body);
        *request.method_mut() = method;
        *request.uri_mut() = url.parse().map_err(Failure::of)?;
        if request.method() == Method::PATCH {
            let merge = HeaderValue::from_static("application/merge-patch+json");
            request.headers_mut().insert(CONTENT_TYPE, merge);
        }
        if let Some(accept) = accept {
            let accept = HeaderValue::from_str(accept).map_err(Failure::of)?;
            request.headers_mut().insert(ACCEPT, accept);
        }
        let answer = self.server.send(request).await.map_err(Failure::of)?;
        let status = answer.status();
        if status.is_success() {
            return Ok(answer.into_body());
        }
        let text = whole(answer.into_body(), ERROR_BYTES, None).await.unwrap_or_default();
        let said: Option<Value> = serde_json::from_slice(&text).ok();
        let said = said.as_ref().and_then(|said| said["message"].as_str());
        let why = said.map_or_else(|| format!("HTTP status {status}"), str::to_owned);
        Err(Failure::new(Some(status.as_u16()), &why))
    }
}

async fn whole(body: Body, limit: usize, budget: Option<&Budget>) -> Result<Bytes, Failure> {
    let mut chunks = body.into_data_stream();
    let mut all = BytesMut::new();
    while let Some(chunk) = chunks.next().await {
        let chunk = chunk.map_err(|error| Failure::broken(&error))?;
        if all.len() + chunk.len() > limit {
            return Err(Failure::of(format!("its answer has more than {} MiB", limit >> 20)));
        }
        budget.map_or(Ok(()), |budget| budget.take(chunk.len()))?;
        all.extend_from_slice(&chunk);
    }
    Ok(all.freeze())
}

/// An answer that is read line by line.
pub(crate) struct Chunks {
    body: BoxStream<'static, Result<Bytes, kube::Error>>,
    rest: BytesMut,
}

/// A line of an answer, without its end.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct RawLine {
    pub(crate) bytes: Bytes,
    /// The line is longer; the rest was dropped.
    pub(crate) cut: bool,
}

impl Chunks {
    #[cfg(test)]
    fn of(chunks: Vec<&'static str>) -> Self {
        let chunks = chunks.into_iter().map(|chunk| Ok(Bytes::from_static(chunk.as_bytes())));
        Self { body: futures::stream::iter(chunks).boxed(), rest: BytesMut::new() }
    }

    /// The next line; `None` at the end. Lines above `most` bytes are cut. May be called again after it was dropped.
    ///
    /// # Errors
    /// When the answer ends early.
    pub(crate) async fn line(&mut self, most: usize) -> Result<Option<RawLine>, Failure> {
        let mut searched = 0;
        loop {
            if let Some(end) = self.rest[searched..].iter().position(|byte| *byte == b'\n') {
                let mut line = self.rest.split_to(searched + end + 1);
                line.truncate(searched + end);
                return Ok(Some(cut(line, most)));
            }
            // Of a line that is too long, only the beginning is kept, and one byte that shows it.
            self.rest.truncate(most + 1);
            searched = self.rest.len();
            match self.body.next().await {
                Some(Ok(chunk)) => self.rest.extend_from_slice(&chunk),
                Some(Err(error)) => return Err(Failure::broken(&error)),
                None if self.rest.is_empty() => return Ok(None),
                None => return Ok(Some(cut(self.rest.split(), most))),
            }
        }
    }
}

fn cut(mut line: BytesMut, most: usize) -> RawLine {
    let cut = line.len() > most;
    line.truncate(most);
    RawLine { bytes: line.freeze(), cut }
}

/// Percent encoding of a value in a query.
pub(crate) fn encode(value: &str) -> String {
    let mut text = String::with_capacity(value.len());
    for byte in value.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => {
                text.push(char::from(byte));
            }
            byte => text.push_str(&format!("%{byte:02X}")),
        }
    }
    text
}

/// A path with a query of these parameters.
pub(crate) fn with_query(path: &str, parameters: &[(&str, Option<String>)]) -> String {
    let given = parameters.iter().filter_map(|(name, value)| Some((name, value.as_ref()?)));
    let pairs: Vec<String> =
        given.map(|(name, value)| format!("{name}={}", encode(value))).collect();
    if pairs.is_empty() { path.to_owned() } else { format!("{path}?{}", pairs.join("&")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn lines_are_read_across_chunks_and_long_ones_are_cut() {
        let mut chunks = Chunks::of(vec!["a", "b\n\ncd", "efg", "hij\nlast"]);
        let mut lines = Vec::new();
        while let Some(line) = chunks.line(4).await.unwrap() {
            lines.push((String::from_utf8(line.bytes.to_vec()).unwrap(), line.cut));
        }
        let expected = [("ab", false), ("", false), ("cdef", true), ("last", false)];
        assert_eq!(lines, expected.map(|(text, cut)| (text.to_owned(), cut)));
    }

    #[tokio::test]
    async fn errors_of_members_stay_on_one_line_and_short() {
        let member = Member::answering("m1", |_| {
            (
                500,
                serde_json::json!({"message": format!("no\nm2: yes{}", "x".repeat(10_000))})
                    .to_string(),
            )
        });
        let failure = member.get("/api", None).await.unwrap_err();
        let shown = failure.to_string();
        assert!(shown.starts_with(r"no\nm2: yes") && shown.len() < 2 * SHOWN, "{shown}");
        assert_eq!(failure.code, Some(500));
    }

    #[tokio::test]
    async fn an_answer_that_breaks_off_says_what_to_do_and_verbs_that_go_on_say_so() {
        let error = kube::Error::Service(std::io::Error::other("cut").into());
        let body = futures::stream::iter([Ok(Bytes::from_static(b"a\nb")), Err(error)]).boxed();
        let mut chunks = Chunks { body, rest: BytesMut::new() };
        assert_eq!(chunks.line(9).await.unwrap().unwrap().bytes, "a");
        let failure = chunks.line(9).await.unwrap_err();
        assert!(
            failure.to_string().contains("run the command again (ServiceError: cut)"),
            "{failure}"
        );
        let text = failure.retried();
        assert!(
            !text.contains("run the") && text.ends_with("(ServiceError: cut); trying again"),
            "{text}"
        );
        assert_eq!(Failure::of("full: try again").retried(), "full; trying again");
    }

    #[tokio::test]
    async fn members_share_what_they_may_send() {
        let budget = Budget(AtomicUsize::new(20));
        let member = Member::answering("m1", |_| (200, format!("[{}1]", "1,".repeat(4))));
        assert!(member.get_within("/api", None, Some(&budget)).await.is_ok());
        let refused = member.get_within("/api", None, Some(&budget)).await.unwrap_err();
        assert!(refused.to_string().contains("together"), "{refused}");
    }

    #[test]
    fn queries_are_encoded() {
        let path = with_query("/p", &[("a", Some("x=y,z in (1)".to_owned())), ("b", None)]);
        assert_eq!(path, "/p?a=x%3Dy%2Cz%20in%20%281%29");
        assert_eq!(with_query("/p", &[("b", None)]), "/p");
    }
}
