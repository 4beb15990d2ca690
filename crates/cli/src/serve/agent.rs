//! `atoll agent`: one member's agent as a process of its own.

use std::net::SocketAddr;
use std::path::PathBuf;

use anyhow::{Context, bail};
use atoll_agent::{AgentOptions, Connector, IdentityStore, Join, Timings};
use atoll_api::{Clock, marks};
use atoll_protocol::ca::PublicKeyHash;
use atoll_protocol::token::BootstrapToken;
use clap::Args;
use tokio_util::sync::CancellationToken;

use crate::args::HubFlags;
use crate::hub;

/// Name of the Secret on the member with the agent's key and certificate.
pub(super) const IDENTITY_SECRET: &str = "atoll-agent-identity";

#[derive(Debug, Args)]
pub(crate) struct AgentArgs {
    /// Where a controller may be; may be given several times
    #[arg(long = "address", value_name = "HOST:PORT", required = true)]
    addresses: Vec<String>,
    /// Bootstrap token from `atoll join`, for the first start
    #[arg(
        long,
        value_name = "ID.SECRET",
        env = "ATOLL_TOKEN",
        hide_env_values = true,
        requires = "ca_hash"
    )]
    token: Option<String>,
    /// Hash of the controller's certificate authority, from `atoll join`; checked before the token is sent
    #[arg(long, value_name = "sha256:HEX")]
    ca_hash: Option<String>,
    /// Folder for key and certificate [default: a Secret on the member]
    #[arg(long, value_name = "FOLDER")]
    identity_dir: Option<PathBuf>,
    /// Namespace on the member for the agent's own objects
    #[arg(long, value_name = "NAME", default_value = marks::SYSTEM_NAMESPACE)]
    agent_namespace: String,
    /// Name of this agent, for example its Pod's. No two run under one name at a time
    #[arg(long, value_name = "NAME", env = "POD_NAME", default_value = "atoll-agent")]
    instance: String,
    /// Address for the liveness probe, GET /livez [default: none]
    #[arg(long, value_name = "ADDRESS:PORT")]
    health_listen: Option<SocketAddr>,
}

pub(crate) async fn run(flags: &HubFlags, args: AgentArgs) -> anyhow::Result<()> {
    let token = CancellationToken::new();
    super::end_on_signal(token.clone())?;
    let (config, found) = hub::member_server(flags).await?;
    hub::check(&hub::client(config.clone(), &found)?, &found).await?;
    let client = atoll_agent::member_client(config).with_context(|| format!("use {found}"))?;
    let join = match (args.token, args.ca_hash) {
        (None, _) => None,
        (Some(_), None) => bail!("--token needs --ca-hash: `atoll join` prints both"),
        (Some(token), Some(hash)) => Some(Join {
            token: token.parse::<BootstrapToken>().context("--token")?,
            ca_hash: hash.parse::<PublicKeyHash>().context("--ca-hash")?,
        }),
    };
    let identity = match args.identity_dir {
        Some(folder) => IdentityStore::Folder(folder),
        None => IdentityStore::Secret(IDENTITY_SECRET.to_owned()),
    };
    let options = AgentOptions {
        client,
        addresses: args.addresses,
        connector: Connector::tcp(),
        identity,
        join,
        namespace: args.agent_namespace,
        instance: args.instance,
        clock: Clock::system(),
        seed: u64::from(std::process::id()),
        timings: Timings::default(),
    };
    tracing::info!(member = found, "agent starts");
    let health = match args.health_listen {
        Some(address) => Some(super::health::serve(address, token.clone()).await?),
        None => None,
    };
    let result = atoll_agent::run(options, token.clone()).await.context("run the agent");
    super::end(token, health).await;
    result
}
