//! New lines of all pods as they are written.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use anyhow::bail;
use atoll_api::Backoff;
use jiff::Timestamp;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use super::line::{self, Line, Prefixes};
use super::pods::{Pod, Target};
use super::{Part, warn};
use crate::print;
use crate::reach::{Failure, Member};

/// Lines that wait to be printed; a log that is ahead waits.
const QUEUED: usize = 256;
/// How often a member is asked for new pods.
const LOOK: Duration = Duration::from_secs(2);
/// Waits after failures of a member.
const RETRY: Backoff = Backoff { first: Duration::from_secs(1), most: Duration::from_secs(15) };
/// Logs of one member that are followed at the same time, below the limit of open requests of one user.
const MOST: usize = 100;

/// What the tasks of members report.
enum Report {
    Line(String),
    /// A member was asked for the first time.
    Asked {
        member: String,
        pods: Result<usize, Failure>,
    },
    /// The log of the single pod has ended.
    Ended,
}

/// Prints lines until the logs end: those of a single pod do, others go on until the user ends the program. Returns the
/// members that could not be read at the beginning.
pub(super) async fn run(
    members: &[Member],
    target: &Target,
    part: &Part,
    prefixes: &Prefixes,
) -> anyhow::Result<Vec<String>> {
    let (reports, mut received) = mpsc::channel(QUEUED);
    let following = members.iter().map(|member| {
        MemberTask { member, target, part, prefixes, reports: reports.clone() }.run()
    });
    let following = futures::future::join_all(following);
    let single = matches!(target, Target::Pod { .. });
    let printing = async {
        let (mut failed, mut pods, mut unasked) = (Vec::new(), 0, members.len());
        // Members whose logs go on.
        let mut left = members.len();
        while let Some(report) = received.recv().await {
            match report {
                Report::Line(line) => print::lines([line])?,
                Report::Asked { pods: Ok(count), .. } => {
                    pods += count;
                    unasked -= 1;
                }
                Report::Asked { member, pods: Err(failure) } => {
                    warn(&member, &failure);
                    failed.push(member);
                    unasked -= 1;
                    left = left.saturating_sub(usize::from(single));
                }
                Report::Ended => left = left.saturating_sub(1),
            }
            if unasked == 0 && pods == 0 && failed.is_empty() {
                bail!("there are no pods of {}", target.described());
            }
            if left == 0 && unasked == 0 {
                break;
            }
        }
        Ok(failed)
    };
    tokio::select! {
        printed = printing => printed,
        _ = following => bail!("following ended"),
    }
}

/// Follows the logs of one member.
struct MemberTask<'a> {
    member: &'a Member,
    target: &'a Target,
    part: &'a Part,
    prefixes: &'a Prefixes,
    reports: mpsc::Sender<Report>,
}

/// A container of a pod, by name.
type Key = (String, String);

/// How the log of a container ended.
struct LogEnd {
    key: Key,
    run: String,
    /// The time of its last line.
    last: Option<Timestamp>,
    result: Result<(), Failure>,
}

/// The logs of one member.
#[derive(Default)]
struct Logs {
    running: JoinSet<LogEnd>,
    open: HashSet<Key>,
    /// The runs of containers that were followed to their end.
    done: HashMap<Key, String>,
    /// The runs that were there at the beginning.
    first: HashMap<Key, String>,
    /// The times of the last lines.
    last: HashMap<Key, Timestamp>,
    /// The user was told that there are too many.
    too_many: bool,
}

