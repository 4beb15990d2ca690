//! `atoll cordon` and `atoll uncordon`: whether a member accepts new work; and the taints of `atoll drain`.

use anyhow::bail;
use atoll_api::{Cluster, marks};
use clap::Args;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Taint;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::api::{Patch, PatchParams};
use kube::{Api, Resource};
use serde_json::json;

use crate::args::HubFlags;
use crate::hub::Hub;
use crate::join;
use crate::print::Printer;

/// Field manager of the taint. A separate manager, so that applies leave the taints of users and of the controller
/// alone.
const MANAGER: &str = "atoll-cordon";
/// Running workloads stay; new ones are not placed.
const EFFECT: &str = "NoSchedule";
/// Running workloads are moved away.
const EVICTS: &str = "NoExecute";

#[derive(Debug, Args)]
pub(crate) struct CordonArgs {
    /// The member
    #[arg(value_name = "MEMBER")]
    member: String,
}

pub(crate) async fn cordon(
    flags: &HubFlags,
    args: CordonArgs,
    out: &Printer,
) -> anyhow::Result<()> {
    let hub = Hub::find(flags).await?;
    set(&hub, &args.member).await?;
    out.line(format!(
        "{} is cordoned: its work stays, and no new work is placed on it.",
        args.member
    ))
}

pub(crate) async fn uncordon(
    flags: &HubFlags,
    args: CordonArgs,
    out: &Printer,
) -> anyhow::Result<()> {
    let hub = Hub::find(flags).await?;
    clear(&hub, &args.member).await?;
    out.line(format!("{} accepts new work.", args.member))
}

/// Takes a cordon and a drain back.
///
/// # Errors
/// When the member does not exist, the hub refuses, or somebody else owns the taint too.
pub(crate) async fn clear(hub: &Hub, member: &str) -> anyhow::Result<()> {
    let cluster = apply(hub, member, |_| Vec::new(), false).await?;
    let ours = |taint: &&Taint| is_cordon(taint) || is_drain(taint);
    if let Some(taint) = cluster.spec.taints.iter().find(ours) {
        bail!(
            "{member} still has the taint {}:{}: another field manager owns it too; remove it with `kubectl edit cluster {member}`",
            taint.key,
            taint.effect
        );
    }
    Ok(())
}

/// Cordons a member.
///
/// # Errors
/// When the member does not exist, or the hub refuses.
pub(crate) async fn set(hub: &Hub, member: &str) -> anyhow::Result<Cluster> {
    // A drain in progress continues.
    let drain = |cluster: &Cluster| cluster.spec.taints.iter().find(|t| is_drain(t)).cloned();
    let taints =
        |cluster: &Cluster| [Some(taint()), drain(cluster)].into_iter().flatten().collect();
    apply(hub, member, taints, false).await
}

/// Cordons a member and asks the controller to empty it. A drain in progress keeps its start time.
///
/// # Errors
/// As [`set`].
pub(crate) async fn drain(hub: &Hub, member: &str) -> anyhow::Result<Cluster> {
    apply(hub, member, drain_taints, false).await
}

/// Dry run of [`drain`] against the hub.
///
/// # Errors
/// As [`drain`].
pub(crate) async fn try_drain(hub: &Hub, member: &str) -> anyhow::Result<Cluster> {
    apply(hub, member, drain_taints, true).await
}

fn drain_taints(cluster: &Cluster) -> Vec<Taint> {
    let held = cluster.spec.taints.iter().find(|held| is_drain(held));
    let held = held.filter(|held| held.time_added.is_some()).cloned();
    vec![taint(), held.unwrap_or_else(|| drain_taint(Timestamp::now()))]
}

async fn apply(
    hub: &Hub,
    member: &str,
    taints: impl FnOnce(&Cluster) -> Vec<Taint>,
    dry_run: bool,
) -> anyhow::Result<Cluster> {
    let Some(cluster) = join::find(hub, member).await? else {
        bail!("there is no member {member}: `atoll get members` lists them");
    };
    let taints = taints(&cluster);
    let spec = if taints.is_empty() { json!({}) } else { json!({"taints": taints}) };
    let body = json!({
        "apiVersion": Cluster::api_version(&()),
        "kind": Cluster::kind(&()),
        // The uid prevents the apply from creating a Cluster that was deleted in between.
        "metadata": {"name": member, "uid": cluster.metadata.uid},
        "spec": spec,
    });
    let clusters: Api<Cluster> = Api::all(hub.client.clone());
    // A user's own taint with this key and effect means the same, so the conflict is forced.
    let params = PatchParams { dry_run, ..PatchParams::apply(MANAGER).force() };
    let doing = format!("write the taints of {member}");
    hub.call(&doing, clusters.patch(member, &params, &Patch::Apply(body))).await
}

fn taint() -> Taint {
    Taint {
        key: marks::TAINT_CORDONED.to_owned(),
        effect: EFFECT.to_owned(),
        value: None,
        time_added: None,
    }
}

/// The taint that empties a member. Toleration times in policies count from its time.
pub(crate) fn drain_taint(now: Timestamp) -> Taint {
    let second = Timestamp::from_second(now.as_second()).unwrap_or(now);
    Taint {
        key: marks::TAINT_DRAIN.to_owned(),
        effect: EVICTS.to_owned(),
        value: None,
        time_added: Some(Time(second)),
    }
}

/// Whether the taint is a drain that a user requested.
pub(crate) fn is_drain(taint: &Taint) -> bool {
    taint.key == marks::TAINT_DRAIN && taint.effect == EVICTS
}

fn is_cordon(taint: &Taint) -> bool {
    taint.key == marks::TAINT_CORDONED && taint.effect == EFFECT
}
