//! `atoll interpret`: what Atoll makes of an object, without a hub.

pub(crate) mod batch;
mod object;

use std::path::PathBuf;

use anyhow::bail;
use atoll_interpreter::{InterpretError, Operation};
use clap::Args;
use serde_json::Value;

use crate::args::{Format, OutputFlag};
use crate::print::Printer;

#[derive(Debug, Args)]
#[command(
    arg_required_else_help = true,
    after_help = "Each line of a batch is {\"id\", \"input\"}; each answer is {\"id\", \"result\"}, in the order of the lines, \
                  and an operation that has no answer gives {\"error\": TEXT} as result. docs/interpreters.md lists the \
                  fields of inputs and answers."
)]
pub(crate) struct InterpretArgs {
    /// What to find out about the object
    #[arg(long, value_name = "OPERATION", value_parser = operation)]
    operation: Operation,
    /// An object as YAML or JSON; - for stdin
    #[arg(long, value_name = "FILE", required_unless_present = "batch", conflicts_with = "batch")]
    object: Option<PathBuf>,
    /// For `retain`: the object as it is on the member
    #[arg(long, value_name = "FILE", requires = "object")]
    observed: Option<PathBuf>,
    /// For `aggregate`: a list of {clusterName, status}, as `aggregatedStatus` of a binding
    #[arg(long, value_name = "FILE", requires = "object")]
    items: Option<PathBuf>,
    /// For `replicas`: print the object with this number of replicas
    #[arg(long, value_name = "NUMBER", requires = "object")]
    replicas: Option<u32>,
    /// Cases as JSON, one on each line; - for stdin
    #[arg(long, value_name = "FILE")]
    batch: Option<PathBuf>,
    #[command(flatten)]
    output: OutputFlag,
}

fn operation(name: &str) -> Result<Operation, String> {
    name.parse()
}

pub(crate) fn run(args: InterpretArgs, out: &Printer) -> anyhow::Result<()> {
    if let Some(path) = &args.batch {
        return batch::run(path, |input| answer(args.operation, input), out);
    }
    let input = object::input(&args)?;
    match answer(args.operation, &input) {
        Ok(found) => {
            // An answer is an object, not rows.
            let format = match args.output.output {
                Format::Json => Format::Json,
                Format::Table | Format::Yaml => Format::Yaml,
            };
            out.object(format, &found)
        }
        Err(error) => bail!("operation {}: {error}", args.operation),
    }
}

/// Answers from the built-in rules.
fn answer(operation: Operation, input: &Value) -> Result<Value, InterpretError> {
    atoll_interpreter::interpret(operation, input)
}
