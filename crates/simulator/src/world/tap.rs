//! A client's way to its API server, with a counter and everything that can go wrong on it.

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

use super::ledger::{Actor, Ledger};
use super::line::{Flow, Line};
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

/// A client whose writes are counted and for which things go wrong as its line says.
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

fn is_watch(parts: &Parts) -> bool {
    let query = parts.uri.query().unwrap_or_default();
    query.split('&').any(|pair| matches!(pair, "watch=true" | "watch=1"))
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
                // The bytes are out: the write happens whenever they arrive, whoever still waits for it.
                let (answer, wait) = oneshot::channel();
                tokio::spawn(async move {
                    self.line.released().await;
                    // Who sent it may be gone by now.
                    let _ = answer.send(self.write(request).await);
                });
                return wait.await?;
            }
        }
        let line = self.line.clone();
        let answer = if read { self.read(request).await } else { self.write(request).await };
        match line.released().await {
            true => answer,
            false => Err(refused()),
        }
    }

    async fn forward(&self, request: Request<Body>) -> Answer {
        match tower::Service::call(&mut self.inner.clone(), request).await {
            Ok(response) => response,
            Err(never) => match never {},
        }
    }

    async fn read(self, request: Request<Body>) -> Result<Answer, BoxError> {
        let (parts, body) = request.into_parts();
        let watch = is_watch(&parts);
        let answer = self.forward(Request::from_parts(parts, body)).await;
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
                Response::from_parts(head, Full::new(bytes).boxed_unsync())
            }
        };
        if death == Some(true) {
            self.line.die();
            return Err(refused());
        }
        Ok(answer)
    }

    /// Holds what an agent is about to delete against what is known (I12).
    async fn look_at_deletion(&self, parts: &Parts) {
        let Ok(request) = Request::get(parts.uri.path()).body(Body::empty()) else { return };
        let bytes = whole(self.forward(request).await.into_body()).await;
        if let Ok(object) = serde_json::from_slice::<Value>(&bytes) {
            self.ledger.deleting(&self.site, &object);
        }
    }
}

async fn whole(body: atoll_apiserver::Body) -> Bytes {
    match body.collect().await {
        Ok(body) => body.to_bytes(),
        Err(never) => match never {},
    }
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
