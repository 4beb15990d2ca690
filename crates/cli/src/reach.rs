//! Members' API servers, reached through the hub. A member that does not answer costs its own part of an answer only.

use std::collections::BTreeSet;
use std::fmt;
use std::time::Duration;

use anyhow::bail;
use atoll_api::{Cluster, PROXY_GROUP, VERSION};
use bytes::{Bytes, BytesMut};
use futures::StreamExt;
use futures::stream::BoxStream;
use http::header::ACCEPT;
use http::{HeaderValue, Method, Request};
use http_body_util::{BodyExt, LengthLimitError, Limited};
use kube::client::Body;
use kube::{Api, Client, ResourceExt};
use serde_json::Value;

use crate::hub::Hub;
use crate::read::get;

/// Limit of the wait for an answer, and for the next part of one: a slow member costs its own lines only.
pub(crate) const ANSWER: Duration = Duration::from_secs(3);
/// Members that are asked at the same time.
pub(crate) const PARALLEL: usize = 64;
/// Limit of one answer in bytes. A member must not fill the memory of the user's machine.
const ANSWER_BYTES: usize = 64 << 20;
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
        Self { code: None, why: why.to_string() }
    }

    /// Nothing arrived in time.
    pub(crate) fn silent() -> Self {
        Self::slow(ANSWER)
    }

    /// The answer was not complete in time.
    pub(crate) fn slow(limit: Duration) -> Self {
        Self::of(format!("no answer within {} s", limit.as_secs()))
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

/// A member's API server.
#[derive(Clone)]
pub(crate) struct Member {
    pub(crate) name: String,
    hub: Client,
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
    Ok(names.into_iter().map(|name| Member { name, hub: hub.client.clone() }).collect())
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
    /// A member that cannot be reached.
    #[cfg(test)]
    pub(crate) fn nowhere(name: &str) -> Self {
        let refuse = |_: Request<Body>| async {
            Err::<http::Response<Body>, _>(std::io::Error::other("there is no network"))
        };
        Self { name: name.to_owned(), hub: Client::new(tower::service_fn(refuse), "default") }
    }

    /// Reads JSON. `accept` is the representation, if not plain JSON.
    ///
    /// # Errors
    /// When the member refuses, answers too much, or does not answer in time.
    pub(crate) async fn get(&self, path: &str, accept: Option<&str>) -> Result<Value, Failure> {
        let answered = tokio::time::timeout(ANSWER, async {
            let body = self.send(Method::GET, path, accept, Body::empty()).await?;
            whole(body, ANSWER_BYTES).await
        });
        let bytes = answered.await.map_err(|_| Failure::silent())??;
        serde_json::from_slice(&bytes).map_err(|error| Failure::of(format!("no JSON: {error}")))
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
        let name = &self.name;
        let url = format!("/apis/{PROXY_GROUP}/{VERSION}/clusters/{name}/proxy{path}");
        let mut request = Request::new(body);
        *request.method_mut() = method;
        *request.uri_mut() = url.parse().map_err(Failure::of)?;
        if let Some(accept) = accept {
            let accept = HeaderValue::from_str(accept).map_err(Failure::of)?;
            request.headers_mut().insert(ACCEPT, accept);
        }
        let answer = self.hub.send(request).await.map_err(Failure::of)?;
        let status = answer.status();
        if status.is_success() {
            return Ok(answer.into_body());
        }
        let text = whole(answer.into_body(), ERROR_BYTES).await.unwrap_or_default();
        let said: Option<Value> = serde_json::from_slice(&text).ok();
        let said = said.as_ref().and_then(|said| said["message"].as_str());
        let why = said.map_or_else(|| format!("HTTP status {status}"), str::to_owned);
        Err(Failure { code: Some(status.as_u16()), why })
    }
}

async fn whole(body: Body, limit: usize) -> Result<Bytes, Failure> {
    match Limited::new(body, limit).collect().await {
        Ok(body) => Ok(body.to_bytes()),
        Err(error) if error.is::<LengthLimitError>() => {
            Err(Failure::of(format!("its answer has more than {} MiB", limit >> 20)))
        }
        Err(error) => Err(Failure::of(format!("its answer is incomplete: {error}"))),
    }
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
                Some(Err(error)) => return Err(Failure::of(error)),
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

    #[test]
    fn queries_are_encoded() {
        let path = with_query("/p", &[("a", Some("x=y,z in (1)".to_owned())), ("b", None)]);
        assert_eq!(path, "/p?a=x%3Dy%2Cz%20in%20%281%29");
        assert_eq!(with_query("/p", &[("b", None)]), "/p");
    }
}
