//! Asks the rules of users what an object means. Where none has an answer, the built-in rules of `atoll-interpreter` do.
//!
//! Rules never run on the event loop: jobs ask, and rules run in a bounded pool.

mod breaker;
mod meaning;
mod revision;

use std::sync::Arc;

use atoll_api::Clock;
use atoll_api::customization::RuleFailure;
use atoll_customize::{Failure, Pool, Request, Response, RuleError};
use breaker::Breaker;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde_json::Value;
use tokio::time::Instant;

use crate::index::rules::Rules;
pub(crate) use meaning::Interpreted;
pub(crate) use revision::Revised;

/// Rules that run at the same time. A rule takes about 0.1 ms; one that runs away occupies a thread for a second, and
/// must not stop those of other kinds.
const THREADS: usize = 4;

/// Asks the rules of users.
pub(crate) struct Interpreter {
    pool: Pool,
    breaker: Breaker,
    clock: Clock,
}

/// What the rules of users say.
#[derive(Debug, Default)]
pub(crate) struct Answer {
    /// `None`: the built-in rules have to answer.
    pub(crate) response: Option<Response>,
    /// A rule that failed.
    pub(crate) failed: Option<RuleFailed>,
    /// Too many rules wait: the same question may be answered later.
    pub(crate) is_busy: bool,
    /// The rule was stopped by a limit.
    was_stopped: bool,
}

/// A rule that failed for an object.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct RuleFailed {
    /// Name of the customization.
    pub(crate) customization: String,
    /// Hash of its spec: a failure of an earlier version says nothing about the current one.
    pub(crate) hash: Arc<str>,
    /// What failed.
    pub(crate) failure: RuleFailure,
}

impl Interpreter {
    pub(crate) fn new(clock: Clock) -> Self {
        Self { pool: Pool::new(THREADS), breaker: Breaker::default(), clock }
    }

    /// The answer of users' rules to a question.
    pub(crate) async fn ask(&self, rules: &Rules, request: Request) -> Answer {
        let metadata = request.object()["metadata"].clone();
        match self.pool.answer(rules.compiled(), request).await {
            None => Answer::default(),
            Some(Ok(response)) => Answer { response: Some(response), ..Answer::default() },
            Some(Err(failure)) => Answer {
                is_busy: matches!(failure.error, RuleError::NotRun(_)),
                was_stopped: matches!(failure.error, RuleError::Stopped(_)),
                failed: self.failed(rules, &metadata, failure),
                response: None,
            },
        }
    }

    /// The same for questions whose answers are not kept. A rule that runs away again and again is not asked for a while.
    pub(crate) async fn ask_often(&self, rules: &Rules, request: Request) -> Answer {
        let (operation, compiled) = (request.operation(), rules.compiled());
        let name = compiled.answering(request.object(), operation);
        let Some(hash) = name.and_then(|name| rules.hash(name)) else { return Answer::default() };
        let rule = (hash.clone(), operation);
        if self.breaker.is_open(&rule, Instant::now()) {
            return Answer::default();
        }
        let answer = self.ask(rules, request).await;
        let in_force = |hash: &str| rules.specs().any(|(_, _, held)| **held == *hash);
        self.breaker.ran(&rule, answer.was_stopped, Instant::now(), in_force);
        answer
    }

    fn failed(&self, rules: &Rules, metadata: &Value, failure: Failure) -> Option<RuleFailed> {
        let Failure { customization, operation, error } = failure;
        let text = |field: &str| metadata[field].as_str().map(str::to_owned);
        let name = text("name").unwrap_or_default();
        if matches!(error, RuleError::NotRun(_)) {
            // Load, and no fault of the rule.
            tracing::warn!(%operation, object = name, %error, "a rule was not run");
            return None;
        }
        let hash = rules.hash(&customization)?.clone();
        let failure = RuleFailure {
            operation,
            namespace: text("namespace"),
            name,
            cluster: None,
            message: error.to_string(),
            time: Time(self.clock.now_seconds()),
        };
        Some(RuleFailed { customization, hash, failure })
    }
}
