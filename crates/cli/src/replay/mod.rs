//! `atoll replay`: makes recorded decisions again from what they read, and says whether they are the same.

mod inputs;
mod show;
mod steps;
mod with;

use std::path::PathBuf;

use anyhow::{Context, bail, ensure};
use atoll_api::HISTORY_GROUP;
use atoll_api::binding::{Outcome, TargetCluster};
use atoll_decision::Decision;
use atoll_scheduler::Profiles;
use atoll_scheduler::replay::{Restored, restore};
use clap::Args;
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::args::{HubFlags, WideFormat};
use crate::hub::Hub;
use crate::plan::Changes;
use crate::print::Printer;
use crate::read::decisions::{self, Fields, Of};
use crate::read::item::{self, Item};
use crate::read::{times, workload};
use inputs::Inputs;
use with::{Asked, Changed};

/// Most decisions of one run, the newest: a busy week of a large federation.
const MOST: u64 = 100_000;

#[derive(Debug, Args)]
#[command(
    group = clap::ArgGroup::new("which").required(true).multiple(true).args(["id", "since"]),
    after_help = "Exit code 0 when all decisions are the same, 2 when some differ, 1 on an error, also in the arguments. Decisions \
                  without recorded inputs are listed and differ from nothing. It needs the right to get decisioninputs of \
                  history.atoll.dev. docs/replay.md has examples."
)]
pub(crate) struct ReplayArgs {
    /// The decision, by its id or the beginning of it as `atoll history` shows it
    #[arg(value_name = "ID", value_parser = item::id, conflicts_with = "since")]
    id: Option<String>,
    /// All decisions made at or after this time (RFC 3339), or this long ago (30m, 24h, 7d)
    #[arg(long, value_name = "TIME", value_parser = times::parse)]
    since: Option<Timestamp>,
    /// Only decisions made before this time, as in --since
    #[arg(long, value_name = "TIME", value_parser = times::parse, requires = "since")]
    until: Option<Timestamp>,
    /// Only decisions about workloads of the namespace of --namespace or the kubeconfig
    #[arg(long, requires = "since")]
    this_namespace: bool,
    /// At most this many decisions, the newest
    #[arg(long, value_name = "N", default_value_t = 10_000, value_parser = clap::value_parser!(u64).range(1..=MOST), requires = "since")]
    limit: u64,
    /// Print what each plugin did, in order
    #[arg(long, conflicts_with = "since")]
    steps: bool,
    /// Select and decide with these policies in place of those of the same kind and name: PropagationPolicies and
    /// ClusterPropagationPolicies. A file, a folder, or - for stdin; may be repeated
    #[arg(short = 'f', long = "with", value_name = "FILE|DIR|-", value_delimiter = ',')]
    with: Vec<PathBuf>,
    /// Decide with this SchedulerConfiguration in place of the recorded one
    #[arg(long, value_name = "FILE")]
    scheduler_config: Option<PathBuf>,
    /// How to print the answer; wide also lists decisions that are the same
    #[arg(short, long, value_name = "FORMAT", default_value = "table")]
    output: WideFormat,
}

/// What came of one decision.
enum Fate {
    /// The same bytes; or, with a change, the same result.
    Same,
    /// What differs.
    Different(Vec<String>),
    /// Why it cannot be made again.
    Missing(String),
    /// The inputs are there, but cannot be used.
    Failed(String),
}

/// A decision and its replay.
struct Replayed {
    /// The Decision object, without its detail.
    object: Value,
    /// The decision then and now.
    sides: Option<(Side, Side)>,
    fate: Fate,
}

/// What a decision did.
struct Side {
    /// Empty if both sides are the same: thousands of decisions are kept until they are printed.
    clusters: Vec<TargetCluster>,
    outcome: Outcome,
    pending: i64,
    moved: i64,
}

impl Side {
    fn of(decision: &Decision, fate: &Fate) -> Self {
        let clusters = match fate {
            Fate::Different(_) => decision.clusters().to_vec(),
            Fate::Same | Fate::Missing(_) | Fate::Failed(_) => Vec::new(),
        };
        let moves = decision.moves().iter();
        Self {
            clusters,
            outcome: decision.outcome(),
            pending: decision.pending_replicas(),
            moved: moves.fold(0, |sum, one| sum.saturating_add(one.count)),
        }
    }
}

pub(crate) async fn run(flags: &HubFlags, args: ReplayArgs, out: &Printer) -> anyhow::Result<()> {
    let changed = Changed::read(&args.with, args.scheduler_config.as_deref())?;
    if let (Some(since), Some(until)) = (args.since, args.until) {
        ensure!(since < until, "--until {until} is not after --since {since}");
    }
    let hub = Hub::find(flags).await?;
    ensure!(
        workload::decisions_served(&hub).await?,
        "{} does not serve {HISTORY_GROUP}: decisions and their inputs cannot be read",
        hub.found
    );
    let objects = match &args.id {
        Some(id) => vec![decisions::find(&hub, &Of::Everything, id, "ID").await?],
        None => listed(&hub, &args).await?,
    };
    let mut inputs = Inputs::new(&hub);
    let mut all = Vec::with_capacity(objects.len());
    for object in objects {
        let object = match object["spec"].get("detail") {
            Some(_) => object,
            None => decisions::get(&hub, &Of::Everything, &object).await?,
        };
        let (replayed, made) = replay(object, &mut inputs, &changed).await?;
        if args.steps {
            let (restored, profiles, is) = made.with_context(|| match &replayed.fate {
                Fate::Missing(why) | Fate::Failed(why) => why.clone(),
                Fate::Same | Fate::Different(_) => "the decision was not made".to_owned(),
            })?;
            steps::print(&is, &restored, &profiles, out)?;
        }
        all.push(replayed);
    }
    show::print(&all, &args, !changed.is_empty(), out)?;
    if let [Replayed { fate: Fate::Missing(why), object, .. }] = all.as_slice()
        && args.id.is_some()
    {
        bail!("the inputs of decision {} are missing: {why}", Item(object).id());
    }
    let failed = all.iter().filter(|one| matches!(one.fate, Fate::Failed(_))).count();
    ensure!(failed == 0, "{failed} of {} decisions could not be made again", all.len());
    let differs = all.iter().any(|one| matches!(one.fate, Fate::Different(_)));
    if differs { Err(Changes.into()) } else { Ok(()) }
}

