//! Calls webhooks that say what kinds mean: within limits of time, size and number, and not while one does not answer.

mod breaker;
mod metrics;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use atoll_api::hex;
use atoll_api::interpreter_webhook::InterpreterWebhook;
use atoll_customize::context::Call;
use atoll_customize::{Request, Response, RuleError};
use atoll_http::client::JsonClient;
use bytes::Bytes;
use http::Uri;
use ring::rand::{SecureRandom, SystemRandom};
use tokio::sync::Semaphore;
use tokio::time::{Instant, timeout};

use crate::index::rules::{RuleSource, Rules};
use crate::index::webhooks::Hook;
pub(crate) use breaker::WebhookTimes;
use breaker::{Breaker, Open};
use metrics::Labels;
pub(crate) use metrics::WebhookMetrics;

/// Calls at the same time. Fewer than the jobs that may ask rules, so that slow webhooks leave room for other kinds.
const MOST_CALLS: usize = 12;
/// Of them, calls to one webhook.
const MOST_CALLS_TO_ONE: usize = 4;
/// How long a question waits for its turn before its job makes room for others.
const TURN: Duration = Duration::from_millis(50);
/// Largest answer, in bytes. Objects are at most 1.5 MiB, and a patch may replace all of one, encoded in base64.
const MOST_BYTES: usize = 4 * 1024 * 1024;

/// Result of a call.
#[derive(Debug)]
pub(super) enum Called {
    /// The webhook answered; `news`: it did not before.
    Answered { result: Result<Response, RuleError>, news: bool },
    /// It did not.
    Unreachable(String),
    /// Too many calls are open.
    Busy,
}

/// Calls webhooks.
pub(crate) struct WebhookCaller {
    pub(crate) times: WebhookTimes,
    metrics: WebhookMetrics,
    calls: Semaphore,
    servers: Mutex<BTreeMap<RuleSource, Arc<Server>>>,
    random: SystemRandom,
}

/// The server of a webhook.
struct Server {
    /// Hash of the webhook: connections and failures are those of the same settings.
    hash: Arc<str>,
    /// Where it is; the error names the field that is wrong.
    target: Result<Target, String>,
    calls: Semaphore,
    breaker: Mutex<Breaker>,
}

struct Target {
    client: JsonClient,
    url: Uri,
    api_version: &'static str,
    limit: Duration,
}

impl Target {
    fn of(webhook: &InterpreterWebhook) -> Result<Self, String> {
        if let Some(problem) = webhook.problems().first() {
            return Err(problem.to_string());
        }
        let text = |problem: atoll_api::customization::RuleProblem| problem.to_string();
        let url = webhook.client_config.address().map_err(text)?;
        let authorities = webhook.client_config.authorities().map_err(text)?;
        let version = webhook.context_version();
        let version = version.ok_or("interpreterContextVersions: none is known")?;
        Ok(Self {
            client: JsonClient::new(&authorities).map_err(|error| {
                let cause = std::error::Error::source(&error).map(ToString::to_string);
                let cause = cause.map(|cause| format!(": {cause}")).unwrap_or_default();
                format!("clientConfig.caBundle: {error}{cause}")
            })?,
            url: url.parse().map_err(|error| format!("clientConfig: {url:?}: {error}"))?,
            api_version: version.api_version(),
            limit: Duration::from_secs(webhook.timeout_seconds().into()),
        })
    }
}

/// Why a webhook cannot be called, with the field.
pub(crate) fn problem(webhook: &InterpreterWebhook) -> Option<String> {
    Target::of(webhook).err()
}

/// A call that began. If its caller does not wait for the end, the breaker has to know.
struct Begun<'a>(Option<&'a Server>);

impl Drop for Begun<'_> {
    fn drop(&mut self) {
        if let Some(server) = self.0 {
            server.breaker().abandoned();
        }
    }
}

