//! A child process that is stopped by signals and never outlives its test.

use std::process::{Child, Command};
use std::time::{Duration, Instant};

use super::cli;

/// Limit of a stop; the promise is 5 s, the rest is for a slow machine.
const STOP_LIMIT: Duration = Duration::from_secs(20);

/// A running process. Killed when dropped.
pub(crate) struct Process {
    name: String,
    child: Child,
}

impl Process {
    /// Starts it; `name` is for messages.
    pub(crate) fn spawn(name: &str, command: &mut Command) -> Self {
        let child = command.spawn().unwrap_or_else(|error| panic!("start {command:?}: {error}"));
        Self { name: name.to_owned(), child }
    }

    pub(crate) fn child(&mut self) -> &mut Child {
        &mut self.child
    }

    /// Sends a signal that does not end the process.
    pub(crate) fn send(&mut self, signal: &str) {
        cli::run(Command::new("kill").args([signal, &self.child.id().to_string()]));
    }

    /// Sends a signal and waits for the exit; returns the duration and the exit code.
    pub(crate) fn signal(mut self, signal: &str) -> (Duration, Option<i32>) {
        let started = Instant::now();
        let pid = self.child.id().to_string();
        cli::run(Command::new("kill").args([signal, &pid]));
        let (done, wait_done) = std::sync::mpsc::channel();
        std::thread::scope(|scope| {
            let child = &mut self.child;
            scope.spawn(move || done.send(child.wait().unwrap().code()));
            match wait_done.recv_timeout(STOP_LIMIT) {
                Ok(code) => (started.elapsed(), code),
                Err(_) => {
                    cli::run(Command::new("kill").args(["-9", &pid]));
                    panic!("{} did not stop within {STOP_LIMIT:?} of kill {signal}", self.name)
                }
            }
        })
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
