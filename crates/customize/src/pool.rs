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
    _held: Held,
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
        let job = Job { customizations, request, reply, _held: held };
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
        let Ok(Job { customizations, request, reply, _held }) = job else { return };
        // Nobody waits any more: the caller was cancelled or timed out.
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
