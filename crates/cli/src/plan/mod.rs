//! `atoll plan`: what a change would move, before it is made.
//!
//! The leader computes it (`serve`), asked as `leader` does. Without a leader, the hub's objects, and the same objects with the
//! change, go through the scheduler core and the renderer here. Either way the plan is the difference of two sides. Nothing is written:
//! objects of files are applied as a dry run, which also checks the caller's rights and fills in the hub's defaults.

mod apply;
mod compare;
pub(crate) mod console;
pub(crate) mod hub;
pub(crate) mod leader;
mod manifests;
mod objects;
pub(crate) mod request;
pub(crate) mod serve;
mod show;
pub(crate) mod what_if;

use std::collections::BTreeSet;
use std::path::PathBuf;

use anyhow::{Context, bail, ensure};
use atoll_api::binding::ResourceBindingSpec;
use atoll_api::hex;
use atoll_scheduler::offline::{Fate, Settings};
use atoll_scheduler::{Profiles, Scheduler};
use clap::{Args, ValueEnum};
use jiff::Timestamp;
use serde_json::Value;
use sha2::{Digest, Sha256};

use crate::args::{Format, HubFlags, ReservedFlag, TenancyFlag};
use crate::hub::Hub;
use crate::input::{self, ValidateFlag, title};
use crate::print::{self, Printer};
use crate::schedule;
use compare::Side;
use hub::{Collected, Kinds, Rules, WhatIf};
use objects::{Identity, Objects};
use what_if::WhatIfFlags;

/// Exit code when something would change.
pub(crate) const CHANGES: u8 = 2;
/// Hexadecimal digits of a plan's id.
const ID_DIGITS: usize = 16;

#[derive(Debug, Args)]
#[command(
    after_help = "Nothing is written. Exit code 0 when nothing would change, 2 when something would, 1 on an error, also in the \
                  arguments. The leading controller computes the plan; you need the right to create plans.review.atoll.dev \
                  (ClusterRole atoll-plan), and workloads that you may not read are only counted. Where it cannot be asked, \
                  the plan is computed here, and a note says so. docs/plan.md has examples."
)]
pub(crate) struct PlanArgs {
    /// The objects that would be applied, as YAML or JSON: policies, overrides, Clusters, workloads. A file, a folder, or - for
    /// stdin; may be repeated
    #[arg(short = 'f', long = "filename", value_name = "FILE|DIR|-", value_delimiter = ',')]
    files: Vec<PathBuf>,
    /// A folder with a kustomization that would be applied
    #[arg(short = 'k', long, value_name = "DIR")]
    kustomize: Option<PathBuf>,
    /// Read the folders of -f and --against with their subfolders
    #[arg(short = 'R', long, requires = "files")]
    recursive: bool,
    #[command(flatten)]
    what_if: WhatIfFlags,
    /// Compare with the objects of these files instead of a hub's, for example with the main branch of a repository
    #[arg(long, value_name = "FILE|DIR", value_delimiter = ',')]
    against: Vec<PathBuf>,
    /// What --against has and the given files do not is deleted, as a tool that prunes would; Clusters stay
    #[arg(long, requires = "against")]
    prune: bool,
    /// The controller would get this SchedulerConfiguration
    #[arg(long, value_name = "FILE")]
    scheduler_config: Option<PathBuf>,
    /// The SchedulerConfiguration that the controller has [default: the built-in profiles]
    #[arg(long, value_name = "FILE")]
    current_scheduler_config: Option<PathBuf>,
    /// Print how manifests on members change
    #[arg(long)]
    diff: bool,
    /// How to print the plan
    #[arg(short, long, value_name = "FORMAT", default_value = "table")]
    output: PlanFormat,
    /// The time of the decisions, RFC 3339 [default: now]
    #[arg(long, value_name = "TIME")]
    now: Option<Timestamp>,
    #[command(flatten)]
    tenancy: TenancyFlag,
    #[command(flatten)]
    reserved: ReservedFlag,
    #[command(flatten)]
    validate: ValidateFlag,
}

impl PlanArgs {
    /// Whether it compares files and asks no hub.
    pub(crate) fn is_offline(&self) -> bool {
        !self.against.is_empty()
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum PlanFormat {
    /// For people, as wide as the terminal
    Table,
    /// With outcome, what leaves when, and what ends a wait
    Wide,
    Json,
    Yaml,
    /// For a pull request
    Markdown,
}

/// Something would change: the exit code says so.
#[derive(Debug)]
pub(crate) struct Changes;

impl std::fmt::Display for Changes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("something would change")
    }
}

impl std::error::Error for Changes {}

/// Reads everything and changes nothing.
struct All;

impl WhatIf for All {
    fn concerns(&self, _: &ResourceBindingSpec) -> bool {
        true
    }

    fn renders(&self) -> bool {
        true
    }
}

