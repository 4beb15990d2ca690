//! `atoll orphans` and `atoll prune`: objects on members that belong to no binding, and removals that are held back.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use anyhow::bail;
use atoll_api::cluster::ObjectName;
use atoll_api::{Cluster, conditions, marks};
use clap::Args;
use jiff::Timestamp;
use kube::{Api, ResourceExt};
use serde_json::{Value, json};

use crate::args::{Format, HubFlags, OutputFlag};
use crate::cluster;
use crate::confirm::YesFlag;
use crate::hub::Hub;
use crate::print::{Printer, Text, counted, note};
use crate::read::get;

/// Longest wait for a connected member; a disconnected one gets the request when it returns.
const WAIT: Duration = Duration::from_secs(60);

#[derive(Debug, Args)]
pub(crate) struct OrphansArgs {
    /// Only of this member
    #[arg(value_name = "MEMBER")]
    member: Option<String>,
    #[command(flatten)]
    output: OutputFlag,
}

#[derive(Debug, Args)]
pub(crate) struct PruneArgs {
    /// The member
    #[arg(value_name = "MEMBER")]
    member: String,
    /// Orphans as `atoll orphans` prints them, for example Deployment.apps/shop/web [default: all of them]
    #[arg(value_name = "KIND[.GROUP]/NAMESPACE/NAME", conflicts_with = "confirm")]
    objects: Vec<ObjectName>,
    /// Release the removals that are held by the limit (condition PruneHeld), instead of removing orphans
    #[arg(long)]
    confirm: bool,
    #[command(flatten)]
    yes: YesFlag,
}

pub(crate) async fn list(flags: &HubFlags, args: OrphansArgs, out: &Printer) -> anyhow::Result<()> {
    let hub = Hub::find(flags).await?;
    let clusters = match &args.member {
        Some(name) => vec![cluster::get(&hub, name).await?],
        None => get::list(&hub, &Api::all(hub.client.clone())).await?,
    };
    let answer = match args.output.output {
        Format::Table => {
            let row = |cluster: &Cluster, object: &ObjectName, why: &str| -> Vec<Text> {
                vec![cluster.name_any().into(), object.to_string().into(), why.into()]
            };
            let rows: Vec<Vec<Text>> = clusters
                .iter()
                .flat_map(|cluster| {
                    let orphans = objects(cluster).iter().map(|o| row(cluster, o, "Orphan"));
                    orphans.chain(held(cluster).iter().map(|o| row(cluster, o, "RemovalHeld")))
                })
                .collect();
            if rows.is_empty() {
                out.line("No orphans.")
            } else {
                out.table(&["MEMBER", "OBJECT", "REASON"], rows)
            }
        }
        format => {
            let items = |of: fn(&Cluster) -> &[ObjectName]| -> Vec<Value> {
                clusters
                    .iter()
                    .flat_map(|cluster| of(cluster).iter().map(|object| named(cluster, object)))
                    .collect()
            };
            out.object(format, &json!({"orphans": items(objects), "heldRemovals": items(held)}))
        }
    };
    for cluster in &clusters {
        let name = cluster.name_any();
        for (one, many, all, listed) in [
            ("more orphan", "more orphans", count(cluster), objects(cluster).len()),
            ("more held removal", "more held removals", held_count(cluster), held(cluster).len()),
        ] {
            if all > listed {
                let more = counted(all - listed, one, many);
                note(format!("{name}: {more} than these {listed}"));
            }
        }
        if let Some(condition) = cluster::condition(cluster, conditions::PRUNE_HELD) {
            note(format!("{name}: {}", condition.message));
        }
    }
    answer
}

fn named(cluster: &Cluster, object: &ObjectName) -> Value {
    let mut item = json!(object);
    item["cluster"] = cluster.name_any().into();
    item
}

pub(crate) async fn prune(flags: &HubFlags, args: PruneArgs, out: &Printer) -> anyhow::Result<()> {
    let hub = Hub::find(flags).await?;
    let seen = cluster::get(&hub, &args.member).await?;
    let name = &args.member;
    if args.confirm {
        let Some(held) = cluster::condition(&seen, conditions::PRUNE_HELD) else {
            bail!("no removals are held on {name}");
        };
        note(&held.message);
        args.yes.confirm(&format!("Release these removals on {name}?"))?;
        let by = Timestamp::now().to_string();
        return carry_out(&hub, &seen, marks::CONFIRM_PRUNE, by, out).await;
    }
    let orphans: BTreeSet<&ObjectName> = objects(&seen).iter().collect();
    if let Some(other) = args.objects.iter().find(|object| !orphans.contains(object)) {
        bail!("{other} is not an orphan of {name}: `atoll orphans {name}` lists them");
    }
    let chosen: Vec<&ObjectName> = match args.objects.is_empty() {
        true => orphans.into_iter().collect(),
        false => args.objects.iter().collect(),
    };
    if chosen.is_empty() {
        return out.line(format!("{name} has no orphans."));
    }
    let text = chosen.iter().map(ToString::to_string).collect::<Vec<_>>();
    note(text.join("\n"));
    args.yes.confirm(&match text.len() {
        1 => format!("Remove this object from {name}?"),
        count => format!("Remove these {count} objects from {name}?"),
    })?;
    // Keeps another user's request that is still pending.
    let before = seen.annotations().get(marks::PRUNE).cloned();
    let text = before.into_iter().chain(text).collect::<Vec<_>>().join(",");
    carry_out(&hub, &seen, marks::PRUNE, text, out).await
}

/// Sends the request as an annotation and waits until the controller removes it.
async fn carry_out(
    hub: &Hub,
    seen: &Cluster,
    annotation: &str,
    value: String,
    out: &Printer,
) -> anyhow::Result<()> {
    let name = seen.name_any();
    let asked = cluster::annotate(hub, seen, BTreeMap::from([(annotation, value)])).await?;
    let done = |seen: &Cluster| (!seen.annotations().contains_key(annotation)).then_some(());
    let watch = cluster::watch(hub, &asked, WAIT, || (), done);
    match tokio::time::timeout(WAIT, watch).await {
        Ok(Ok(Some(()))) => out.line("Done."),
        Ok(Ok(None)) => bail!("Cluster {name} was deleted"),
        Ok(Err(error)) => Err(error),
        Err(_) => out.line(format!(
            "Not done within {} s: it takes effect when {name}'s agent is connected (`atoll get members {name}`).",
            WAIT.as_secs()
        )),
    }
}

fn objects(cluster: &Cluster) -> &[ObjectName] {
    cluster.status.as_ref().map_or(&[], |status| &status.orphaned_objects)
}

/// Held-back removals that the Cluster lists; the list is limited.
pub(crate) fn held(cluster: &Cluster) -> &[ObjectName] {
    cluster.status.as_ref().map_or(&[], |status| &status.held_objects)
}

/// How many removals are held back.
pub(crate) fn held_count(cluster: &Cluster) -> usize {
    let held = cluster.status.as_ref().and_then(|status| status.removals_held).unwrap_or_default();
    usize::try_from(held).unwrap_or_default()
}

fn count(cluster: &Cluster) -> usize {
    let count = cluster.status.as_ref().and_then(|status| status.orphans).unwrap_or_default();
    usize::try_from(count).unwrap_or_default()
}
