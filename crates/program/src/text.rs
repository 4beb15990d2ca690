//! Text for people: remarks and errors on stderr, without characters that could mislead a terminal.

use std::borrow::Cow;
use std::fmt::Write as _;
use std::io::{self, Write};

/// Text that is safe for a terminal: characters that move the cursor, change colours or reorder text are escaped
/// (`\u{1b}`). Line ends and tabs stay.
#[must_use]
pub fn visible(text: &str) -> Cow<'_, str> {
    escape(text, |c| is_hidden(c) && !matches!(c, '\n' | '\t'))
}

/// As [`visible`], but line ends are escaped too.
#[must_use]
pub fn visible_line(text: &str) -> Cow<'_, str> {
    escape(text, is_hidden)
}

fn escape(text: &str, is_escaped: impl Fn(char) -> bool) -> Cow<'_, str> {
    if !text.contains(&is_escaped) {
        return Cow::Borrowed(text);
    }
    let mut shown = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        match is_escaped(c) {
            true => shown.extend(c.escape_default()),
            false => shown.push(c),
        }
    }
    Cow::Owned(shown)
}

/// Control characters (C0, DEL, C1), bidirectional overrides and invisible line breaks.
#[must_use]
pub fn is_hidden(c: char) -> bool {
    let directs = matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    c.is_control() || directs || matches!(c, '\u{2028}' | '\u{2029}' | '\u{feff}')
}

/// JSON with hidden characters escaped. They occur in strings only, where an escape is equivalent.
#[must_use]
pub fn visible_json(text: &str) -> Cow<'_, str> {
    let is_escaped = |c: char| is_hidden(c) && c != '\n';
    if !text.contains(is_escaped) {
        return Cow::Borrowed(text);
    }
    let mut shown = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        match is_escaped(c) {
            // All of them are in the basic plane, which JSON writes with four digits.
            true => {
                let _ = write!(shown, "\\u{:04x}", u32::from(c));
            }
            false => shown.push(c),
        }
    }
    Cow::Owned(shown)
}

/// Prints a remark that is not part of the answer to stderr.
pub fn note(text: impl AsRef<str>) {
    // If stderr is closed, the error cannot be reported anywhere.
    let _ = writeln!(io::stderr().lock(), "{}", visible(text.as_ref()));
}

/// Prints an error and its causes on one line.
pub fn error(error: &anyhow::Error) {
    note(format!("error: {}", causes(error)));
}

/// An error and its causes, each once. Of an API server's answer only the message is kept: the client appends the whole
/// status for debugging, and repeats it as its own cause.
#[must_use]
pub fn causes(error: &anyhow::Error) -> String {
    let mut said: Vec<String> = Vec::new();
    for cause in error.chain() {
        let boxed = cause.downcast_ref::<Box<kube::Error>>().map(|error| &**error);
        if let Some(kube::Error::Api(status)) = boxed.or_else(|| cause.downcast_ref()) {
            said.push(match status.message.is_empty() {
                true => format!("the API server answers {} {}", status.code, status.reason),
                false => status.message.clone(),
            });
            break;
        }
        let text = cause.to_string();
        if said.last().is_none_or(|last| !last.ends_with(&text)) {
            said.push(text);
        }
    }
    said.join(": ")
}

/// Whether an error means that stdout is closed.
#[must_use]
pub fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error.chain().any(|cause| {
        cause.downcast_ref::<io::Error>().is_some_and(|io| io.kind() == io::ErrorKind::BrokenPipe)
    })
}
