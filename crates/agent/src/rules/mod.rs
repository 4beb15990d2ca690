//! The rules of users (ResourceInterpreterCustomization) that concern agents: what a member keeps when an object is
//! applied, how healthy an object is, and which part of its status is reported.
//!
//! The controller sends their texts. They run on the threads of a bounded pool, never on the engine's task, and at most
//! one of each kind and operation at a time, so that a rule that runs away delays only its own kind. Where a rule fails,
//! the built-in rules answer and the controller gets a report; only an apply is not carried out without the rule that says
//! what the member keeps.

mod breaker;
mod failures;
mod received;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use atoll_api::RunsOn;
use atoll_api::customization::Operation;
use atoll_customize::{Failure, Pool, Request, Response, RuleError};
use atoll_protocol::v1;
use serde_json::Value;
use tokio::time::Instant;

use crate::key::Key;
use breaker::Breaker;
use failures::Failures;
use received::{InForce, Texts};

pub(crate) use received::{Changed, TextError, VersionKind};

/// Rules that run at the same time. A rule takes about 0.1 ms; one that runs away takes a thread for a second.
const THREADS: usize = 2;
/// Fields of `metadata` that only an API server writes, whatever a rule returns.
const SERVER_FIELDS: [&str; 5] =
    ["managedFields", "resourceVersion", "uid", "generation", "creationTimestamp"];

/// The rules in force, and the pool that runs them.
pub(crate) struct UserRules {
    pool: Pool,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    texts: Texts,
    in_force: InForce,
    breakers: BTreeMap<(VersionKind, Operation), Arc<tokio::sync::Mutex<Breaker>>>,
    failures: Failures,
}

/// How the state of an object is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reading {
    /// By the built-in rules.
    BuiltIn,
    /// By the built-in rules, with the whole status: the text of the kind's rules is missing.
    Raw,
    /// By rules of users.
    Rules,
}

/// The answer of users' rules.
#[derive(Debug)]
pub(crate) enum Asked {
    /// No customization has a rule for it.
    NoRule,
    /// The answer.
    Answer(Response),
    /// The rule failed; the controller gets a report.
    Failed(String),
    /// The rule did not run, for lack of a thread.
    NotRun(String),
}

/// The member keeps fields of an object by a rule that did not answer.
#[derive(Debug, thiserror::Error)]
#[error("the rule about the fields that the member keeps {0}; nothing is applied")]
pub struct RetentionFailed(String);

