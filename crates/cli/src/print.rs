//! Output for users and scripts: tables, JSON, YAML, errors. All terminal output passes through here, so this module
//! makes control characters in names and messages from members visible.

use std::borrow::Cow;
use std::io::{self, IsTerminal, Write};
use std::sync::OnceLock;

use anyhow::Context;
use comfy_table::{Cell, Color, ColumnConstraint, ContentArrangement, Table, presets};
use serde::Serialize;

/// An object as kubectl's `-o name` has it: `deployment.apps/web`.
pub(crate) fn named(kind: &str, group: &str, name: &str) -> String {
    let dot = if group.is_empty() { "" } else { "." };
    format!("{}{dot}{group}/{name}", kind.to_lowercase())
}

#[cfg(test)]
use atoll_program::text::is_hidden;
use atoll_program::text::visible_json;
pub(crate) use atoll_program::text::{causes, error, is_broken_pipe, note, visible, visible_line};

use crate::args::Format;

/// Default width in columns when no terminal is attached: fits an e-mail and half a screen.
const DEFAULT_WIDTH: u16 = 100;
/// Minimum width of a table; narrower terminals wrap.
const MIN_WIDTH: u16 = 40;

/// Output width in columns: the terminal on stdout, then $COLUMNS, then 100. `--help` uses the same order.
pub(crate) fn width() -> u16 {
    static WIDTH: OnceLock<u16> = OnceLock::new();
    *WIDTH.get_or_init(|| {
        let terminal = terminal_size::terminal_size_of(io::stdout()).map(|(width, _)| width.0);
        let columns = || std::env::var("COLUMNS").ok()?.parse().ok();
        usable_width(terminal.or_else(columns))
    })
}

fn usable_width(given: Option<u16>) -> u16 {
    given.filter(|columns| *columns > 0).map_or(DEFAULT_WIDTH, |columns| columns.max(MIN_WIDTH))
}

/// Writes answers to stdout.
#[derive(Debug)]
pub(crate) struct Printer {
    colours: bool,
}

/// The meaning of a cell, which sets its colour.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Tone {
    Plain,
    Good,
    Warn,
    Bad,
}

impl Tone {
    /// The foreground colour, as terminals number it (ECMA-48, select graphic rendition).
    fn code(self) -> Option<u8> {
        match self {
            Self::Plain => None,
            Self::Good => Some(32),
            Self::Warn => Some(33),
            Self::Bad => Some(31),
        }
    }
}

/// Text and tone of a cell. Contains no control characters except line ends.
#[derive(Debug, Clone)]
pub(crate) struct Text(String, Tone);

impl Text {
    pub(crate) fn toned(text: impl ToString, tone: Tone) -> Self {
        let text = text.to_string();
        let shown = match visible(&text) {
            Cow::Borrowed(_) => None,
            Cow::Owned(shown) => Some(shown),
        };
        Self(shown.unwrap_or(text), tone)
    }
}

impl Text {
    /// The text without trailing blanks.
    pub(crate) fn trimmed(self) -> Self {
        Self(self.0.trim_end().to_owned(), self.1)
    }

    /// Its width in characters.
    pub(crate) fn width(&self) -> usize {
        self.0.chars().count()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The text padded to at least `width` characters.
    pub(crate) fn padded(self, width: usize) -> Self {
        Self(format!("{:width$}", self.0), self.1)
    }
}

impl<T: ToString> From<T> for Text {
    fn from(text: T) -> Self {
        Self::toned(text, Tone::Plain)
    }
}

impl Printer {
    /// Prints to stdout; in colour if that is a terminal and NO_COLOR is not set.
    pub(crate) fn stdout() -> Self {
        let wanted = std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
        Self { colours: wanted && io::stdout().is_terminal() }
    }

    /// Whether it prints in colours.
    pub(crate) fn has_colours(&self) -> bool {
        self.colours
    }

    /// Prints one or more lines.
    ///
    /// # Errors
    /// When stdout is closed.
    pub(crate) fn line(&self, text: impl AsRef<str>) -> anyhow::Result<()> {
        write_line(&visible(text.as_ref()))
    }

    /// Prints texts on one line, each in its colour.
    ///
    /// # Errors
    /// When stdout is closed.
    pub(crate) fn styled_line(&self, parts: &[Text]) -> anyhow::Result<()> {
        write_line(&self.styled(parts))
    }

