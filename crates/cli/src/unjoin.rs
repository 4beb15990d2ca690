//! `atoll unjoin`: removes a member from the federation and lists what stays on it.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use atoll_api::cluster::ObjectName;
use atoll_api::{Cluster, conditions, marks};
use clap::Args;
use kube::api::{DeleteParams, Preconditions};
use kube::{Api, ResourceExt};

use crate::args::HubFlags;
use crate::hub::Hub;
use crate::print::{Printer, note};
use crate::{cluster, cordon};

/// Without an answer for this long, the user is warned that no controller may be running.
const PATIENCE: Duration = Duration::from_secs(15);
/// Condition with the progress; its last reason shows whether objects stay on the member.
const LEAVING: &str = "Leaving";
const LEFT_BEHIND: &str = "LeftBehind";
/// Its reason while work moves away; the condition `Emptied` says what blocks that.
const MOVING: &str = "WorkMovesAway";

#[derive(Debug, Args)]
pub(crate) struct UnjoinArgs {
    /// The member
    #[arg(value_name = "MEMBER")]
    member: String,
    /// Keep the objects on the member, without Atoll's marks. The work is still placed on other members
    #[arg(long)]
    release: bool,
    /// Do not wait for an unreachable member or for work that has no other place; objects that stay are printed
    #[arg(long)]
    force: bool,
    /// Return at once; the controller continues
    #[arg(long)]
    no_wait: bool,
}

pub(crate) async fn run(flags: &HubFlags, args: UnjoinArgs, out: &Printer) -> anyhow::Result<()> {
    let hub = Hub::find(flags).await?;
    let name = &args.member;
    let seen = cluster::get(&hub, name).await?;
    let begun = seen.metadata.deletion_timestamp.is_some();
    let mut seen = ask(&hub, seen, &args).await?;
    if !begun {
        seen = cordon::set(&hub, name).await?;
        let clusters: Api<Cluster> = Api::all(hub.client.clone());
        let params = DeleteParams {
            preconditions: Some(Preconditions {
                uid: seen.metadata.uid.clone(),
                resource_version: None,
            }),
            ..DeleteParams::default()
        };
        hub.call(&format!("delete Cluster {name}"), clusters.delete(name, &params)).await?;
    }
    if args.no_wait {
        return out.line(format!(
            "{name} is leaving; `kubectl get cluster {name} -o yaml` shows the progress."
        ));
    }
    note(format!(
        "{name} is leaving; its work moves first. Ctrl-C stops waiting, the controller continues."
    ));
    let left = follow(&hub, &seen).await?;
    if left.is_empty() {
        return out.line(format!("{name} has left the federation."));
    }
    let mut text =
        format!("{name} has left the federation. These objects stay on it, no longer managed:");
    for object in left {
        text.push_str(&format!("\n  {object}"));
    }
    out.line(text)
}

/// Writes how the member is to leave, keeping earlier annotations.
async fn ask(hub: &Hub, seen: Cluster, args: &UnjoinArgs) -> anyhow::Result<Cluster> {
    let before = seen.annotations().get(marks::UNJOIN).cloned().unwrap_or_default();
    let mut words: BTreeSet<&str> =
        before.split(',').map(str::trim).filter(|word| !word.is_empty()).collect();
    let had = words.clone();
    words.extend(args.release.then_some(marks::UNJOIN_RELEASE));
    words.extend(args.force.then_some(marks::UNJOIN_FORCE));
    if words == had {
        return Ok(seen);
    }
    let words = words.into_iter().collect::<Vec<_>>().join(",");
    cluster::annotate(hub, &seen, BTreeMap::from([(marks::UNJOIN, words)])).await
}

/// Prints the progress until the Cluster is gone; returns the objects left on the member.
async fn follow(hub: &Hub, seen: &Cluster) -> anyhow::Result<Vec<ObjectName>> {
    let (mut said, mut left) = (String::new(), Vec::new());
    let quiet = || note("no progress yet: is `atoll controller` running on this hub?");
    let look = |seen: &Cluster| {
        if let Some(leaving) = cluster::condition(seen, LEAVING) {
            let mut text = leaving.message.clone();
            if leaving.reason == MOVING
                && let Some(emptied) = cluster::condition(seen, conditions::EMPTIED)
            {
                text.push_str(&format!("; {}", emptied.message));
            }
            if text != said {
                note(&text);
                said = text;
            }
            if leaving.reason == LEFT_BEHIND {
                let status = seen.status.as_ref();
                left = status.map(|status| status.orphaned_objects.clone()).unwrap_or_default();
            }
        }
        None::<()>
    };
    cluster::watch(hub, seen, PATIENCE, quiet, look).await?;
    Ok(left)
}
