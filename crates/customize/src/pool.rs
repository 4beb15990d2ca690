//! Threads that run rules, so that an event loop never waits for a script.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use tokio::sync::oneshot;

use crate::error::{NotRun, RuleError};
use crate::limits;
use crate::request::{Request, Response};
use crate::rules::{Customizations, Failure};

/// Questions that may wait: what four threads answer in about a second.
const QUEUE: usize = 4096;
/// Bytes of objects that may wait.
const QUEUE_BYTES: usize = 64 * 1024 * 1024;

/// A fixed number of threads that run rules. Dropping it ends the threads after the rules that they are running.
pub struct Pool {
    sender: Option<SyncSender<Job>>,
    waiting_bytes: Arc<AtomicUsize>,
    threads: Vec<JoinHandle<()>>,
}

type Answer = Option<Result<Response, Failure>>;

struct Job {
    customizations: Arc<Customizations>,
    request: Request,
    reply: oneshot::Sender<Answer>,
    held: Held,
}

/// Bytes of a waiting question; given back when it is dropped.
struct Held {
    bytes: usize,
    all: Arc<AtomicUsize>,
}

impl Drop for Held {
    fn drop(&mut self) {
        self.all.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

impl Pool {
    /// Starts the threads.
    ///
    /// # Errors
    /// The system cannot start a thread.
    pub fn new(threads: usize) -> std::io::Result<Self> {
        let (sender, receiver) = sync_channel(QUEUE);
        let receiver = Arc::new(Mutex::new(receiver));
        let start = |at: usize| {
            let receiver = Arc::clone(&receiver);
            let builder = std::thread::Builder::new().name(format!("customize-{at}"));
            builder.spawn(move || work(&receiver))
        };
        Ok(Self {
            sender: Some(sender),
            waiting_bytes: Arc::default(),
            threads: (0..threads.max(1)).map(start).collect::<Result<_, _>>()?,
        })
    }

    /// The answer of customizations to a question; `None` if none has a rule for it. A question that cannot run soon
    /// fails, and the next layer answers.
    pub async fn answer(&self, customizations: &Arc<Customizations>, request: Request) -> Answer {
        let operation = request.operation();
        if !customizations.handles(request.object(), operation) {
            return None;
        }
        let not_run = |why: NotRun| {
            let error = RuleError::NotRun(why);
            Some(Err(Failure { customization: String::new(), operation, error }))
        };
        let (reply, answer) = oneshot::channel();
        let Some(held) = self.hold(request.size()) else { return not_run(NotRun::QueueFull) };
        let customizations = Arc::clone(customizations);
        let job = Job { customizations, request, reply, held };
        match self.sender.as_ref().map(|sender| sender.try_send(job)) {
            Some(Ok(())) => {}
            Some(Err(_)) => return not_run(NotRun::QueueFull),
            None => return not_run(NotRun::Stopping),
        }
        match tokio::time::timeout(limits::WAIT + limits::TIME, answer).await {
            Ok(Ok(answer)) => answer,
            Ok(Err(_)) => not_run(NotRun::Stopping),
            Err(_) => not_run(NotRun::Waited),
        }
    }

    /// Reserves bytes of the queue.
    fn hold(&self, bytes: usize) -> Option<Held> {
        let held = Held { bytes, all: Arc::clone(&self.waiting_bytes) };
        let before = self.waiting_bytes.fetch_add(bytes, Ordering::Relaxed);
        (before + bytes <= QUEUE_BYTES).then_some(held)
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.sender = None;
        for thread in self.threads.drain(..) {
            // A thread catches the panics of rules, so it cannot have panicked; its result is empty.
            let _ended = thread.join();
        }
    }
}

fn work(receiver: &Mutex<Receiver<Job>>) {
    loop {
        let job = receiver.lock().unwrap_or_else(PoisonError::into_inner).recv();
        let Ok(Job { customizations, request, reply, held }) = job else { return };
        drop(held);
        // The caller was cancelled or timed out.
        if reply.is_closed() {
            continue;
        }
        let operation = request.operation();
        // mlua panics where it cannot report an error; the thread must survive that.
        let answer = catch_unwind(AssertUnwindSafe(|| customizations.answer(&request)));
        let answer = answer.unwrap_or_else(|_| {
            let error = RuleError::Failed("the interpreter failed; this is a bug".to_owned());
            Some(Err(Failure { customization: String::new(), operation, error }))
        });
        // The caller may have gone meanwhile.
        let _gone = reply.send(answer);
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::time::Instant;

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
        let (pool, rules) = (Pool::new(2).unwrap(), customizations());
        let health = pool.answer(&rules, Request::Health(object(Value::Null))).await;
        assert_eq!(health, Some(Ok(Response::Healthy(true))));
        assert_eq!(pool.answer(&rules, Request::Replicas(object(Value::Null))).await, None);
    }

    #[tokio::test]
    async fn a_full_queue_fails_at_once_and_the_pool_goes_on() {
        let (pool, rules) = (Arc::new(Pool::new(1).unwrap()), customizations());
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
        assert_eq!(pool.waiting_bytes.load(Ordering::Relaxed), 0);
    }

    #[tokio::test]
    async fn a_pool_that_is_dropped_ends_its_threads() {
        let started = Instant::now();
        let (pool, rules) = (Pool::new(2).unwrap(), customizations());
        let cancelled = pool.answer(&rules, Request::Reflect(object(Value::Null)));
        assert!(
            tokio::time::timeout(std::time::Duration::from_millis(50), cancelled).await.is_err()
        );
        drop(pool);
        assert!(started.elapsed() < std::time::Duration::from_secs(10));
    }
}