    /// Prints a table of at most [`width`] columns; longer cells wrap.
    ///
    /// # Errors
    /// When stdout is closed.
    pub(crate) fn table(&self, header: &[&str], rows: Vec<Vec<Text>>) -> anyhow::Result<()> {
        write_line(&self.layout(header, rows, Some(width()), 0))
    }

    /// Like [`Printer::table`], but the first `first` columns never wrap.
    ///
    /// # Errors
    /// When stdout is closed.
    pub(crate) fn table_keeping(
        &self,
        first: usize,
        header: &[&str],
        rows: Vec<Vec<Text>>,
    ) -> anyhow::Result<()> {
        write_line(&self.layout(header, rows, Some(width()), first))
    }

    /// Prints a table without a width limit.
    ///
    /// # Errors
    /// When stdout is closed.
    pub(crate) fn wide_table(&self, header: &[&str], rows: Vec<Vec<Text>>) -> anyhow::Result<()> {
        write_line(&self.layout(header, rows, None, 0))
    }

    fn layout(
        &self,
        header: &[&str],
        rows: Vec<Vec<Text>>,
        width: Option<u16>,
        kept: usize,
    ) -> String {
        let mut table = Table::new();
        table
            .load_style(presets::NOTHING)
            .set_content_arrangement(ContentArrangement::Disabled)
            .set_header(header.iter().map(|name| visible_line(name).into_owned()));
        if let Some(width) = width {
            table.set_content_arrangement(ContentArrangement::Dynamic).set_width(width);
        }
        for row in rows {
            table.add_row(row.into_iter().map(|Text(text, tone)| match self.colour(tone) {
                Some(colour) => Cell::new(text).fg(colour),
                None => Cell::new(text),
            }));
        }
        if self.colours {
            table.enforce_styling();
        } else {
            table.force_no_tty();
        }
        // Names start in the first column, as kubectl prints them.
        for column in table.column_iter_mut() {
            column.set_padding((0, 2));
        }
        for column in table.column_iter_mut().take(kept) {
            column.set_constraint(ColumnConstraint::ContentWidth);
        }
        table.trim_fmt()
    }

    fn styled(&self, parts: &[Text]) -> String {
        // A line feed in a member's text would begin a line that the member could make look like another's.
        let coloured = |Text(text, tone): &Text| {
            let text = visible_line(text);
            match tone.code().filter(|_| self.colours) {
                Some(code) => format!("\u{1b}[{code}m{text}\u{1b}[0m"),
                None => text.into_owned(),
            }
        };
        parts.iter().map(coloured).collect()
    }

    /// Prints text that is JSON already.
    ///
    /// # Errors
    /// When stdout is closed.
    pub(crate) fn json(&self, text: &str) -> anyhow::Result<()> {
        write_line(&visible_json(text))
    }

    fn colour(&self, tone: Tone) -> Option<Color> {
        match tone {
            _ if !self.colours => None,
            Tone::Plain => None,
            Tone::Good => Some(Color::Green),
            Tone::Warn => Some(Color::Yellow),
            Tone::Bad => Some(Color::Red),
        }
    }

