//! Log lines on stderr, as text or JSON.

mod collapse;
mod json;

use std::fmt;
use std::io::{IsTerminal, Write};
use std::sync::Arc;
use std::time::Instant;

use anyhow::Context;
use clap::ValueEnum;
use serde_json::Map;
use tracing::field::Field;
use tracing::{Event, Subscriber};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::field::MakeExt;
use tracing_subscriber::fmt::format::{self, Format as TextFormat, Writer};
use tracing_subscriber::fmt::time::{FormatTime, SystemTime};
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::registry::LookupSpan;

use self::collapse::{Collapse, LeftOut};
use crate::text;

/// How log lines are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub enum LogFormat {
    /// For people
    #[default]
    Text,
    /// One JSON object a line, for log collectors
    Json,
}

/// Starts logging with the filter in RUST_LOG, or `default`. Repeated warnings are collapsed, unless RUST_LOG is set:
/// whoever sets it looks for something.
///
/// # Errors
/// When RUST_LOG cannot be parsed.
pub fn start(default: &str, format: LogFormat) -> anyhow::Result<Logs> {
    let given = std::env::var("RUST_LOG").ok().filter(|directives| !directives.is_empty());
    let collapse = given.is_none().then(|| Arc::new(Collapse::default()));
    let logs = Logs { format, collapse: collapse.clone() };
    let filter = match given {
        Some(directives) => EnvFilter::try_new(&directives).with_context(|| {
            format!("RUST_LOG={directives:?} is not a log filter; try RUST_LOG=info")
        })?,
        // kube's client logs each failed request and also returns it; the caller reports it.
        None => EnvFilter::new(format!("{default},kube_client::client=off")),
    };
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .fmt_fields(fields())
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal())
        .event_format(Lines {
            format,
            text: TextFormat::default(),
            collapse,
            now: Box::new(Instant::now),
        })
        .init();
    Ok(logs)
}

/// Logging of this process. What was left out is reported at its end, at the latest.
#[must_use = "it ends the log when it is dropped"]
pub struct Logs {
    format: LogFormat,
    collapse: Option<Arc<Collapse>>,
}

impl Drop for Logs {
    fn drop(&mut self) {
        let mut text = String::new();
        for left_out in self.collapse.iter().flat_map(|collapse| collapse.rest()) {
            // Writing to a text does not fail.
            let _ = report(self.format, &mut Writer::new(&mut text), &left_out);
        }
        // Nobody is left to hear that stderr is closed.
        let _ = std::io::stderr().write_all(text.as_bytes());
    }
}

/// Writes events, at most one line each.
struct Lines {
    format: LogFormat,
    text: TextFormat,
    /// `None`: every line is written.
    collapse: Option<Arc<Collapse>>,
    now: Box<dyn Fn() -> Instant + Send + Sync>,
}

impl<S, N> FormatEvent<S, N> for Lines
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        ctx: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let (written, left_out) = match &self.collapse {
            Some(collapse) => collapse.admit(event, (self.now)()),
            None => (true, Vec::new()),
        };
        for report in left_out {
            self::report(self.format, &mut writer, &report)?;
        }
        match (written, self.format) {
            (false, _) => Ok(()),
            (true, LogFormat::Text) => self.text.format_event(ctx, writer, event),
            (true, LogFormat::Json) => json::write(&mut writer, event),
        }
    }
}

/// A line about lines that were left out.
fn report(format: LogFormat, writer: &mut Writer<'_>, report: &LeftOut) -> fmt::Result {
    let LeftOut { metadata, member, message, count } = report;
    let text = format!("{count} more lines like this one were left out: {message}");
    match format {
        LogFormat::Json => {
            let mut fields = Map::new();
            fields.insert("message".to_owned(), text.into());
            fields.insert("left_out".to_owned(), (*count).into());
            if let Some(member) = member {
                fields.insert("cluster".to_owned(), member.as_str().into());
            }
            json::line(writer, metadata, fields)
        }
        LogFormat::Text => {
            SystemTime.format_time(writer)?;
            let (level, target) = (metadata.level(), metadata.target());
            let member = member.as_ref().map_or(String::new(), |name| format!(" cluster={name}"));
            writeln!(writer, " {level:>5} {target}: {}", text::visible_line(&(text + &member)))
        }
    }
}

