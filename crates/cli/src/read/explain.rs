//! `atoll explain WORKLOAD`.

use anyhow::{Context, bail};
use atoll_api::binding::TargetCluster;
use atoll_history::api::text;
use atoll_scheduler::decision::{Column, Decision, Standing, Verdict};
use atoll_scheduler::explain;
use clap::Args;
use serde_json::Value;

use super::decisions::{self, Fields};
use super::workload::{self, Workload};
use crate::args::{Format, HubFlags, OutputFlag};
use crate::hub::Hub;
use crate::print::{Printer, WIDTH};

/// Decisions among which a shortened id is looked up, the newest.
const SEARCHED: usize = 5_000;
/// Decisions among which the last one that placed something is looked up: between two of these lie a few ends of
/// eviction tasks at most.
const RECENT: usize = 20;
/// Triggers of decisions that weigh no clusters.
const WITHOUT_VERDICTS: [&str; 2] = ["EvictionDone", "Withdrawn"];
/// Fewest characters of an id: shorter ones match by chance.
const MIN_ID: usize = 4;

#[derive(Debug, Args)]
pub(crate) struct ExplainArgs {
    /// TYPE/NAME or TYPE NAME, for example deploy/nginx or deployment.apps/nginx
    #[arg(required = true, num_args = 1..=2, value_name = "WORKLOAD")]
    workload: Vec<String>,
    /// This decision, by its id or the beginning of it as `atoll history` shows it [default: the last one that
    /// weighed clusters]
    #[arg(long, value_name = "ID", value_parser = id)]
    decision: Option<String>,
    /// Only what it says of this cluster
    #[arg(long, visible_alias = "member", value_name = "NAME")]
    cluster: Option<String>,
    #[command(flatten)]
    output: OutputFlag,
}

pub(crate) async fn run(flags: &HubFlags, args: ExplainArgs, out: &Printer) -> anyhow::Result<()> {
    let hub = Hub::find(flags).await?;
    let workload = workload::resolve(&hub, &args.workload).await?;
    let (object, later) = find(&hub, &workload, args.decision.as_deref()).await?;
    match args.output.output {
        Format::Table => {
            for note in later {
                out.line(note)?;
            }
            out.line(explained(&object, args.cluster.as_deref())?)
        }
        format => match &args.cluster {
            Some(cluster) => {
                let decision = detail(&object)?.map_err(anyhow::Error::msg)?;
                let (verdict, _) = verdict(&decision, cluster)?;
                out.object(format, verdict)
            }
            None => out.object(format, &object),
        },
    }
}

/// The decision asked for, and lines about what came after the one that is shown by default.
async fn find(
    hub: &Hub,
    workload: &Workload,
    id: Option<&str>,
) -> anyhow::Result<(Value, Vec<String>)> {
    let searched = if id.is_some() { SEARCHED } else { RECENT };
    let items = decisions::list(hub, workload, &Fields::new(), searched).await?.items;
    let name = |item: &Value| item["metadata"]["name"].as_str().unwrap_or_default().to_owned();
    if items.is_empty() {
        bail!(
            "nothing was ever decided about {workload}: is the name right, and does a policy select it? \
             (kubectl get resourcebindings, {})",
            hub.found
        );
    }
    let Some(id) = id else {
        let weighs = |item: &Value| {
            let trigger = item["spec"]["trigger"].as_str();
            trigger.is_some_and(|trigger| !WITHOUT_VERDICTS.contains(&trigger))
        };
        let at = items.iter().position(weighs).unwrap_or(0);
        let later = items[..at].iter().map(|item| {
            let spec = &item["spec"];
            let text = |field: &str| spec[field].as_str().unwrap_or("?").to_owned();
            format!("After it, {} at {}: {}", text("trigger"), text("at"), text("reason"))
        });
        let later = later.collect();
        return Ok((decisions::get(hub, workload, &items[at]).await?, later));
    };
    let matching: Vec<&Value> = items.iter().filter(|item| name(item).starts_with(id)).collect();
    match matching.as_slice() {
        [one] => Ok((decisions::get(hub, workload, one).await?, Vec::new())),
        [] => bail!("--decision {id}: no decision about {workload} begins so, see `atoll history`"),
        several => {
            let names: Vec<_> = several.iter().map(|item| name(item)).collect();
            bail!("--decision {id} is the beginning of several: {}", names.join(", "))
        }
    }
}

