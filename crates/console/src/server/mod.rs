//! Serves the pages on a loopback address, within limits.

mod assets;
mod gate;
mod live;
mod pages;
mod sessions;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use atoll_http::connections::Limits;
use axum::Router;
use axum::extract::DefaultBodyLimit;
use axum::routing::get;
use futures::FutureExt;
use futures::future::BoxFuture;
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

use self::sessions::Sessions;
use crate::source::{Answer, Fault, Source};

/// Longest time for what a page shows. The hub's own calls end after 30 s; nobody waits that long for a page.
const PAGE: Duration = Duration::from_secs(20);
/// Longest time for a plan, which reads all objects of a hub.
const PLAN: Duration = Duration::from_secs(60);
/// Pages that are made at the same time; further ones wait. The hub must not suffer from a browser with many tabs.
const PAGES: usize = 8;
/// Event streams that are open at the same time: one for each tab.
const STREAMS: usize = 32;
/// Largest body of a request, in bytes: objects of the page What-if.
const BODY: usize = 256 * 1024;
/// Limits of the listener. Browsers open six connections and one for each event stream; it is one user's.
const HTTP: atoll_http::serve::Settings = atoll_http::serve::Settings {
    connections: Limits { total: 128, each: 128, grace: Duration::from_secs(1) },
    head: Duration::from_secs(30),
    lifetime: None,
    stop: Duration::from_millis(500),
};

/// How the console is served.
pub struct Settings {
    /// Which hub is shown, for people.
    pub hub: String,
    /// No actions.
    pub read_only: bool,
    /// Called with a new address when the last one was used: each opens one browser.
    pub announce: Box<dyn Fn(&str) + Send + Sync>,
}

/// Why the console cannot be served.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The listener is not bound to a loopback address.
    #[error(
        "the console is served on loopback only, and {0} is no loopback address: choose 127.0.0.1 or [::1]"
    )]
    NotLoopback(SocketAddr),
    /// The listener has no address.
    #[error("read the address of the console: {0}")]
    Address(#[from] std::io::Error),
    /// The system has no randomness.
    #[error("make the token of the console: the system gives no random numbers")]
    Random,
}

/// A console that is ready to be served.
pub struct Serving {
    /// The address that opens it, with its token.
    pub url: String,
    /// Serves until the token is cancelled.
    pub task: BoxFuture<'static, ()>,
}

/// What all requests share.
struct Console {
    source: Arc<dyn Source>,
    settings: Settings,
    /// The values of `Host` that are ours, and the origin that belongs to each.
    hosts: Vec<String>,
    sessions: Sessions,
    pages: Semaphore,
    streams: Arc<Semaphore>,
    token: CancellationToken,
}

/// Prepares a console on this listener. Its task must be run.
///
/// # Errors
/// When the listener is not on loopback, or the system has no randomness.
pub fn start(
    listener: TcpListener,
    settings: Settings,
    source: Arc<dyn Source>,
    token: CancellationToken,
) -> Result<Serving, StartError> {
    let address = listener.local_addr()?;
    if !address.ip().is_loopback() {
        return Err(StartError::NotLoopback(address));
    }
    let (sessions, first) = Sessions::new(address).map_err(|_| StartError::Random)?;
    let console = Arc::new(Console {
        source,
        settings,
        hosts: vec![address.to_string(), format!("localhost:{}", address.port())],
        sessions,
        pages: Semaphore::new(PAGES),
        streams: Arc::new(Semaphore::new(STREAMS)),
        token: token.clone(),
    });
    let router = router(console);
    let task =
        atoll_http::serve::serve(listener, None, HTTP, move |_| router.clone(), token).boxed();
    Ok(Serving { url: first, task })
}

fn router(console: Arc<Console>) -> Router {
    Router::new()
        .route("/", get(pages::overview))
        .route("/placement", get(pages::placement))
        .route("/workloads/{namespace}/{type}/{name}", get(pages::workload))
        .route("/workloads/{namespace}/{type}/{name}/on/{member}", get(pages::copy))
        .route("/members/{name}", get(pages::member))
        .route("/decisions", get(pages::decisions))
        .route("/decisions/{namespace}/{id}", get(pages::decision))
        .route("/diff", get(pages::diff))
        .route("/policies", get(pages::policies))
        .route("/what-if", get(pages::what_if).post(pages::plan))
        .route("/act/{verb}", get(pages::preview).post(pages::act))
        .route("/events", get(live::events))
        .fallback(pages::unknown)
        .layer(axum::middleware::from_fn_with_state(console.clone(), gate::session))
        .route("/assets/{name}", get(assets::asset))
        .layer(DefaultBodyLimit::max(BODY))
        .layer(axum::middleware::from_fn_with_state(console.clone(), gate::request))
        .with_state(console)
}

impl Console {
    /// Reads what a page shows.
    async fn read<T>(&self, answer: Answer<'_, T>) -> Result<T, Fault> {
        self.within(PAGE, answer).await
    }

    /// Computes a plan.
    async fn planned<T>(&self, answer: Answer<'_, T>) -> Result<T, Fault> {
        self.within(PLAN, answer).await
    }

    async fn within<T>(&self, limit: Duration, answer: Answer<'_, T>) -> Result<T, Fault> {
        within(&self.pages, limit, answer).await
    }
}

/// An answer that takes a place, within a time that includes the wait for the place.
async fn within<T>(places: &Semaphore, limit: Duration, answer: Answer<'_, T>) -> Result<T, Fault> {
    let late = || Fault::Failed(format!("there was no answer within {} s", limit.as_secs()));
    let read = async {
        // The semaphore is never closed.
        let _place = places.acquire().await.map_err(|_| late())?;
        answer.await
    };
    tokio::time::timeout(limit, read).await.map_err(|_| late())?
}

#[cfg(test)]
mod tests {
    use tokio::time::Instant;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_silent_hub_ends_a_page_and_frees_its_place() {
        let places = Semaphore::new(1);
        let silent = || std::future::pending::<Result<(), Fault>>().boxed();
        let begun = Instant::now();
        let late = within(&places, PAGE, silent()).await;
        assert!(matches!(late, Err(Fault::Failed(_))), "{late:?}");
        assert_eq!(begun.elapsed(), PAGE);
        assert_eq!(places.available_permits(), 1);
        // A page that waits for its place waits no longer than one that has it.
        let _taken = places.acquire().await.unwrap();
        let begun = Instant::now();
        let answered = std::future::ready(Ok(())).boxed();
        assert!(within(&places, PAGE, answered).await.is_err());
        assert_eq!(begun.elapsed(), PAGE);
    }
}