/// The decisions of a time, in the order in which they were recorded: their inputs build on each other.
async fn listed(hub: &Hub, args: &ReplayArgs) -> anyhow::Result<Vec<Value>> {
    let times = [("since", args.since), ("until", args.until)];
    let fields: Fields =
        times.into_iter().filter_map(|(field, time)| Some((field, time?.to_string()))).collect();
    let of = match args.this_namespace {
        true => Of::Namespace(hub.namespace.clone()),
        false => Of::Everything,
    };
    let limit = usize::try_from(args.limit).unwrap_or(usize::MAX);
    let found = decisions::list(hub, &of, &fields, limit).await?;
    if found.more {
        crate::print::note(format!(
            "note: only the newest {limit} decisions are made again; --limit takes more"
        ));
    }
    let mut items = found.items;
    let number = |item: &Value| {
        let version = item["metadata"]["resourceVersion"].as_str();
        version.and_then(|version| version.parse::<u64>().ok()).unwrap_or(0)
    };
    items.sort_by_key(number);
    Ok(items)
}

/// Makes one decision again.
async fn replay(
    mut object: Value,
    inputs: &mut Inputs<'_>,
    changed: &Changed,
) -> anyhow::Result<(Replayed, Option<(Restored, Profiles, Decision)>)> {
    let detail = object["spec"].as_object_mut().and_then(|spec| spec.remove("detail"));
    let ended = |object, fate| Ok((Replayed { object, sides: None, fate }, None));
    let item = Item(&object);
    let Some(detail) = detail else {
        let why = object["spec"]["detailMissing"].as_str().unwrap_or("the hub sent none");
        let why = match item.weighed_no_clusters() {
            true => "no clusters were weighed".to_owned(),
            false => format!("the full decision is unknown: {why}"),
        };
        return ended(object, Fate::Missing(why));
    };
    let state = match inputs.of(item.id()).await? {
        Ok(state) => state,
        Err(why) => return ended(object, Fate::Missing(why)),
    };
    let made = restore(state.objects()).map_err(anyhow::Error::from).and_then(|restored| {
        let profiles = restored.profiles()?;
        let was: Decision = serde_json::from_value(detail.clone()).context("read the decision")?;
        Ok((restored, profiles, was))
    });
    let (mut restored, recorded, was) = match made {
        Ok(made) => made,
        Err(error) => return ended(object, Fate::Failed(format!("{error:#}"))),
    };
    let profiles = match changed.apply(&mut restored, &recorded) {
        Asked::With(profiles) => profiles,
        Asked::Unclaimed(why) => return ended(object, Fate::Different(vec![why])),
        Asked::Missing(why) => return ended(object, Fate::Missing(why)),
    };
    let is = restored.decide(&profiles);
    let fate = match changed.is_empty() {
        true => compared(&detail, &json!(is)),
        false => results(&was, &is),
    };
    let sides = Some((Side::of(&was, &fate), Side::of(&is, &fate)));
    Ok((Replayed { object, sides, fate }, Some((restored, profiles, is))))
}

/// Compares the whole decisions, as they are stored.
fn compared(was: &Value, is: &Value) -> Fate {
    let mut differences = Vec::new();
    differing("", was, is, &mut differences);
    if differences.is_empty() { Fate::Same } else { Fate::Different(differences) }
}

/// The paths at which two values differ, with both.
fn differing(path: &str, was: &Value, is: &Value, to: &mut Vec<String>) {
    match (was, is) {
        (Value::Object(a), Value::Object(b)) => {
            let keys: std::collections::BTreeSet<&String> = a.keys().chain(b.keys()).collect();
            for key in keys {
                let path = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
                let side = |map: &serde_json::Map<String, Value>| map.get(key).cloned();
                let (a, b) = (side(a).unwrap_or_default(), side(b).unwrap_or_default());
                differing(&path, &a, &b, to);
            }
        }
        (Value::Array(a), Value::Array(b)) if a.len() == b.len() => {
            for (at, (a, b)) in a.iter().zip(b).enumerate() {
                differing(&format!("{path}[{at}]"), a, b, to);
            }
        }
        _ if was == is => {}
        _ => to.push(format!("{path}: {was} -> {is}")),
    }
}

/// Compares what the decisions do.
fn results(was: &Decision, is: &Decision) -> Fate {
    let mut differences = Vec::new();
    if was.clusters() != is.clusters() {
        let shares = atoll_history::api::text::change(Some(was.clusters()), is.clusters());
        differences.push(format!("shares: {shares}"));
    }
    if was.outcome() != is.outcome() {
        let reason = if is.reason.is_empty() { String::new() } else { format!(" ({})", is.reason) };
        differences.push(format!("outcome: {} -> {}{reason}", was.outcome(), is.outcome()));
    }
    let (before, after) = (was.pending_replicas(), is.pending_replicas());
    if before != after {
        differences.push(format!("pending replicas: {before} -> {after}"));
    }
    if differences.is_empty() { Fate::Same } else { Fate::Different(differences) }
}

#[cfg(test)]
mod tests;
