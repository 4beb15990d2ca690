//! One member's agent as its own process: `atoll agent`, and the program `atoll-agent`.

use std::fs::File;
use std::io::{BufRead, BufReader, IsTerminal, Read};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use atoll_agent::{AgentMetrics, AgentOptions, Connector, IdentityStore, Join, Passed, Timings};
use atoll_api::{Clock, marks};
use atoll_protocol::ca::PublicKeyHash;
use atoll_protocol::token::BootstrapToken;
use clap::Args;
use tokio_util::sync::CancellationToken;

use crate::flags::{HubFlags, LogFlag, ReservedFlag, TraceFlags, tracer};
use crate::health::Pages;
use crate::{health, hub, process, text};

/// Name of the Secret on the member with the agent's key and certificate.
pub const IDENTITY_SECRET: &str = "atoll-agent-identity";

/// Maximum length of a token line in bytes; a token has 56.
const MAX_TOKEN_LINE: u64 = 1_024;

/// Flags of an agent.
#[derive(Debug, Args)]
pub struct AgentArgs {
    /// Address of a controller; may be given several times
    #[arg(long = "address", value_name = "HOST:PORT", required = true)]
    addresses: Vec<String>,
    /// File with the bootstrap token from `atoll join`, for the first start; `-` reads it from standard input. The
    /// environment variable ATOLL_TOKEN may have it instead
    #[arg(long, value_name = "FILE|-", requires = "ca_hash")]
    token_file: Option<PathBuf>,
    /// The bootstrap token itself. Everyone on this machine can read it in the process list: prefer --token-file
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
    #[command(flatten)]
    reserved: ReservedFlag,
    #[command(flatten)]
    proxy: ProxyFlags,
    /// Name of this agent, for example its Pod's. No two run under one name at a time
    #[arg(long, value_name = "NAME", env = "POD_NAME", default_value = "atoll-agent")]
    instance: String,
    /// Address for the liveness probe, GET /livez [default: none]
    #[arg(long, value_name = "ADDRESS:PORT")]
    health_listen: Option<SocketAddr>,
    /// Address for Prometheus over plain HTTP, GET /metrics, for example 0.0.0.0:8082 [default: none]
    #[arg(long, value_name = "ADDRESS:PORT")]
    metrics_listen: Option<SocketAddr>,
    #[command(flatten)]
    traces: TraceFlags,
    /// How it logs.
    #[command(flatten)]
    pub log: LogFlag,
}

/// Whether users of the hub reach the member's API server, and which of their identities cross.
#[derive(Debug, Default, Args)]
pub struct ProxyFlags {
    /// Lets users of the hub reach the member's API server through this agent, which impersonates them. It needs the role in
    /// deploy/agent/rights-proxy.yaml
    #[arg(long)]
    proxy: bool,
    /// Group of the hub whose members have it here too; `*` for all but `system:` groups. Others are left out. The role
    /// must allow to impersonate it. May be given several times
    #[arg(long = "proxy-group", value_name = "GROUP|*", requires = "proxy")]
    groups: Vec<String>,
    /// User with a name that starts with `system:` who may act here under that name. May be given several times
    #[arg(long = "proxy-system-user", value_name = "USER", requires = "proxy")]
    system_users: Vec<String>,
    /// Key of an extra field of users that is passed on. May be given several times
    #[arg(long = "proxy-extra", value_name = "KEY", requires = "proxy")]
    extra: Vec<String>,
}

impl ProxyFlags {
    fn passed(self) -> Option<Passed> {
        let all = |group: &String| group == "*";
        self.proxy.then(|| Passed {
            all_groups: self.groups.iter().any(all),
            groups: self.groups.into_iter().filter(|group| !all(group)).collect(),
            system_users: self.system_users.into_iter().collect(),
            extra: self.extra.into_iter().collect(),
        })
    }
}

