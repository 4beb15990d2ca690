//! `atoll history`.

use anyhow::{Context, bail};
use atoll_api::binding::{Outcome, Trigger};
use atoll_api::{HISTORY_GROUP, VERSION};
use atoll_history::api::text;
use clap::Args;
use jiff::Timestamp;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::decisions::{self, Decisions, Fields, Of};
use super::item::Item;
use super::{life, members, times, workload};
use crate::args::{Format, HubFlags, ListFormat};
use crate::cluster;
use crate::hub::Hub;
use crate::print::{Printer, Text, named};

#[derive(Debug, Args)]
pub(crate) struct HistoryArgs {
    /// TYPE/NAME or TYPE NAME, for example deploy/nginx or deployment.apps/nginx [default: every workload of the
    /// namespace]
    #[arg(num_args = 1..=2, value_name = "WORKLOAD")]
    workload: Vec<String>,
    /// Decisions of all namespaces, and about cluster-scoped objects
    #[arg(short = 'A', long, conflicts_with_all = ["workload", "namespace"])]
    all_namespaces: bool,
    /// Only decisions with this trigger, for example Failover
    #[arg(long, value_parser = one_of::<Trigger>)]
    trigger: Option<String>,
    /// Only decisions with this outcome, for example Partial
    #[arg(long, value_parser = one_of::<Outcome>)]
    outcome: Option<String>,
    /// Only decisions that changed the share of this member. Without WORKLOAD, also what happened to the member itself
    #[arg(long, visible_alias = "cluster")]
    member: Option<String>,
    /// Only decisions made at or after this time (RFC 3339), or this long ago (30m, 24h, 7d)
    #[arg(long, value_name = "TIME", value_parser = times::parse)]
    since: Option<Timestamp>,
    /// Only decisions made before this time, as in --since
    #[arg(long, value_name = "TIME", value_parser = times::parse, conflicts_with = "watch")]
    until: Option<Timestamp>,
    /// At most this many decisions, the newest
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = clap::value_parser!(u64).range(1..=100_000))]
    limit: u64,
    /// Continue with new decisions as they are made, oldest first, one per line (with -o json one JSON object per line)
    #[arg(short, long)]
    watch: bool,
    /// How to print the answer; wide adds mode, replicas, and how long it took until members had it and were healthy
    #[arg(short, long, value_name = "FORMAT", default_value = "table")]
    output: ListFormat,
}

/// Parses the name of an API enum variant; the error lists the names.
fn one_of<T: DeserializeOwned>(name: &str) -> Result<String, String> {
    let known = serde_json::from_value::<T>(name.into());
    known.map(|_| name.to_owned()).map_err(|error| error.to_string())
}

impl HistoryArgs {
    fn fields(&self) -> anyhow::Result<Fields> {
        if let (Some(since), Some(until)) = (self.since, self.until)
            && until <= since
        {
            bail!("--until {until} is not after --since {since}");
        }
        let time = |time: Timestamp| time.to_string();
        let fields = [
            ("spec.trigger", self.trigger.clone()),
            ("spec.outcome", self.outcome.clone()),
            ("spec.cluster", self.member.clone()),
            ("since", self.since.map(time)),
            ("until", self.until.map(time)),
        ];
        Ok(fields.into_iter().filter_map(|(field, value)| Some((field, value?))).collect())
    }

    /// Whether to show events of the member: it is selected by name, and no other filter is set.
    fn shows_members(&self) -> bool {
        self.workload.is_empty() && self.trigger.is_none() && self.outcome.is_none()
    }

    async fn of(&self, hub: &Hub) -> anyhow::Result<Of> {
        if !self.workload.is_empty() {
            return Ok(Of::Workload(workload::resolve(hub, &self.workload).await?));
        }
        if !workload::decisions_served(hub).await? {
            bail!(
                "{} does not serve {HISTORY_GROUP}: name a WORKLOAD, to read the last decision from its binding",
                hub.found
            );
        }
        Ok(match self.all_namespaces {
            true => Of::Everything,
            false => Of::Namespace(hub.namespace.clone()),
        })
    }
}

pub(crate) async fn run(flags: &HubFlags, args: HistoryArgs, out: &Printer) -> anyhow::Result<()> {
    let fields = args.fields()?;
    let hub = Hub::find(flags).await?;
    let of = args.of(&hub).await?;
    let limit = usize::try_from(args.limit).unwrap_or(usize::MAX);
    let mut found = decisions::list(&hub, &of, &fields, limit).await?;
    if let Some(member) = args.member.as_ref().filter(|_| args.shows_members()) {
        let events = members::list(&hub, member, None, args.since, args.until, limit).await?;
        found.merge(events, limit);
    }
    if let Some(member) = args.member.as_ref().filter(|_| found.items.is_empty()) {
        // A member that left has a history; a misspelt name has neither history nor Cluster.
        cluster::get(&hub, member).await?;
    }
    if args.watch {
        return follow(&hub, &of, &fields, &found, args.output, out).await;
    }
    if let Of::Workload(workload) = &of
        && found.items.is_empty()
        && fields.is_empty()
    {
        bail!(
            "nothing was ever decided about {workload}: is the name right, and does a policy select it? \
             (kubectl get resourcebindings, {})",
            hub.found
        );
    }
    list(&found, &of, &args, out)
}

