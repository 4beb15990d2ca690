//! `atoll cordon` and `atoll uncordon`: whether a member takes new work.

use anyhow::bail;
use atoll_api::{Cluster, marks};
use clap::Args;
use k8s_openapi::api::core::v1::Taint;
use kube::api::{Patch, PatchParams};
use kube::{Api, Resource};
use serde_json::{Value, json};

use crate::args::HubFlags;
use crate::hub::Hub;
use crate::join;
use crate::print::Printer;

/// Field manager of the taint: neither people's nor the controller's taints are touched, whoever applies what.
const MANAGER: &str = "atoll-cordon";
/// What was placed there stays; nothing new comes.
const EFFECT: &str = "NoSchedule";

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
    out.line(format!("{} is cordoned: what runs there stays, nothing new comes.", args.member))
}

pub(crate) async fn uncordon(
    flags: &HubFlags,
    args: CordonArgs,
    out: &Printer,
) -> anyhow::Result<()> {
    let hub = Hub::find(flags).await?;
    let member = &args.member;
    let cluster = apply(&hub, member, json!({})).await?;
    if cluster.spec.taints.iter().any(is_cordon) {
        bail!(
            "{member} still has the taint {}:{EFFECT}: somebody else wrote it too, `kubectl edit cluster {member}` removes it",
            marks::TAINT_CORDONED
        );
    }
    out.line(format!("{member} takes new work."))
}

/// Cordons a member.
///
/// # Errors
/// When there is none of this name, or the hub refuses.
pub(crate) async fn set(hub: &Hub, member: &str) -> anyhow::Result<Cluster> {
    let taint = json!({"key": marks::TAINT_CORDONED, "effect": EFFECT});
    apply(hub, member, json!({"taints": [taint]})).await
}

async fn apply(hub: &Hub, member: &str, spec: Value) -> anyhow::Result<Cluster> {
    let Some(cluster) = join::find(hub, member).await? else {
        bail!("there is no member {member}: `atoll get members` lists them");
    };
    let body = json!({
        "apiVersion": Cluster::api_version(&()),
        "kind": Cluster::kind(&()),
        // The uid keeps an apply from making a Cluster that was deleted meanwhile.
        "metadata": {"name": member, "uid": cluster.metadata.uid},
        "spec": spec,
    });
    let clusters: Api<Cluster> = Api::all(hub.client.clone());
    // Somebody's own taint of this key and effect says the same: sharing it is no conflict worth a refusal.
    let params = PatchParams::apply(MANAGER).force();
    let doing = format!("write the taints of {member}");
    hub.call(&doing, clusters.patch(member, &params, &Patch::Apply(body))).await
}

fn is_cordon(taint: &Taint) -> bool {
    taint.key == marks::TAINT_CORDONED && taint.effect == EFFECT
}
