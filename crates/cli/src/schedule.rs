//! `atoll schedule`: what the scheduler would decide, without a hub.

use std::fs::File;
use std::io::{self, BufReader, BufWriter};
use std::path::{Path, PathBuf};

use anyhow::{Context, bail, ensure};
use atoll_api::binding::{Outcome, TargetCluster};
use atoll_decision::explain;
use atoll_decision::{ClusterOutcome, Decision};
use atoll_scheduler::offline::{Answer, Fate, InputError, Settings, batch};
use atoll_scheduler::{Profiles, Scheduler, SchedulerConfiguration};
use clap::{ArgGroup, Args};
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::args::{ReservedFlag, TenancyFlag, WideFormat};
use crate::input::{self, FilesFlag, Schemas, ValidateFlag, Validation};
use crate::print::{self, Printer, Text, Tone};

/// Maximum number of clusters named in a table cell.
const MOST_NAMES: usize = 12;
/// Maximum number of groups of refused clusters in a table cell.
const MOST_REFUSALS: usize = 4;

#[derive(Debug, Args)]
#[command(
    group(ArgGroup::new("input").args(["files", "batch"]).required(true)),
    after_help = "Exit code 1 when an object could not be read or was refused as invalid, or a line of a batch \
                        was bad; replicas that find no place are an answer, not an error."
)]
pub(crate) struct ScheduleArgs {
    #[command(flatten)]
    files: FilesFlag,
    #[command(flatten)]
    validate: ValidateFlag,
    #[command(flatten)]
    reserved: ReservedFlag,
    #[command(flatten)]
    tenancy: TenancyFlag,
    /// Scheduling cases, one JSON object per line, or - for stdin; prints one JSON object per line
    #[arg(
        long,
        value_name = "FILE|-",
        conflicts_with_all = ["output", "explain", "reserved_namespaces", "require_cluster_sets"]
    )]
    batch: Option<PathBuf>,
    /// Profile: default, karmada, or one of --config [default: the one that each policy names, else default]
    #[arg(long, value_name = "NAME")]
    profile: Option<String>,
    /// SchedulerConfiguration with further profiles, YAML or JSON [default: the built-in profiles]
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// The time of the decisions, RFC 3339, for example 2026-08-21T12:00:00Z [default: now]
    #[arg(long, value_name = "TIME")]
    now: Option<Timestamp>,
    /// How to print the decisions; wide adds trigger, policies and strategy
    #[arg(short, long, value_name = "FORMAT", default_value = "table")]
    output: WideFormat,
    /// Explain each decision below the table
    #[arg(long)]
    explain: bool,
}

pub(crate) fn run(args: ScheduleArgs, out: &Printer) -> anyhow::Result<()> {
    let profiles = profiles(args.config.as_deref())?;
    if let Some(name) = &args.profile {
        let known: Vec<&str> = profiles.names().collect();
        ensure!(
            profiles.get(name).is_some(),
            "--profile {name}: no such profile; there are {}",
            known.join(", ")
        );
    }
    let now = args.now.unwrap_or_else(Timestamp::now);
    let settings = Settings { profile: args.profile.clone(), now };
    match &args.batch {
        Some(path) => run_batch(path, &profiles, &settings, args.validate.validate),
        None => run_files(&args, profiles, &settings, out),
    }
}

/// The built-in profiles and those of a SchedulerConfiguration.
///
/// # Errors
/// When the file cannot be read or is invalid.
pub(crate) fn profiles(config: Option<&Path>) -> anyhow::Result<Profiles> {
    let Some(path) = config else { return Ok(Profiles::default()) };
    let named = || format!("--config {}", path.display());
    let text = std::fs::read_to_string(path).with_context(named)?;
    let config = SchedulerConfiguration::read(&text).with_context(named)?;
    Profiles::read(&config).with_context(named)
}

