//! A client's way to its API server, with a counter and a switch on it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};

use atoll_apiserver::{Server, Service};
use futures::future::BoxFuture;
use http::{Method, Request, Response};
use http_body_util::{BodyExt, Full};
use kube::client::Body;
use serde_json::Value;
use tower::BoxError;

use super::ledger::{Actor, Ledger};

/// The hub's name in the ledger.
pub(super) const HUB: &str = "hub";

/// Whether an API server answers.
#[derive(Debug, Clone)]
pub(super) struct Power(Arc<AtomicBool>);

impl Power {
    pub(super) fn on() -> Self {
        Self(Arc::new(AtomicBool::new(true)))
    }

    pub(super) fn set(&self, on: bool) {
        self.0.store(on, Ordering::Relaxed);
    }

    fn is_on(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// The service between a client and its API server.
#[derive(Clone)]
pub(super) struct Tap {
    inner: Service,
    site: Arc<str>,
    actor: Actor,
    ledger: Arc<Ledger>,
    power: Power,
}

/// A client whose writes are counted and which is refused while the power is off.
pub(super) fn client(
    server: &Server,
    site: &str,
    actor: Actor,
    ledger: &Arc<Ledger>,
    power: &Power,
) -> kube::Client {
    let tap = Tap {
        inner: server.service(),
        site: site.into(),
        actor,
        ledger: ledger.clone(),
        power: power.clone(),
    };
    kube::Client::new(tap, "default")
}

impl Tap {
    async fn pass(
        self,
        request: Request<Body>,
    ) -> Result<Response<atoll_apiserver::Body>, BoxError> {
        if !self.power.is_on() {
            return Err("connection refused: the power is off".into());
        }
        self.ledger.asked(self.actor, request.method(), request.uri());
        let mut inner = self.inner.clone();
        let read = matches!(*request.method(), Method::GET | Method::HEAD | Method::OPTIONS);
        let forward = |result: Result<_, std::convert::Infallible>| match result {
            Ok(response) => response,
            Err(never) => match never {},
        };
        let (parts, body) = request.into_parts();
        let sent = match read {
            true => None,
            false => self.ledger.sent(&self.site, self.actor, &parts.method, &parts.uri),
        };
        let Some(write) = sent else {
            let request = Request::from_parts(parts, body);
            return Ok(forward(tower::Service::call(&mut inner, request).await));
        };
        let body = body.collect_bytes().await?;
        if self.actor == Actor::Agent
            && let Ok(object) = serde_json::from_slice::<Value>(&body)
        {
            self.ledger.claimed(&self.site, &object);
        }
        let request = Request::from_parts(parts, Body::from(body));
        let response = forward(tower::Service::call(&mut inner, request).await);
        self.ledger.answered(write, response.status().as_u16());
        if self.actor != Actor::Controller || !response.status().is_success() {
            return Ok(response);
        }
        let (parts, body) = response.into_parts();
        let body = match body.collect().await {
            Ok(body) => body.to_bytes(),
            Err(never) => match never {},
        };
        if let Ok(object) = serde_json::from_slice::<Value>(&body) {
            self.ledger.committed(&object);
        }
        Ok(Response::from_parts(parts, Full::new(body).boxed_unsync()))
    }
}

impl tower::Service<Request<Body>> for Tap {
    type Response = Response<atoll_apiserver::Body>;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<Self::Response, BoxError>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        Box::pin(self.clone().pass(request))
    }
}
