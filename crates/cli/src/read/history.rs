//! `atoll history WORKLOAD`.

use anyhow::bail;
use atoll_api::binding::TargetCluster;
use atoll_api::{HISTORY_GROUP, VERSION};
use atoll_history::api::text;
use clap::Args;
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use super::decisions::{self, Decisions, Fields};
use super::workload;
use crate::args::{Format, HubFlags, OutputFlag};
use crate::hub::Hub;
use crate::print::{Printer, Text, Tone};

/// Characters of an id that a table shows; `--decision` takes them.
const SHORT_ID: usize = 8;

#[derive(Debug, Args)]
pub(crate) struct HistoryArgs {
    /// TYPE/NAME or TYPE NAME, for example deploy/nginx or deployment.apps/nginx
    #[arg(required = true, num_args = 1..=2, value_name = "WORKLOAD")]
    workload: Vec<String>,
    /// Only decisions with this trigger, for example Failover
    #[arg(long)]
    trigger: Option<String>,
    /// Only decisions with this outcome, for example Partial
    #[arg(long)]
    outcome: Option<String>,
    /// Only decisions that changed the share of this member
    #[arg(long, visible_alias = "cluster")]
    member: Option<String>,
    /// Only decisions made then or later: a time (RFC 3339), or how long ago (30m, 24h, 7d)
    #[arg(long, value_name = "TIME", value_parser = time)]
    since: Option<Timestamp>,
    /// Only decisions made before: as --since
    #[arg(long, value_name = "TIME", value_parser = time)]
    until: Option<Timestamp>,
    /// At most this many decisions, the newest
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = clap::value_parser!(u64).range(1..=100_000))]
    limit: u64,
    #[command(flatten)]
    output: OutputFlag,
}

impl HistoryArgs {
    fn fields(&self) -> Fields {
        let time = |time: Timestamp| time.to_string();
        let fields = [
            ("spec.trigger", self.trigger.clone()),
            ("spec.outcome", self.outcome.clone()),
            ("spec.cluster", self.member.clone()),
            ("since", self.since.map(time)),
            ("until", self.until.map(time)),
        ];
        fields.into_iter().filter_map(|(field, value)| Some((field, value?))).collect()
    }
}

pub(crate) async fn run(flags: &HubFlags, args: HistoryArgs, out: &Printer) -> anyhow::Result<()> {
    let hub = Hub::find(flags).await?;
    let workload = workload::resolve(&hub, &args.workload).await?;
    let fields = args.fields();
    let limit = usize::try_from(args.limit).unwrap_or(usize::MAX);
    let Decisions { items, more } = decisions::list(&hub, &workload, &fields, limit).await?;
    if items.is_empty() && fields.is_empty() {
        bail!(
            "nothing was ever decided about {workload}: is the name right, and does a policy select it? \
             (kubectl get resourcebindings, {})",
            hub.found
        );
    }
    match args.output.output {
        Format::Table if items.is_empty() => out.line("No decision matches."),
        Format::Table => {
            out.table(
                &["TIME", "ID", "TRIGGER", "OUTCOME", "BEFORE -> AFTER", "REASON"],
                items.iter().map(row).collect(),
            )?;
            match more {
                true => out.line(format!("... and older ones: --limit {}", args.limit * 2)),
                false => Ok(()),
            }
        }
        format => out.object(
            format,
            &json!({
                "apiVersion": format!("{HISTORY_GROUP}/{VERSION}"),
                "kind": "DecisionList",
                "metadata": {},
                "items": items,
            }),
        ),
    }
}

fn row(item: &Value) -> Vec<Text> {
    let spec = &item["spec"];
    let text_of = |value: &Value| value.as_str().unwrap_or("?").to_owned();
    let shares = |side: &str| -> Option<Vec<TargetCluster>> {
        serde_json::from_value(spec.get(side)?.clone()).ok()
    };
    let reason = match spec["unreadable"].as_str() {
        Some(error) => format!("this row cannot be read: {error}"),
        None => text_of(&spec["reason"]),
    };
    let outcome = text_of(&spec["outcome"]);
    let tone = match outcome.as_str() {
        "Placed" => Tone::Good,
        "Unchanged" => Tone::Plain,
        "Partial" => Tone::Warn,
        _ => Tone::Bad,
    };
    let change =
        text::change(shares("before").as_deref(), shares("after").as_deref().unwrap_or_default());
    let id = text_of(&item["metadata"]["name"]);
    vec![
        text_of(&spec["at"]).into(),
        id.chars().take(SHORT_ID).collect::<String>().into(),
        text_of(&spec["trigger"]).into(),
        Text::toned(outcome, tone),
        change.into(),
        reason.into(),
    ]
}

/// A time, or how long ago.
fn time(text: &str) -> Result<Timestamp, String> {
    time_at(text, Timestamp::now())
}

fn time_at(text: &str, now: Timestamp) -> Result<Timestamp, String> {
    if let Ok(time) = text.parse::<Timestamp>() {
        return Ok(time);
    }
    // jiff's durations know no days, because days differ; a look back of days is one of 24 hours each.
    let ago = match text.strip_suffix('d').map(str::parse::<i64>) {
        Some(Ok(days)) => days.checked_mul(24).map(SignedDuration::from_hours),
        _ => text.parse::<SignedDuration>().ok(),
    };
    ago.filter(|ago| !ago.is_negative()).and_then(|ago| now.checked_sub(ago).ok()).ok_or_else(
        || "give a time such as 2026-01-31T10:00:00Z, or how long ago: 30m, 24h, 7d".to_owned(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_absolute_or_ago() {
        assert_eq!(time("2026-01-31T10:00:00Z").unwrap().to_string(), "2026-01-31T10:00:00Z");
        let now = Timestamp::from_second(1_800_000_000).unwrap();
        for (text, seconds) in [("90s", 90), ("30m", 1800), ("24h", 86_400), ("7d", 7 * 86_400)] {
            let then = Timestamp::from_second(1_800_000_000 - seconds).unwrap();
            assert_eq!(time_at(text, now), Ok(then), "{text}");
        }
        for bad in ["", "soon", "-3h", "7x", "99999999999999d"] {
            assert!(time_at(bad, now).is_err(), "{bad}");
        }
    }
}