impl UserRules {
    /// No rules. The pool's threads start when a rule runs first.
    pub(crate) fn new(runs_on: RunsOn) -> Self {
        Self { pool: Pool::new(THREADS, runs_on), state: Mutex::default() }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Stores a text of the controller. It is used from the next list on.
    pub(crate) fn take_text(&self, text: &v1::RuleText) -> Result<(), TextError> {
        self.lock().texts.add(text)
    }

    /// Replaces the list of customizations.
    pub(crate) fn take_list(&self, list: v1::Customizations) -> Changed {
        let mut state = self.lock();
        let now = state.texts.in_force(list);
        let changed = now.changed_since(&state.in_force);
        state.failures.keep(&now.hashes);
        // A new text gets a new chance.
        state.breakers.retain(|(kind, _), _| !changed.kinds.contains(kind));
        state.in_force = now;
        changed
    }

    /// How an object's state is read.
    pub(crate) fn reading(&self, object: &Value) -> Reading {
        let state = self.lock();
        if state.in_force.hashes.is_empty() {
            return Reading::BuiltIn;
        }
        let rules = &state.in_force.rules;
        if state.in_force.raw.contains(&VersionKind::of(object)) {
            Reading::Raw
        } else if rules.handles(object, Operation::InterpretHealth)
            || rules.handles(object, Operation::InterpretStatus)
        {
            Reading::Rules
        } else {
            Reading::BuiltIn
        }
    }

    /// Asks the rules about an object.
    pub(crate) async fn ask(&self, key: &Key, request: Request) -> Asked {
        let operation = request.operation();
        let kind = VersionKind::of(request.object());
        let (rules, breaker) = {
            let mut state = self.lock();
            let rules = Arc::clone(&state.in_force.rules);
            if !rules.handles(request.object(), operation) {
                return Asked::NoRule;
            }
            (rules, Arc::clone(state.breakers.entry((kind, operation)).or_default()))
        };
        // Held while the rule runs: one run at a time.
        let mut breaker = breaker.lock().await;
        if !breaker.is_closed(Instant::now()) {
            return Asked::Failed(
                "is paused, because it used up its limits several times".to_owned(),
            );
        }
        match self.pool.answer(&rules, request).await {
            None => Asked::NoRule,
            Some(Ok(response)) => {
                breaker.ran(false, Instant::now());
                Asked::Answer(response)
            }
            Some(Err(Failure { error: RuleError::NotRun(why), .. })) => {
                Asked::NotRun(format!("did not run: {why}"))
            }
            Some(Err(failure)) => {
                let away = matches!(failure.error, RuleError::Stopped(_));
                breaker.ran(away, Instant::now());
                self.failed(key, &failure);
                Asked::Failed(failure.error.to_string())
            }
        }
    }

    /// The desired object with the fields that the member keeps, by users' rules or else by the built-in ones; `None` if
    /// it keeps nothing.
    ///
    /// # Errors
    /// A user's rule did not answer. Then nothing may be applied: the member's values would be lost.
    pub(crate) async fn retain(
        &self,
        key: &Key,
        desired: &Value,
        observed: &Value,
    ) -> Result<Option<Value>, RetentionFailed> {
        if self.lock().in_force.rules.handles(desired, Operation::Retain) {
            let request = Request::Retain {
                desired: Arc::new(desired.clone()),
                observed: Arc::new(without_managers(observed)),
            };
            match self.ask(key, request).await {
                Asked::Answer(Response::Object(object)) => {
                    return Ok(Some(object_only(object, desired)));
                }
                Asked::Failed(why) | Asked::NotRun(why) => return Err(RetentionFailed(why)),
                Asked::NoRule | Asked::Answer(_) => {}
            }
        }
        Ok(atoll_interpreter::retained(desired, observed).unwrap_or_else(|error| {
            // Only for a manifest that the member's API server rejects too.
            tracing::warn!(%key, %error, "cannot tell which fields the member keeps");
            None
        }))
    }

    fn failed(&self, key: &Key, failure: &Failure) {
        let mut state = self.lock();
        tracing::info!(%key, error = %failure, "a rule of a customization failed");
        // The rules may have been replaced meanwhile.
        let Some(hash) = state.in_force.hashes.get(&failure.customization).cloned() else { return };
        let operation = match failure.operation {
            Operation::Retain => v1::RuleOperation::Retention,
            Operation::InterpretStatus => v1::RuleOperation::StatusReflection,
            Operation::InterpretHealth => v1::RuleOperation::HealthInterpretation,
            _ => v1::RuleOperation::Unspecified,
        };
        state.failures.note(v1::RuleFailure {
            customization: failure.customization.clone(),
            hash,
            operation: operation.into(),
            key: Some(key.to_wire()),
            message: failure.error.to_string(),
        });
    }

    /// Failures to report now.
    pub(crate) fn take_failures(&self, now: Instant) -> Vec<v1::RuleFailure> {
        self.lock().failures.take(now)
    }

    /// When there will be failures to report.
    pub(crate) fn next_failure(&self, now: Instant) -> Option<Instant> {
        self.lock().failures.next(now)
    }

    /// A session begins: its controller gets every failure again.
    pub(crate) fn repeat_failures(&self) {
        self.lock().failures.repeat();
    }
}

/// An object without `managedFields`, as rules see it.
pub(crate) fn without_managers(object: &Value) -> Value {
    let mut object = object.clone();
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.remove("managedFields");
    }
    object
}

/// What a rule returned, without what an apply cannot set: a rule may return the member's object as it is.
fn object_only(mut object: Value, desired: &Value) -> Value {
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        for field in SERVER_FIELDS {
            metadata.remove(field);
        }
    }
    if let Some(fields) = object.as_object_mut()
        && desired.get("status").is_none()
    {
        fields.remove("status");
    }
    object
}