pub(crate) async fn run(flags: &HubFlags, args: PlanArgs, out: &Printer) -> anyhow::Result<()> {
    let has_files = !args.files.is_empty() || args.kustomize.is_some();
    ensure!(
        has_files || !args.what_if.is_empty() || args.scheduler_config.is_some(),
        "nothing to plan: give the change with -f or -k, or one of --without, --drain, --taint, --with-cluster, --scale, \
         --scheduler-config"
    );
    let now = args.now.unwrap_or_else(Timestamp::now);
    let files = if has_files { read_files(&args).await? } else { Vec::new() };
    let answer = match args.against.is_empty() {
        true => on_hub(&Hub::find(flags).await?, &args, files, now).await?,
        false => {
            let mut inputs = from_files(&args, files)?;
            args.what_if.read()?.apply(&mut inputs.after, now)?;
            answer(inputs, &args, now)?
        }
    };
    match args.output {
        PlanFormat::Table => show::tables(&answer, false, out)?,
        PlanFormat::Wide => show::tables(&answer, true, out)?,
        PlanFormat::Markdown => show::markdown(&answer, out)?,
        PlanFormat::Json => show::object(&answer, Format::Json, out)?,
        PlanFormat::Yaml => show::object(&answer, Format::Yaml, out)?,
    }
    for problem in &answer.problems {
        print::note(format!("error: {problem}"));
    }
    if !answer.problems.is_empty() {
        let problems = print::counted(answer.problems.len(), "problem", "problems");
        bail!("{problems}: the plan may be incomplete");
    }
    let same = answer.plan.changes.is_empty() && answer.manifests.is_empty();
    if same { Ok(()) } else { Err(Changes.into()) }
}

/// The two sets of objects.
struct Inputs {
    before: Objects,
    after: Objects,
    collected: Collected,
}

/// The objects that would be applied.
async fn read_files(args: &PlanArgs) -> anyhow::Result<Vec<Value>> {
    let mut texts = match args.recursive {
        true => input::all_texts(&input::folders(&args.files)?)?,
        false => input::all_texts(&args.files)?,
    };
    if let Some(folder) = &args.kustomize {
        texts.extend(crate::convert::kustomization::texts(folder).await?);
    }
    usable(|take| input::read_texts(texts, args.validate.validate, take))
}

