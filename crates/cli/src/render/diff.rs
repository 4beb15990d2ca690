//! What overrides change, as a unified diff of two YAML documents.

use anyhow::Context;
use serde_json::Value;
use similar::TextDiff;

use super::members::Copy;
use super::rule;
use crate::print::{self, Printer};

/// Unchanged lines around a change.
const CONTEXT: usize = 3;

/// Prints the difference between a copy without and with overrides; nothing if there is none.
pub(super) fn print(copy: &Copy, out: &Printer) -> anyhow::Result<()> {
    let Ok(rendered) = &copy.result else { return Ok(()) };
    let (before, after) = (text(&rendered.plain)?, text(&rendered.manifest)?);
    if before == after {
        return Ok(());
    }
    for applied in &rendered.applied {
        out.line(format!("# applied: {}", rule(applied)))?;
    }
    let object = print::visible_line(&copy.object);
    let (old, new) = (format!("{object} as placed"), format!("{object} on {}", copy.cluster));
    let diff = TextDiff::from_lines(&before, &after);
    let unified = diff.unified_diff().context_radius(CONTEXT).header(&old, &new).to_string();
    out.line(print::visible(unified.trim_end()))
}

fn text(manifest: &Value) -> anyhow::Result<String> {
    serde_saphyr::to_string(manifest).context("write the manifest as YAML")
}
