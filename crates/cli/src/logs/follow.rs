//! New lines of all pods as they are written.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use anyhow::bail;
use jiff::Timestamp;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::line::{self, Line, Prefixes};
use super::pods::{Pod, Target};
use super::{Part, warn};
use crate::print;
use crate::reach::{Failure, Member, RETRY};

/// Lines that wait to be printed; a log that is ahead waits.
const QUEUED: usize = 256;
/// Failures in a row after which the log of a pod that has ended is not opened again.
const GIVE_UP: u32 = 5;
/// How often a member is asked for new pods.
const LOOK: Duration = Duration::from_secs(2);
/// Logs of all members that are followed at the same time: 16 fewer than a user may have open requests, which are for the lists of
/// pods.
const MOST: usize = 192;

/// What the tasks of members report.
enum Report {
    Line(String),
    /// A member was asked for the first time.
    Asked {
        member: String,
        pods: Result<usize, Failure>,
    },
    /// The logs of the single pod have ended on a member, or cannot be read.
    Ended {
        member: String,
        failed: bool,
    },
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
    let following = members.iter().zip(Room::shares(members.len())).map(|(member, room)| {
        let reports = reports.clone();
        MemberTask { member, target, part, prefixes, reports, room }.run()
    });
    let following = futures::future::join_all(following);
    let single = matches!(target, Target::Pod { .. });
    let printing = async {
        let (mut failed, mut pods, mut unasked) = (Vec::new(), 0, members.len());
        // Members whose logs go on.
        let mut left: BTreeSet<&str> = members.iter().map(|member| member.name.as_str()).collect();
        while let Some(report) = received.recv().await {
            match report {
                Report::Line(line) => print::lines([line])?,
                Report::Asked { pods: Ok(count), .. } => {
                    pods += count;
                    unasked -= 1;
                }
                Report::Asked { member, pods: Err(failure) } => {
                    warn(&member, &failure);
                    unasked -= 1;
                    if single {
                        left.remove(member.as_str());
                    }
                    failed.push(member);
                }
                // A member that could not be read at first may end too.
                Report::Ended { member, failed: is_failed } => {
                    left.remove(member.as_str());
                    if is_failed && !failed.contains(&member) {
                        failed.push(member);
                    }
                }
            }
            if unasked == 0 && pods == 0 && failed.is_empty() {
                bail!("there are no pods of {}", target.described());
            }
            if left.is_empty() && unasked == 0 {
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
    room: Room,
}

/// Places for logs of a member. It has a share for itself, and what the shares leave is for whoever comes first: a member with
/// many pods takes no place from the others.
struct Room {
    own: Arc<Semaphore>,
    shared: Arc<Semaphore>,
}

impl Room {
    /// One for each of so many members.
    fn shares(members: usize) -> impl Iterator<Item = Self> {
        // Half of all places: few members with many pods use the others. With more members than places the first ones come
        // first.
        let share = MOST / 2 / members.max(1);
        let shared = Arc::new(Semaphore::new(MOST - share * members));
        (0..members).map(move |_| {
            let own = Arc::new(Semaphore::new(share));
            Self { own, shared: shared.clone() }
        })
    }

    fn enter(&self) -> Option<OwnedSemaphorePermit> {
        let own = self.own.clone().try_acquire_owned();
        own.or_else(|_| self.shared.clone().try_acquire_owned()).ok()
    }
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

/// A log that failed and is opened again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Failing {
    /// In a row, without a line between them.
    failures: u32,
    /// When it is opened again.
    again: Instant,
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
    /// Logs that failed.
    failing: HashMap<Key, Failing>,
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
                    let finished = pods.iter().all(|pod| pod.finished);
                    if single && finished && logs.open.is_empty() && logs.are_final() {
                        let (member, failed) = (self.member.name.clone(), !logs.failing.is_empty());
                        self.report(Report::Ended { member, failed }).await;
                        return std::future::pending().await;
                    }
                    seen = true;
                    let names: HashSet<&str> = pods.iter().map(|pod| pod.name.as_str()).collect();
                    logs.keep(&names);
                }
                Err(failure) => {
                    failures += 1;
                    if looks > 0 && failures == 1 {
                        warn(&self.member.name, &failure.retried());
                    }
                }
            }
            looks += 1;
            let wait = if failures == 0 { LOOK } else { RETRY.ceiling(failures) };
            self.ended_until(Instant::now() + wait, &mut logs).await;
        }
    }

    async fn report(&self, report: Report) {
        // The receiver ends with the verb.
        let _ = self.reports.send(report).await;
    }

    /// Takes in the logs that end until a time.
    async fn ended_until(&self, time: Instant, logs: &mut Logs) {
        while let Ok(end) = tokio::time::timeout_at(time, logs.running.join_next()).await {
            let Some(Ok(LogEnd { key, run, last, result })) = end else {
                return tokio::time::sleep_until(time).await;
            };
            if let Some(failure) = logs.end(LogEnd { key: key.clone(), run, last, result }) {
                let place = format!("{}/{}", self.member.name, key.0);
                warn(&place, &failure.retried());
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
            if logs.failing.get(&key).is_some_and(|failing| Instant::now() < failing.again) {
                continue;
            }
            let Some(place) = self.room.enter() else {
                if !std::mem::replace(&mut logs.too_many, true) {
                    let why = format!(
                        "not all of its logs are followed: all members together have {MOST} places; use --selector or --cluster"
                    );
                    warn(&self.member.name, &why);
                }
                return;
            };
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
                drop(place);
                LogEnd { key, run, last, result }
            });
        }
    }
}