/// All objects of an input without a mistake.
fn usable(
    read: impl FnOnce(input::Take<'_>) -> anyhow::Result<Vec<atoll_scheduler::offline::InputError>>,
) -> anyhow::Result<Vec<Value>> {
    let mut found = Vec::new();
    let errors = read(&mut |document| {
        found.push(document.object);
        Ok(())
    })?;
    for error in &errors {
        print::note(format!("error: {error}"));
    }
    ensure!(
        errors.is_empty(),
        "{} could not be read: nothing is planned",
        print::counted(errors.len(), "object", "objects")
    );
    Ok(found)
}

fn from_files(args: &PlanArgs, files: Vec<Value>) -> anyhow::Result<Inputs> {
    let texts = match args.recursive {
        true => input::all_texts(&input::folders(&args.against)?)?,
        false => input::all_texts(&args.against)?,
    };
    let held = usable(|take| input::read_texts(texts, args.validate.validate, take))?;
    let mut before = Objects::default();
    held.into_iter().for_each(|object| before.put(object));
    let mut after = before.clone();
    let mut given = Objects::default();
    for object in files {
        given.put(object.clone());
        after.put_over(object);
    }
    prune(&mut after, &given, args.prune);
    Ok(Inputs { before, after, collected: Collected::default() })
}

/// Deletes what the files do not have any more, or says that it stays.
fn prune(after: &mut Objects, given: &Objects, prune: bool) {
    // Members are no files of a repository, and bindings follow their workloads.
    let is_file = |of: &Identity| {
        of.group != "work.atoll.dev"
            && (of.group.as_str(), of.kind.as_str()) != ("cluster.atoll.dev", "Cluster")
    };
    let gone: BTreeSet<Identity> = after
        .iter()
        .map(|(identity, _)| identity)
        .filter(|identity| is_file(identity) && !given.has(identity))
        .cloned()
        .collect();
    if !prune {
        if !given.is_empty() && !gone.is_empty() {
            let objects = print::counted(gone.len(), "object", "objects");
            print::note(format!(
                "note: {objects} of --against {} not in the given files and stay as they are; --prune plans to delete them",
                if gone.len() == 1 { "is" } else { "are" }
            ));
        }
        return;
    }
    after.retain(|identity, object| {
        let template = &object["spec"]["resource"];
        let of_deleted =
            identity.group == "work.atoll.dev" && gone.contains(&Identity::of_reference(template));
        !gone.contains(identity) && !of_deleted
    });
}

/// The plan of a change of the hub: the leader's, or if it cannot be asked one that is computed here.
async fn on_hub(
    hub: &Hub,
    args: &PlanArgs,
    files: Vec<Value>,
    now: Timestamp,
) -> anyhow::Result<show::Answer> {
    // These say what the leader knows, or ask for another time than its own.
    let says_how = args.current_scheduler_config.is_some()
        || args.now.is_some()
        || args.tenancy.require_cluster_sets
        || !args.reserved.patterns().is_empty();
    if !says_how && let Some(planned) = leader::plan(hub, args, &files).await? {
        return Ok(planned);
    }
    let mut inputs = from_hub(hub, files).await?;
    args.what_if.read()?.apply(&mut inputs.after, now)?;
    answer(inputs, args, now)
}

async fn from_hub(hub: &Hub, files: Vec<Value>) -> anyhow::Result<Inputs> {
    let mut collected = hub::collect(hub, &All).await?;
    let mut before = Objects::default();
    std::mem::take(&mut collected.objects).into_iter().for_each(|object| before.put(object));
    let mut applied = Vec::new();
    let new_namespaces: BTreeSet<String> = files
        .iter()
        .map(Identity::of)
        .filter(|of| of.group.is_empty() && of.kind == "Namespace")
        .map(|of| of.name)
        .filter(|name| !collected.namespaces.contains_key(name))
        .collect();
    let mut kinds = Kinds::default();
    for (object, answer) in
        files.iter().zip(apply::dry_runs(hub, &files, &new_namespaces, &mut kinds).await)
    {
        match answer {
            Ok(object) => applied.push(object),
            Err(error) => collected.problems.push(format!("{}: {error:#}", title(object))),
        }
    }
    // Workloads that no policy claims yet, but one of the files would.
    for selected in hub::selected(hub, &applied, &mut kinds, &mut collected.problems).await? {
        if !before.has(&Identity::of(&selected)) {
            before.put(selected);
        }
    }
    let mut after = before.clone();
    applied.into_iter().for_each(|object| after.put(object));
    Ok(Inputs { before, after, collected })
}

fn answer(inputs: Inputs, args: &PlanArgs, now: Timestamp) -> anyhow::Result<show::Answer> {
    let current = schedule::profiles(args.current_scheduler_config.as_deref())?;
    let next = match &args.scheduler_config {
        Some(path) => schedule::profiles(Some(path))?,
        None => schedule::profiles(args.current_scheduler_config.as_deref())?,
    };
    let Collected { namespaces, problems, guards, .. } = inputs.collected;
    // What the guards look at, as it is after the change.
    let is_guard = |(identity, _): (&Identity, &Value)| identity.kind == "ChangeGuard";
    let guarded = (!guards.is_empty() || inputs.after.iter().any(is_guard))
        .then(|| guards.into_iter().chain(inputs.after.iter().map(|(_, object)| object.clone())));
    let guarded = guarded.map(Iterator::collect::<Vec<Value>>);
    let rules = Rules { tenancy: args.tenancy, reserved: args.reserved.namespaces()? };
    let world = |objects: Objects, problems| {
        let namespaces = namespaces.clone();
        let objects = objects.into_values();
        hub::world(Collected { objects, namespaces, problems, guards: Vec::new() }, &rules)
    };
    let decide = |world: &atoll_scheduler::offline::World, profiles: Profiles| {
        world.decide(&mut Scheduler::new(profiles), &Settings { profile: None, now })
    };
    let (old, old_rules, problems_before) = world(inputs.before, Vec::new());
    let (new, new_rules, mut problems) = world(inputs.after, problems);
    let repaired = problems_before.into_iter().filter(|problem| !problems.contains(problem));
    let repaired: Vec<String> =
        repaired.map(|problem| format!("without the change: {problem}")).collect();
    problems.extend(repaired);
    let before = Side { world: &old, answers: &decide(&old, current) };
    let after = Side { world: &new, answers: &decide(&new, next) };
    let mut plan = compare::compare(&before, &after);
    let decisions = after.answers.iter().filter_map(|answer| match &answer.fate {
        Fate::Decided(decision) => Some((&answer.object, &**decision)),
        _ => None,
    });
    plan.held_by =
        guarded.and_then(|objects| atoll_controller::held_by(objects, &namespaces, decisions, now));
    let (mut manifests, unrendered) =
        manifests::compare((&before, &old_rules), (&after, &new_rules));
    problems.extend(unrendered);
    plan.summary.manifests = manifests.len();
    plan.id = id(&plan.changes, &manifests)?;
    manifests::hide_secrets(&mut manifests);
    Ok(show::Answer { plan, manifests, problems, diff: args.diff })
}

/// The id of a plan: equal for equal changes.
fn id(changes: &[compare::Change], manifests: &[manifests::Manifest]) -> anyhow::Result<String> {
    let text = serde_json::to_vec(&(changes, manifests)).context("write the plan as JSON")?;
    Ok(hex::encode(&Sha256::digest(text))[..ID_DIGITS].to_owned())
}
