//! The queue of ended spans, and the task that sends them.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use atoll_api::Backoff;
use atoll_http::client::{CallError, JsonClient};
use atoll_http::tls::TlsError;
use http::Uri;
use http::uri::{PathAndQuery, Scheme};
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::registry::Registry;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout};

use crate::id::{Ratio, TraceId};
use crate::otlp::{self, Service};
use crate::span::Span;

/// Limit of spans that wait: some thousand decisions on a few members each.
const QUEUED: usize = 16_384;
/// Limit of bytes that wait.
const QUEUED_BYTES: usize = 8 << 20;
/// Spans of one request: about 300 KiB.
const BATCH: usize = 512;
/// How long the first span of a request waits for others.
const LINGER: Duration = Duration::from_secs(1);
/// Time limit of one request.
const CALL: Duration = Duration::from_secs(10);
/// How often a request is sent if the collector does not take it. Meanwhile the queue fills, and is bounded.
const ATTEMPTS: u32 = 3;
/// Waits between them. Without jitter: one process has one exporter.
const RETRY: Backoff = Backoff { first: Duration::from_secs(1), most: Duration::from_secs(5) };
/// Time limit of the last requests, when the process ends.
const LAST: Duration = Duration::from_millis(500);
/// Limit of an answer in bytes.
const ANSWER: usize = 64 << 10;
/// Path of the protocol.
const PATH: &str = "/v1/traces";

/// Where spans are sent to.
#[derive(Debug, Clone)]
pub struct Collector {
    url: Uri,
    client: JsonClient,
}

/// Why a collector cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum CollectorError {
    /// It is no URL with a host.
    #[error("must be http://HOST:PORT or https://HOST:PORT, for example http://127.0.0.1:4318")]
    Url,
    /// HTTPS without trusted authorities.
    #[error("https:// needs the certificates of the authorities that are trusted for it")]
    NoAuthority,
    /// The certificates of trusted authorities cannot be used.
    #[error("the certificates of trusted authorities")]
    Authority(#[source] TlsError),
}

impl Collector {
    /// The collector at a URL. `/v1/traces` is added unless the URL has a path. HTTPS needs authorities, as PEM.
    ///
    /// # Errors
    /// The URL or an authority is not usable.
    pub fn new(url: &str, authorities: Option<&[u8]>) -> Result<Self, CollectorError> {
        let url: Uri = url.parse().map_err(|_| CollectorError::Url)?;
        let mut parts = url.into_parts();
        if parts.authority.as_ref().is_none_or(|authority| authority.as_str().contains('@')) {
            return Err(CollectorError::Url);
        }
        let client = match (&parts.scheme, authorities) {
            (Some(scheme), _) if *scheme == Scheme::HTTP => JsonClient::plain(),
            (Some(scheme), Some(pem)) if *scheme == Scheme::HTTPS => JsonClient::new(pem),
            (Some(scheme), None) if *scheme == Scheme::HTTPS => {
                return Err(CollectorError::NoAuthority);
            }
            _ => return Err(CollectorError::Url),
        };
        if parts.path_and_query.as_ref().is_none_or(|path| path.as_str() == "/") {
            parts.path_and_query = Some(PathAndQuery::from_static(PATH));
        }
        let url = Uri::from_parts(parts).map_err(|_| CollectorError::Url)?;
        Ok(Self { url, client: client.map_err(CollectorError::Authority)? })
    }
}

/// What becomes of a span: it was sent; too many waited; the collector did not take it; it refused it.
const RESULTS: [&str; 4] = ["sent", "dropped", "failed", "refused"];

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Ended {
    result: &'static str,
}

/// Records spans of one service. Clones share everything. The default is off.
#[derive(Clone, Default)]
pub struct Tracer(Option<Arc<Recording>>);

struct Recording {
    queue: Arc<Queue>,
    service: Arc<Service>,
    ratio: Ratio,
}

struct Queue {
    spans: mpsc::Sender<(Arc<Service>, Span)>,
    /// Bytes of the spans that wait.
    bytes: AtomicUsize,
    ended: Family<Ended, Counter>,
}

impl Queue {
    fn count(&self, result: &'static str, spans: usize) {
        self.ended.get_or_create(&Ended { result }).inc_by(spans as u64);
    }
}

impl fmt::Debug for Tracer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let on = self.0.as_ref().map(|recording| recording.ratio);
        f.debug_tuple("Tracer").field(&on).finish()
    }
}

