//! Asks the rules of users what an object means: customizations first, then webhooks. Where none has an answer, the
//! built-in rules of `atoll-interpreter` do.
//!
//! Rules never run on the event loop: jobs ask. Customizations run in a bounded pool, and calls of webhooks have limits
//! (`webhooks`).

mod breaker;
mod meaning;
mod reading;
mod revision;
pub(crate) mod webhooks;

use std::sync::Arc;

use atoll_api::customization::RuleFailure;
use atoll_api::{Clock, RunsOn};
use atoll_customize::{Failure, Pool, Request, Response, RuleError};
use breaker::Breaker;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde_json::Value;
use tokio::time::Instant;
use webhooks::{Called, WebhookCaller};

use crate::index::rules::{DECIDING, RuleSource, Rules};
use crate::index::webhooks::Hook;
pub(crate) use meaning::Interpreted;
pub(crate) use reading::ReportRead;
pub(crate) use revision::Revised;

/// Rules that run at the same time. A rule takes about 0.1 ms; one that runs away occupies a thread for a second, and
/// must not stop those of other kinds.
const THREADS: usize = 4;

/// Asks the rules of users.
pub(crate) struct Interpreter {
    pool: Pool,
    breaker: Breaker,
    webhooks: WebhookCaller,
    clock: Clock,
}

/// What the rules of users say.
#[derive(Debug, Default)]
pub(crate) struct Answer {
    /// `None`: the built-in rules have to answer, unless `is_busy` or `unreachable`.
    pub(crate) response: Option<Response>,
    /// What is to be shown of the rules that were asked.
    pub(crate) news: Vec<RuleNews>,
    /// Too many rules wait: the same question may be answered later.
    pub(crate) is_busy: bool,
    /// The webhook did not answer: the same question may be answered when it is reachable again.
    pub(crate) unreachable: bool,
    /// The rule was stopped by a limit.
    was_stopped: bool,
}

/// What became known of a rule.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum RuleNews {
    /// It failed.
    Failed(RuleFailed),
    /// A webhook answers, which did not before or was not asked yet. With its hash.
    Reached(RuleSource, Arc<str>),
}

/// A rule that failed for an object.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct RuleFailed {
    /// What has the rule.
    pub(crate) source: RuleSource,
    /// Hash of it: a failure of an earlier version says nothing about the current one.
    pub(crate) hash: Arc<str>,
    /// A webhook that did not answer.
    pub(crate) unreachable: bool,
    /// What failed.
    pub(crate) failure: RuleFailure,
}

impl Interpreter {
    pub(crate) fn new(clock: Clock, runs_on: RunsOn, webhooks: WebhookCaller) -> Self {
        Self { pool: Pool::new(THREADS, runs_on), breaker: Breaker::default(), webhooks, clock }
    }

    /// Runs work that takes too long for the event loop.
    ///
    /// # Errors
    /// When it panics.
    pub(crate) async fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, tokio::task::JoinError> {
        self.pool.run(work).await
    }

    /// Drops what is known of webhooks that changed or were deleted.
    pub(crate) fn forget_old(&self, rules: &Rules) {
        self.webhooks.forget_old(rules);
    }

    /// A leadership begins.
    pub(crate) fn begin_term(&self) {
        self.webhooks.begin_term();
    }

    /// After what time a webhook is asked again about an object for which it did not answer.
    pub(crate) fn ask_again_after(&self) -> std::time::Duration {
        self.webhooks.times.again
    }

    /// The answer of users' rules to a question. If a customization fails at an operation in [`DECIDING`], no webhook is
    /// asked, and what was committed stays. At other operations the webhook answers instead.
    pub(crate) async fn ask(&self, rules: &Rules, request: Request) -> Answer {
        let operation = request.operation();
        let mut answer = Answer::default();
        if rules.compiled().handles(request.object(), operation) {
            answer = self.ask_customizations(rules, request.clone()).await;
            if answer.response.is_some() || answer.is_busy || DECIDING.contains(&operation) {
                return answer;
            }
        }
        let from_hook = self.ask_webhooks(rules, &request).await;
        answer.news.extend(from_hook.news);
        Answer { news: answer.news, was_stopped: answer.was_stopped, ..from_hook }
    }

