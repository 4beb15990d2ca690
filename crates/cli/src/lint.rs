//! `atoll lint`: what is wrong with policies, before they are applied.

use anyhow::bail;
use atoll_scheduler::lint_policy::{self, Severity};
use clap::Args;
use serde_json::json;

use crate::args::{Format, OutputFlag};
use crate::input::{self, FilesFlag};
use crate::print::{self, Printer, Text, Tone};

#[derive(Debug, Args)]
#[command(
    arg_required_else_help = true,
    after_help = "Exit code 1 when an object could not be read or cannot do what it says; warnings are parts without \
                  effect. Give Clusters and workloads too, and selectors are checked against them."
)]
pub(crate) struct LintArgs {
    #[command(flatten)]
    files: FilesFlag,
    #[command(flatten)]
    output: OutputFlag,
}

pub(crate) fn run(args: LintArgs, out: &Printer) -> anyhow::Result<()> {
    let (world, errors) = input::read(&args.files.files)?;
    let findings = lint_policy::world(&world);
    match args.output.output {
        Format::Table if findings.is_empty() => out.line("Nothing is wrong.")?,
        Format::Table => out.table(
            &["SEVERITY", "OBJECT", "FIELD", "PROBLEM AND FIX"],
            findings
                .iter()
                .map(|finding| {
                    let severity = match finding.severity {
                        Severity::Error => Text::toned("Error", Tone::Bad),
                        Severity::Warning => Text::toned("Warning", Tone::Warn),
                    };
                    let text = format!("{}; {}", finding.problem, finding.fix);
                    vec![severity, (&finding.object).into(), (&finding.field).into(), text.into()]
                })
                .collect(),
        )?,
        format => {
            let errors: Vec<_> = errors
                .iter()
                .map(|error| json!({"origin": error.origin, "problem": error.problem}))
                .collect();
            out.object(format, &json!({"findings": findings, "errors": errors}))?;
        }
    }
    for error in &errors {
        print::note(format!("error: {error}"));
    }
    let wrong = findings.iter().filter(|f| f.severity == Severity::Error).count();
    if wrong + errors.len() > 0 {
        bail!("{} objects could not be read, {wrong} findings are errors", errors.len());
    }
    Ok(())
}