impl MemberTask<'_> {
    async fn run(self) {
        let mut logs = Logs::default();
        let (mut looks, mut failures, mut seen) = (0_u64, 0, false);
        let single = matches!(self.target, Target::Pod { .. });
        loop {
            let found = self.target.pods(self.member, self.part.container.as_deref()).await;
            if looks == 0 {
                let pods = found.as_ref().map(Vec::len).map_err(Clone::clone);
                self.report(Report::Asked { member: self.member.name.clone(), pods }).await;
            }
            match found {
                Ok(pods) => {
                    failures = 0;
                    for pod in &pods {
                        self.follow_new(pod, !seen, &mut logs);
                    }
                    if single && logs.open.is_empty() && pods.iter().all(|pod| pod.finished) {
                        self.report(Report::Ended).await;
                        return std::future::pending().await;
                    }
                    seen = true;
                    let names: HashSet<&str> = pods.iter().map(|pod| pod.name.as_str()).collect();
                    logs.done.retain(|(pod, _), _| names.contains(pod.as_str()));
                    logs.last.retain(|(pod, _), _| names.contains(pod.as_str()));
                    logs.first.retain(|(pod, _), _| names.contains(pod.as_str()));
                }
                Err(failure) => {
                    failures += 1;
                    if looks > 0 && failures == 1 {
                        warn(&self.member.name, &format!("{failure}; trying again"));
                    }
                }
            }
            looks += 1;
            let wait = if failures == 0 { LOOK } else { RETRY.ceiling(failures) };
            self.ended_until(tokio::time::Instant::now() + wait, &mut logs).await;
        }
    }

    async fn report(&self, report: Report) {
        // The receiver ends with the verb.
        let _ = self.reports.send(report).await;
    }

    /// Takes in the logs that end until a time.
    async fn ended_until(&self, time: tokio::time::Instant, logs: &mut Logs) {
        while let Ok(end) = tokio::time::timeout_at(time, logs.running.join_next()).await {
            let Some(Ok(LogEnd { key, run, last, result })) = end else {
                return tokio::time::sleep_until(time).await;
            };
            logs.open.remove(&key);
            logs.last.extend(last.map(|last| (key.clone(), last)));
            match result {
                Ok(()) => {
                    logs.done.insert(key, run);
                }
                // The log of a quiet container, which has not begun. It is opened again.
                Err(failure) if failure.is_timeout() => {}
                Err(failure) => {
                    let place = format!("{}/{}", self.member.name, key.0);
                    warn(&place, &format!("{failure}; trying again"));
                }
            }
        }
    }

    /// Follows the containers of a pod that are not followed yet. Of pods that come later all lines are shown.
    fn follow_new(&self, pod: &Pod, first: bool, logs: &mut Logs) {
        for (container, run) in &pod.containers {
            let key = (pod.name.clone(), container.clone());
            let Some(run) = run else { continue };
            if logs.open.contains(&key) || logs.done.get(&key) == Some(run) {
                continue;
            }
            if logs.open.len() >= MOST {
                if !std::mem::replace(&mut logs.too_many, true) {
                    let why = format!("only {MOST} of its logs are followed: use --selector");
                    warn(&self.member.name, &why);
                }
                return;
            }
            if first {
                logs.first.insert(key.clone(), run.clone());
            }
            let after = logs.last.get(&key).copied();
            let is_first = logs.first.get(&key) == Some(run);
            let part = opened(self.part, is_first && after.is_none());
            let shown = pod.several.then_some(container.as_str());
            let log = FollowedLog {
                member: self.member.clone(),
                path: part.path(&pod.path, container, None, after),
                prefix: self.prefixes.of(&self.member.name, &pod.name, shown),
                timestamps: part.timestamps,
                reports: self.reports.clone(),
                last: after,
            };
            logs.open.insert(key.clone());
            let run = run.clone();
            logs.running.spawn(async move {
                let (last, result) = log.run().await;
                LogEnd { key, run, last, result }
            });
        }
    }
}

/// What is asked for of a log: --tail and --since are for what was written before the program began, and are left out when
/// a log goes on after its last line.
fn opened(part: &Part, begins: bool) -> Part {
    if begins { part.clone() } else { Part { tail: None, since: None, ..part.clone() } }
}

/// A log that is followed.
struct FollowedLog {
    member: Member,
    path: String,
    prefix: String,
    timestamps: bool,
    reports: mpsc::Sender<Report>,
    /// The time of its last line.
    last: Option<Timestamp>,
}

impl FollowedLog {
    /// Follows it to its end; returns the time of its last line.
    async fn run(mut self) -> (Option<Timestamp>, Result<(), Failure>) {
        let result = self.lines().await;
        (self.last, result)
    }

    async fn lines(&mut self) -> Result<(), Failure> {
        let shown = self.last;
        let mut chunks = self.member.follow(&self.path, None).await?;
        while let Some(raw) = chunks.line(line::MOST).await? {
            let line = Line::of(&raw);
            // Servers take the time to the second: the lines of that second come again.
            if shown.is_some() && line.at <= shown {
                continue;
            }
            self.last = self.last.max(line.at);
            let line = line.shown(&self.prefix, self.timestamps);
            if self.reports.send(Report::Line(line)).await.is_err() {
                return Ok(());
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_that_is_opened_again_goes_on_after_its_last_line() {
        let asked = Part { follow: true, tail: Some(0), since: Some(60), ..Part::default() };
        let path = |begins, after| opened(&asked, begins).path("/p", "main", None, after);
        // Also when it is opened again before it had a line.
        let begin = path(true, None);
        assert!(begin.contains("tailLines=0") && begin.contains("sinceSeconds=60"), "{begin}");
        let after = path(false, Some("2026-01-01T00:00:00Z".parse().unwrap()));
        assert!(after.contains("sinceTime=2026-01-01T00%3A00%3A00Z"), "{after}");
        // The API refuses sinceSeconds with sinceTime.
        assert!(!after.contains("sinceSeconds") && !after.contains("tailLines"), "{after}");
    }
}
