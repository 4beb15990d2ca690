//! `atoll join` and `atoll rejoin`: register a member on the hub and print the command that starts its agent.

mod hosted;
mod invitation;
mod manifest;
mod registration;

use anyhow::{Context, bail};
use atoll_api::cluster::{ClusterMode, SessionState};
use atoll_api::{Clock, Cluster};
use atoll_controller::members;
use clap::Args;
use jiff::SignedDuration;
use kube::api::PostParams;
use kube::{Api, ResourceExt};

use self::hosted::HostedFlags;
use self::invitation::{Invitation, InvitationFlags};
use self::registration::RegistrationFlags;
use crate::args::HubFlags;
use crate::confirm::confirm;
use crate::hub::Hub;
use crate::print::{Printer, note};

/// Field manager of writes that users make with this program.
pub(crate) const MANAGER: &str = "atoll-cli";

#[derive(Debug, Args)]
pub(crate) struct JoinArgs {
    /// Name of the Cluster
    #[arg(value_name = "NAME")]
    name: String,
    #[command(flatten)]
    registration: RegistrationFlags,
    #[command(flatten)]
    hosted: HostedFlags,
    #[command(flatten)]
    invitation: InvitationFlags,
}

#[derive(Debug, Args)]
pub(crate) struct RejoinArgs {
    /// Name of the Cluster
    #[arg(value_name = "NAME")]
    name: String,
    #[command(flatten)]
    hosted: HostedFlags,
    #[command(flatten)]
    invitation: InvitationFlags,
    /// Keep the member's present certificates valid. By default they are revoked once an agent enrols with the new token
    #[arg(long)]
    keep_old: bool,
    /// Let another member take over the Cluster: it was built anew, so its kube-system namespace has another uid. It gets
    /// everything that the Cluster should run. The certificates of the old one are revoked once an agent enrols
    #[arg(long, conflicts_with = "keep_old")]
    replace: bool,
    /// Do not ask, with --replace
    #[arg(short, long, requires = "replace")]
    yes: bool,
}

/// What happens to the existing certificates of a Cluster when an agent enrols with a new token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Identities {
    Keep,
    Replace,
    /// Those of the member before it.
    ReplaceMember,
}

pub(crate) async fn run(flags: &HubFlags, args: JoinArgs, out: &Printer) -> anyhow::Result<()> {
    let hub = Hub::find(flags).await?;
    let name = &args.name;
    let mode = ClusterMode::from(args.registration.mode);
    let invitation = match mode {
        ClusterMode::Agent => args.invitation.with_recorded_address(&hub).await?,
        ClusterMode::Hosted => args.invitation,
    };
    let kubeconfig = args.hosted.kubeconfig(mode)?;
    // First: without an authority no member can join, and nothing is left behind.
    let authority = authority(&hub).await?;
    match mode {
        ClusterMode::Agent => invitation.check()?,
        ClusterMode::Hosted => invitation.check_hosted()?,
    }
    let cluster = match find(&hub, name).await? {
        None => create(&hub, &args.registration.cluster(name)).await?,
        Some(cluster) if has_joined(&cluster) => {
            bail!(
                "{name} has already joined: `atoll rejoin {name}` makes a new token for its agent"
            )
        }
        Some(cluster) if cluster.spec.mode != mode => bail!(
            "Cluster {name} already exists with mode {:?}: change it with `kubectl edit cluster {name}`",
            cluster.spec.mode
        ),
        // Its Secret was not written, or holds an unusable kubeconfig.
        Some(cluster) if mode == ClusterMode::Hosted => cluster,
        Some(_) if !args.registration.is_empty() => bail!(
            "Cluster {name} already exists: leave out {}, and change it with `kubectl edit cluster {name}`",
            args.registration.given().join(", ")
        ),
        Some(cluster) => {
            note(format!(
                "Cluster {name} already exists and no agent has joined yet: making a new token"
            ));
            cluster
        }
    };
    match kubeconfig {
        Some(kubeconfig) => host(&hub, &cluster, &kubeconfig, out).await,
        None => invite(&hub, &cluster, authority, (invitation, Identities::Keep), out).await,
    }
}

/// The Cluster of a member whose agent the controller runs.
pub(crate) fn hosted(mut cluster: Cluster) -> Cluster {
    cluster.spec.mode = ClusterMode::Hosted;
    cluster.spec.kubeconfig_secret = Some(hosted::secret_name(&cluster.name_any()));
    cluster
}