impl Tracer {
    /// A tracer for another service of this process. Off if this one is.
    #[must_use]
    pub fn of(&self, name: &'static str, instance: impl Into<String>) -> Self {
        let of = |held: &Arc<Recording>| {
            let service = Arc::new(Service { name, instance: instance.into() });
            Arc::new(Recording { queue: held.queue.clone(), service, ratio: held.ratio })
        };
        Self(self.0.as_ref().map(of))
    }

    /// Whether spans of this trace are recorded.
    #[must_use]
    pub fn records(&self, trace: TraceId) -> bool {
        self.0.as_ref().is_some_and(|recording| recording.ratio.has(trace))
    }

    /// Whether any trace is recorded.
    #[must_use]
    pub fn is_on(&self) -> bool {
        self.0.is_some()
    }

    /// Records a span of a trace that [`Tracer::records`], or that another process records. Never waits.
    pub fn record(&self, span: Span) {
        let Some(Recording { queue, service, .. }) = self.0.as_deref() else { return };
        let size = span.size();
        let fits = queue.bytes.fetch_add(size, Ordering::Relaxed) + size <= QUEUED_BYTES;
        if !fits || queue.spans.try_send((service.clone(), span)).is_err() {
            queue.bytes.fetch_sub(size, Ordering::Relaxed);
            queue.count("dropped", 1);
        }
    }

    /// Registers `spans_total`, in a registry with the prefix of the service. Nothing if it is off.
    pub fn register(&self, registry: &mut Registry) {
        if let Some(recording) = &self.0 {
            registry.register(
                "spans",
                "Spans of traces, by what became of them",
                recording.queue.ended.clone(),
            );
        }
    }
}

/// The task that sends spans.
pub struct Exporter {
    queue: Arc<Queue>,
    ratio: Ratio,
    stop: oneshot::Sender<()>,
    task: JoinHandle<()>,
}

/// Starts to send spans to a collector, in the current runtime.
#[must_use]
pub fn start(collector: Collector, ratio: Ratio) -> Exporter {
    let (spans, waiting) = mpsc::channel(QUEUED);
    let queue = Arc::new(Queue { spans, bytes: AtomicUsize::new(0), ended: Family::default() });
    for result in RESULTS {
        queue.count(result, 0);
    }
    let (stop, stopped) = oneshot::channel();
    let sender = Sender { collector, queue: queue.clone(), waiting, failing: false };
    let task = tokio::spawn(sender.run(stopped));
    Exporter { queue, ratio, stop, task }
}

impl Exporter {
    /// A tracer for a service of this process.
    #[must_use]
    pub fn tracer(&self, name: &'static str, instance: impl Into<String>) -> Tracer {
        let service = Arc::new(Service { name, instance: instance.into() });
        Tracer(Some(Arc::new(Recording { queue: self.queue.clone(), service, ratio: self.ratio })))
    }

    /// Sends what waits, within half a second, and ends.
    pub async fn end(self) {
        // An error means that the task has ended already.
        let _ = self.stop.send(());
        if let Err(error) = self.task.await {
            tracing::error!(%error, "the task that sends traces failed");
        }
    }
}

struct Sender {
    collector: Collector,
    queue: Arc<Queue>,
    waiting: mpsc::Receiver<(Arc<Service>, Span)>,
    /// Whether the last request failed.
    failing: bool,
}

impl Sender {
    async fn run(mut self, mut stopped: oneshot::Receiver<()>) {
        let mut batch = Vec::with_capacity(BATCH);
        // A dropped exporter is one that ends.
        tokio::select! {
            biased;
            _ = &mut stopped => {}
            () = self.send_all(&mut batch) => {}
        }
        let last = async {
            loop {
                while batch.len() < BATCH
                    && let Ok(next) = self.waiting.try_recv()
                {
                    batch.push(next);
                }
                if batch.is_empty() || self.send(&mut batch, 1).await.is_err() {
                    return;
                }
            }
        };
        if timeout(LAST, last).await.is_err() || !batch.is_empty() {
            tracing::warn!(
                spans = batch.len() + self.waiting.len(),
                "traces were not sent before the end"
            );
        }
    }

    /// Sends requests until the queue is closed.
    async fn send_all(&mut self, batch: &mut Vec<(Arc<Service>, Span)>) {
        loop {
            let Some(first) = self.waiting.recv().await else { return };
            batch.push(first);
            let until = Instant::now() + LINGER;
            while batch.len() < BATCH {
                let room = BATCH - batch.len();
                let more = self.waiting.recv_many(batch, room);
                if !matches!(tokio::time::timeout_at(until, more).await, Ok(1..)) {
                    break;
                }
            }
            // What failed is counted and logged there, and is gone.
            let _ = self.send(batch, ATTEMPTS).await;
        }
    }

