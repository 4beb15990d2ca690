//! The endpoints for probes and for Prometheus, over plain HTTP: `/healthz`, `/readyz`, `/metrics`. Probes may have a
//! listener of their own.
//!
//! They show numbers and no objects, need no authentication, and are meant for the loopback or the Pod's own network.
//! The engine and `members` do the counting.

#[cfg(test)]
mod tests;

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use atoll_history::Progress;
use atoll_http::connections::Limits;
use atoll_http::serve::{Incoming, Peer, Settings};
use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{Method, Response, StatusCode};
use http_body_util::Full;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::leader::{LeaderTerm, Leadership};

/// Limits of a listener.
const SETTINGS: Settings = Settings {
    // Probes and a few scrapers. A client with more loses its oldest one.
    connections: Limits { total: 64, each: 16, grace: Duration::from_secs(1) },
    head: Duration::from_secs(5),
    // A scraper that keeps a connection reconnects.
    lifetime: Some(Duration::from_secs(300)),
    // Answers are ready at once; the rest are clients that do not read.
    stop: Duration::from_secs(1),
};
/// Content type for Prometheus, in the format that the registry writes.
const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Endpoints of a listener.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Scope {
    /// All of them.
    All,
    /// `/healthz` and `/readyz`.
    Probes,
}

/// State behind the endpoints.
pub(crate) struct Pages {
    registry: Registry,
    /// `Some` once everything on the hub was listed.
    ready: watch::Receiver<Option<LeaderTerm>>,
    leadership: watch::Receiver<Option<Leadership>>,
    history: watch::Receiver<Progress>,
    backlog: Gauge,
    lag: Gauge,
    refused: Gauge,
    dropped: Family<Dropped, Gauge>,
}

/// What history did not store, of what is stored beside decisions.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Dropped {
    what: &'static str,
}

impl Pages {
    /// Adds history's metrics to the registry.
    pub(crate) fn new(
        mut registry: Registry,
        ready: watch::Receiver<Option<LeaderTerm>>,
        leadership: watch::Receiver<Option<Leadership>>,
        history: watch::Receiver<Progress>,
    ) -> Self {
        let (backlog, lag, refused) = (Gauge::default(), Gauge::default(), Gauge::default());
        let of_history = registry.sub_registry_with_prefix("atoll_history");
        of_history.register("backlog", "Decisions that wait for the database", backlog.clone());
        of_history.register("lag_seconds", "How long the oldest of them has waited", lag.clone());
        of_history.register(
            "refused",
            "Decisions that the database will never take, since the start",
            refused.clone(),
        );
        let dropped = Family::default();
        of_history.register(
            "dropped",
            "Full decisions, inputs and events that were not stored, since the start",
            dropped.clone(),
        );
        Self { registry, ready, leadership, history, backlog, lag, refused, dropped }
    }

    fn answer(&self, method: &Method, path: &str, scope: Scope) -> Response<Full<Bytes>> {
        if method != Method::GET && method != Method::HEAD {
            return text(StatusCode::METHOD_NOT_ALLOWED, "only GET and HEAD");
        }
        match path {
            "/healthz" => text(StatusCode::OK, "ok"),
            "/readyz" => self.ready(),
            "/metrics" if scope == Scope::All => self.metrics(),
            _ if scope == Scope::Probes => {
                text(StatusCode::NOT_FOUND, "this listener has /healthz and /readyz")
            }
            _ => text(StatusCode::NOT_FOUND, "there are /healthz, /readyz and /metrics"),
        }
    }

    /// A leader is ready, and so is a follower that could take over at once.
    fn ready(&self) -> Response<Full<Bytes>> {
        let term = self.leadership.borrow().as_ref().and_then(Leadership::in_force);
        match term {
            Some(term) => text(StatusCode::OK, &format!("leader, term {term}")),
            None if self.ready.borrow().is_some() => {
                text(StatusCode::OK, "follower, everything is listed")
            }
            None => {
                text(StatusCode::SERVICE_UNAVAILABLE, "not everything on the hub is listed yet")
            }
        }
    }

    fn metrics(&self) -> Response<Full<Bytes>> {
        {
            let progress = self.history.borrow();
            let number = |count: usize| i64::try_from(count).unwrap_or(i64::MAX);
            let waited = progress.oldest.map_or(Duration::ZERO, |oldest| oldest.elapsed());
            self.backlog.set(number(progress.queued));
            self.lag.set(i64::try_from(waited.as_secs()).unwrap_or(i64::MAX));
            let count = |count: u64| i64::try_from(count).unwrap_or(i64::MAX);
            self.refused.set(count(progress.refused));
            for (what, dropped) in [
                ("details", progress.details_dropped),
                ("inputs", progress.inputs_dropped),
                ("events", progress.events_dropped),
            ] {
                self.dropped.get_or_create(&Dropped { what }).set(count(dropped));
            }
        }
        let mut page = String::new();
        match encode(&mut page, &self.registry) {
            Ok(()) => respond(StatusCode::OK, OPEN_METRICS, page),
            Err(error) => {
                tracing::error!(%error, "metrics cannot be written");
                text(StatusCode::INTERNAL_SERVER_ERROR, "metrics cannot be written")
            }
        }
    }
}

fn text(status: StatusCode, text: &str) -> Response<Full<Bytes>> {
    respond(status, "text/plain; charset=utf-8", format!("{text}\n"))
}

fn respond(status: StatusCode, kind: &'static str, body: String) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(Bytes::from(body)));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, http::HeaderValue::from_static(kind));
    response
}

/// Serves the endpoints until cancelled.
pub(crate) async fn serve(
    listener: TcpListener,
    pages: Arc<Pages>,
    scope: Scope,
    token: CancellationToken,
) {
    let service = move |_: &Peer| {
        let pages = pages.clone();
        tower::service_fn(move |request: http::Request<Incoming>| {
            let response = pages.answer(request.method(), request.uri().path(), scope);
            std::future::ready(Ok::<_, Infallible>(response))
        })
    };
    atoll_http::serve::serve(listener, None, SETTINGS, service, token).await;
}
