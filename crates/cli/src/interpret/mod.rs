//! `atoll interpret`: what Atoll makes of an object, without a hub.

pub(crate) mod batch;
mod customized;
mod object;

use std::path::PathBuf;

use anyhow::bail;
use atoll_interpreter::Operation;
use clap::Args;
use serde_json::Value;

use crate::args::{Format, OutputFlag};
use crate::print::Printer;
use customized::Rules;

#[derive(Debug, Args)]
#[command(
    arg_required_else_help = true,
    after_help = "Each line of a batch is {\"id\", \"input\"}; each answer is {\"id\", \"result\"}, in the order of the lines, \
                  and an operation that has no answer gives {\"error\": TEXT} as result. docs/interpreters.md lists the \
                  fields of inputs and answers. With -f the rules of ResourceInterpreterCustomizations answer in place of the \
                  built-in ones."
)]
pub(crate) struct InterpretArgs {
    /// What to find out about the object; `customized` for a batch that names the customizations in each case
    #[arg(long, value_name = "OPERATION", value_parser = operation, required_unless_present = "check")]
    operation: Option<Asked>,
    /// An object as YAML or JSON; - for stdin
    #[arg(
        long,
        value_name = "FILE",
        required_unless_present_any = ["batch", "check"],
        conflicts_with = "batch"
    )]
    object: Option<PathBuf>,
    /// ResourceInterpreterCustomizations as YAML or JSON: a file, a folder, or - for stdin; may be repeated. Their rules
    /// answer
    #[arg(short = 'f', long = "filename", value_name = "FILE|DIR|-", value_delimiter = ',')]
    customization: Vec<PathBuf>,
    /// For `customized`: the file of the customizations that the cases name
    #[arg(long, value_name = "FILE", requires = "batch")]
    customizations: Option<PathBuf>,
    /// Compile the rules of -f and list what is wrong; exit code 1 if something is
    #[arg(
        long,
        requires = "customization",
        conflicts_with_all = ["operation", "object", "observed", "items", "replicas", "batch"]
    )]
    check: bool,
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

/// What is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Asked {
    /// An operation with built-in rules.
    BuiltIn(Operation),
    /// The components of an object, of which only customizations know.
    Components,
    /// What each case of a batch asks.
    Customized,
}

impl Asked {
    fn name(self) -> &'static str {
        match self {
            Self::BuiltIn(operation) => operation.name(),
            Self::Components => "components",
            Self::Customized => "customized",
        }
    }
}

fn operation(name: &str) -> Result<Asked, String> {
    match (name.parse(), name) {
        (Ok(operation), _) => Ok(Asked::BuiltIn(operation)),
        (Err(_), "components") => Ok(Asked::Components),
        (Err(_), "customized") => Ok(Asked::Customized),
        (Err(problem), _) => Err(format!("{problem}, components, customized")),
    }
}

pub(crate) fn run(args: InterpretArgs, out: &Printer) -> anyhow::Result<()> {
    let rules = match (&args.customizations, &args.customization[..]) {
        (Some(file), _) => Some(Rules::read(std::slice::from_ref(file))?),
        (None, []) => None,
        (None, files) => Some(Rules::read(files)?),
    };
    let Some(asked) = args.operation else {
        let Some(rules) = rules else { bail!("give the customizations to check with -f FILE") };
        return rules.check(args.output.output, out);
    };
    if asked == Asked::Customized && rules.is_none() {
        bail!("give the customizations that the cases name with --customizations FILE");
    }
    if let Some(path) = &args.batch {
        return batch::run(path, |input| answer(asked, rules.as_ref(), input), out);
    }
    let input = match asked {
        Asked::BuiltIn(operation) => object::input(&args, operation)?,
        // An object alone, as for `health`.
        Asked::Components => object::input(&args, Operation::Health)?,
        Asked::Customized => bail!("operation customized is for --batch FILE only"),
    };
    match answer(asked, rules.as_ref(), &input) {
        Ok(found) => {
            // An answer is an object, not rows.
            let format = match args.output.output {
                Format::Json => Format::Json,
                Format::Table | Format::Yaml => Format::Yaml,
            };
            out.object(format, &found)
        }
        Err(error) => bail!("operation {}: {error}", asked.name()),
    }
}

/// Answers from the given rules, else from the built-in ones.
fn answer(asked: Asked, rules: Option<&Rules>, input: &Value) -> anyhow::Result<Value> {
    match (asked, rules) {
        (Asked::Customized, Some(rules)) => rules.answer_case(input),
        (Asked::Customized, None) => bail!("give the customizations with --customizations FILE"),
        (_, Some(rules)) => rules.answer(asked.name(), input),
        (Asked::BuiltIn(operation), None) => Ok(atoll_interpreter::interpret(operation, input)?),
        (Asked::Components, None) => {
            bail!("give a customization with rules for components: -f FILE")
        }
    }
}
