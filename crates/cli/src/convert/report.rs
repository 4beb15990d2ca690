//! Prints the report of a conversion.

use std::path::Path;

use anyhow::Context;
use atoll_convert::{Class, Group, Report};
use serde_json::json;

use super::ReportFormat;
use crate::print::{self, Text, Tone};

/// Maximum number of objects or fields named in a cell or a warning; the JSON report has all of them.
const MOST_NAMES: usize = 3;

/// Writes the report to stderr, or to a file.
///
/// # Errors
/// When the file cannot be written.
pub(super) fn write(
    report: &Report,
    format: ReportFormat,
    file: Option<&Path>,
) -> anyhow::Result<()> {
    let text = match format {
        ReportFormat::Table => table(report),
        ReportFormat::Json => {
            let summary = json!({
                "takenOver": report.count(Class::TakenOver),
                "changed": report.count(Class::Changed),
                "noEquivalent": report.count(Class::NoEquivalent),
            });
            let report = json!({"summary": summary, "lines": report.lines});
            serde_json::to_string_pretty(&report).context("write the report as JSON")?
        }
    };
    match file {
        None => print::note(text),
        Some(path) => std::fs::write(path, text + "\n")
            .with_context(|| format!("--report-file {}", path.display()))?,
    }
    Ok(())
}

fn table(report: &Report) -> String {
    let rows: Vec<Vec<Text>> = report.groups().iter().map(row).collect();
    let summary = format!(
        "{} taken over, {} changed, {} without an equivalent.",
        print::counted(report.count(Class::TakenOver), "field", "fields"),
        report.count(Class::Changed),
        report.count(Class::NoEquivalent)
    );
    if rows.is_empty() {
        return summary;
    }
    let table =
        print::stderr_table(&["CLASS", "OBJECT", "FIELD", "DIFFERENCE AND WHAT TO DO"], rows);
    format!("{table}\n{summary} --report json lists every field.")
}

fn row(group: &Group<'_>) -> Vec<Text> {
    let tone = match group.class {
        Class::NoEquivalent => Tone::Bad,
        Class::Changed => Tone::Warn,
        Class::TakenOver => Tone::Plain,
    };
    let fields = if group.fields.is_empty() { "-".to_owned() } else { group.fields.join("\n") };
    vec![
        Text::toned(group.class, tone),
        objects(group, "\n").into(),
        fields.into(),
        group.note.into(),
    ]
}

/// The names of the first objects of a group.
fn objects(group: &Group<'_>, between: &str) -> String {
    let mut names: Vec<String> =
        group.sources.iter().take(MOST_NAMES).map(ToString::to_string).collect();
    if group.sources.len() > MOST_NAMES {
        names.push(format!("and {} more", group.sources.len() - MOST_NAMES));
    }
    names.join(between)
}

/// A group as one line.
pub(crate) fn sentence(group: &Group<'_>) -> String {
    let objects = objects(group, ", ");
    if group.fields.is_empty() {
        return format!("{objects}: {}", group.note);
    }
    format!("{objects}: {}: {}", group.fields.join(", "), group.note)
}