/// One event is one line of plain text. Members and clients could otherwise forge log lines with line ends and control
/// characters.
fn fields() -> impl for<'writer> FormatFields<'writer> + Send + Sync + 'static {
    let field = |writer: &mut Writer<'_>, field: &Field, value: &dyn std::fmt::Debug| {
        let text = format!("{value:?}");
        let text = text::visible_line(&text);
        match field.name() {
            "message" => writer.write_str(&text),
            name => write!(writer, "{name}={text}"),
        }
    };
    format::debug_fn(field).delimited(" ")
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::sync::Mutex;
    use std::time::Duration;

    use super::*;

    #[derive(Clone, Default)]
    struct Written(Arc<Mutex<Vec<u8>>>);

    impl Write for Written {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn what_a_member_sends_stays_on_its_line_of_the_log() {
        let written = Written::default();
        let writer = written.clone();
        let subscriber = tracing_subscriber::fmt()
            .fmt_fields(fields())
            .with_ansi(false)
            .with_writer(move || writer.clone())
            .finish();
        let hostile = "gone\n2026-01-01T00:00:00Z  INFO all is well\u{1b}[2J\u{9b}31m";
        tracing::subscriber::with_default(subscriber, || {
            let _span = tracing::info_span!("session", member = %hostile).entered();
            tracing::warn!(error = %hostile, count = 3, "the member says {hostile}");
        });
        let text = String::from_utf8(written.0.lock().unwrap().clone()).unwrap();
        assert_eq!(text.lines().count(), 1, "{text}");
        assert!(text.trim_end().chars().all(|c| !c.is_control()), "{text:?}");
        assert!(text.contains(r"gone\n2026") && text.contains("count=3"), "{text}");
    }

    /// Runs with these lines, and returns them.
    fn logged(format: LogFormat, collapse: bool, run: impl FnOnce()) -> String {
        logged_at(format, collapse, Box::new(Instant::now), run)
    }

    fn logged_at(
        format: LogFormat,
        collapse: bool,
        now: Box<dyn Fn() -> Instant + Send + Sync>,
        run: impl FnOnce(),
    ) -> String {
        let written = Written::default();
        let writer = written.clone();
        let collapse = collapse.then(|| Arc::new(Collapse::default()));
        let subscriber = tracing_subscriber::fmt()
            .fmt_fields(fields())
            .with_ansi(false)
            .with_writer(move || writer.clone())
            .event_format(Lines { format, text: TextFormat::default(), collapse, now })
            .finish();
        tracing::subscriber::with_default(subscriber, run);
        String::from_utf8(written.0.lock().unwrap().clone()).unwrap()
    }

    #[test]
    fn a_json_line_has_typed_fields_and_cannot_be_forged() {
        let hostile = "gone\n{\"level\":\"INFO\"}\u{1b}[2J\u{9b}31m\u{202e}";
        let text = logged(LogFormat::Json, true, || {
            tracing::warn!(
                error = hostile,
                count = 3,
                late = true,
                level = "mine",
                "the member says {hostile}"
            );
        });
        assert_eq!(text.lines().count(), 1, "{text}");
        assert!(!text.contains(['\u{1b}', '\u{9b}', '\u{202e}']), "{text:?}");
        let line: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(line["level"], "WARN");
        assert_eq!(line["_level"], "mine");
        assert_eq!(line["error"], hostile);
        assert_eq!((&line["count"], &line["late"]), (&3.into(), &true.into()));
        assert!(line["message"].as_str().unwrap().starts_with("the member says gone"));
        assert!(line["target"].as_str().unwrap().contains("logging"), "{line}");
        assert!(line["time"].as_str().unwrap().ends_with('Z'), "{line}");
    }

    #[test]
    fn repeated_warnings_are_counted_and_other_lines_are_all_written() {
        let storm = || {
            for number in 0..100 {
                tracing::warn!(number, "the hub refused an Event");
                tracing::info!(number, "session started");
            }
            tracing::warn!("another cause");
            for cluster in ["a", "b"] {
                for _ in 0..=20 {
                    tracing::warn!(cluster, "refused");
                    tracing::error!(cluster, "lost");
                }
            }
        };
        let text = logged(LogFormat::Text, true, storm);
        assert_eq!(text.matches("the hub refused an Event").count(), 20);
        assert_eq!(text.matches("session started").count(), 100);
        assert_eq!(text.matches("another cause").count(), 1);
        assert_eq!(
            text.matches("refused cluster=\"b\"").count(),
            20,
            "one member hides no other one"
        );
        assert_eq!(text.matches("lost cluster=\"a\"").count(), 21, "errors are never left out");
        let all = logged(LogFormat::Text, false, storm);
        assert_eq!(all.matches("the hub refused an Event").count(), 100);
    }

    #[test]
    fn what_is_left_out_at_the_end_names_the_member() {
        let collapse = Arc::new(Collapse::default());
        let subscriber = tracing_subscriber::fmt().with_writer(io::sink).event_format(Lines {
            format: LogFormat::Json,
            text: TextFormat::default(),
            collapse: Some(collapse.clone()),
            now: Box::new(Instant::now),
        });
        tracing::subscriber::with_default(subscriber.finish(), || {
            for number in 0..25 {
                tracing::warn!(cluster = %"eu-1", number, "refused");
            }
        });
        let rest = collapse.rest();
        assert_eq!(rest.len(), 1);
        let mut text = String::new();
        report(LogFormat::Json, &mut Writer::new(&mut text), &rest[0]).unwrap();
        let line: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!((&line["left_out"], &line["cluster"]), (&5.into(), &"eu-1".into()));
        assert!(collapse.rest().is_empty(), "once");
    }

    #[test]
    fn what_was_left_out_is_reported_when_its_minute_has_ended() {
        for format in [LogFormat::Text, LogFormat::Json] {
            let seconds = Arc::new(Mutex::new(0));
            let (clock, start) = (seconds.clone(), Instant::now());
            let now = move || start + Duration::from_secs(*clock.lock().unwrap());
            let text = logged_at(format, true, Box::new(now), || {
                for _ in 0..30 {
                    tracing::warn!("the hub\nrefused");
                }
                *seconds.lock().unwrap() = 59;
                tracing::info!("not yet");
                *seconds.lock().unwrap() = 60;
                tracing::info!("now");
                tracing::info!("only once");
            });
            let lines: Vec<&str> = text.lines().collect();
            assert_eq!(lines.len(), 24, "{text}");
            assert!(lines[20].contains("not yet") && lines[22].contains("now"), "{text}");
            let report = "10 more lines like this one were left out: the hub";
            assert!(lines[21].contains(report) && lines[21].contains("WARN"), "{text}");
        }
    }
}