/// The whole Decision of an object, or why there is none.
fn detail(object: &Value) -> anyhow::Result<Result<Decision, String>> {
    let spec = &object["spec"];
    if let Some(error) = spec["unreadable"].as_str() {
        return Ok(Err(format!("this row of history cannot be read: {error}")));
    }
    match spec.get("detail") {
        Some(detail) => serde_json::from_value(detail.clone()).map(Ok).context(
            "read the detail of the decision: was it written by another version of atoll?",
        ),
        None => {
            let why = spec["detailMissing"].as_str().unwrap_or("the hub sent none");
            Ok(Err(format!("The verdicts on the clusters are not known: {why}.")))
        }
    }
}

/// The decision in words.
fn explained(object: &Value, cluster: Option<&str>) -> anyhow::Result<String> {
    match detail(object)? {
        Ok(decision) => match cluster {
            Some(cluster) => one_cluster(&decision, cluster),
            None => Ok(explain::render(&decision, usize::from(WIDTH))),
        },
        Err(missing) => Ok(format!("{}\n{missing}", in_short(object))),
    }
}

/// What is known of every decision.
fn in_short(object: &Value) -> String {
    let spec = &object["spec"];
    let text = |value: &Value| value.as_str().unwrap_or("?").to_owned();
    let shares = |side: &str| -> Option<Vec<TargetCluster>> {
        serde_json::from_value(spec.get(side)?.clone()).ok()
    };
    let after = shares("after").unwrap_or_default();
    format!(
        "Decision {} of {}\nTrigger {}, mode {}, outcome {}\n{}\n{}",
        text(&object["metadata"]["name"]),
        text(&spec["at"]),
        text(&spec["trigger"]),
        text(&spec["mode"]),
        text(&spec["outcome"]),
        text(&spec["reason"]),
        text::change(shares("before").as_deref(), &after),
    )
}

fn fate(standing: Standing) -> &'static str {
    match standing {
        Standing::Selected => "selected",
        Standing::Kept => "kept, although it fails rules that newcomers must satisfy",
        Standing::NotSelected => "passed every filter, others were chosen",
        Standing::Refused => "refused",
        Standing::Gone => "is no cluster any more",
    }
}

fn count(replicas: Option<i64>) -> String {
    replicas.map_or_else(|| "none".to_owned(), |replicas| replicas.to_string())
}

fn verdict<'a>(decision: &'a Decision, cluster: &str) -> anyhow::Result<(&'a Verdict, usize)> {
    decision.verdict(cluster).with_context(|| {
        format!(
            "--cluster {cluster:?}: the federation had no such cluster when decision {} was made",
            decision.id()
        )
    })
}

/// What a decision says of one cluster.
fn one_cluster(decision: &Decision, cluster: &str) -> anyhow::Result<String> {
    let (verdict, place) = verdict(decision, cluster)?;
    let number = |column: &Column| column.get(place);
    let mut lines = vec![format!(
        "{cluster}: {} (decision {}, trigger {}, outcome {})",
        fate(verdict.standing),
        decision.id(),
        decision.trigger(),
        decision.outcome(),
    )];
    let (before, after) = (number(&verdict.before), number(&verdict.after));
    lines.push(format!("replicas: {} -> {}", count(before), count(after)));
    if !verdict.capacity.is_empty() {
        let room =
            number(&verdict.capacity).map_or_else(|| "unknown".to_owned(), |n| n.to_string());
        let bound = number(&verdict.bounded)
            .and_then(|index| verdict.bounds.get(usize::try_from(index).ok()?))
            .map(|bound| format!(", bounded by {bound}"));
        lines.push(format!("capacity: {room} more{}", bound.unwrap_or_default()));
    }
    for rejection in &verdict.rejections {
        lines.push(format!("{}: {}", rejection.plugin, rejection.reason));
    }
    for (plugin, scores) in &verdict.scores {
        if let Some(score) = number(scores) {
            lines.push(format!("score by {plugin}: {score}"));
        }
    }
    Ok(lines.join("\n"))
}

/// The beginning of an id, as `atoll history` shows it.
fn id(text: &str) -> Result<String, String> {
    let hex = text.bytes().all(|byte| byte.is_ascii_hexdigit());
    match hex && (MIN_ID..=32).contains(&text.len()) {
        true => Ok(text.to_lowercase()),
        false => Err(format!("an id has 32 hex digits; give at least its first {MIN_ID}")),
    }
}