/// Runs until a signal ends it.
///
/// # Errors
/// When the flags, the member or the identity cannot be used.
pub async fn run(flags: &HubFlags, args: AgentArgs) -> anyhow::Result<()> {
    let reserved = args.reserved.namespaces()?;
    // Before signals are caught: Ctrl-C ends the wait for a token on standard input.
    let join = join(args.token_file.as_deref(), args.token, args.ca_hash)?;
    let exporter = args.traces.start()?;
    let instance = args.instance.clone();
    let token = CancellationToken::new();
    process::end_on_signal(token.clone())?;
    let (config, found) = hub::member_server(flags).await?;
    hub::check(&hub::client(config.clone(), &found)?, &found).await?;
    let client = atoll_agent::member_client(config).with_context(|| format!("use {found}"))?;
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
        reserved,
        proxy: args.proxy.passed(),
        instance: args.instance,
        runs_on: atoll_api::RunsOn::Thread,
        clock: Clock::system(),
        // Not the process id: in a container each agent's is 1, and all would reconnect at the same moments.
        seed: fastrand::u64(..),
        timings: Timings::default(),
    };
    tracing::info!(member = found, "agent starts");
    let tracer = tracer(exporter.as_ref(), "atoll-agent", &instance);
    let metrics = AgentMetrics::default().with_traces(tracer);
    let mut listeners = Vec::new();
    for (flag, address, pages) in [
        ("--health-listen", args.health_listen, Pages::Probes),
        ("--metrics-listen", args.metrics_listen, Pages::Metrics(metrics.clone())),
    ] {
        if let Some(address) = address {
            let listener = process::listen(flag, address).await?;
            listeners.push(tokio::spawn(health::serve(listener, pages, token.clone())));
        }
    }
    let result = atoll_agent::run_measured(options, metrics, token.clone()).await;
    process::end(token, listeners).await;
    if let Some(exporter) = exporter {
        exporter.end().await;
    }
    result.context("run the agent")
}

/// Token and authority for the first start. A file takes precedence over the environment.
fn join(
    file: Option<&Path>,
    token: Option<String>,
    ca_hash: Option<String>,
) -> anyhow::Result<Option<Join>> {
    let (token, flag) = match (file, token) {
        (Some(file), _) => (read_token(file)?, "--token-file"),
        (None, Some(token)) => (token, "--token"),
        (None, None) => return Ok(None),
    };
    let Some(ca_hash) = ca_hash else {
        bail!("{flag} needs --ca-hash: `atoll join` prints both");
    };
    Ok(Some(Join {
        token: token.trim().parse::<BootstrapToken>().context(flag)?,
        ca_hash: ca_hash.parse::<PublicKeyHash>().context("--ca-hash")?,
    }))
}

/// The token from a file, or from the first line of stdin.
fn read_token(file: &Path) -> anyhow::Result<String> {
    if file == Path::new("-") {
        let mut input = std::io::stdin().lock();
        if input.is_terminal() {
            text::note("token, from `atoll join`:");
        }
        return first_line(&mut input).context("--token-file -: read standard input");
    }
    let named = || format!("--token-file {}", file.display());
    let mut input = BufReader::new(File::open(file).with_context(named)?);
    first_line(&mut input).with_context(named)
}

fn first_line(input: &mut impl BufRead) -> anyhow::Result<String> {
    let mut line = String::new();
    input.take(MAX_TOKEN_LINE).read_line(&mut line)?;
    if line.trim().is_empty() {
        bail!("there is no token: `atoll join` and `atoll rejoin` print one");
    }
    Ok(line)
}

#[cfg(test)]
mod tests {
    use super::*;

    const HASH: &str = "sha256:0000000000000000000000000000000000000000000000000000000000000000";

    #[test]
    fn a_token_comes_from_a_file_and_errors_never_repeat_it() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("token");
        let token = BootstrapToken::generate().unwrap();
        let read = |text: &str, hash: Option<&str>| {
            std::fs::write(&file, text).unwrap();
            join(Some(&file), None, hash.map(str::to_owned))
        };
        let found = read(&format!("{}\n", token.reveal()), Some(HASH)).unwrap().unwrap();
        assert_eq!(found.token.id(), token.id());
        let error = |text: &str| format!("{:#}", read(text, Some(HASH)).err().unwrap());
        assert!(error("\n").contains("atoll join"));
        let damaged = token.reveal().replace('.', ":");
        let error = error(&damaged);
        assert!(error.contains("--token-file") && !error.contains(&damaged), "{error}");
        assert!(read(&token.reveal(), None).err().unwrap().to_string().contains("--ca-hash"));
        let missing = join(Some(&folder.path().join("none")), None, Some(HASH.to_owned()));
        assert!(format!("{:#}", missing.err().unwrap()).contains("--token-file"));
        assert!(join(None, None, None).unwrap().is_none());
    }
}