/// Registers such a member, unless it is registered, and gives the controller its kubeconfig.
pub(crate) async fn register_hosted(
    hub: &Hub,
    cluster: &Cluster,
    kubeconfig: &str,
) -> anyhow::Result<()> {
    authority(hub).await?;
    let registered = match find(hub, &cluster.name_any()).await? {
        Some(registered) => registered,
        None => create(hub, cluster).await?,
    };
    hosted::store(hub, &registered, kubeconfig).await
}

async fn create(hub: &Hub, cluster: &Cluster) -> anyhow::Result<Cluster> {
    let clusters: Api<Cluster> = Api::all(hub.client.clone());
    let params = PostParams { field_manager: Some(MANAGER.to_owned()), ..PostParams::default() };
    let doing = format!("make Cluster {}", cluster.name_any());
    hub.call(&doing, clusters.create(&params, cluster)).await
}

/// Gives the member's kubeconfig to the controller, which starts the agent.
async fn host(hub: &Hub, cluster: &Cluster, kubeconfig: &str, out: &Printer) -> anyhow::Result<()> {
    hosted::store(hub, cluster, kubeconfig).await?;
    let name = cluster.metadata.name.clone().unwrap_or_default();
    out.line(format!(
        "The controller runs the agent of {name}; `atoll get members {name}` shows its state."
    ))
}

/// A new token for a member that has joined before: its agent lost its identity or moves elsewhere.
pub(crate) async fn again(flags: &HubFlags, args: RejoinArgs, out: &Printer) -> anyhow::Result<()> {
    let hub = Hub::find(flags).await?;
    let authority = authority(&hub).await?;
    let name = &args.name;
    let Some(cluster) = find(&hub, name).await? else {
        bail!(
            "there is no Cluster {name}: `atoll get members` lists them, `atoll join {name}` creates one"
        );
    };
    match args.hosted.kubeconfig(cluster.spec.mode)? {
        Some(kubeconfig) => {
            if args.replace {
                bail!(
                    "--replace: for mode hosted, `atoll unjoin {name}` and `atoll join {name} --mode hosted` replace the member"
                );
            }
            args.invitation.check_hosted()?;
            host(&hub, &cluster, &kubeconfig, out).await
        }
        None => {
            let identities = match (args.keep_old, args.replace) {
                (true, _) => Identities::Keep,
                (false, false) => Identities::Replace,
                (false, true) => Identities::ReplaceMember,
            };
            let invitation = args.invitation.with_recorded_address(&hub).await?;
            let session = cluster.status.as_ref().and_then(|status| status.session.as_ref());
            if args.replace && session.is_some_and(|held| held.state == SessionState::Connected) {
                confirm(
                    args.yes,
                    &format!(
                        "The agent of {name} is connected. It is cut off when another member takes the Cluster over, and its \
                         workloads run on there without Atoll. Continue?"
                    ),
                )?;
            }
            invite(&hub, &cluster, authority, (invitation, identities), out).await
        }
    }
}

async fn invite(
    hub: &Hub,
    cluster: &Cluster,
    ca_hash: String,
    (flags, identities): (InvitationFlags, Identities),
    out: &Printer,
) -> anyhow::Result<()> {
    flags.check()?;
    let life = SignedDuration::from_mins(i64::from(flags.token_life));
    let (client, clock) = (&hub.client, Clock::system());
    let token = match identities {
        Identities::Keep => members::create_token(client, &clock, cluster, life).await,
        Identities::Replace => members::create_replacing_token(client, &clock, cluster, life).await,
        Identities::ReplaceMember => {
            members::create_rebuilt_token(client, &clock, cluster, life).await
        }
    };
    let token = token.context("make a token")?.reveal();
    let cluster = cluster.metadata.name.clone().unwrap_or_default();
    Invitation { cluster, token, ca_hash, flags }.print(out)
}

/// The hash of the certificate authority's key, by which an agent authenticates the controller.
pub(crate) async fn authority(hub: &Hub) -> anyhow::Result<String> {
    let authority = members::load(&hub.client)
        .await
        .context("the certificate authority")?
        .context("no controller has run on this hub yet: start `atoll controller` first")?;
    Ok(authority.signing().hash().to_string())
}

/// The Cluster of this name.
pub(crate) async fn find(hub: &Hub, name: &str) -> anyhow::Result<Option<Cluster>> {
    let clusters: Api<Cluster> = Api::all(hub.client.clone());
    hub.call(&format!("look for Cluster {name}"), clusters.get_opt(name)).await
}

fn has_joined(cluster: &Cluster) -> bool {
    cluster.status.as_ref().is_some_and(|status| status.cluster_id.is_some())
}