    /// Sends one request, a number of times if the collector does not take it. The batch is empty then.
    async fn send(
        &mut self,
        batch: &mut Vec<(Arc<Service>, Span)>,
        attempts: u32,
    ) -> Result<(), ()> {
        let body = otlp::request(batch.iter().map(|(service, span)| (&**service, span)));
        let mut attempt = 1;
        let result = loop {
            let call = self.collector.client.post(&self.collector.url, body.clone(), ANSWER);
            let why = match timeout(CALL, call).await {
                Ok(Ok(answer)) => break Ok(answer),
                Ok(Err(error)) if !may_help_again(&error) => break Err(error.to_string()),
                Ok(Err(error)) => error.to_string(),
                Err(_) => format!("no answer within {CALL:?}"),
            };
            if attempt >= attempts {
                break Err(why);
            }
            tokio::time::sleep(RETRY.ceiling(attempt)).await;
            attempt += 1;
        };
        let bytes: usize = batch.iter().map(|(_, span)| span.size()).sum();
        self.queue.bytes.fetch_sub(bytes, Ordering::Relaxed);
        let spans = batch.len();
        batch.clear();
        match result {
            Ok(answer) => {
                if std::mem::take(&mut self.failing) {
                    tracing::info!(collector = %self.collector.url, "traces are sent again");
                }
                let (refused, why) = otlp::rejected(&answer).unwrap_or_default();
                let refused = usize::try_from(refused).unwrap_or(spans).min(spans);
                if refused > 0 {
                    self.queue.count("refused", refused);
                    tracing::warn!(collector = %self.collector.url, spans = refused, why, "the collector refuses spans");
                }
                self.queue.count("sent", spans - refused);
                Ok(())
            }
            Err(why) => {
                self.queue.count("failed", spans);
                // Once, not for every request while the collector is unreachable; the metric counts them.
                if !std::mem::replace(&mut self.failing, true) {
                    tracing::warn!(collector = %self.collector.url, spans, why, "traces are lost: the collector does not accept them");
                }
                Err(())
            }
        }
    }
}

