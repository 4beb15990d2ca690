//! Counts the controller's writes, and keeps the patches of bindings to repeat them later.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Instant;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use http::{Method, Request, Response};
use http_body_util::BodyExt as _;
use kube::client::Body;
use serde_json::Value;
use tower::{Layer, Service};

/// Number of writes by kind, and the time of the last.
type Counts = BTreeMap<&'static str, (usize, Instant)>;

/// Writes of the controller.
#[derive(Clone, Default)]
pub(crate) struct Board(Arc<Mutex<Inner>>);

#[derive(Default)]
struct Inner {
    counts: Counts,
    /// The first successful patch of each binding.
    patches: BTreeMap<String, Value>,
}

impl Board {
    pub(crate) fn count(&self, what: &str) -> usize {
        self.0.lock().unwrap().counts.get(what).map_or(0, |(count, _)| *count)
    }

    pub(crate) fn last(&self, what: &str) -> Option<Instant> {
        self.0.lock().unwrap().counts.get(what).map(|(_, last)| *last)
    }

    pub(crate) fn total(&self) -> usize {
        self.0.lock().unwrap().counts.values().map(|(count, _)| *count).sum()
    }

    /// Forgets everything so far.
    pub(crate) fn reset(&self) {
        *self.0.lock().unwrap() = Inner::default();
    }

    /// Forgets the numbers of all other writes.
    pub(crate) fn keep(&self, what: &str) {
        self.0.lock().unwrap().counts.retain(|kind, _| *kind == what);
    }

    /// The first patch of each binding since the reset, by its name.
    pub(crate) fn patches(&self) -> BTreeMap<String, Value> {
        self.0.lock().unwrap().patches.clone()
    }

    pub(crate) fn summary(&self) -> String {
        let inner = self.0.lock().unwrap();
        let parts: Vec<String> =
            inner.counts.iter().map(|(what, (count, _))| format!("{count} {what}")).collect();
        parts.join(", ")
    }

    fn note(&self, what: &'static str, patched: Option<(String, Value)>) {
        let mut inner = self.0.lock().unwrap();
        let count = inner.counts.entry(what).or_insert((0, Instant::now()));
        *count = (count.0 + 1, Instant::now());
        if let Some((name, patch)) = patched {
            inner.patches.entry(name).or_insert(patch);
        }
    }
}

impl<S> Layer<S> for Board {
    type Service = Counted<S>;

    fn layer(&self, inner: S) -> Counted<S> {
        Counted { inner, board: self.clone() }
    }
}

#[derive(Clone)]
pub(crate) struct Counted<S> {
    inner: S,
    board: Board,
}

impl<S, B> Service<Request<Body>> for Counted<S>
where
    S: Service<Request<Body>, Response = Response<B>>,
    S::Future: Send + 'static,
{
    type Response = Response<B>;
    type Error = S::Error;
    type Future = BoxFuture<'static, Result<Response<B>, S::Error>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let (parts, body) = request.into_parts();
        // The body of a write is in memory, so it is there at once.
        let bytes = body.collect().now_or_never().unwrap().unwrap().to_bytes();
        let what = what(&parts.method, parts.uri.path());
        let patched = (parts.method == Method::PATCH && what == Some("bindings")).then(|| {
            let name = parts.uri.path().rsplit('/').next().unwrap();
            (name.to_owned(), serde_json::from_slice(&bytes).unwrap())
        });
        let answer = self.inner.call(Request::from_parts(parts, Body::from(bytes)));
        let board = self.board.clone();
        Box::pin(async move {
            let response = answer.await?;
            if let Some(what) = what.filter(|_| response.status().is_success()) {
                board.note(what, patched);
            }
            Ok(response)
        })
    }
}

fn what(method: &Method, path: &str) -> Option<&'static str> {
    if method == Method::GET {
        return None;
    }
    Some(if path.ends_with("/status") {
        if path.contains("/resourcebindings") { "binding statuses" } else { "other statuses" }
    } else if path.contains("/resourcebindings") {
        "bindings"
    } else if path.contains("/events") {
        "events"
    } else {
        "others"
    })
}
