//! `atoll controller`: the control plane as its own process.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context;
use atoll_api::{Clock, RunsOn, marks};
use atoll_controller::leader::{Candidate, LeaseTimes, OwnPod};
use atoll_controller::members::{HealthTimes, Incoming, Metrics};
use atoll_controller::{Controller, Hub, MembersSide};
use atoll_protocol::identity::TrustDomain;
use atoll_scheduler::{Profiles, RecoverAfter, SchedulerConfiguration};
use clap::Args;
use kube::Client;
use tokio_util::sync::CancellationToken;

use super::aggregated;
use super::database::{Database, database};
use super::hosted::{self, Host};
use crate::args::{
    HubFlags, LogFlag, PaceFlags, ReservedFlag, RetentionFlag, TenancyFlag, TraceFlags, seconds,
    tracer,
};
use crate::hub;
use crate::member_api::MemberApi;
use crate::review_api::ReviewApi;

/// How long agents of Hosted members may take to stop after the controller.
const STOP: Duration = Duration::from_secs(4);

#[derive(Debug, Args)]
pub(crate) struct ControllerArgs {
    /// Address on which agents connect
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "0.0.0.0:7443")]
    listen: SocketAddr,
    /// Address for /healthz, /readyz and /metrics over plain HTTP, for example 127.0.0.1:8080. Not served without it
    #[arg(long, value_name = "ADDRESS:PORT")]
    http: Option<SocketAddr>,
    /// Address for /healthz and /readyz alone, over plain HTTP, for example 0.0.0.0:8081: with it the probes do not share
    /// connections with readers of metrics. Not served without it
    #[arg(long, value_name = "ADDRESS:PORT")]
    health_listen: Option<SocketAddr>,
    /// Address on which history is served to kube-apiserver as an aggregated API, over TLS, for example 0.0.0.0:6443. Not
    /// served without it
    #[arg(long, value_name = "ADDRESS:PORT")]
    api_address: Option<SocketAddr>,
    /// DNS name with which kube-apiserver connects to --api-address: that of the Service in deploy/controller/api.yaml
    #[arg(
        long,
        value_name = "NAME",
        default_value = "atoll-api.atoll-system.svc",
        requires = "api_address"
    )]
    api_name: String,
    /// Where decisions are recorded: a SQLite file, created if missing, or a PostgreSQL database. Over a network its
    /// certificate is checked; `?sslrootcert=FILE` names the trusted authority. The environment variable keeps it out of
    /// `ps`
    #[arg(
        long,
        value_name = "FILE|sqlite:FILE|postgres://USER:PASSWORD@HOST/DATABASE",
        env = "ATOLL_HISTORY",
        hide_env_values = true,
        default_value = "atoll-history.db",
        value_parser = database
    )]
    history: Database,
    #[command(flatten)]
    retention: RetentionFlag,
    /// Trust domain of the agents' identities. A hub that has a certificate authority keeps its own
    #[arg(long, value_name = "DOMAIN", default_value = "atoll.local")]
    trust_domain: String,
    /// Name of this controller in the Lease, for example its Pod's [default: the host's name]
    #[arg(long, value_name = "NAME", env = "POD_NAME")]
    identity: Option<String>,
    /// Namespace of this controller's Pod, whose name is --identity: the Pod has the label atoll.dev/leader while it leads
    #[arg(long, value_name = "NAME", env = "POD_NAMESPACE", requires = "identity")]
    pod_namespace: Option<String>,
    /// IP address at which other controllers reach the port of --listen, to pass requests of users to members on to the leader
    /// [default: that of --listen, if it names one]
    #[arg(long, value_name = "ADDRESS", env = "POD_IP")]
    advertise_ip: Option<IpAddr>,
    /// SchedulerConfiguration file with profiles in addition to `default` and `karmada`
    #[arg(long, value_name = "FILE")]
    scheduler_config: Option<PathBuf>,
    /// Seconds after which another controller replaces a leader that does not renew its Lease
    #[arg(long, value_name = "SECONDS", default_value_t = 15, value_parser = seconds::<u64>)]
    lease_duration: u64,
    /// Seconds between heartbeats of an agent
    #[arg(long, value_name = "SECONDS", default_value_t = 5, value_parser = seconds::<u64>)]
    heartbeat: u64,
    /// Seconds of silence after which a member is lost (taint unreachable:NoSchedule)
    #[arg(long, value_name = "SECONDS", default_value_t = 15, value_parser = seconds::<u64>)]
    silent_after: u64,
    /// Seconds from the loss of a member to the move of its work (taint unreachable:NoExecute)
    #[arg(long, value_name = "SECONDS", default_value_t = 300, value_parser = seconds::<u64>)]
    failover_after: u64,
    #[command(flatten)]
    pub(crate) reserved: ReservedFlag,
    #[command(flatten)]
    tenancy: TenancyFlag,
    #[command(flatten)]
    pace: PaceFlags,
    #[command(flatten)]
    traces: TraceFlags,
    #[command(flatten)]
    pub(crate) log: LogFlag,
}

