//! `atoll timeline WORKLOAD`: where it ran and when it moved.

mod picture;
pub(crate) mod spans;

use anyhow::bail;
use clap::Args;
use jiff::Timestamp;

use super::decisions::{self, Fields, Of};
use super::{times, workload};
use crate::args::{Format, HubFlags, OutputFlag};
use crate::hub::Hub;
use crate::print::Printer;
use spans::Timeline;

/// Maximum number of decisions in a picture; the newest are used. Many times what fits a screen.
const MOST: usize = 2_000;

#[derive(Debug, Args)]
pub(crate) struct TimelineArgs {
    /// TYPE/NAME or TYPE NAME, for example deploy/nginx or deployment.apps/nginx
    #[arg(required = true, num_args = 1..=2, value_name = "WORKLOAD")]
    workload: Vec<String>,
    /// Start: a time (RFC 3339), or how long ago (30m, 24h, 7d) [default: the first decision]
    #[arg(long, value_name = "TIME", value_parser = times::parse)]
    since: Option<Timestamp>,
    /// End, as in --since [default: now]
    #[arg(long, value_name = "TIME", value_parser = times::parse)]
    until: Option<Timestamp>,
    #[command(flatten)]
    output: OutputFlag,
}

pub(crate) async fn run(flags: &HubFlags, args: TimelineArgs, out: &Printer) -> anyhow::Result<()> {
    let until = args.until.unwrap_or_else(Timestamp::now);
    if let Some(since) = args.since.filter(|since| *since >= until) {
        bail!("--until {until} is not after --since {since}");
    }
    let hub = Hub::find(flags).await?;
    let of = Of::Workload(workload::resolve(&hub, &args.workload).await?);
    let mut fields: Fields = vec![("until", until.to_string())];
    if let Some(since) = args.since {
        fields.push(("since", since.to_string()));
    }
    let found = decisions::list(&hub, &of, &fields, MOST).await?;
    // The shares before the picture begins.
    let earlier = match args.since {
        Some(since) => {
            let before = vec![("until", since.to_string())];
            decisions::list(&hub, &of, &before, 1).await?.items.pop()
        }
        None => None,
    };
    if found.items.is_empty() && earlier.is_none() {
        bail!(
            "nothing was decided about {of} before {until}: is the name right, and does a policy select it? \
             (kubectl get resourcebindings, {})",
            hub.found
        );
    }
    let mut timeline =
        Timeline::new(of.to_string(), &found.items, earlier.as_ref(), args.since, until);
    timeline.truncated = found.more;
    match args.output.output {
        Format::Table => {
            picture::lines(&timeline).iter().try_for_each(|line| out.styled_line(line))
        }
        format => out.object(format, &timeline),
    }
}
