//! Log lines on stderr.

use std::io::IsTerminal;

use anyhow::Context;
use tracing::field::Field;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::field::MakeExt;
use tracing_subscriber::fmt::FormatFields;
use tracing_subscriber::fmt::format::{self, Writer};

use crate::text;

/// Starts logging with the filter in RUST_LOG, or `default`.
///
/// # Errors
/// When RUST_LOG cannot be parsed.
pub fn start(default: &str) -> anyhow::Result<()> {
    let filter = match std::env::var("RUST_LOG") {
        Ok(directives) if !directives.is_empty() => {
            EnvFilter::try_new(&directives).with_context(|| {
                format!("RUST_LOG={directives:?} is not a log filter; try RUST_LOG=info")
            })?
        }
        // kube's client logs each failed request and also returns it; the caller reports it.
        _ => EnvFilter::new(format!("{default},kube_client::client=off")),
    };
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .fmt_fields(fields())
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal())
        .init();
    Ok(())
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
    use std::io::{self, Write};
    use std::sync::{Arc, Mutex};

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
}