pub(crate) async fn run(flags: &HubFlags, args: ControllerArgs) -> anyhow::Result<()> {
    let reserved = args.reserved.namespaces()?;
    let token = CancellationToken::new();
    super::end_on_signal(token.clone())?;
    let (config, found) = hub::own_server(flags).await?;
    let client = hub::client(config, &found)?;
    let clock = Clock::system();
    // Local errors are reported before any remote call.
    let profiles = match &args.scheduler_config {
        None => Profiles::default(),
        Some(file) => read_profiles(file)?,
    };
    let exporter = args.traces.start()?;
    let named = args.identity.clone();
    let place = args.identity.unwrap_or_else(host_name);
    let tracer = tracer(exporter.as_ref(), "atoll-controller", &place);
    let listener = super::listen("--listen", args.listen).await?;
    let history = args.history.open().await?;
    hub::check(&client, &found).await?;
    let pod = match args.pod_namespace.zip(named) {
        Some((namespace, name)) => Some(OwnPod { client: pod_client(&client)?, namespace, name }),
        None => None,
    };
    let listening = listener.local_addr().context("--listen")?;
    let address = own_address(listening);
    let times = HealthTimes {
        heartbeat: Duration::from_secs(args.heartbeat),
        silent_after: Duration::from_secs(args.silent_after),
        failover_after: Duration::from_secs(args.failover_after),
        ..HealthTimes::default()
    };
    let trust_domain: TrustDomain =
        TrustDomain::new(args.trust_domain).context("--trust-domain")?;
    let incarnation = format!("{}-{}", std::process::id(), clock.now().as_microsecond());
    let (hub, agents_clock, agents_place) = (client.clone(), clock.clone(), place.clone());
    let api = match args.api_address {
        Some(address) => Some(super::listen("--api-address", address).await?),
        None => None,
    };
    let proxy_client = client.clone();
    let (api_client, api_clock, api_history) = (client.clone(), clock.clone(), history.clone());
    let parts = Hub {
        client,
        clock,
        history,
        retention: args.retention.duration(),
        candidate: Candidate {
            namespace: marks::SYSTEM_NAMESPACE.to_owned(),
            name: "atoll-controller".to_owned(),
            place,
            incarnation,
            address: address_for_others(listening, args.advertise_ip),
            exclusive_place: false,
            times: LeaseTimes::of(Duration::from_secs(args.lease_duration)),
        },
        profiles,
        runs_on: RunsOn::Thread,
        seed: fastrand::u64(..),
    };
    let members = MembersSide {
        incoming: Incoming::Tcp(listener),
        health: times,
        trust_domain,
        metrics: Metrics::default(),
    };
    tracing::info!(hub = found, listen = %args.listen, "controller starts");
    let mut controller =
        Controller::new(parts, members, token.clone()).context("start the controller")?;
    controller = controller
        .with_traces(tracer.clone())
        .with_pace(args.pace.into())
        .with_reserved(reserved.clone())
        .with_required_cluster_sets(args.tenancy.require_cluster_sets)
        .with_recovery(args.pace.recover_after(RecoverAfter::default()));
    if let Some(pod) = pod {
        controller = controller.with_pod(pod);
    }
    if let Some(address) = args.http {
        controller = controller.with_http(super::listen("--http", address).await?);
    }
    if let Some(address) = args.health_listen {
        controller = controller.with_probes(super::listen("--health-listen", address).await?);
    }
    let host = Host {
        hub,
        members: controller.members(),
        address,
        tracer,
        place: agents_place,
        reserved,
        clock: agents_clock,
    };
    let hosting = tokio::spawn(hosted::run(host, controller.leadership(), token.child_token()));
    let api = api.map(|listener| {
        let (members, token) = (controller.members(), token.clone());
        let api = aggregated::Parts {
            client: api_client,
            clock: api_clock.clone(),
            history: api_history,
            raw: vec![
                MemberApi::over(members.clone(), proxy_client.clone()),
                ReviewApi::over(proxy_client, api_clock, controller.planner(), &members),
            ],
            listener,
            names: api_names(&args.api_name),
        };
        tokio::spawn(async move { aggregated::serve(api, members.authorities(), token).await })
    });
    let result = controller.run().await.context("run the controller");
    token.cancel();
    if tokio::time::timeout(STOP, hosting).await.is_err() {
        tracing::warn!("agents of Hosted members did not end in time");
    }
    if let Some(exporter) = exporter {
        exporter.end().await;
    }
    if let Some(api) = api {
        api.await.context("the aggregated API's task")?.context("the aggregated API")?;
    }
    result
}

