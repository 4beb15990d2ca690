//! How much the hub is asked to do at once, from how it answers.
//!
//! Commits and statuses share one limit (see [`limit`]), each with its own places below it, so that a slow status never
//! delays a commit. Events have the lowest priority: while commits are running or due, only one is written from time to
//! time.
//!
//! The measurements are behind a lock: every write updates them, in its own task, in well under a microsecond.

mod limit;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use http::header::RETRY_AFTER;
use http::{Method, Request, Response, StatusCode};
use kube::Client;
use kube::client::Body;
use tokio::sync::watch;
use tokio::time::Instant;

use self::limit::Limit;
use crate::latency::Latency;

/// The state of the hub's load. Clones share it.
#[derive(Debug, Clone)]
pub(crate) struct HubLoad(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
    /// Whether commits are running or due.
    commits: watch::Sender<bool>,
}

#[derive(Debug, Default)]
struct State {
    limit: Limit,
    at_once: usize,
}

impl Default for HubLoad {
    fn default() -> Self {
        Self(Arc::new(Shared { state: Mutex::default(), commits: watch::Sender::new(false) }))
    }
}

impl HubLoad {
    /// A client for commits and statuses: how its writes are answered sets the limit, and every answer is measured.
    pub(crate) fn measured(&self, client: &Client, latency: &Latency) -> Client {
        let namespace = client.default_namespace().to_owned();
        let (load, client, latency) = (self.clone(), client.clone(), latency.clone());
        let service = tower::service_fn(move |request: Request<Body>| {
            let (load, client, latency) = (load.clone(), client.clone(), latency.clone());
            async move {
                let method = request.method().clone();
                let running = (method != Method::GET).then(|| Running::start(load));
                let mut asked = Asked { latency, method, start: Instant::now(), code: None };
                let response = client.send(request).await;
                asked.code = response.as_ref().ok().map(|response| response.status().as_u16());
                drop(asked);
                let response = response?;
                if let Some(running) = running {
                    running.answered(&response);
                }
                Ok::<_, kube::Error>(response)
            }
        });
        Client::new(service, namespace)
    }

    /// How many commits, and how many statuses, may run at once.
    pub(crate) fn most(&self) -> usize {
        self.state().limit.most(Instant::now())
    }

    /// When writes may start again, while the hub refuses them.
    pub(crate) fn paused_until(&self) -> Option<Instant> {
        self.state().limit.paused_until(Instant::now())
    }

    /// Tells the writer of Events whether commits are running or due.
    pub(crate) fn set_commits(&self, any: bool) {
        self.0.commits.send_if_modified(|known| std::mem::replace(known, any) != any);
    }