/// Whether the same request may succeed later.
fn may_help_again(error: &CallError) -> bool {
    match error {
        CallError::Status { status, .. } => matches!(status.as_u16(), 429 | 502..=504),
        CallError::Transport(_) => true,
        CallError::TooLarge(_) | CallError::Incomplete(_) => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;
    use http::{Request, Response, StatusCode};
    use http_body_util::{BodyExt, Full};
    use hyper::body::Incoming;
    use hyper_util::rt::TokioIo;
    use jiff::Timestamp;
    use tokio::net::TcpListener;

    /// A collector that answers with these statuses in turn, the last one for ever, and passes bodies on.
    async fn collector(
        answers: &'static [(u16, &'static str)],
    ) -> (String, mpsc::UnboundedReceiver<serde_json::Value>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let (bodies, received) = mpsc::unbounded_channel();
        let asked = Arc::new(AtomicUsize::new(0));
        tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                let (bodies, asked) = (bodies.clone(), asked.clone());
                let service = hyper::service::service_fn(move |request: Request<Incoming>| {
                    let (bodies, asked) = (bodies.clone(), asked.clone());
                    async move {
                        assert_eq!(request.uri().path(), PATH);
                        let body = request.into_body().collect().await.unwrap().to_bytes();
                        // The test may have ended.
                        let _ = bodies.send(serde_json::from_slice(&body).unwrap());
                        let turn = asked.fetch_add(1, Ordering::Relaxed).min(answers.len() - 1);
                        let (status, text) = answers[turn];
                        let mut answer =
                            Response::new(Full::new(Bytes::from_static(text.as_bytes())));
                        *answer.status_mut() = StatusCode::from_u16(status).unwrap();
                        Ok::<_, std::convert::Infallible>(answer)
                    }
                });
                tokio::spawn(
                    hyper::server::conn::http1::Builder::new()
                        .serve_connection(TokioIo::new(stream), service),
                );
            }
        });
        (url, received)
    }

    fn span(name: &'static str) -> Span {
        let trace = TraceId::of_decision("4bf92f3577b34da6a3ce929d0e0e4736").unwrap();
        let at = |second| Timestamp::from_second(second).unwrap();
        Span::new((trace, trace.span(&[name])), None, name, (at(5), at(7)))
            .with("atoll.cluster", "member1")
            .with("atoll.replicas", 3)
    }

    fn counted(tracer: &Tracer, result: &'static str) -> u64 {
        let recording = tracer.0.as_ref().unwrap();
        recording.queue.ended.get_or_create(&Ended { result }).get()
    }

    #[tokio::test]
    async fn spans_arrive_together_and_a_busy_collector_is_asked_again() {
        let (url, mut received) = collector(&[(503, "busy"), (200, "{}")]).await;
        let exporter = start(Collector::new(&url, None).unwrap(), Ratio::ALL);
        let tracer = exporter.tracer("atoll-controller", "one");
        let agent = exporter.tracer("atoll-agent", "two");
        tracer.record(span("decision"));
        agent.record(span("apply").failed("x".repeat(600)));
        let first = received.recv().await.unwrap();
        assert_eq!(received.recv().await.unwrap(), first, "again");
        let groups = first["resourceSpans"].as_array().unwrap();
        assert_eq!(groups.len(), 2);
        assert_eq!(groups[1]["resource"]["attributes"][0]["value"]["stringValue"], "atoll-agent");
        let sent = &groups[0]["scopeSpans"][0]["spans"][0];
        assert_eq!(sent["startTimeUnixNano"], "5000000000");
        assert_eq!(sent["attributes"][1]["value"]["intValue"], "3");
        let failed = &groups[1]["scopeSpans"][0]["spans"][0]["status"];
        assert_eq!(
            (failed["code"].as_u64(), failed["message"].as_str().unwrap().len()),
            (Some(2), 512)
        );
        exporter.end().await;
        assert_eq!(counted(&tracer, "sent"), 2);
        assert_eq!(tracer.0.as_ref().unwrap().queue.bytes.load(Ordering::Relaxed), 0);
    }

    #[tokio::test]
    async fn what_waits_is_sent_at_the_end_and_what_is_refused_is_counted() {
        let refusal = r#"{"partialSuccess": {"rejectedSpans": "1", "errorMessage": "too old"}}"#;
        let answers: &'static [(u16, &'static str)] = vec![(200, refusal)].leak();
        let (url, mut received) = collector(answers).await;
        let exporter = start(Collector::new(&url, None).unwrap(), Ratio::ALL);
        let tracer = exporter.tracer("atoll-controller", "one");
        tracer.record(span("decision"));
        tracer.record(span("commit"));
        exporter.end().await;
        assert!(received.recv().await.is_some());
        assert_eq!((counted(&tracer, "sent"), counted(&tracer, "refused")), (1, 1));
    }

    #[tokio::test]
    async fn a_collector_that_does_not_read_costs_a_bounded_queue_and_nobody_waits() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let exporter = start(Collector::new(&url, None).unwrap(), Ratio::ALL);
        let tracer = exporter.tracer("atoll-controller", "one");
        for _ in 0..2 * QUEUED {
            tracer.record(span("decision"));
        }
        assert_eq!(counted(&tracer, "dropped"), QUEUED as u64);
        let long = "x".repeat(400);
        let other = start(Collector::new(&url, None).unwrap(), Ratio::ALL);
        let tracer = other.tracer("atoll-controller", "one");
        for _ in 0..QUEUED {
            tracer.record(span("decision").failed(long.as_str()));
        }
        assert!(counted(&tracer, "dropped") > 0, "the bytes are bounded too");
        let queued = tracer.0.as_ref().unwrap().queue.bytes.load(Ordering::Relaxed);
        assert!(queued <= QUEUED_BYTES, "{queued}");
        let began = std::time::Instant::now();
        exporter.end().await;
        assert!(began.elapsed() < 4 * LAST, "the end waits for no answer");
    }

    #[test]
    fn a_collector_needs_a_url_that_can_be_used() {
        for (url, fits) in [
            ("http://127.0.0.1:4318", true),
            ("http://tempo.observe:4318/otlp/v1/traces", true),
            ("127.0.0.1:4318", false),
            ("grpc://127.0.0.1:4317", false),
            ("http://user:secret@host:4318", false),
            ("", false),
        ] {
            assert_eq!(Collector::new(url, None).is_ok(), fits, "{url}");
        }
        let error = Collector::new("https://tempo:4318", None).unwrap_err();
        assert!(matches!(error, CollectorError::NoAuthority));
        let kept = Collector::new("http://a/b", None).unwrap().url;
        assert_eq!(kept, "http://a/b");
    }
}