impl Server {
    fn breaker(&self) -> MutexGuard<'_, Breaker> {
        self.breaker.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl WebhookCaller {
    pub(crate) fn new(times: WebhookTimes, metrics: WebhookMetrics) -> Self {
        Self {
            times,
            metrics,
            calls: Semaphore::new(MOST_CALLS),
            servers: Mutex::default(),
            random: SystemRandom::new(),
        }
    }

    /// Asks a webhook.
    pub(super) async fn call(&self, hook: &Hook, request: &Request) -> Called {
        let server = self.server(hook);
        let target = match &server.target {
            Ok(target) => target,
            Err(why) => {
                let result = Err(RuleError::Failed(why.clone()));
                return Called::Answered { result, news: false };
            }
        };
        let labels = Labels::of(hook, request.operation());
        let begun = server.breaker().begin(Instant::now());
        if let Err(open) = begun {
            self.metrics.ended(labels, "refused", None);
            return Called::Unreachable(refusal(&open));
        }
        let mut begun = Begun(Some(&server));
        // Its own limit first: questions that wait for a slow webhook take no room from others.
        let turn = async { (server.calls.acquire().await, self.calls.acquire().await) };
        let Ok((Ok(_one), Ok(_all))) = timeout(TURN, turn).await else {
            self.metrics.ended(labels, "busy", None);
            return Called::Busy;
        };
        let started = Instant::now();
        let (uid, sent) = self.send(target, request).await;
        begun.0 = None;
        let took = Some(started.elapsed());
        match sent {
            Err(error) => {
                server.breaker().failed(&error, self.times, Instant::now());
                self.metrics.ended(labels.clone(), "unreachable", took);
                self.metrics.open(labels, server.breaker().is_open());
                Called::Unreachable(error)
            }
            Ok(text) => {
                let call = Call { uid: &uid, api_version: target.api_version };
                let result = call.answer(request, &text);
                let news = server.breaker().answered();
                let label = if result.is_ok() { "answered" } else { "unusable" };
                self.metrics.ended(labels.clone(), label, took);
                self.metrics.open(labels, false);
                Called::Answered { result, news }
            }
        }
    }

    /// Sends a question. Returns its id, and the answer as text.
    async fn send(&self, target: &Target, request: &Request) -> (String, Result<Bytes, String>) {
        let uid = match self.uid() {
            Ok(uid) => uid,
            Err(error) => return (String::new(), Err(error)),
        };
        let call = Call { uid: &uid, api_version: target.api_version };
        let body = Bytes::from(call.question(request).to_string());
        let answer = timeout(target.limit, target.client.post(&target.url, body, MOST_BYTES)).await;
        let answer = match answer {
            Ok(answer) => answer.map_err(|error| error.to_string()),
            Err(_) => Err(format!("no answer within {} s", target.limit.as_secs())),
        };
        (uid, answer)
    }

    /// An id that no other call has.
    fn uid(&self) -> Result<String, String> {
        let mut bytes = [0; 16];
        self.random.fill(&mut bytes).map_err(|_| "no random numbers".to_owned())?;
        let hex = hex::encode(&bytes);
        let parts = [&hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..]];
        Ok(parts.join("-"))
    }

    fn servers(&self) -> MutexGuard<'_, BTreeMap<RuleSource, Arc<Server>>> {
        self.servers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The server of a webhook.
    fn server(&self, hook: &Hook) -> Arc<Server> {
        let mut servers = self.servers();
        let source = RuleSource::from(hook);
        if let Some(server) = servers.get(&source).filter(|server| server.hash == hook.hash) {
            return server.clone();
        }
        let server = Arc::new(Server {
            hash: hook.hash.clone(),
            target: Target::of(&hook.webhook),
            calls: Semaphore::new(MOST_CALLS_TO_ONE),
            breaker: Mutex::default(),
        });
        servers.insert(source, server.clone());
        server
    }

    /// Drops the servers of webhooks that changed or were deleted, and their gauges.
    pub(crate) fn forget_old(&self, rules: &Rules) {
        self.servers().retain(|source, server| {
            let keep = rules.hash_of(source) == Some(&server.hash);
            if !keep {
                self.metrics.closed(source);
            }
            keep
        });
    }

    /// A leadership begins: the first answer of each webhook is news again, because another leader may have written a
    /// failure into its status.
    pub(crate) fn begin_term(&self) {
        self.servers().values().for_each(|server| server.breaker().begin_term());
    }
}

fn refusal(open: &Open) -> String {
    let Open { failed, last_error, wait } = open;
    format!(
        "it is not called for {} s, because {failed} calls in a row failed, the last one with: {last_error}",
        wait.as_secs().max(1)
    )
}
