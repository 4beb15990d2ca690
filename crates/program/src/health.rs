//! Pages of a component that runs as its own process, over plain HTTP: the liveness probe, and metrics on a listener of
//! their own.
//!
//! `/livez` reports only that this process runs its tasks: an agent without a controller, or a controller without its
//! hub, gains nothing from a restart.

use std::convert::Infallible;
use std::time::Duration;

use atoll_agent::AgentMetrics;
use atoll_http::connections::Limits;
use atoll_http::serve::{Incoming, Peer, Settings};
use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{HeaderValue, Method, Request, Response, StatusCode};
use http_body_util::Full;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

/// Limits of a listener.
const SETTINGS: Settings = Settings {
    // The kubelet, and a few scrapers. A client with more loses its oldest one.
    connections: Limits { total: 64, each: 16, grace: Duration::from_secs(1) },
    head: Duration::from_secs(5),
    lifetime: Some(Duration::from_secs(300)),
    // Answers are ready at once; the rest are clients that do not read.
    stop: Duration::from_secs(1),
};
/// Content type for Prometheus.
const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// The pages of a listener.
#[derive(Debug, Clone)]
pub enum Pages {
    /// `/livez`.
    Probes,
    /// `/metrics`.
    Metrics(AgentMetrics),
}

impl Pages {
    fn answer(&self, method: &Method, path: &str) -> Response<Full<Bytes>> {
        if method != Method::GET && method != Method::HEAD {
            return text(StatusCode::METHOD_NOT_ALLOWED, "only GET and HEAD");
        }
        match (self, path) {
            (Self::Probes, "/livez") => text(StatusCode::OK, "ok"),
            (Self::Probes, _) => text(StatusCode::NOT_FOUND, "this listener has /livez"),
            (Self::Metrics(metrics), "/metrics") => match metrics.page() {
                Ok(page) => respond(StatusCode::OK, OPEN_METRICS, page),
                Err(error) => {
                    tracing::error!(%error, "metrics cannot be written");
                    text(StatusCode::INTERNAL_SERVER_ERROR, "metrics cannot be written")
                }
            },
            (Self::Metrics(_), _) => text(StatusCode::NOT_FOUND, "this listener has /metrics"),
        }
    }
}

fn text(status: StatusCode, text: &str) -> Response<Full<Bytes>> {
    respond(status, "text/plain; charset=utf-8", format!("{text}\n"))
}

fn respond(status: StatusCode, kind: &'static str, body: String) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(Bytes::from(body)));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    response
}

/// Serves the pages until the token is cancelled.
pub async fn serve(listener: TcpListener, pages: Pages, token: CancellationToken) {
    let service = move |_: &Peer| {
        let pages = pages.clone();
        tower::service_fn(move |request: Request<Incoming>| {
            let response = pages.answer(request.method(), request.uri().path());
            std::future::ready(Ok::<_, Infallible>(response))
        })
    };
    atoll_http::serve::serve(listener, None, SETTINGS, service, token).await;
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpStream;

    use super::*;

    async fn get(pages: Pages, path: &str) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let token = CancellationToken::new();
        let server = tokio::spawn(serve(listener, pages, token.clone()));
        let mut stream = TcpStream::connect(address).await.unwrap();
        let request = format!("GET {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        token.cancel();
        server.await.unwrap();
        answer
    }

    #[tokio::test]
    async fn probes_and_metrics_have_their_own_listeners() {
        assert!(get(Pages::Probes, "/livez").await.starts_with("HTTP/1.1 200"));
        assert!(get(Pages::Probes, "/metrics").await.starts_with("HTTP/1.1 404"));
        let metrics = Pages::Metrics(AgentMetrics::default());
        let page = get(metrics.clone(), "/metrics").await;
        assert!(page.starts_with("HTTP/1.1 200") && page.contains("openmetrics-text"), "{page}");
        assert!(page.contains("atoll_agent_connected 0") && page.contains("# EOF"), "{page}");
        assert!(get(metrics, "/livez").await.starts_with("HTTP/1.1 404"));
    }
}