fn run_batch(
    path: &Path,
    profiles: &Profiles,
    settings: &Settings,
    validation: Validation,
) -> anyhow::Result<()> {
    let schemas = Schemas::load()?;
    let check = |case: &Value| match (validation, schemas.check_case(case)) {
        (Validation::Ignore, _) | (_, Ok(())) => Ok(()),
        (Validation::Strict, wrong) => wrong,
        (Validation::Warn, Err(problem)) => {
            print::note(format!("warning: case {}: {problem}", case["id"]));
            Ok(())
        }
    };
    let output = BufWriter::new(io::stdout().lock());
    let summary = if path.as_os_str() == "-" {
        batch::run_checked(io::stdin().lock(), output, profiles, settings, &check)
    } else {
        let file = File::open(path).with_context(|| format!("--batch {}", path.display()))?;
        batch::run_checked(BufReader::new(file), output, profiles, settings, &check)
    }
    .context("run the batch")?;
    ensure!(
        summary.lines > 0,
        "--batch {}: it holds no case; give one JSON object a line",
        path.display()
    );
    if summary.bad + summary.invalid > 0 {
        bail!(
            "of {}, {} could not be read and {} invalid",
            print::counted(summary.lines, "case", "cases"),
            summary.bad,
            print::counted(summary.invalid, "was", "were")
        );
    }
    Ok(())
}

fn run_files(
    args: &ScheduleArgs,
    profiles: Profiles,
    settings: &Settings,
    out: &Printer,
) -> anyhow::Result<()> {
    let (mut world, mut errors) =
        input::read(&args.files.files, args.validate.validate, &args.reserved)?;
    world.require_cluster_sets(args.tenancy.require_cluster_sets);
    input::customized::interpret(&mut world, &mut errors);
    let answers = world.decide(&mut Scheduler::new(profiles), settings);
    if answers.is_empty() && errors.is_empty() {
        bail!(
            "nothing to schedule: the input has {} and {}, but no workload and no binding",
            print::counted(world.clusters.len(), "Cluster", "Clusters"),
            print::counted(world.policies.len(), "policy", "policies")
        );
    }
    let objects = args.output.objects();
    if let Some(format) = objects {
        out.object(format, &document(&answers, &errors))?;
    } else if args.output == WideFormat::Wide && !answers.is_empty() {
        let header = [&HEADER[..], &["TRIGGER", "POLICIES", "STRATEGY"]].concat();
        out.wide_table(&header, answers.iter().map(wide_row).collect())?;
    } else if !answers.is_empty() {
        out.table(&HEADER, answers.iter().map(row).collect())?;
    }
    if args.explain && objects.is_none() {
        for decision in answers.iter().filter_map(decided) {
            out.line("")?;
            out.line(explain::render(decision, usize::from(print::width())).trim_end())?;
        }
    }
    for error in &errors {
        print::note(format!("error: {error}"));
    }
    let refused = answers.iter().filter(|answer| is_refused(answer)).count();
    if refused + errors.len() > 0 {
        bail!(
            "{} could not be read, {} invalid",
            print::counted(errors.len(), "object", "objects"),
            print::counted(refused, "was", "were")
        );
    }
    Ok(())
}

fn decided(answer: &Answer) -> Option<&Decision> {
    match &answer.fate {
        Fate::Decided(decision) => Some(decision),
        Fate::Attached(_) | Fate::NotClaimed(_) | Fate::Unusable(_) => None,
    }
}

fn is_refused(answer: &Answer) -> bool {
    match &answer.fate {
        Fate::Decided(decision) => decision.outcome() == Outcome::Invalid,
        Fate::NotClaimed(_) | Fate::Attached(_) => false,
        Fate::Unusable(_) => true,
    }
}

const HEADER: [&str; 5] = ["WORKLOAD", "OUTCOME", "CLUSTERS", "PENDING", "WHY"];

fn row(answer: &Answer) -> Vec<Text> {
    let object = Text::from(&answer.object);
    let without = |outcome: Text, why: &str| {
        vec![object.clone(), outcome, Text::from("-"), Text::from("-"), Text::from(why)]
    };
    match &answer.fate {
        Fate::NotClaimed(why) => without(Text::from("NotClaimed"), why),
        Fate::Attached(on) => vec![
            object,
            Text::toned("Attached", Tone::Good),
            Text::from(names(on)),
            Text::from("-"),
            Text::from(Fate::ATTACHED),
        ],
        Fate::Unusable(why) => without(Text::toned("Unusable", Tone::Bad), why),
        Fate::Decided(decision) => {
            let tone = match decision.outcome() {
                Outcome::Placed | Outcome::Unchanged => Tone::Good,
                Outcome::Partial => Tone::Warn,
                _ => Tone::Bad,
            };
            let pending = decision.pending_replicas();
            vec![
                object,
                Text::toned(decision.outcome(), tone),
                Text::from(clusters(decision)),
                Text::toned(pending, if pending > 0 { Tone::Warn } else { Tone::Plain }),
                Text::from(why(decision)),
            ]
        }
    }
}

