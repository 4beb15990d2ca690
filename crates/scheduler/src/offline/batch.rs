//! Reads one case per line and writes one answer per line. Memory is bounded by the longest line, not by the batch.

use std::io::{self, BufRead, Read, Write};

use atoll_api::binding::Outcome;
use serde_json::Value;

use super::case::{Case, CaseAnswer, CaseError, Check};
use super::world::Settings;
use crate::framework::profile::Profiles;

/// Longest line, in bytes. 5,000 clusters with 40 API groups each take a quarter of it.
pub const MAX_LINE: u64 = 64 << 20;

/// Counts of a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Summary {
    /// Answered lines. Empty lines are not answered.
    pub lines: u64,
    /// Unreadable lines.
    pub bad: u64,
    /// Cases whose policy or workload is invalid.
    pub invalid: u64,
}

/// Answers every line. An unreadable line gets an error as its answer and does not stop the batch.
///
/// # Errors
/// The input cannot be read or the output cannot be written.
pub fn run(
    input: impl BufRead,
    output: impl Write,
    profiles: &Profiles,
    settings: &Settings,
) -> io::Result<Summary> {
    run_checked(input, output, profiles, settings, &|_| Ok(()))
}

/// Like [`run`], but a case that `check` rejects counts as unreadable.
///
/// # Errors
/// See [`run`].
pub fn run_checked(
    mut input: impl BufRead,
    mut output: impl Write,
    profiles: &Profiles,
    settings: &Settings,
    check: Check<'_>,
) -> io::Result<Summary> {
    let mut summary = Summary::default();
    let mut line = Vec::new();
    let mut number = 0;
    loop {
        line.clear();
        if input.by_ref().take(MAX_LINE).read_until(b'\n', &mut line)? == 0 {
            return Ok(summary);
        }
        number += 1;
        let whole = line.ends_with(b"\n") || (line.len() as u64) < MAX_LINE;
        if !whole {
            input.skip_until(b'\n')?;
        } else if line.trim_ascii().is_empty() {
            continue;
        }
        let answer = if whole {
            answer(&line, profiles, settings, check, &mut summary)
        } else {
            Err(bad(format!("longer than {MAX_LINE} bytes")))
        };
        summary.lines += 1;
        let answer = answer.unwrap_or_else(|error| {
            summary.bad += 1;
            CaseAnswer::bad(error, number)
        });
        serde_json::to_writer(&mut output, &answer)?;
        output.write_all(b"\n")?;
        // A caller that sends lines over a pipe waits for this answer.
        output.flush()?;
    }
}

fn bad(problem: String) -> CaseError {
    CaseError { id: Value::Null, problem }
}

fn answer(
    line: &[u8],
    profiles: &Profiles,
    settings: &Settings,
    check: Check<'_>,
    summary: &mut Summary,
) -> Result<CaseAnswer, CaseError> {
    let line = std::str::from_utf8(line).map_err(|error| bad(format!("not UTF-8: {error}")))?;
    let mut case = Case::read_checked(line, settings, check)?;
    let decision = case.decide(profiles);
    summary.invalid += u64::from(decision.outcome() == Outcome::Invalid);
    Ok(CaseAnswer::of(case.id, &decision))
}
