//! The lines that are there now, of all pods, ordered by time.

use std::collections::BTreeMap;
use std::sync::OnceLock;
use std::time::Duration;

use anyhow::bail;
use futures::StreamExt;
use tokio::time::Instant;

use super::line::{self, Line, Prefixes};
use super::pods::{Pod, Target};
use super::{Part, warn};
use crate::print;
use crate::reach::{self, ANSWER, Failure, Member};

/// Logs that are read at the same time: below the limit of open requests of one user.
const PARALLEL: usize = 32;
/// Memory for the lines of all logs, which are ordered before the first is printed: texts, and what is kept with each line. A
/// list that grows may take twice its part of it for a moment.
const MEMORY: usize = 256 << 20;
/// Limit of one log in bytes, and of the memory for its lines where there are few logs.
const LOG: usize = 16 << 20;
/// Limit of the time for all logs of one member: one that sends a little now and then does not hold up the others for ever.
const LIMIT: Duration = Duration::from_secs(60);

/// The log of one container.
struct Source<'a> {
    member: &'a Member,
    pod: &'a Pod,
    container: &'a str,
}

/// What was read of it.
struct Read {
    lines: Vec<Line>,
    /// Why it is not complete.
    missing: Option<Missing>,
}

enum Missing {
    /// The member failed.
    Failed(Failure),
    /// The member answered that there is no such log.
    Refused(Failure),
    /// It is too long; these bytes of it were read.
    TooLong(usize),
}

/// Prints the lines; returns the members that could not be read.
pub(super) async fn run(
    members: &[Member],
    target: &Target,
    part: &Part,
    prefixes: &Prefixes,
) -> anyhow::Result<Vec<String>> {
    let container = part.container.as_deref();
    let found = reach::each(members, |member| target.pods(member, container)).await;
    let mut failed = Vec::new();
    let mut pods = Vec::new();
    for (member, answer) in &found {
        match answer {
            Ok(list) => pods.extend(list.iter().map(|pod| (*member, pod))),
            Err(failure) => {
                warn(&member.name, failure);
                failed.push(member.name.clone());
            }
        }
    }
    if pods.is_empty() && failed.is_empty() {
        bail!("there are no pods of {}", target.described());
    }
    let sources: Vec<Source<'_>> = pods.iter().flat_map(|(member, pod)| all(member, pod)).collect();
    if let (Some(name), true, false) = (container, sources.is_empty(), pods.is_empty()) {
        bail!("--container {name}: no pod of {} has it", target.described());
    }
    let limit = LOG.min(MEMORY / sources.len().max(1));
    // They begin with the first log of each member.
    let deadlines: BTreeMap<&str, OnceLock<Instant>> =
        members.iter().map(|member| (member.name.as_str(), OnceLock::new())).collect();
    let reads =
        sources.iter().map(|source| {
            let deadline = &deadlines[source.member.name.as_str()];
            async move {
                read(source, part, limit, *deadline.get_or_init(|| Instant::now() + LIMIT)).await
            }
        });
    let reads: Vec<Read> = futures::stream::iter(reads).buffered(PARALLEL).collect().await;
    show(&sources, &reads, part, prefixes)?;
    for (source, read) in sources.iter().zip(&reads) {
        let Some(missing) = &read.missing else { continue };
        let place = format!("{}/{}", source.member.name, source.pod.name);
        match missing {
            Missing::Failed(failure) => {
                warn(&place, failure);
                failed.push(source.member.name.clone());
            }
            Missing::Refused(failure) => warn(&place, failure),
            Missing::TooLong(bytes) => {
                let kib = bytes >> 10;
                warn(&place, &format!("only the first {kib} KiB are shown: use --tail or --since"));
            }
        }
    }
    failed.dedup();
    Ok(failed)
}

fn all<'a>(member: &'a Member, pod: &'a Pod) -> impl Iterator<Item = Source<'a>> {
    pod.containers.iter().map(move |(container, _)| Source { member, pod, container })
}

/// Reads a log within its limits. What arrived before a failure is kept.
async fn read(source: &Source<'_>, part: &Part, limit: usize, deadline: Instant) -> Read {
    let mut lines = Vec::new();
    let reading = lines_of(source, part, limit, &mut lines);
    let missing = match tokio::time::timeout_at(deadline, reading).await {
        Ok(missing) => missing,
        Err(_) => Some(Missing::Failed(Failure::slow(LIMIT))),
    };
    Read { lines, missing }
}