fn list(found: &Decisions, of: &Of, args: &HistoryArgs, out: &Printer) -> anyhow::Result<()> {
    let Decisions { items, more, .. } = found;
    if let Some(format) = args.output.objects() {
        let list = json!({
            "apiVersion": format!("{HISTORY_GROUP}/{VERSION}"),
            "kind": "DecisionList",
            "metadata": {},
            "items": items,
        });
        return out.object(format, &list);
    }
    if args.output == ListFormat::Name {
        return items.iter().try_for_each(|item| name(item, out));
    }
    if items.is_empty() {
        return out.line("No decision matches.");
    }
    if args.output == ListFormat::Wide {
        let mut header = vec!["TIME", "ID", "TRIGGER", "OUTCOME", "BEFORE -> AFTER", "REASON"];
        of_whom_header(of, &mut header);
        header.extend(["MODE", "DESIRED", "PENDING", "APPLIED", "HEALTHY", "SLOWEST"]);
        let wide = |item| {
            let item = Item(item);
            let mut cells = row(item, of);
            cells.extend(more_of(item));
            cells
        };
        out.wide_table(&header, items.iter().map(wide).collect())?;
    } else {
        // Long texts share one column, on lines of their own: side by side each would be one word wide.
        let rows = items.iter().map(|item| told(Item(item), of)).collect();
        out.table_keeping(4, &["TIME", "ID", "TRIGGER", "OUTCOME", "DECISION"], rows)?;
    }
    older(*more, args, out)
}

fn name(item: &Value, out: &Printer) -> anyhow::Result<()> {
    let kind = item["kind"].as_str().unwrap_or("Decision");
    out.line(named(kind, HISTORY_GROUP, Item(item).id()))
}

fn older(more: bool, args: &HistoryArgs, out: &Printer) -> anyhow::Result<()> {
    match more {
        true => out.line(format!("... and older ones: --limit {}", args.limit * 2)),
        false => Ok(()),
    }
}

/// Prints the existing decisions, oldest first, and then new ones.
async fn follow(
    hub: &Hub,
    of: &Of,
    fields: &Fields,
    found: &Decisions,
    output: ListFormat,
    out: &Printer,
) -> anyhow::Result<()> {
    let show = |item: &Value| show(item, of, output, out);
    found.items.iter().rev().try_for_each(show)?;
    decisions::follow(hub, of, fields, found, show).await
}

fn show(item: &Value, of: &Of, output: ListFormat, out: &Printer) -> anyhow::Result<()> {
    match output {
        ListFormat::Json => {
            out.json(&serde_json::to_string(item).context("write the answer as JSON")?)
        }
        ListFormat::Yaml => {
            out.line("---")?;
            out.object(Format::Yaml, item)
        }
        ListFormat::Name => name(item, out),
        ListFormat::Table | ListFormat::Wide => {
            let item = Item(item);
            let (whose, outcome) = (of_whom(item, of), item.outcome().padded(LONGEST_OUTCOME));
            let head = format!(
                "{}  {}  {:LONGEST_TRIGGER$}  ",
                item.time(),
                item.short_id(),
                item.trigger(),
            );
            let whose = whose.map_or(String::new(), |whose| format!("{whose}: "));
            let mut tail = format!("  {whose}{}; {}", item.change(), item.reason());
            if output == ListFormat::Wide {
                tail.push_str(&format!(
                    "; mode {}, {} asked for, {} pending",
                    item.text("mode"),
                    item.0["spec"]["desired"],
                    item.pending()
                ));
            }
            out.styled_line(&[head.into(), outcome, tail.into()])
        }
    }
}

/// Characters of the longest trigger, `ClusterChange`.
const LONGEST_TRIGGER: usize = 13;
/// Characters of the longest common outcome; longer ones shift their line.
const LONGEST_OUTCOME: usize = 13;

fn of_whom_header(of: &Of, header: &mut Vec<&str>) {
    if !matches!(of, Of::Workload(_)) {
        header.insert(2, "WORKLOAD");
    }
}

/// The workload of a decision, if the list is about more than one.
fn of_whom(item: Item<'_>, of: &Of) -> Option<String> {
    match of {
        Of::Workload(_) => None,
        Of::Namespace(_) => Some(item.workload()),
        Of::Everything if item.namespace().is_empty() => Some(item.workload()),
        Of::Everything => Some(format!("{} {}", item.namespace(), item.workload())),
    }
}

/// A row of the table: workload, change and reason, one below the other.
fn told(item: Item<'_>, of: &Of) -> Vec<Text> {
    let change = Some(item.change()).filter(|change| change != "-");
    let lines: Vec<String> =
        of_whom(item, of).into_iter().chain(change).chain([item.reason()]).collect();
    vec![
        item.time().into(),
        item.short_id().into(),
        item.trigger().into(),
        item.outcome(),
        lines.join("\n").into(),
    ]
}

fn row(item: Item<'_>, of: &Of) -> Vec<Text> {
    let mut cells: Vec<Text> = vec![
        item.time().into(),
        item.short_id().into(),
        item.trigger().into(),
        item.outcome(),
        item.change().into(),
        item.reason().into(),
    ];
    if let Some(whose) = of_whom(item, of) {
        cells.insert(2, whose.into());
    }
    cells
}

/// The extra columns of `-o wide`.
fn more_of(item: Item<'_>) -> Vec<Text> {
    let desired = item.0["spec"]["desired"].as_i64();
    vec![
        item.text("mode").into(),
        desired.map_or("-".to_owned(), |replicas| replicas.to_string()).into(),
        item.pending().into(),
        text::took(item.0, "applied").into(),
        text::took(item.0, "healthy").into(),
        life::slowest(item.0).into(),
    ]
}
