//! `atoll confirm-lost`: an administrator confirms that silent members are lost when the controller suspects its own
//! connection.

use std::collections::BTreeMap;

use anyhow::bail;
use atoll_api::cluster::SessionState;
use atoll_api::{Cluster, marks};
use clap::Args;
use jiff::Timestamp;
use kube::{Api, ResourceExt};

use crate::args::HubFlags;
use crate::cluster;
use crate::confirm::YesFlag;
use crate::hub::Hub;
use crate::print::{Printer, note};
use crate::read::get;

#[derive(Debug, Args)]
pub(crate) struct ConfirmLostArgs {
    #[command(flatten)]
    yes: YesFlag,
}

pub(crate) async fn run(
    flags: &HubFlags,
    args: ConfirmLostArgs,
    out: &Printer,
) -> anyhow::Result<()> {
    let hub = Hub::find(flags).await?;
    let clusters = get::list(&hub, &Api::all(hub.client.clone())).await?;
    let lost: Vec<Cluster> = clusters.into_iter().filter(is_lost).collect();
    let Some(first) = lost.first() else { bail!("no member is lost: `atoll get members`") };
    let names: Vec<_> = lost.iter().map(ResourceExt::name_any).collect();
    note(format!("Lost: {}", names.join(", ")));
    args.yes.confirm("Are they really lost, so that their work may move?")?;
    // One confirmation covers all members: it says that the controller's own connection is fine.
    let at = Timestamp::now().to_string();
    cluster::annotate(&hub, first, BTreeMap::from([(marks::CONFIRM_LOST, at)])).await?;
    out.line("The controller takes their loss for real.")
}

fn is_lost(cluster: &Cluster) -> bool {
    let session = cluster.status.as_ref().and_then(|status| status.session.as_ref());
    session.is_some_and(|session| session.state == SessionState::Lost)
}