async fn lines_of(
    source: &Source<'_>,
    part: &Part,
    limit: usize,
    lines: &mut Vec<Line>,
) -> Option<Missing> {
    let path = part.path(&source.pod.path, source.container, Some(limit), None);
    let mut chunks = match source.member.open(&path, None).await {
        Ok(chunks) => chunks,
        // The member works; this container has no log, or the pod has gone.
        Err(failure) if matches!(failure.code, Some(400 | 404)) => {
            return Some(Missing::Refused(failure));
        }
        Err(failure) => return Some(Missing::Failed(failure)),
    };
    let (mut bytes, mut memory) = (0, 0);
    loop {
        match tokio::time::timeout(ANSWER, chunks.line(line::MOST)).await {
            Ok(Ok(Some(raw))) => {
                let line = Line::of(&raw);
                memory += line.memory();
                // A log of short lines takes more than its bytes.
                if memory > limit {
                    return Some(Missing::TooLong(bytes));
                }
                bytes += raw.bytes.len() + 1;
                lines.push(line);
            }
            Ok(Ok(None)) if bytes >= limit => return Some(Missing::TooLong(bytes)),
            Ok(Ok(None)) => return None,
            Ok(Err(failure)) => return Some(Missing::Failed(failure)),
            Err(_) => return Some(Missing::Failed(Failure::silent())),
        }
    }
}

fn show(
    sources: &[Source<'_>],
    reads: &[Read],
    part: &Part,
    prefixes: &Prefixes,
) -> anyhow::Result<()> {
    let prefix = |source: &Source<'_>| {
        let container = source.pod.several.then_some(source.container);
        prefixes.of(&source.member.name, &source.pod.name, container)
    };
    let shown: Vec<String> = sources.iter().map(prefix).collect();
    let lines = ordered(reads);
    print::lines(lines.map(|(source, line)| line.shown(&shown[source], part.timestamps)))
}

/// All lines by time. Lines of one log keep their order: one without a time follows the line before it.
fn ordered(reads: &[Read]) -> impl Iterator<Item = (usize, &Line)> {
    let mut all = Vec::new();
    for (source, read) in reads.iter().enumerate() {
        let mut latest = None;
        for line in &read.lines {
            latest = latest.max(line.at);
            all.push((latest, source, line));
        }
    }
    all.sort_by_key(|(at, source, _)| (*at, *source));
    all.into_iter().map(|(_, source, line)| (source, line))
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use crate::reach::RawLine;

    #[tokio::test]
    async fn a_log_of_short_lines_stays_within_its_memory() {
        let member = Member::answering("m1", |_| (200, "\n".repeat(100_000)));
        let pod = serde_json::json!({"metadata": {"name": "p", "namespace": "shop"},
            "spec": {"containers": [{"name": "a"}]}});
        let pod = Pod::of(&pod, None).unwrap();
        let source = Source { member: &member, pod: &pod, container: "a" };
        let limit = 64 << 10;
        let read = read(&source, &Part::default(), limit, Instant::now() + LIMIT).await;
        assert!(matches!(read.missing, Some(Missing::TooLong(_))));
        let memory = read.lines.iter().map(Line::memory).sum::<usize>();
        assert!(memory <= limit && memory > limit / 2, "{memory}");
    }

    #[tokio::test]
    async fn a_member_whose_time_is_over_costs_no_more() {
        let pod = serde_json::json!({"metadata": {"name": "p", "namespace": "shop"},
            "spec": {"containers": [{"name": "a"}]}});
        let pod = Pod::of(&pod, None).unwrap();
        let silent = Member::silent("m2");
        let source = Source { member: &silent, pod: &pod, container: "a" };
        let over = read(&source, &Part::default(), LOG, Instant::now()).await;
        let Some(Missing::Failed(failure)) = over.missing else { panic!("no failure") };
        assert!(failure.to_string().contains("60 s"), "{failure}");
    }

    #[test]
    fn lines_of_several_logs_are_ordered_by_time_and_each_log_keeps_its_order() {
        let read = |lines: &[&str]| {
            let raw = |text: &&str| RawLine {
                bytes: Bytes::copy_from_slice(text.as_bytes()),
                cut: false,
            };
            Read { lines: lines.iter().map(|text| Line::of(&raw(text))).collect(), missing: None }
        };
        let reads = [
            read(&[
                "2026-01-01T00:00:01Z a1",
                "no time",
                "2026-01-01T00:00:00Z back",
                "2026-01-01T00:00:05Z a5",
            ]),
            read(&["2026-01-01T00:00:00.5Z b0", "2026-01-01T00:00:03Z b3"]),
        ];
        let shown = |(source, line): (usize, &Line)| line.shown(&source.to_string(), false);
        let texts: Vec<String> = ordered(&reads).map(shown).collect();
        assert_eq!(texts, ["1 b0", "0 a1", "0 no time", "0 back", "1 b3", "0 a5"]);
    }
}