    /// An object as JSON or YAML.
    ///
    /// # Errors
    /// When stdout is closed.
    pub(crate) fn object(&self, format: Format, object: &impl Serialize) -> anyhow::Result<()> {
        match format {
            Format::Yaml => {
                let text = serde_saphyr::to_string(object).context("write the answer as YAML")?;
                self.line(text.trim_end())
            }
            Format::Json | Format::Table => {
                let text = serde_json::to_string_pretty(object);
                self.json(&text.context("write the answer as JSON")?)
            }
        }
    }
}

fn write_line(text: &str) -> anyhow::Result<()> {
    writeln!(io::stdout().lock(), "{text}").context("write to stdout")
}

/// Prints lines whose control characters are visible already, but for colours.
///
/// # Errors
/// When stdout is closed.
pub(crate) fn lines(lines: impl IntoIterator<Item = String>) -> anyhow::Result<()> {
    let mut out = io::BufWriter::new(io::stdout().lock());
    let written = lines.into_iter().try_for_each(|line| writeln!(out, "{line}"));
    written.and_then(|()| out.flush()).context("write to stdout")
}

/// A count with its noun, in the singular or the plural: `1 member`, `3 members`.
pub(crate) fn counted(count: impl TryInto<u64>, one: &str, many: &str) -> String {
    // A count that is negative or out of range is none that occurs.
    let count = count.try_into().unwrap_or_default();
    format!("{count} {}", if count == 1 { one } else { many })
}

/// A table of at most [`width`] columns for stderr.
pub(crate) fn stderr_table(header: &[&str], rows: Vec<Vec<Text>>) -> String {
    let wanted = std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
    let printer = Printer { colours: wanted && io::stderr().is_terminal() };
    printer.layout(header, rows, Some(width()), 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_an_answer_of_the_hub_people_see_its_message_once() {
        let status =
            kube::core::Status::failure("spec.trigger: \"Foo\" must be First", "BadRequest");
        let api = || kube::Error::Api(Box::new(status.clone().with_code(400)));
        let plain = anyhow::Error::new(api()).context("list the decisions");
        assert_eq!(causes(&plain), "list the decisions: spec.trigger: \"Foo\" must be First");
        let boxed = anyhow::Error::new(Box::new(api())).context("list the decisions");
        assert_eq!(causes(&boxed), "list the decisions: spec.trigger: \"Foo\" must be First");
        let silent =
            kube::Error::Api(Box::new(kube::core::Status::failure("", "Timeout").with_code(504)));
        assert_eq!(causes(&anyhow::Error::new(silent)), "the API server answers 504 Timeout");
        let refused = io::Error::from(io::ErrorKind::ConnectionRefused);
        let service = anyhow::Error::new(kube::Error::Service(Box::new(refused)));
        assert_eq!(causes(&service), "ServiceError: connection refused");
    }

    #[test]
    fn control_characters_of_members_show_as_their_codes() {
        let hostile = "nginx\u{1b}[2J\u{1b}]0;owned\u{7}\r\u{9b}31m\u{202e}gpj\tend";
        let shown = r"nginx\u{1b}[2J\u{1b}]0;owned\u{7}\r\u{9b}31m\u{202e}gpj";
        assert_eq!(visible(hostile), format!("{shown}\tend"));
        assert_eq!(visible_line("a\nb\u{85}"), r"a\nb\u{85}");
        assert!(matches!(visible("3 réplicas → ▁▂"), Cow::Borrowed(_)));
        let printer = Printer { colours: true };
        let rows = vec![vec![Text::toned(hostile, Tone::Bad)]];
        let table = printer.layout(&["NAME"], rows, Some(100), 0);
        assert!(table.contains(r"nginx\u{1b}[2J") && !table.contains("\u{1b}[2J"), "{table:?}");
        let header = printer.layout(&["A\u{1b}[2J\nB"], Vec::new(), Some(100), 0);
        assert!(header.contains(r"A\u{1b}[2J\nB") && header.lines().count() == 1, "{header:?}");
        let forged = printer.styled(&[Text::from("done\nm2  failed")]);
        assert_eq!(forged, r"done\nm2  failed");
        let line = printer.styled(&[Text::from(hostile), Text::toned("ok", Tone::Good)]);
        assert!(!line.contains("\u{1b}[2J") && line.ends_with("\u{1b}[32mok\u{1b}[0m"), "{line:?}");
        let json = serde_json::to_string(hostile).unwrap();
        let shown = visible_json(&json);
        assert!(!shown.contains(is_hidden), "{shown:?}");
        assert_eq!(serde_json::from_str::<String>(&shown).unwrap(), hostile, "nothing is lost");
        let yaml = serde_saphyr::to_string(&[hostile]).unwrap();
        assert!(!visible(&yaml).contains('\u{1b}'), "{yaml:?}");
    }

    #[test]
    fn tables_are_as_wide_as_the_terminal() {
        let widths = [None, Some(0), Some(12), Some(80), Some(240)].map(usable_width);
        assert_eq!(widths, [100, 100, 40, 80, 240]);
    }

    #[test]
    fn tables_fit_and_are_plain_where_nobody_looks() {
        let long = "member1 has 3 of 4 nodes full and ".repeat(6);
        let rows = vec![vec![Text::toned("Placed", Tone::Good), Text::from(long)]];
        let plain =
            Printer { colours: false }.layout(&["OUTCOME", "REASON"], rows.clone(), Some(100), 0);
        assert!(plain.lines().count() > 2, "{plain}");
        assert!(plain.lines().all(|line| line.chars().count() <= 100), "{plain}");
        assert!(plain.starts_with("OUTCOME  REASON") && !plain.contains('\u{1b}'), "{plain}");
        assert!(
            Printer { colours: true }
                .layout(&["OUTCOME", "REASON"], rows, None, 0)
                .contains('\u{1b}')
        );
    }
}
