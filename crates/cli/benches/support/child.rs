//! This program once more, in another role: told what to do by lines, answering by lines of JSON.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use serde_json::Value;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::sync::mpsc;
use tokio::time::timeout;

/// In the environment of this program: what it is.
pub(crate) const ROLE: &str = "ATOLL_BENCH_ROLE";
/// Longest wait for an answer: something is broken after that.
const LIMIT: Duration = Duration::from_secs(300);
/// File descriptors of a child: one for each member, and some.
const DESCRIPTORS: u32 = 20_000;

pub(crate) struct Process {
    child: Child,
    stdin: ChildStdin,
    answers: Lines<BufReader<ChildStdout>>,
}

impl Process {
    /// Starts it.
    pub(crate) fn start(role: &str, settings: &BTreeMap<&str, String>) -> Self {
        let mut command = with_descriptors(&std::env::current_exe().unwrap());
        command.env(ROLE, role).envs(settings).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.kill_on_drop(true).spawn().unwrap();
        let stdin = child.stdin.take().unwrap();
        let answers = BufReader::new(child.stdout.take().unwrap()).lines();
        Self { child, stdin, answers }
    }

    /// Says one thing and waits for the answer.
    pub(crate) async fn ask(&mut self, command: &str) -> Value {
        self.stdin.write_all(format!("{command}\n").as_bytes()).await.unwrap();
        let line = timeout(LIMIT, self.answers.next_line()).await;
        let line = line.unwrap_or_else(|_| panic!("no answer to `{command}` within {LIMIT:?}"));
        let line = line.unwrap().unwrap_or_else(|| panic!("it ended on `{command}`"));
        serde_json::from_str(&line).unwrap()
    }

    /// Its number, for [`resident_kib`] and [`cpu_ms`].
    pub(crate) fn id(&self) -> u32 {
        self.child.id().unwrap()
    }

    /// Lets it end: it reads to the end of its input.
    pub(crate) async fn end(self) {
        let Self { mut child, stdin, .. } = self;
        drop(stdin);
        child.wait().await.unwrap();
    }

    /// As with kill -9.
    pub(crate) async fn kill(mut self) {
        self.child.kill().await.unwrap();
    }
}

/// A program with enough file descriptors for one connection with each member. The shell in between raises the limit,
/// which a program cannot do for itself without unsafe code.
pub(crate) fn with_descriptors(program: &Path) -> Command {
    let mut command = Command::new("sh");
    command.arg("-c").arg(format!("ulimit -n {DESCRIPTORS}; exec \"$0\" \"$@\"")).arg(program);
    command
}

/// A setting that [`Process::start`] was given.
pub(crate) fn setting(name: &str) -> String {
    std::env::var(name).unwrap_or_else(|_| panic!("{name} is not set"))
}

/// Answers every line of standard input by what `answer` makes of its words, until there are no more.
pub(crate) async fn answer(mut answer: impl AsyncFnMut(&[&str]) -> Value) {
    let (sender, mut lines) = mpsc::channel(1);
    std::thread::spawn(move || {
        for line in std::io::stdin().lines() {
            sender.blocking_send(line.unwrap()).unwrap();
        }
    });
    while let Some(line) = lines.recv().await {
        let words: Vec<_> = line.split_whitespace().collect();
        println!("{}", answer(&words).await);
    }
}

/// Resident memory of a process, in KiB.
pub(crate) fn resident_kib(process: u32) -> u64 {
    memory_kib(process, "VmRSS")
}

/// A figure of a process's memory as the kernel names it, in KiB: `RssAnon` is what it allocated, `RssFile` what it uses of
/// its program and libraries.
pub(crate) fn memory_kib(process: u32, figure: &str) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).unwrap();
    let line = status.lines().find(|line| line.split(':').next() == Some(figure)).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

/// CPU time of a process, user and system.
pub(crate) fn cpu_ms(process: u32) -> u64 {
    atoll_envtest::cpu_of(process).as_millis() as u64
}
