//! A running process, read line by line.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::sync::mpsc::{Receiver, channel};

use super::process::Process;
use super::wait::LIMIT;

/// The output lines of a running process.
pub(crate) struct Lines {
    lines: Receiver<String>,
    _process: Process,
}

impl Lines {
    /// Runs a command and reads what it prints. `name` is for messages.
    pub(crate) fn of(name: &str, mut command: Command) -> Self {
        command.stdin(Stdio::null()).stdout(Stdio::piped());
        let mut process = Process::spawn(name, &mut command);
        let stdout = process.child().stdout.take().unwrap();
        let (send, lines) = channel();
        std::thread::spawn(move || {
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                if send.send(line).is_err() {
                    return;
                }
            }
        });
        Self { lines, _process: process }
    }

    /// Waits for a line that contains all of these parts.
    pub(crate) fn until(&self, parts: &[&str]) -> String {
        let mut seen = Vec::new();
        loop {
            match self.lines.recv_timeout(LIMIT) {
                Ok(line) if parts.iter().all(|part| line.contains(part)) => return line,
                Ok(line) => seen.push(line),
                Err(error) => panic!("no line with {parts:?}: {error}; there were {seen:#?}"),
            }
        }
    }

    /// The next line.
    pub(crate) fn next(&self) -> String {
        self.lines.recv_timeout(LIMIT).expect("another line")
    }
}
