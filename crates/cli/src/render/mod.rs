//! `atoll render`: what each member would get, without a hub.

mod batch;
mod diff;
pub(crate) mod members;

use std::path::PathBuf;

use anyhow::{bail, ensure};
use atoll_render::overrides::Applied;
use atoll_scheduler::Scheduler;
use atoll_scheduler::offline::Settings;
use clap::{ArgGroup, Args, ValueEnum};
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::args::{Format, ReservedFlag};
use crate::input::{self, FilesFlag, ValidateFlag};
use crate::print::{self, Printer};
use crate::schedule;
use members::{Copies, Copy};

#[derive(Debug, Args)]
#[command(
    group(ArgGroup::new("input").args(["files", "batch"]).required(true)),
    after_help = "Exit code 1 when an object could not be read, no member is known for it, or an override could not \
                  be applied."
)]
pub(crate) struct RenderArgs {
    #[command(flatten)]
    files: FilesFlag,
    #[command(flatten)]
    validate: ValidateFlag,
    #[command(flatten)]
    reserved: ReservedFlag,
    /// Cases of overrides, one JSON object per line, or - for stdin; prints one JSON object per line
    #[arg(
        long,
        value_name = "FILE|-",
        conflicts_with_all = ["output", "cluster", "config", "reserved_namespaces", "validate"]
    )]
    batch: Option<PathBuf>,
    /// Only what this member would get
    #[arg(long, value_name = "NAME")]
    cluster: Option<String>,
    /// SchedulerConfiguration with further profiles that policies name [default: the built-in profiles]
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// yaml and json print manifests; diff prints what the overrides change
    #[arg(short, long, value_name = "FORMAT", default_value = "yaml")]
    output: RenderFormat,
}

/// How manifests are printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum RenderFormat {
    Yaml,
    Diff,
    Json,
}

pub(crate) fn run(args: RenderArgs, out: &Printer) -> anyhow::Result<()> {
    if let Some(path) = &args.batch {
        return batch::run(path, out);
    }
    let (mut world, mut errors) =
        input::read(&args.files.files, args.validate.validate, &args.reserved)?;
    let rules = input::customized::interpret(&mut world, &mut errors);
    if let Some(name) = &args.cluster {
        let known = world.clusters.keys().map(String::as_str).collect::<Vec<_>>().join(", ");
        ensure!(
            world.clusters.contains_key(name),
            "--cluster {name}: the input has no Cluster of that name; it has {}",
            if known.is_empty() { "none" } else { &known }
        );
    }
    let mut scheduler = Scheduler::new(schedule::profiles(args.config.as_deref())?);
    let settings = Settings { profile: None, now: Timestamp::now() };
    let answers = world.decide(&mut scheduler, &settings);
    ensure!(
        !answers.is_empty() || !errors.is_empty(),
        "nothing to render: the input has no workload"
    );
    let Copies { copies, problems } =
        members::copies(&world, &answers, &rules, args.cluster.as_deref());
    match args.output {
        RenderFormat::Yaml => yaml(&copies, out)?,
        RenderFormat::Diff => {
            for copy in &copies {
                diff::print(copy, out)?;
            }
        }
        RenderFormat::Json => {
            let errors = errors.iter().map(|e| json!({"origin": e.origin, "problem": e.problem}));
            let answer = json!({
                "items": copies.iter().map(document).collect::<Vec<_>>(),
                "errors": errors.collect::<Vec<_>>(),
            });
            out.object(Format::Json, &answer)?;
        }
    }
    for problem in errors.iter().map(ToString::to_string).chain(problems.iter().cloned()) {
        print::note(format!("error: {problem}"));
    }
    let failed = copies.iter().filter(|copy| copy.result.is_err()).count();
    for copy in &copies {
        if let Err(problem) = &copy.result {
            print::note(format!("error: {} on {}: {problem}", copy.object, copy.cluster));
        }
    }
    let unusable = errors.len() + problems.len();
    if failed + unusable > 0 {
        bail!(
            "{} could not be read or placed, {} not rendered",
            print::counted(unusable, "object", "objects"),
            print::counted(failed, "copy was", "copies were")
        );
    }
    Ok(())
}

/// One document for each copy, with the member and the applied rules as comments.
fn yaml(copies: &[Copy], out: &Printer) -> anyhow::Result<()> {
    for (at, copy) in copies.iter().enumerate() {
        if at > 0 {
            out.line("---")?;
        }
        out.line(format!("# {} on {}", print::visible_line(&copy.object), copy.cluster))?;
        let manifest = match &copy.result {
            Ok(rendered) => rendered,
            Err(problem) => {
                out.line(format!("# nothing is sent: {}", print::visible_line(problem)))?;
                continue;
            }
        };
        for applied in &manifest.applied {
            out.line(format!("# applied: {}", rule(applied)))?;
        }
        out.object(Format::Yaml, &manifest.manifest)?;
    }
    Ok(())
}

/// `ClusterOverridePolicy mirror, rule 0`.
fn rule(applied: &Applied) -> String {
    format!("{} {}, rule {}", applied.scope.kind(), applied.policy, applied.rule)
}

fn document(copy: &Copy) -> Value {
    let mut item = json!({"cluster": copy.cluster, "object": copy.object});
    match &copy.result {
        Ok(rendered) => {
            item["manifest"] = rendered.manifest.clone();
            item["applied"] = json!(rendered.applied);
        }
        Err(problem) => item["error"] = json!(problem),
    }
    item
}
