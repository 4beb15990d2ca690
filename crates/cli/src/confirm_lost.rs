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
    let lost = lost(&hub).await?;
    note(format!("Lost: {}", names(&lost)?.join(", ")));
    args.yes.confirm("Are they really lost, so that their work may move?")?;
    take_for_real(&hub, &lost).await?;
    out.line("The controller takes their loss for real.")
}

/// The members whose agents are silent.
///
/// # Errors
/// When the hub does not answer.
pub(crate) async fn lost(hub: &Hub) -> anyhow::Result<Vec<Cluster>> {
    let clusters = get::list(hub, &Api::all(hub.client.clone())).await?;
    Ok(clusters.into_iter().filter(is_lost).collect())
}

fn names(lost: &[Cluster]) -> anyhow::Result<Vec<String>> {
    if lost.is_empty() {
        bail!("no member is lost: `atoll get members`");
    }
    Ok(lost.iter().map(ResourceExt::name_any).collect())
}

/// Confirms the loss of the members that are silent now, and returns their names.
///
/// # Errors
/// When none is, or the hub refuses.
pub(crate) async fn confirm(hub: &Hub) -> anyhow::Result<Vec<String>> {
    let lost = lost(hub).await?;
    take_for_real(hub, &lost).await?;
    names(&lost)
}

async fn take_for_real(hub: &Hub, lost: &[Cluster]) -> anyhow::Result<()> {
    let Some(first) = lost.first() else { bail!("no member is lost: `atoll get members`") };
    // One confirmation covers all members: it says that the controller's own connection is fine.
    let at = Timestamp::now().to_string();
    cluster::annotate(hub, first, BTreeMap::from([(marks::CONFIRM_LOST, at)])).await?;
    Ok(())
}

fn is_lost(cluster: &Cluster) -> bool {
    let session = cluster.status.as_ref().and_then(|status| status.session.as_ref());
    session.is_some_and(|session| session.state == SessionState::Lost)
}