/// The Service of deploy/controller/api.yaml, and `atoll-api-proxy.atoll-system.svc`, which APIServices of earlier
/// manifests name.
fn api_names(name: &str) -> Vec<String> {
    let proxy = match name.split_once('.') {
        Some((service, domain)) => format!("{service}-proxy.{domain}"),
        None => format!("{name}-proxy"),
    };
    vec![name.to_owned(), proxy]
}

/// Client of the cluster that this process runs in, where its Pod is; the hub may be another cluster.
fn pod_client(hub: &Client) -> anyhow::Result<Client> {
    if std::env::var_os("KUBERNETES_SERVICE_HOST").is_none() {
        return Ok(hub.clone());
    }
    let config = kube::Config::incluster().context("use the Pod's service account")?;
    Client::try_from(config).context("use the Pod's own cluster")
}

/// Where other controllers reach this one's listener for agents.
fn address_for_others(listening: SocketAddr, advertised: Option<IpAddr>) -> Option<String> {
    let own = Some(listening.ip()).filter(|ip| !ip.is_unspecified());
    advertised.or(own).map(|ip| SocketAddr::new(ip, listening.port()).to_string())
}

/// The address for agents in this process.
fn own_address(listening: SocketAddr) -> String {
    let ip = match listening.ip() {
        ip if !ip.is_unspecified() => ip,
        std::net::IpAddr::V4(_) => std::net::Ipv4Addr::LOCALHOST.into(),
        std::net::IpAddr::V6(_) => std::net::Ipv6Addr::LOCALHOST.into(),
    };
    SocketAddr::new(ip, listening.port()).to_string()
}

fn read_profiles(file: &std::path::Path) -> anyhow::Result<Profiles> {
    let named = || {
        let file = file.display();
        format!(
            "--scheduler-config {file}: correct the file, or leave the flag out for the built-in profiles"
        )
    };
    let text = std::fs::read_to_string(file).with_context(named)?;
    let config = SchedulerConfiguration::read(&text).with_context(named)?;
    Profiles::read(&config).with_context(named)
}

/// The host's name, which identifies this process in the Lease.
fn host_name() -> String {
    let read = std::fs::read_to_string("/proc/sys/kernel/hostname");
    read.map_or_else(|_| "atoll".to_owned(), |name| name.trim().to_owned())
}