fn wide_row(answer: &Answer) -> Vec<Text> {
    let mut cells = row(answer);
    let Some(decision) = decided(answer) else {
        cells.extend(["-", "-", "-"].map(Text::from));
        return cells;
    };
    let policies = decision.policies.iter().map(|policy| match &policy.namespace {
        Some(namespace) => format!("{} {namespace}/{}", policy.kind, policy.name),
        None => format!("{} {}", policy.kind, policy.name),
    });
    cells.push(Text::from(decision.trigger()));
    cells.push(Text::from(policies.collect::<Vec<_>>().join("\n")));
    cells.push(Text::from(&decision.strategy));
    cells
}

/// Names of clusters, one per line.
fn names(shares: &[TargetCluster]) -> String {
    let mut lines: Vec<&str> = shares.iter().take(MOST_NAMES).map(|s| s.name.as_str()).collect();
    let more = format!("and {} more", shares.len().saturating_sub(MOST_NAMES));
    match shares.len() {
        0 => lines.push("-"),
        all if all > MOST_NAMES => lines.push(&more),
        _ => {}
    }
    lines.join("\n")
}

/// `member1: 2`, one per line; only the names for kinds without replicas.
fn clusters(decision: &Decision) -> String {
    let shares = decision.clusters();
    let mut lines: Vec<String> = shares
        .iter()
        .filter(|share| share.replicas > 0 || decision.desired.is_none_or(|desired| desired == 0))
        .take(MOST_NAMES)
        .map(|share| match decision.desired {
            Some(_) => format!("{}: {}", share.name, share.replicas),
            None => share.name.clone(),
        })
        .collect();
    if shares.len() > MOST_NAMES {
        lines.push(format!("and {} more", shares.len() - MOST_NAMES));
    }
    if lines.is_empty() { "-".to_owned() } else { lines.join("\n") }
}

/// Pending replicas and the reason, what to fix, and which rule refused which clusters.
fn why(decision: &Decision) -> String {
    let mut lines: Vec<String> = decision
        .pending
        .iter()
        .filter(|group| group.replicas > 0)
        .map(|group| format!("{} pending: {}", group.replicas, group.reason))
        .collect();
    if lines.is_empty() && !decision.reason.is_empty() {
        lines.push(decision.reason.clone());
    }
    let refused: Vec<_> = decision
        .verdicts
        .iter()
        .filter(|verdict| matches!(verdict.outcome, ClusterOutcome::Refused | ClusterOutcome::Kept))
        .filter(|verdict| !verdict.rejections.is_empty())
        .collect();
    for verdict in refused.iter().take(MOST_REFUSALS) {
        let rules = verdict.rejections.iter().map(|r| format!("{} {}", r.plugin, r.reason));
        let outcome = if verdict.outcome == ClusterOutcome::Kept { "kept" } else { "refused" };
        let (names, rules) =
            (verdict.clusters.short().join(", "), rules.collect::<Vec<_>>().join("; "));
        lines.push(format!("{names} {outcome}: {rules}"));
    }
    if refused.len() > MOST_REFUSALS {
        let more = refused.len() - MOST_REFUSALS;
        lines.push(format!("{}: --explain", print::counted(more, "more reason", "more reasons")));
    }
    lines.join("\n")
}

/// The answer as JSON or YAML.
fn document(answers: &[Answer], errors: &[InputError]) -> Value {
    let items: Vec<Value> = answers
        .iter()
        .map(|answer| {
            let key = &answer.object;
            let object = json!({
                "group": key.group_kind().group, "kind": key.group_kind().kind,
                "namespace": key.namespace(), "name": key.name(),
            });
            match &answer.fate {
                Fate::Decided(decision) => json!({
                    "object": object, "outcome": decision.outcome(), "reason": decision.reason,
                    "clusters": decision.clusters(), "pending": decision.pending_replicas(),
                    "decision": decision,
                }),
                Fate::Attached(on) => json!({
                    "object": object, "outcome": "Attached", "reason": Fate::ATTACHED,
                    "clusters": on,
                }),
                Fate::NotClaimed(why) => {
                    json!({"object": object, "outcome": "NotClaimed", "reason": why})
                }
                Fate::Unusable(why) => {
                    json!({"object": object, "outcome": "Unusable", "reason": why})
                }
            }
        })
        .collect();
    let errors: Vec<Value> = errors
        .iter()
        .map(|error| json!({"origin": error.origin, "problem": error.problem}))
        .collect();
    json!({"items": items, "errors": errors})
}