    /// Waits until no commit is running or due and the hub takes writes, but for `limit` at most.
    pub(crate) async fn idle(&self, limit: Duration) {
        let mut commits = self.0.commits.subscribe();
        let wait = async {
            if let Some(until) = self.paused_until() {
                tokio::time::sleep_until(until).await;
            }
            // The sender lives as long as `self`.
            let _ = commits.wait_for(|any| !any).await;
        };
        // After the limit the caller goes on in any case.
        let _ = tokio::time::timeout(limit, wait).await;
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A request, measured when it is dropped: a caller that waits no longer drops it without an answer.
struct Asked {
    latency: Latency,
    method: Method,
    start: Instant,
    /// HTTP status of the answer.
    code: Option<u16>,
}

impl Drop for Asked {
    fn drop(&mut self) {
        self.latency.asked(&self.method, self.code, self.start.elapsed());
    }
}

/// A write that is running. Dropped without an answer, it counts as one that the hub did not answer.
struct Running {
    load: HubLoad,
    start: Instant,
    answered: bool,
}

impl Running {
    fn start(load: HubLoad) -> Self {
        load.state().at_once += 1;
        Self { load, start: Instant::now(), answered: false }
    }

    fn answered<B>(mut self, response: &Response<B>) {
        self.answered = true;
        let now = Instant::now();
        let mut state = self.load.state();
        match response.status() {
            StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE => {
                state.limit.refused(now, retry_after(response));
            }
            _ => {
                let at_once = state.at_once;
                state.limit.answered(now, at_once, now - self.start);
            }
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let mut state = self.load.state();
        state.at_once -= 1;
        if !self.answered {
            state.limit.unanswered();
        }
    }
}

/// The time of a `Retry-After` header in seconds; API servers send no dates.
fn retry_after<B>(response: &Response<B>) -> Option<Duration> {
    let seconds = response.headers().get(RETRY_AFTER)?.to_str().ok()?.parse().ok()?;
    Some(Duration::from_secs(seconds))
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::ConfigMap;
    use kube::api::{Api, PostParams};
    use prometheus_client::registry::Registry;

    use super::*;

    /// A client whose writes are answered with this status and `Retry-After`.
    fn answering(load: &HubLoad, code: u16, seconds: Option<u32>) -> Client {
        let service = tower::service_fn(move |_: Request<Body>| async move {
            let mut response = Response::builder().status(code);
            if let Some(seconds) = seconds {
                response = response.header(RETRY_AFTER, seconds);
            }
            Ok::<_, std::convert::Infallible>(response.body(Body::from(b"busy".to_vec())).unwrap())
        });
        load.measured(&Client::new(service, "default"), &Latency::default())
    }

    async fn write(client: Client) {
        let api: Api<ConfigMap> = Api::default_namespaced(client);
        let object = ConfigMap::default();
        api.create(&PostParams::default(), &object).await.expect_err("it is refused");
    }

    #[tokio::test(start_paused = true)]
    async fn a_hub_that_refuses_writes_gets_none_until_the_time_in_its_answer() {
        let load = HubLoad::default();
        assert!(load.most() > 0);
        write(answering(&load, 429, Some(7))).await;
        assert_eq!(load.most(), 0);
        let until = load.paused_until().unwrap();
        assert_eq!((until - Instant::now()).as_secs_f64().round(), 7.0);
        tokio::time::sleep_until(until).await;
        assert!(load.most() > 0 && load.paused_until().is_none());
        write(answering(&load, 409, None)).await;
        assert!(load.most() > 0, "another error is an answer");
        assert_eq!(load.state().at_once, 0);
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_that_nobody_waits_for_any_more_counts_as_not_answered() {
        let (load, latency) = (HubLoad::default(), Latency::default());
        let silent = tower::service_fn(|_: Request<Body>| {
            std::future::pending::<Result<Response<Body>, std::convert::Infallible>>()
        });
        let client = load.measured(&Client::new(silent, "default"), &latency);
        let api: Api<ConfigMap> = Api::default_namespaced(client);
        let (params, object) = (PostParams::default(), ConfigMap::default());
        let limit = Duration::from_secs(30);
        tokio::time::timeout(limit, api.create(&params, &object)).await.expect_err("no answer");
        let (mut registry, mut page) = (Registry::default(), String::new());
        latency.register(&mut registry);
        prometheus_client::encoding::text::encode(&mut page, &registry).unwrap();
        let labels = "{verb=\"create\",code=\"none\"}";
        for line in [
            format!("hub_request_seconds_count{labels} 1"),
            format!("hub_request_seconds_sum{labels} 30.0"),
        ] {
            assert!(page.lines().any(|found| found == line), "{line}\n{page}");
        }
        assert_eq!(load.state().at_once, 0, "its place is free again");
    }

    #[tokio::test(start_paused = true)]
    async fn events_wait_for_commits_but_not_for_ever() {
        let load = HubLoad::default();
        load.idle(Duration::from_secs(1)).await;
        let start = Instant::now();
        load.set_commits(true);
        load.idle(Duration::from_secs(1)).await;
        assert_eq!(start.elapsed(), Duration::from_secs(1));
        let (waits, ends) = (load.clone(), load.clone());
        let waiting = tokio::spawn(async move { waits.idle(Duration::from_secs(60)).await });
        tokio::task::yield_now().await;
        ends.set_commits(false);
        waiting.await.unwrap();
        assert_eq!(start.elapsed(), Duration::from_secs(1));
    }
}
