//! `atoll convert`: Karmada's objects (and Kosmos' WorkloadPolicy, OpenKruise's WorkloadSpread) as Atoll's, with a report.

mod control_plane;
pub(crate) mod kustomization;
mod report;

use std::fmt;
use std::path::PathBuf;

use anyhow::Context;
use atoll_convert::{Class, Converter, KARMADA_PROFILE, Options, Purpose, Report};
use atoll_scheduler::offline::documents::{self, Document, InputError};
use clap::{ArgGroup, Args, ValueEnum};
use serde_json::{Value, json};

use crate::args::{Format, HubFlags};
use crate::input;
use crate::print::{self, Printer};
pub(crate) use report::sentence;

/// How the objects are printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum ObjectFormat {
    /// One YAML document for each object
    Yaml,
    /// One JSON object of kind List
    Json,
}

/// How the report is printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum ReportFormat {
    /// What changed and what has no equivalent, for people
    Table,
    /// A line for every field, also for those that are taken over
    Json,
}

#[derive(Debug, Args)]
#[command(
    group(ArgGroup::new("source").args(["files", "kustomize", "from"]).required(true)),
    after_help = "The objects go to stdout, the report to stderr. Nothing is written to any cluster.\n\
                  Exit code 3 when something has no equivalent in Atoll, 1 when an object could not be read. \
                  docs/from-karmada.md has the differences."
)]
pub(crate) struct ConvertArgs {
    /// Objects as YAML or JSON: a file, a folder (its .yaml, .yml and .json files), or - for stdin; may be repeated, or
    /// several with commas between them
    #[arg(short = 'f', long = "filename", value_name = "FILE|DIR|-", value_delimiter = ',')]
    files: Vec<PathBuf>,
    /// A folder with a kustomization. One that only lists files and folders is read directly; any other needs kubectl
    #[arg(short = 'k', long, value_name = "DIR")]
    kustomize: Option<PathBuf>,
    /// Kubeconfig of a Karmada control plane: reads its policies, Clusters and other kinds, and the objects that the policies
    /// select. --context and --namespace apply to it
    #[arg(long, value_name = "KUBECONFIG")]
    from: Option<PathBuf>,
    /// Scheduler profile of policies that use Karmada's scheduler: karmada decides as Karmada does, default by Atoll's rules
    #[arg(long, value_name = "NAME", default_value = KARMADA_PROFILE)]
    profile: String,
    /// How to print the objects
    #[arg(short, long, value_name = "FORMAT", default_value = "yaml")]
    output: ObjectFormat,
    /// How to print the report
    #[arg(long, value_name = "FORMAT", default_value = "table")]
    report: ReportFormat,
    /// Write the report to a file instead of stderr
    #[arg(long, value_name = "FILE")]
    report_file: Option<PathBuf>,
}

impl ConvertArgs {
    /// Whether the verb talks to an API server.
    pub(crate) fn reads_server(&self) -> bool {
        self.from.is_some()
    }
}

/// Parts of the input have no equivalent. The report names them.
#[derive(Debug)]
pub(crate) struct Incomplete(usize);

impl fmt::Display for Incomplete {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let count = print::counted(self.0, "field or object has", "fields or objects have");
        write!(f, "{count} no equivalent in Atoll: see the report")
    }
}

impl std::error::Error for Incomplete {}

pub(crate) async fn run(hub: &HubFlags, args: ConvertArgs, out: &Printer) -> anyhow::Result<()> {
    let (documents, errors) = read(hub, &args).await?;
    let options = Options { profile: args.profile.clone(), ..Options::new(Purpose::Hub) };
    let converter = Converter::new(options).context("read the schemas of Atoll's kinds")?;
    let (mut objects, mut report) = (Vec::new(), Report::default());
    for document in documents {
        let converted = converter.convert(document.object);
        objects.extend(converted.object);
        report.lines.extend(converted.lines);
    }
    print_objects(args.output, objects, out)?;
    report::write(&report, args.report, args.report_file.as_deref())?;
    for error in &errors {
        print::note(format!("error: {error}"));
    }
    if !errors.is_empty() {
        anyhow::bail!("{} could not be read", print::counted(errors.len(), "object", "objects"));
    }
    let lacking = report.count(Class::NoEquivalent);
    if lacking > 0 {
        return Err(Incomplete(lacking).into());
    }
    Ok(())
}

async fn read(
    hub: &HubFlags,
    args: &ConvertArgs,
) -> anyhow::Result<(Vec<Document>, Vec<InputError>)> {
    if let Some(kubeconfig) = &args.from {
        let flags = HubFlags { kubeconfig: Some(kubeconfig.clone()), ..hub.clone() };
        return Ok((control_plane::read(&flags).await?, Vec::new()));
    }
    let texts = match &args.kustomize {
        Some(folder) => kustomization::texts(folder).await?,
        None => input::all_texts(&args.files)?,
    };
    let (mut found, mut errors) = (Vec::new(), Vec::new());
    for (name, text) in &texts {
        let (documents, broken) = documents::read(name, text);
        errors.extend(broken);
        for document in documents {
            match lacking(&document.object) {
                None => found.push(document),
                Some(field) => errors.push(InputError {
                    origin: document.origin,
                    problem: format!("{field}: missing; every object needs one"),
                }),
            }
        }
    }
    if found.is_empty() && errors.is_empty() {
        anyhow::bail!("no objects: give YAML or JSON with apiVersion, kind and metadata");
    }
    Ok((found, errors))
}

/// The first field that every object needs and this one lacks.
fn lacking(object: &Value) -> Option<&'static str> {
    let has = |pointer: &str| {
        object.pointer(pointer).and_then(Value::as_str).is_some_and(|t| !t.is_empty())
    };
    [("/apiVersion", "apiVersion"), ("/kind", "kind"), ("/metadata/name", "metadata.name")]
        .into_iter()
        .find(|(pointer, _)| !has(pointer))
        .map(|(_, field)| field)
}

fn print_objects(format: ObjectFormat, objects: Vec<Value>, out: &Printer) -> anyhow::Result<()> {
    match format {
        ObjectFormat::Json => {
            out.object(Format::Json, &json!({"apiVersion": "v1", "kind": "List", "items": objects}))
        }
        ObjectFormat::Yaml => objects.iter().enumerate().try_for_each(|(at, object)| {
            if at > 0 {
                out.line("---")?;
            }
            out.object(Format::Yaml, object)
        }),
    }
}
