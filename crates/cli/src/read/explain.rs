//! `atoll explain WORKLOAD`.

use anyhow::{Context, bail};
use atoll_decision::{ClusterOutcome, Column, Decision, Verdict, explain};
use clap::Args;
use serde_json::Value;

use super::decisions::{self, Fields, Of};
use super::item::{self, Item};
use super::{diff, health, life, workload};
use crate::args::{Format, HubFlags, OutputFlag};
use crate::hub::Hub;
use crate::print::{self, Printer};

/// Number of decisions searched for the last one that placed replicas: at most a few finished eviction tasks lie in
/// between.
const RECENT: usize = 20;

#[derive(Debug, Args)]
pub(crate) struct ExplainArgs {
    /// TYPE/NAME or TYPE NAME, for example deploy/nginx or deployment.apps/nginx
    #[arg(required = true, num_args = 1..=2, value_name = "WORKLOAD")]
    workload: Vec<String>,
    /// This decision, by its id or the beginning of it as `atoll history` shows it [default: the last one that
    /// weighed clusters]
    #[arg(long, value_name = "ID", value_parser = item::id)]
    decision: Option<String>,
    /// Only the part about this cluster
    #[arg(long, visible_alias = "member", value_name = "NAME")]
    cluster: Option<String>,
    #[command(flatten)]
    output: OutputFlag,
}

pub(crate) async fn run(flags: &HubFlags, args: ExplainArgs, out: &Printer) -> anyhow::Result<()> {
    let hub = Hub::find(flags).await?;
    let of = Of::Workload(workload::resolve(&hub, &args.workload).await?);
    let (object, later) = match &args.decision {
        Some(id) => (decisions::find(&hub, &of, id, "--decision").await?, Vec::new()),
        None => newest(&hub, &of).await?,
    };
    match args.output.output {
        Format::Table => {
            for note in later {
                out.line(note)?;
            }
            out.line(explained(&object, args.cluster.as_deref())?)?;
            // An older decision does not describe what runs now.
            if args.decision.is_none() && args.cluster.is_none() {
                for line in health::of_decision(&hub, &object).await? {
                    out.line(line)?;
                }
            }
            Ok(())
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

/// The last decision that evaluated clusters, and lines about later ones.
pub(crate) async fn newest(hub: &Hub, of: &Of) -> anyhow::Result<(Value, Vec<String>)> {
    let items = decisions::list(hub, of, &Fields::new(), RECENT).await?.items;
    if items.is_empty() {
        bail!(
            "nothing was ever decided about {of}: is the name right, and does a policy select it? \
             (kubectl get resourcebindings, {})",
            hub.found
        );
    }
    let weighs = |item: &Value| {
        let item = Item(item);
        item.unreadable().is_none() && !item.weighed_no_clusters()
    };
    let at = items.iter().position(weighs).unwrap_or(0);
    let later = items[..at].iter().map(|item| {
        let item = Item(item);
        format!("After it, {} at {}: {}", item.text("trigger"), item.text("at"), item.reason())
    });
    Ok((decisions::get(hub, of, &items[at]).await?, later.collect()))
}

/// The full Decision of an object, or the reason why it is missing.
pub(crate) fn detail(object: &Value) -> anyhow::Result<Result<Decision, String>> {
    let spec = &object["spec"];
    if let Some(error) = spec["unreadable"].as_str() {
        return Ok(Err(format!("this row of history cannot be read: {error}")));
    }
    match spec.get("detail") {
        Some(detail) => serde_json::from_value(detail.clone()).map(Ok).context(
            "read the detail of the decision: was it written by another version of atoll?",
        ),
        None if Item(object).weighed_no_clusters() => {
            Ok(Err("This decision weighed no clusters.".to_owned()))
        }
        None => {
            let why = spec["detailMissing"].as_str().unwrap_or("the hub sent none");
            Ok(Err(format!("The verdicts on the clusters are unknown: {why}.")))
        }
    }
}

/// The decision as text.
fn explained(object: &Value, cluster: Option<&str>) -> anyhow::Result<String> {
    let mut text = match (detail(object)?, cluster) {
        (Ok(decision), Some(cluster)) => return one_cluster(&decision, cluster),
        (Ok(decision), None) => {
            explain::render(&decision, usize::from(print::width())).trim_end().to_owned()
        }
        (Err(missing), _) => format!("{}\n{missing}", in_short(object)),
    };
    let made_from = diff::made_from(object);
    if !made_from.is_empty() {
        text.push_str("\n\nMade from\n");
        text.push_str(&made_from.join("\n"));
    }
    let followed = life::lines(object);
    if !followed.is_empty() {
        text.push_str("\n\n");
        text.push_str(&followed.join("\n"));
    }
    text.push_str(&format!("\n\nDecision and trace {}", Item(object).id()));
    Ok(text)
}

/// A summary that works for every decision.
fn in_short(object: &Value) -> String {
    let item = Item(object);
    format!(
        "Decision {} of {}\nTrigger {}, mode {}, outcome {}\n{}\n{}",
        item.id(),
        item.text("at"),
        item.text("trigger"),
        item.text("mode"),
        item.text("outcome"),
        item.reason(),
        item.change(),
    )
}

pub(crate) fn fate(outcome: ClusterOutcome) -> &'static str {
    match outcome {
        ClusterOutcome::Selected => "selected",
        ClusterOutcome::Kept => "kept, although it fails rules that newcomers must satisfy",
        ClusterOutcome::NotSelected => "passed every filter, others were chosen",
        ClusterOutcome::Refused => "refused",
        ClusterOutcome::Gone => "is no cluster any more",
    }
}

/// Free capacity in replicas, and its limiting resource.
pub(crate) fn room(verdict: &Verdict, place: usize) -> String {
    let room = verdict.capacity.get(place).map_or_else(|| "unknown".to_owned(), |n| n.to_string());
    let bound = verdict
        .bounded
        .get(place)
        .and_then(|index| verdict.bounds.get(usize::try_from(index).ok()?))
        .map(|bound| format!(", bounded by {bound}"));
    room + &bound.unwrap_or_default()
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

/// The part of a decision about one cluster.
fn one_cluster(decision: &Decision, cluster: &str) -> anyhow::Result<String> {
    let (verdict, place) = verdict(decision, cluster)?;
    let number = |column: &Column| column.get(place);
    let mut lines = vec![format!(
        "{cluster}: {} (decision {}, trigger {}, outcome {})",
        fate(verdict.outcome),
        decision.id(),
        decision.trigger(),
        decision.outcome(),
    )];
    let (before, after) = (number(&verdict.before), number(&verdict.after));
    lines.push(format!("replicas: {} -> {}", count(before), count(after)));
    if !verdict.capacity.is_empty() {
        lines.push(format!("capacity for more: {}", room(verdict, place)));
    }
    for rejection in &verdict.rejections {
        lines.push(format!("{}: {}", rejection.plugin, rejection.reason));
    }
    for (plugin, scores) in &verdict.scores {
        if let Some(score) = number(scores) {
            lines.push(format!("score by {plugin}: {score}"));
        }
    }
    let remedies = explain::remedies(decision, cluster);
    if !remedies.is_empty() {
        lines.push("what would change it:".to_owned());
        lines.extend(remedies.iter().map(|remedy| format!("  {remedy}")));
    }
    Ok(lines.join("\n"))
}
