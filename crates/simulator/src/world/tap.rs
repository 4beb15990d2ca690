//! A client's connection to its API server, with counting and fault injection.

use std::sync::Arc;
use std::task::{Context, Poll};

use atoll_apiserver::{Server, Service};
use bytes::Bytes;
use futures::future::BoxFuture;
use http::request::Parts;
use http::{Method, Request, Response};
use http_body_util::{BodyExt, Full};
use kube::client::Body;
use serde_json::Value;
use tokio::sync::oneshot;
use tower::BoxError;

use super::ledger::{Actor, Ledger, is_collection};
use super::line::{Flow, Line, Lists};
use super::stream::weathered;

/// The hub's name in the ledger.
pub(super) const HUB: &str = "hub";

type Answer = Response<atoll_apiserver::Body>;

/// The service between a client and its API server.
#[derive(Clone)]
pub(super) struct Tap {
    inner: Service,
    site: Arc<str>,
    actor: Actor,
    ledger: Arc<Ledger>,
    line: Arc<Line>,
}

/// A client whose writes are counted and that has the faults of its line.
pub(super) fn client(
    server: &Server,
    site: &str,
    actor: Actor,
    ledger: &Arc<Ledger>,
    line: &Arc<Line>,
) -> kube::Client {
    let tap = Tap {
        inner: server.service(),
        site: site.into(),
        actor,
        ledger: ledger.clone(),
        line: line.clone(),
    };
    kube::Client::new(tap, "default")
}

fn refused() -> BoxError {
    "connection refused".into()
}

fn parameters(parts: &Parts) -> impl Iterator<Item = (&str, &str)> {
    let pairs = parts.uri.query().unwrap_or_default().split('&');
    pairs.map(|pair| pair.split_once('=').unwrap_or((pair, "")))
}

fn is_watch(parts: &Parts) -> bool {
    parameters(parts).any(|(name, value)| name == "watch" && matches!(value, "true" | "1"))
}

/// Whether an answer may be stale: the request accepts any version. Every other answer is current, or of the named
/// revision (Kubernetes API concepts, "Semantics for get and list").
fn may_be_stale(parts: &Parts) -> bool {
    parameters(parts).any(|pair| pair == ("resourceVersion", "0"))
        && !parameters(parts).any(|(name, _)| name == "continue")
}

/// Requests the cached state, unless the request specifies a resource version.
fn ask_for_less(parts: &mut Parts) {
    let silent = !parameters(parts).any(|(name, value)| {
        matches!(name, "resourceVersion" | "continue" | "watch") && !value.is_empty()
    });
    if silent && is_collection(parts.uri.path()) {
        let query = parts.uri.query().map(|query| format!("{query}&")).unwrap_or_default();
        let uri = format!("{}?{query}resourceVersion=0", parts.uri.path());
        parts.uri = uri.parse().expect("a URI with one parameter more is a URI");
    }
}

impl Tap {
    async fn pass(self, request: Request<Body>) -> Result<Answer, BoxError> {
        let latency = self.line.latency();
        if !latency.is_zero() {
            tokio::time::sleep(latency).await;
        }
        self.ledger.asked(self.actor, request.method(), request.uri());
        let read = matches!(*request.method(), Method::GET | Method::HEAD | Method::OPTIONS);
        match self.line.flow() {
            Flow::Open => {}
            Flow::Refused => return Err(refused()),
            Flow::Held if read => {
                if !self.line.released().await {
                    return Err(refused());
                }
            }
            Flow::Held => {
                // The request is out: the write happens when it arrives, even if the sender no longer waits.
                let (answer, wait) = oneshot::channel();
                tokio::spawn(async move {
                    self.line.released().await;
                    // The sender may be gone by now.
                    let _ = answer.send(self.write(request).await);
                });
                return wait.await?;
            }
        }
        let line = self.line.clone();
        let answer = if read { self.read(request).await } else { self.write(request).await };
        let late = line.late();
        if !read && !late.is_zero() {
            tokio::time::sleep(late).await;
        }
        match line.released().await {
            true => answer,
            false => Err(refused()),
        }
    }

    async fn forward(&self, request: Request<Body>) -> Answer {
        served(self.inner.clone(), request).await
    }

    async fn read(self, request: Request<Body>) -> Result<Answer, BoxError> {
        let (mut parts, body) = request.into_parts();
        let watch = is_watch(&parts);
        if self.line.lists() == Lists::AtHand {
            ask_for_less(&mut parts);
        }
        let replica = self.line.replica().filter(|_| !watch && may_be_stale(&parts));
        let request = Request::from_parts(parts, body);
        let answer = match replica {
            Some(replica) => {
                self.ledger.answered_stale(self.actor);
                served(replica, request).await
            }
            None => self.forward(request).await,
        };
        if !watch || !answer.status().is_success() || self.actor == Actor::Machinery {
            return Ok(answer);
        }
        let (head, body) = answer.into_parts();
        Ok(Response::from_parts(head, weathered(body, self.line)))
    }

    async fn write(self, request: Request<Body>) -> Result<Answer, BoxError> {
        let (parts, body) = request.into_parts();
        let sender = (self.actor, self.line.controller());
        let Some(write) = self.ledger.sent(&self.site, sender, &parts.method, &parts.uri) else {
            return Ok(self.forward(Request::from_parts(parts, body)).await);
        };
        let death = self.line.burn(parts.method.as_str(), &self.ledger.resource(write));
        if death == Some(false) {
            self.line.die();
            return Err(refused());
        }
        let body = body.collect_bytes().await?;
        if self.actor == Actor::Agent {
            if let Ok(object) = serde_json::from_slice::<Value>(&body) {
                self.ledger.claimed(&self.site, &object);
            }
            if parts.method == Method::DELETE {
                self.look_at_deletion(&parts).await;
            }
        }
        let removes = parts.method == Method::DELETE;
        let answer = self.forward(Request::from_parts(parts, Body::from(body))).await;
        self.ledger.answered(write, answer.status().as_u16());
        let answer = match self.actor == Actor::Controller && answer.status().is_success() {
            false => answer,
            true => {
                let (head, body) = answer.into_parts();
                let bytes = whole(body).await;
                if let Ok(object) = serde_json::from_slice::<Value>(&bytes) {
                    self.ledger.committed(&object, removes);
                }
                let body = Full::new(bytes).map_err(|never| match never {});
                Response::from_parts(head, body.boxed_unsync())
            }
        };
        if death == Some(true) {
            self.line.die();
            return Err(refused());
        }
        Ok(answer)
    }

    /// Checks a deletion by an agent (I12).
    async fn look_at_deletion(&self, parts: &Parts) {
        let Ok(request) = Request::get(parts.uri.path()).body(Body::empty()) else { return };
        let bytes = whole(self.forward(request).await.into_body()).await;
        if let Ok(object) = serde_json::from_slice::<Value>(&bytes) {
            self.ledger.deleting(&self.site, &object);
        }
    }
}

async fn served(mut service: Service, request: Request<Body>) -> Answer {
    match tower::Service::call(&mut service, request).await {
        Ok(response) => response,
        Err(never) => match never {},
    }
}

async fn whole(body: atoll_apiserver::Body) -> Bytes {
    let whole = body.collect().await;
    whole.expect("only proxied answers fail, and the World has no proxy").to_bytes()
}

impl tower::Service<Request<Body>> for Tap {
    type Response = Answer;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<Self::Response, BoxError>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        Box::pin(self.clone().pass(request))
    }
}
