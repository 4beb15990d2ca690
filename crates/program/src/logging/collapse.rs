//! Collapses repeated warnings: of one place in the code and one member, the first lines of a minute are written, and the
//! rest is counted. Thousands of lines of one cause would hide the others. Errors are always written.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use tracing::callsite::Identifier;
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Metadata};

/// Lines of one place and member in a window.
const LINES: u32 = 20;
/// Length of a window.
const WINDOW: Duration = Duration::from_secs(60);
/// Limit of windows of members. Further members share the window of their place.
const MEMBERS: usize = 1_000;
/// Fields that name the member.
const MEMBER: [&str; 2] = ["cluster", "member"];

/// Lines that were left out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct LeftOut {
    /// Of this place.
    pub(super) metadata: &'static Metadata<'static>,
    /// About this member.
    pub(super) member: Option<String>,
    /// The message of the first one.
    pub(super) message: String,
    /// How many.
    pub(super) count: u64,
}

#[derive(Debug)]
struct Window {
    begun: Instant,
    written: u32,
    left_out: LeftOut,
}

type Windows = HashMap<(Identifier, Option<String>), Window>;

/// What is counted. The number of places in the code bounds it, and [`MEMBERS`].
#[derive(Debug, Default)]
pub(super) struct Collapse(Mutex<Windows>);

impl Collapse {
    /// Whether an event's line is written, and what was left out in windows that have ended, by place.
    pub(super) fn admit(&self, event: &Event<'_>, now: Instant) -> (bool, Vec<LeftOut>) {
        let metadata = event.metadata();
        let mut windows = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let ended = |window: &Window| now.saturating_duration_since(window.begun) >= WINDOW;
        let reports = reports(&windows, ended);
        windows.retain(|_, window| !ended(window));
        if *metadata.level() != Level::WARN {
            return (true, reports);
        }
        let mut said = Said::default();
        event.record(&mut said);
        let mut key = (metadata.callsite(), said.member);
        if windows.len() >= MEMBERS && !windows.contains_key(&key) {
            key.1 = None;
        }
        let member = key.1.clone();
        let window = windows.entry(key).or_insert_with(|| Window {
            begun: now,
            written: 0,
            left_out: LeftOut { metadata, member, message: String::new(), count: 0 },
        });
        if window.written < LINES {
            window.written += 1;
            return (true, reports);
        }
        if window.left_out.count == 0 {
            window.left_out.message = said.message;
        }
        window.left_out.count += 1;
        (false, reports)
    }

    /// What was left out and not reported yet: for the end of the process.
    pub(super) fn rest(&self) -> Vec<LeftOut> {
        let mut windows = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let rest = reports(&windows, |_| true);
        windows.clear();
        rest
    }
}

fn reports(windows: &Windows, of: impl Fn(&Window) -> bool) -> Vec<LeftOut> {
    let of = windows.values().filter(|window| window.left_out.count > 0 && of(window));
    let mut reports: Vec<LeftOut> = of.map(|window| window.left_out.clone()).collect();
    reports.sort_by(|a, b| {
        let place = |of: &LeftOut| (of.metadata.file(), of.metadata.line());
        (place(a), &a.member).cmp(&(place(b), &b.member))
    });
    reports
}

/// Message and member of an event.
#[derive(Default)]
struct Said {
    message: String,
    member: Option<String>,
}

impl Visit for Said {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        match field.name() {
            "message" => self.message = format!("{value:?}"),
            name if MEMBER.contains(&name) => self.member = Some(format!("{value:?}")),
            _ => {}
        }
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        if MEMBER.contains(&field.name()) {
            self.member = Some(value.to_owned());
        } else {
            self.record_debug(field, &value);
        }
    }
}
