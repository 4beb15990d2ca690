//! A line of a log: its time, and how it is printed.

use jiff::Timestamp;

use crate::print::visible_line;
use crate::reach::RawLine;

/// Limit of a line in bytes; the rest of a longer one is not shown.
pub(super) const MOST: usize = 16 << 10;
/// Foreground colours of prefixes, as terminals number them: not red, which stands for errors.
const COLOURS: [u8; 6] = [36, 32, 33, 35, 34, 96];

/// A line with its time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Line {
    /// `None` if the member gave none.
    pub(super) at: Option<Timestamp>,
    /// The time as the member wrote it, with a space; then the text.
    text: String,
    /// Where the text begins.
    begin: usize,
}

impl Line {
    pub(super) fn of(raw: &RawLine) -> Self {
        let mut text = String::from_utf8_lossy(&raw.bytes).into_owned();
        if raw.cut {
            text.push_str(" ... (cut)");
        }
        let time = text.split_once(' ').and_then(|(time, _)| {
            let at: Timestamp = time.parse().ok()?;
            Some((at, time.len() + 1))
        });
        // A line without text may end after its time.
        let time = time.or_else(|| Some((text.parse().ok()?, text.len())));
        let (at, begin) = time.map_or((None, 0), |(at, begin)| (Some(at), begin));
        Self { at, text, begin }
    }

    /// The memory that it takes: its text, its place among the lines of its log, and its place among the lines of all.
    pub(super) fn memory(&self) -> usize {
        self.text.len() + 2 * size_of::<Self>()
    }

    /// The line as it is printed.
    pub(super) fn shown(&self, prefix: &str, timestamps: bool) -> String {
        let text = if timestamps { &self.text } else { &self.text[self.begin..] };
        format!("{prefix} {}", visible_line(text))
    }
}

/// Writes `[member/pod]` before lines; in colours on a terminal.
pub(super) struct Prefixes {
    colours: bool,
}

impl Prefixes {
    pub(super) fn new(colours: bool) -> Self {
        Self { colours }
    }

    /// The prefix of a pod, or of one container of it.
    pub(super) fn of(&self, member: &str, pod: &str, container: Option<&str>) -> String {
        let paint = |text: &str| match self.colours {
            true => format!("\u{1b}[{}m{text}\u{1b}[0m", colour(text)),
            false => text.to_owned(),
        };
        let (member, pod) = (visible_line(member), visible_line(pod));
        let container = container.map(|name| format!("/{}", visible_line(name)));
        format!("[{}/{}{}]", paint(&member), paint(&pod), container.unwrap_or_default())
    }
}

/// The same name has the same colour.
fn colour(name: &str) -> u8 {
    let sum =
        name.bytes().fold(0_usize, |sum, byte| sum.wrapping_mul(31).wrapping_add(byte.into()));
    COLOURS[sum % COLOURS.len()]
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    fn line(text: &'static str, cut: bool) -> Line {
        Line::of(&RawLine { bytes: Bytes::from_static(text.as_bytes()), cut })
    }

    #[test]
    fn lines_have_a_time_and_a_prefix_and_no_control_characters() {
        let prefixes = Prefixes::new(false);
        let prefix = prefixes.of("m1", "web-0", Some("main"));
        let read = line("2026-01-01T00:00:00.5Z hello \u{1b}[2Jworld", false);
        assert_eq!(read.at, Some("2026-01-01T00:00:00.5Z".parse().unwrap()));
        let shown = read.shown(&prefix, false);
        assert_eq!(shown, r"[m1/web-0/main] hello \u{1b}[2Jworld");
        assert!(read.shown(&prefix, true).contains("] 2026-01-01T00:00:00.5Z hello"));
        let plain = line("no time here", true);
        assert_eq!(plain.at, None);
        assert_eq!(plain.shown("[p]", true), "[p] no time here ... (cut)");
        assert_eq!(line("2026-01-01T00:00:00Z", false).shown("[p]", false), "[p] ");
        assert!(Prefixes::new(true).of("m1", "web-0", None).contains("\u{1b}[0m"));
    }
}
