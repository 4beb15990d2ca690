//! Collapses repeated warnings: of one place in the code, the first lines of a minute are written, and the rest is counted.
//! Thousands of lines of one cause would hide the others.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use tracing::callsite::Identifier;
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Metadata};

/// Lines of one place in a window.
const LINES: u32 = 20;
/// Length of a window.
const WINDOW: Duration = Duration::from_secs(60);

/// Lines that were left out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct LeftOut {
    /// Of this place.
    pub(super) metadata: &'static Metadata<'static>,
    /// The message of the last one.
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

/// What is counted. The number of places in the code bounds it.
#[derive(Debug, Default)]
pub(super) struct Collapse(Mutex<HashMap<Identifier, Window>>);

impl Collapse {
    /// Whether an event's line is written, and what was left out in windows that have ended, by place.
    pub(super) fn admit(&self, event: &Event<'_>, now: Instant) -> (bool, Vec<LeftOut>) {
        let metadata = event.metadata();
        let mut windows = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let ended = |window: &Window| now.saturating_duration_since(window.begun) >= WINDOW;
        let mut reports: Vec<LeftOut> =
            windows.values().filter(|w| ended(w)).map(|w| w.left_out.clone()).collect();
        reports.retain(|report| report.count > 0);
        reports.sort_by_key(|report| (report.metadata.file(), report.metadata.line()));
        windows.retain(|_, window| !ended(window));
        if *metadata.level() > Level::WARN {
            return (true, reports);
        }
        let window = windows.entry(metadata.callsite()).or_insert_with(|| Window {
            begun: now,
            written: 0,
            left_out: LeftOut { metadata, message: String::new(), count: 0 },
        });
        if window.written < LINES {
            window.written += 1;
            return (true, reports);
        }
        if window.left_out.count == 0 {
            let mut message = Message(String::new());
            event.record(&mut message);
            window.left_out.message = message.0;
        }
        window.left_out.count += 1;
        (false, reports)
    }
}

struct Message(String);

impl Visit for Message {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        if field.name() == "message" {
            self.0 = format!("{value:?}");
        }
    }
}
