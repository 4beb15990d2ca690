//! `atoll accept-term MEMBER`: an administrator confirms that the higher term a member's agent reports was really in
//! force, for example after the hub was restored from a backup.

use std::collections::BTreeMap;

use anyhow::bail;
use atoll_api::marks;
use clap::Args;
use jiff::Timestamp;

use crate::args::HubFlags;
use crate::cluster;
use crate::confirm::YesFlag;
use crate::hub::Hub;
use crate::print::{Printer, note};

/// Condition of a Cluster whose agent obeyed a higher term than the leader's.
const TERM_AHEAD: &str = "TermAhead";
/// Its reason when the term cannot be accepted.
const OUT_OF_RANGE: &str = "TermOutOfRange";

#[derive(Debug, Args)]
pub(crate) struct AcceptTermArgs {
    /// Name of the member, whose Cluster has the condition TermAhead
    member: String,
    #[command(flatten)]
    yes: YesFlag,
}

pub(crate) async fn run(
    flags: &HubFlags,
    args: AcceptTermArgs,
    out: &Printer,
) -> anyhow::Result<()> {
    let hub = Hub::find(flags).await?;
    let found = cluster::get(&hub, &args.member).await?;
    let ahead = cluster::condition(&found, TERM_AHEAD).filter(|ahead| ahead.status == "True");
    let Some(ahead) = ahead else {
        bail!("member {} has no condition {TERM_AHEAD}: there is no term to accept", args.member)
    };
    if ahead.reason == OUT_OF_RANGE {
        bail!("the term cannot be accepted: {}", ahead.message);
    }
    note(format!("{}: {}", args.member, ahead.message));
    args.yes.confirm("Accept the term? All agents connect again; no work is lost.")?;
    let at = Timestamp::now().to_string();
    cluster::annotate(&hub, &found, BTreeMap::from([(marks::ACCEPT_TERM, at)])).await?;
    out.line("The leader raises its term above that one; the member connects within seconds.")
}