    /// The answer of the webhook for this question, if there is one.
    async fn ask_webhooks(&self, rules: &Rules, request: &Request) -> Answer {
        match rules.webhooks().asked(request.object(), request.operation()) {
            Some(hook) => self.ask_webhook(hook, request).await,
            None => Answer::default(),
        }
    }

    async fn ask_customizations(&self, rules: &Rules, request: Request) -> Answer {
        let metadata = request.object()["metadata"].clone();
        match self.pool.answer(rules.compiled(), request).await {
            None => Answer::default(),
            Some(Ok(response)) => Answer { response: Some(response), ..Answer::default() },
            Some(Err(failure)) => Answer {
                is_busy: matches!(failure.error, RuleError::NotRun(_)),
                was_stopped: matches!(failure.error, RuleError::Stopped(_)),
                news: self.failed(rules, &metadata, failure).into_iter().collect(),
                ..Answer::default()
            },
        }
    }

    async fn ask_webhook(&self, hook: &Hook, request: &Request) -> Answer {
        let failed = |message: String, unreachable: bool| {
            let metadata = &request.object()["metadata"];
            let failure = self.failure(metadata, request.operation(), message);
            let (source, hash) = (RuleSource::from(hook), hook.hash.clone());
            RuleNews::Failed(RuleFailed { source, hash, unreachable, failure })
        };
        match self.webhooks.call(hook, request).await {
            Called::Busy => Answer { is_busy: true, ..Answer::default() },
            Called::Unreachable(why) => {
                Answer { news: vec![failed(why, true)], unreachable: true, ..Answer::default() }
            }
            Called::Answered { result, news } => {
                let reached = || RuleNews::Reached(RuleSource::from(hook), hook.hash.clone());
                let mut all: Vec<_> = news.then(reached).into_iter().collect();
                let response = result.map_err(|error| all.push(failed(error.to_string(), false)));
                Answer { response: response.ok(), news: all, ..Answer::default() }
            }
        }
    }

    /// The same for questions whose answers are not kept. A rule of a customization that was stopped at its limits several
    /// times in a row is not asked for a while; the webhook answers instead.
    pub(crate) async fn ask_often(&self, rules: &Rules, request: Request) -> Answer {
        let (operation, compiled) = (request.operation(), rules.compiled());
        let name = compiled.answering(request.object(), operation);
        let Some(hash) = name.and_then(|name| rules.hash(name)) else {
            return self.ask(rules, request).await;
        };
        let rule = (hash.clone(), operation);
        if self.breaker.is_open(&rule, Instant::now()) {
            return self.ask_webhooks(rules, &request).await;
        }
        let answer = self.ask(rules, request).await;
        let in_force = |hash: &str| rules.specs().any(|(_, _, held)| **held == *hash);
        self.breaker.ran(&rule, answer.was_stopped, Instant::now(), in_force);
        answer
    }

    fn failed(&self, rules: &Rules, metadata: &Value, failure: Failure) -> Option<RuleNews> {
        let Failure { customization, operation, error } = failure;
        if matches!(error, RuleError::NotRun(_)) {
            // Load, and no fault of the rule.
            let object = metadata["name"].as_str().unwrap_or_default();
            tracing::warn!(%operation, object, %error, "a rule was not run");
            return None;
        }
        let hash = rules.hash(&customization)?.clone();
        let failure = self.failure(metadata, operation, error.to_string());
        let source = RuleSource::Customization(customization);
        Some(RuleNews::Failed(RuleFailed { source, hash, unreachable: false, failure }))
    }

    fn failure(
        &self,
        metadata: &Value,
        operation: atoll_api::customization::Operation,
        message: String,
    ) -> RuleFailure {
        let text = |field: &str| metadata[field].as_str().map(str::to_owned);
        RuleFailure {
            operation,
            namespace: text("namespace"),
            name: text("name").unwrap_or_default(),
            cluster: None,
            message,
            time: Time(self.clock.now_seconds()),
        }
    }
}
