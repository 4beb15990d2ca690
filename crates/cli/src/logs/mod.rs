//! `atoll logs`: the logs of a workload's pods on all members.

mod follow;
mod line;
mod once;
mod pods;

use anyhow::bail;
use clap::Args;
use jiff::Timestamp;

use self::line::Prefixes;
use self::pods::Target;
pub(crate) use self::pods::is_name;
use crate::args::{HubFlags, seconds};
use crate::hub::Hub;
use crate::print::{Printer, note};
use crate::reach::{self, with_query};

#[derive(Debug, Args)]
pub(crate) struct LogsArgs {
    /// TYPE/NAME of a workload, for example deploy/web, or the name of a pod. May be left out with --selector
    #[arg(value_name = "WORKLOAD|POD", required_unless_present = "selector")]
    target: Option<String>,
    /// Pods with these labels, for example `app=web,tier!=cache`
    #[arg(short = 'l', long, value_name = "SELECTOR", conflicts_with = "target")]
    selector: Option<String>,
    /// Continue with new lines as they are written, also of pods that start later
    #[arg(short, long, conflicts_with = "previous")]
    follow: bool,
    /// Only this container of each pod [default: all]
    #[arg(short, long, value_name = "NAME")]
    container: Option<String>,
    /// At most this many lines of each container, the newest [default: all]
    #[arg(long, value_name = "LINES")]
    tail: Option<u32>,
    /// Only lines that are at most this old: seconds, or 90s, 5m, 1h30m
    #[arg(long, value_name = "DURATION", value_parser = seconds::<u32>)]
    since: Option<u32>,
    /// Show the time of each line
    #[arg(long)]
    timestamps: bool,
    /// Of the containers' run before the current one, for example before a crash
    #[arg(short, long)]
    previous: bool,
    /// On this member only; may be given several times
    #[arg(long = "cluster", value_name = "MEMBER")]
    members: Vec<String>,
}

/// What is read of each container.
#[derive(Debug, Clone, Default)]
struct Part {
    container: Option<String>,
    follow: bool,
    previous: bool,
    tail: Option<u32>,
    since: Option<u32>,
    timestamps: bool,
}

impl Part {
    /// The path of a container's log, or of its lines after a time. All lines have their time: it orders them.
    fn path(
        &self,
        pod: &str,
        container: &str,
        limit: Option<usize>,
        after: Option<Timestamp>,
    ) -> String {
        let flag = |set: bool| set.then(|| "true".to_owned());
        with_query(
            &format!("{pod}/log"),
            &[
                ("container", Some(container.to_owned())),
                ("timestamps", flag(true)),
                ("follow", flag(self.follow)),
                ("previous", flag(self.previous)),
                ("tailLines", self.tail.map(|lines| lines.to_string())),
                // The API refuses 0.
                ("sinceSeconds", self.since.map(|seconds| seconds.max(1).to_string())),
                ("sinceTime", after.map(|after| after.to_string())),
                ("limitBytes", limit.map(|limit| limit.to_string())),
            ],
        )
    }
}

pub(crate) async fn run(flags: &HubFlags, args: LogsArgs, out: &Printer) -> anyhow::Result<()> {
    let hub = Hub::find(flags).await?;
    let members = reach::members(&hub, &args.members).await?;
    let target = Target::find(&hub, args.target.as_deref(), args.selector.as_deref()).await?;
    let part = Part {
        container: args.container,
        follow: args.follow,
        previous: args.previous,
        tail: args.tail,
        since: args.since,
        timestamps: args.timestamps,
    };
    let prefixes = Prefixes::new(out.has_colours());
    let failed = match part.follow {
        true => follow::run(&members, &target, &part, &prefixes).await?,
        false => once::run(&members, &target, &part, &prefixes).await?,
    };
    if !failed.is_empty() {
        bail!("not all members could be read: {}", failed.join(", "));
    }
    Ok(())
}

/// Names a member, or a part of it, that could not be read.
fn warn(place: &str, why: &dyn std::fmt::Display) {
    note(format!("{place}: {why}"));
}