impl Logs {
    /// Whether none of the logs that failed is opened again.
    fn are_final(&self) -> bool {
        self.failing.values().all(|failing| failing.failures >= GIVE_UP)
    }

    /// Forgets pods that are gone.
    fn keep(&mut self, pods: &HashSet<&str>) {
        let is_there = |key: &Key| pods.contains(key.0.as_str());
        self.done.retain(|key, _| is_there(key));
        self.last.retain(|key, _| is_there(key));
        self.first.retain(|key, _| is_there(key));
        self.failing.retain(|key, _| is_there(key));
    }

    /// Takes in the end of a log. Returns a failure that the user does not know yet.
    fn end(&mut self, end: LogEnd) -> Option<Failure> {
        let LogEnd { key, run, last, result } = end;
        self.open.remove(&key);
        if last.is_some_and(|last| self.last.insert(key.clone(), last) != Some(last)) {
            // It had lines since the last failure.
            self.failing.remove(&key);
        }
        match result {
            Ok(()) => {
                self.failing.remove(&key);
                self.done.insert(key, run);
                None
            }
            // The log of a quiet container, which has not begun. It is opened again.
            Err(failure) if failure.is_timeout() => None,
            Err(failure) => {
                let failures = self.failing.get(&key).map_or(0, |failing| failing.failures) + 1;
                let again = Instant::now() + RETRY.ceiling(failures);
                self.failing.insert(key, Failing { failures, again });
                (failures == 1).then_some(failure)
            }
        }
    }
}

/// Whether a line was shown before the log was opened again. Of a line without a time this is not known: it is shown.
fn is_repeated(at: Option<Timestamp>, shown: Option<Timestamp>) -> bool {
    at.is_some() && at <= shown
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
            if is_repeated(line.at, shown) {
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

    #[tokio::test]
    async fn a_log_that_fails_is_reported_once_and_waits_longer_each_time() {
        let mut logs = Logs::default();
        let key = || ("web-0".to_owned(), "main".to_owned());
        let end = |last: Option<&str>, result| LogEnd {
            key: key(),
            run: "1".to_owned(),
            last: last.map(|last| last.parse().unwrap()),
            result,
        };
        let failed = || Err(Failure::of("broken"));
        assert!(logs.end(end(None, failed())).is_some());
        assert!(logs.end(end(None, failed())).is_none());
        assert!(logs.end(end(None, failed())).is_none());
        assert_eq!(logs.failing[&key()].failures, 3);
        assert!(logs.failing[&key()].again > Instant::now() + Duration::from_secs(3));
        let line = Some("2026-01-01T00:00:00Z");
        assert!(logs.end(end(line, failed())).is_some(), "it had lines between");
        assert!(logs.end(end(line, failed())).is_none(), "the same line is not a new one");
        assert!(logs.end(end(None, Ok(()))).is_none() && logs.failing.is_empty());
        logs.keep(&HashSet::new());
        assert!(logs.done.is_empty() && logs.last.is_empty());
    }

    #[test]
    fn no_member_takes_the_places_of_the_others() {
        let rooms: Vec<Room> = Room::shares(3).collect();
        let held: Vec<_> = std::iter::from_fn(|| rooms[0].enter()).collect();
        assert_eq!(held.len(), MOST - 2 * (MOST / 6), "all but the shares of the two others");
        let few: Vec<_> = std::iter::from_fn(|| rooms[1].enter()).collect();
        assert_eq!(few.len(), MOST / 6);
        drop(held);
        assert!(rooms[1].enter().is_some());
        // All together never have more places than there are, also in a fleet of many members.
        for members in [1, 100, 2 * MOST] {
            let rooms: Vec<Room> = Room::shares(members).collect();
            let all: Vec<_> =
                rooms.iter().flat_map(|room| std::iter::from_fn(|| room.enter())).collect();
            assert_eq!(all.len(), MOST, "{members}");
        }
    }

    #[test]
    fn lines_without_a_time_are_shown_after_a_log_was_opened_again() {
        let at = |text: &str| Some(text.parse::<Timestamp>().unwrap());
        let shown = at("2026-01-01T00:00:01Z");
        assert!(!is_repeated(None, shown) && !is_repeated(None, None));
        assert!(is_repeated(at("2026-01-01T00:00:01Z"), shown));
        assert!(!is_repeated(at("2026-01-01T00:00:02Z"), shown));
        assert!(!is_repeated(at("2026-01-01T00:00:02Z"), None));
    }

    #[tokio::test]
    async fn following_a_single_pod_waits_for_a_member_that_is_slower() {
        use std::sync::atomic::{AtomicUsize, Ordering};
        // The first fails once and then has no such pod, which must not count twice.
        let failing = Member::answering("m1", {
            let asked = Arc::new(AtomicUsize::new(0));
            move |_| match asked.fetch_add(1, Ordering::Relaxed) {
                0 => (500, "{}".to_owned()),
                _ => (200, r#"{"items": []}"#.to_owned()),
            }
        });
        let members = [failing, Member::silent("m2")];
        let target = Target::Pod { namespace: "shop".to_owned(), name: "web-0".to_owned() };
        let (part, prefixes) = (Part { follow: true, ..Part::default() }, Prefixes::new(false));
        let failed = run(&members, &target, &part, &prefixes).await.unwrap();
        assert_eq!(failed, ["m1", "m2"]);
    }

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
