//! Runs rules on threads of their own, so that an event loop never waits for a script.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use atoll_api::RunsOn;
use tokio::sync::Semaphore;
use tokio::task::JoinError;

use crate::error::{NotRun, RuleError};
use crate::limits;
use crate::request::{Request, Response};
use crate::rules::{Customizations, Failure};

/// Questions that may wait: what four threads answer in about a second.
const QUEUE: usize = 4096;
/// Bytes of objects that may wait.
const QUEUE_BYTES: usize = 64 * 1024 * 1024;

/// Runs a bounded number of rules at a time, on the blocking threads of tokio. Those start when they are needed, so an
/// unused pool costs nothing.
pub struct Pool {
    threads: Arc<Semaphore>,
    waiting: Arc<Waiting>,
    runs_on: RunsOn,
}

type Answer = Option<Result<Response, Failure>>;

/// The questions that wait for a thread.
#[derive(Default)]
struct Waiting {
    entries: AtomicUsize,
    bytes: AtomicUsize,
}

/// The share of one waiting question; given back when it is dropped.
struct Held {
    bytes: usize,
    all: Arc<Waiting>,
}

impl Drop for Held {
    fn drop(&mut self) {
        self.all.entries.fetch_sub(1, Ordering::Relaxed);
        self.all.bytes.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

impl Pool {
    /// A pool that runs at most this many rules at a time.
    #[must_use]
    pub fn new(threads: usize, runs_on: RunsOn) -> Self {
        Self { threads: Arc::new(Semaphore::new(threads.max(1))), waiting: Arc::default(), runs_on }
    }

    /// Runs other work that takes too long for an event loop, whatever the number of threads.
    ///
    /// # Errors
    /// When it panics.
    pub async fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, JoinError> {
        match self.runs_on {
            RunsOn::Thread => tokio::task::spawn_blocking(work).await,
            RunsOn::Task => Ok(work()),
        }
    }

    /// The answer of customizations to a question; `None` if none has a rule for it. A question that cannot run soon
    /// fails, and the next layer answers. A caller that stops waiting does not stop a rule that runs: its limits do.
    pub async fn answer(&self, customizations: &Arc<Customizations>, request: Request) -> Answer {
        let operation = request.operation();
        if !customizations.handles(request.object(), operation) {
            return None;
        }
        let fails = |error: RuleError| {
            Some(Err(Failure { customization: String::new(), operation, error }))
        };
        let not_run = |why: NotRun| fails(RuleError::NotRun(why));
        let Some(held) = self.hold(request.size()) else { return not_run(NotRun::QueueFull) };
        let thread = Arc::clone(&self.threads).acquire_owned();
        let thread = match tokio::time::timeout(limits::WAIT, thread).await {
            Ok(Ok(thread)) => thread,
            Ok(Err(_)) => return not_run(NotRun::Stopping),
            Err(_) => return not_run(NotRun::Waited),
        };
        drop(held);
        let customizations = Arc::clone(customizations);
        let run = self.run(move || {
            let answer = customizations.answer(&request);
            drop(thread);
            answer
        });
        match run.await {
            Ok(answer) => answer,
            // mlua panics where it cannot report an error.
            Err(error) if error.is_panic() => {
                fails(RuleError::Failed("the interpreter failed; this is a bug".to_owned()))
            }
            Err(_) => not_run(NotRun::Stopping),
        }
    }

    /// Reserves an entry and its bytes in the queue.
    fn hold(&self, bytes: usize) -> Option<Held> {
        let held = Held { bytes, all: Arc::clone(&self.waiting) };
        let entries = self.waiting.entries.fetch_add(1, Ordering::Relaxed) + 1;
        let all = self.waiting.bytes.fetch_add(bytes, Ordering::Relaxed) + bytes;
        (entries <= QUEUE && all <= QUEUE_BYTES).then_some(held)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use atoll_api::customization::ResourceInterpreterCustomizationSpec;
    use serde_json::{Value, json};

    use super::*;

    fn customizations() -> Arc<Customizations> {
        let spec: ResourceInterpreterCustomizationSpec = serde_json::from_value(json!({
            "target": {"apiVersion": "a/v1", "kind": "A"},
            "customizations": {
                "healthInterpretation": {"luaScript": "function InterpretHealth(object) return object.well end"},
                "statusReflection": {"luaScript": "function ReflectStatus() while true do end end"},
            },
        }))
        .unwrap();
        Arc::new(Customizations::new([("a", &spec)]))
    }

    fn object(more: Value) -> Arc<Value> {
        let mut object = json!({"apiVersion": "a/v1", "kind": "A", "well": true});
        object["more"] = more;
        Arc::new(object)
    }

    fn not_run(answer: &Answer) -> Option<NotRun> {
        match answer {
            Some(Err(Failure { error: RuleError::NotRun(why), .. })) => Some(*why),
            _ => None,
        }
    }

    #[tokio::test]
    async fn a_pool_answers_and_asks_nothing_without_a_rule() {
        let (pool, rules) = (Pool::new(2, RunsOn::Thread), customizations());
        let health = pool.answer(&rules, Request::Health(object(Value::Null))).await;
        assert_eq!(health, Some(Ok(Response::Healthy(true))));
        assert_eq!(pool.answer(&rules, Request::Replicas(object(Value::Null))).await, None);
    }

    #[tokio::test]
    async fn a_full_queue_fails_at_once_and_the_pool_goes_on() {
        let (pool, rules) = (Arc::new(Pool::new(1, RunsOn::Thread)), customizations());
        let ask = |request: Request| {
            let (pool, rules) = (Arc::clone(&pool), Arc::clone(&rules));
            tokio::spawn(async move { pool.answer(&rules, request).await })
        };
        let large = object("x".repeat(QUEUE_BYTES).into());
        assert_eq!(
            not_run(&pool.answer(&rules, Request::Health(large)).await),
            Some(NotRun::QueueFull)
        );
        // One question keeps the only thread busy while more than fit wait.
        let endless = ask(Request::Reflect(object(Value::Null)));
        let waiting: Vec<_> =
            (0..QUEUE + 100).map(|_| ask(Request::Health(object(Value::Null)))).collect();
        let mut refused = 0;
        for (at, task) in waiting.into_iter().enumerate() {
            if at % 64 == 0 || at >= QUEUE {
                let answer = task.await.unwrap();
                refused += usize::from(not_run(&answer) == Some(NotRun::QueueFull));
            } else {
                // Its caller is gone, so the question is skipped.
                task.abort();
            }
        }
        assert!(refused > 0);
        let stopped = endless.await.unwrap();
        assert!(
            matches!(stopped, Some(Err(Failure { error: RuleError::Stopped(_), .. }))),
            "{stopped:?}"
        );
        let health = pool.answer(&rules, Request::Health(object(Value::Null))).await;
        assert_eq!(health, Some(Ok(Response::Healthy(true))));
        assert_eq!(pool.waiting.bytes.load(Ordering::Relaxed), 0);
    }

    #[tokio::test]
    async fn a_caller_that_does_not_wait_leaves_the_thread_to_others_when_the_rule_stops() {
        let (pool, rules) = (Pool::new(1, RunsOn::Thread), customizations());
        let cancelled = pool.answer(&rules, Request::Reflect(object(Value::Null)));
        assert!(
            tokio::time::timeout(std::time::Duration::from_millis(50), cancelled).await.is_err()
        );
        let health = pool.answer(&rules, Request::Health(object(Value::Null))).await;
        assert_eq!(health, Some(Ok(Response::Healthy(true))));
    }
}
