//! The hub of `atoll up`: its API server with Atoll's kinds, the controller, and history.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail};
use atoll_agent::{Join, Timings};
use atoll_api::cluster::ClusterSpec;
use atoll_api::{Clock, Cluster, ReservedNamespaces, RunsOn, conditions, marks};
use atoll_apiserver::{Server, pki};
use atoll_controller::leader::{Candidate, LeaseTimes};
use atoll_controller::members::{self, HealthTimes, Incoming, Members, Metrics};
use atoll_controller::{Controller, MembersSide, Planner};
use atoll_history::Store;
use atoll_protocol::ca::PublicKeyHash;
use atoll_protocol::identity::TrustDomain;
use atoll_scheduler::{Profiles, RecoverAfter};
use atoll_traces::Tracer;
use jiff::SignedDuration;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Patch, PatchParams, PostParams};
use kube::runtime::{conditions as kube_conditions, wait::await_condition};
use kube::{Api, Client};
use tokio::net::TcpListener;
use tokio_util::sync::{CancellationToken, DropGuard};
use tokio_util::task::TaskTracker;

use super::Limits;
use super::folder::Folder;
use super::member::{Parts, SimulatedMember};
use super::{runtime, server};
use crate::decisions::Decisions;
use crate::member_api::MemberApi;
use crate::review_api::ReviewApi;
use crate::serve::database::Database;

/// Name of the hub in the kubeconfig and the data folder.
const NAME: &str = "hub";
/// Timeout for the CRDs to be served.
const ESTABLISHED: Duration = Duration::from_secs(10);
/// Timeout for all members to be Ready.
pub(crate) const READY: Duration = Duration::from_secs(60);
/// Age at which a stored identity is no longer trusted: certificates live 7 days and are renewed daily while `up` runs.
const IDENTITY_AGE: Duration = Duration::from_secs(6 * 24 * 60 * 60);

/// Health timings, short enough to watch. The defaults for production are minutes.
const HEALTH: HealthTimes = HealthTimes {
    heartbeat: Duration::from_secs(1),
    silent_after: Duration::from_secs(4),
    settle: Duration::from_secs(2),
    failover_after: Duration::from_secs(6),
    leader_grace: Duration::from_secs(5),
    suspicion_window: Duration::from_secs(10),
    status_interval: Duration::from_secs(60),
    facts: Duration::from_secs(10),
};

/// Seconds that a member must be healthy before work moves back to it, short enough to watch.
pub(crate) const RECOVER_AFTER: u32 = 30;

/// The bound addresses of the hub.
pub(crate) struct Listeners {
    /// Its API server.
    pub(crate) hub: TcpListener,
    /// The controller, for agents.
    pub(crate) agents: TcpListener,
    /// Probes and metrics of the controller.
    pub(crate) http: Option<TcpListener>,
}

/// A running hub.
pub(crate) struct Hub {
    client: Client,
    context: pki::Context,
    agents: SocketAddr,
    ca_hash: PublicKeyHash,
    clock: Clock,
    reserved: ReservedNamespaces,
    tracer: Tracer,
}

impl Hub {
    /// Starts API server, controller and history.
    ///
    /// # Errors
    /// When one of them cannot be opened or does not start.
    pub(crate) async fn start(
        folder: &Folder,
        listeners: Listeners,
        limits: Limits,
        tasks: &TaskTracker,
        token: &CancellationToken,
    ) -> anyhow::Result<Self> {
        let Listeners { hub: listener, agents, http } = listeners;
        let clock = Clock::system();
        let address = listener.local_addr().context("the hub's address")?;
        let agents_address = agents.local_addr().context("the agents' address")?;
        let seed = folder.seed()?;
        let endpoint = server::open(NAME, &folder.hub(), &folder.pki(NAME), address, seed)?;
        // The controller and the members disconnect before the hub stops.
        let serving = CancellationToken::new();
        serve(&endpoint.server, listener, endpoint.tls, tasks, &serving);
        let client = endpoint.server.client();
        install(&client).await?;
        let trust_domain: TrustDomain =
            TrustDomain::new("atoll.local").context("the trust domain")?;
        let authority = members::load_or_create(&client, &clock, &trust_domain)
            .await
            .context("the certificate authority for agents")?;
        let own = || Database::Sqlite(folder.history());
        let history = limits.history.clone().unwrap_or_else(own).open().await?;
        for kind in Decisions::all(&history) {
            endpoint.server.mount(kind);
        }
        let ca_hash = authority.signing().hash();
        let parts = Control {
            client: client.clone(),
            clock: clock.clone(),
            history,
            limits: limits.clone(),
            agents,
            http,
            trust_domain,
        };
        let (members, planner) = controller(parts, serving.drop_guard(), tasks, token)?;
        let review = ReviewApi::over(client.clone(), clock.clone(), planner, &members);
        endpoint.server.mount_raw(review);
        endpoint.server.mount_raw(MemberApi::over(members, client.clone()));
        let (reserved, tracer) = (limits.reserved, limits.tracer);
        let context = endpoint.context;
        Ok(Self { client, context, agents: agents_address, ca_hash, clock, reserved, tracer })
    }

    pub(crate) fn context(&self) -> &pki::Context {
        &self.context
    }

    pub(crate) fn health(&self) -> HealthTimes {
        HEALTH
    }

    /// Registers and starts the simulated member with this number.
    ///
    /// # Errors
    /// When the Cluster cannot be created, or a part of the member does not start.
    pub(crate) async fn member(
        &self,
        folder: &Folder,
        number: u64,
        listener: TcpListener,
    ) -> anyhow::Result<SimulatedMember> {
        let name = format!("member{number}");
        let seed = folder.seed()?.wrapping_add(number);
        let address = listener.local_addr().with_context(|| format!("the address of {name}"))?;
        let endpoint =
            server::open(&name, &folder.member(&name), &folder.pki(&name), address, seed)?;
        let cluster = self.register(&name).await?;
        let identity = folder.agent(&name);
        let join = if has_identity(&identity) {
            None
        } else {
            let token = members::create_token(
                &self.client,
                &self.clock,
                &cluster,
                SignedDuration::from_mins(15),
            )
            .await
            .with_context(|| format!("make the token for {name}"))?;
            Some(Join { token, ca_hash: self.ca_hash })
        };
        let config = server::config(&endpoint.context).await?;
        let client = atoll_agent::member_client(config).with_context(|| format!("reach {name}"))?;
        runtime::mount(&endpoint.server, &client, &self.clock);
        let parts = Parts {
            client,
            address,
            server: endpoint.server,
            tls: endpoint.tls,
            context: endpoint.context,
            tracer: self.tracer.of("atoll-agent", format!("{name}-agent")),
            controller: self.agents,
            reserved: self.reserved.clone(),
            identity,
            join,
            timings: Timings::default(),
            seed,
            name,
        };
        SimulatedMember::start(parts, listener).await
    }

    /// The Cluster object, created if missing. Users' edits are kept.
    async fn register(&self, name: &str) -> anyhow::Result<Cluster> {
        let clusters: Api<Cluster> = Api::all(self.client.clone());
        if let Some(cluster) =
            clusters.get_opt(name).await.with_context(|| format!("look for Cluster {name}"))?
        {
            return Ok(cluster);
        }
        let cluster = Cluster::new(name, ClusterSpec::default());
        clusters
            .create(&PostParams::default(), &cluster)
            .await
            .with_context(|| format!("make Cluster {name}"))
    }

    /// Waits until every member is Ready.
    ///
    /// # Errors
    /// When one is not within the limit.
    pub(crate) async fn all_ready(
        &self,
        members: &[Arc<SimulatedMember>],
        limit: Duration,
    ) -> anyhow::Result<()> {
        let clusters: Api<Cluster> = Api::all(self.client.clone());
        let waits = members.iter().map(|member| {
            await_condition(clusters.clone(), member.name(), |cluster: Option<&Cluster>| {
                let status = cluster.and_then(|cluster| cluster.status.as_ref());
                // Facts arrive shortly after the session; without them nothing can be placed there.
                status.is_some_and(|status| {
                    conditions::is_true(&status.conditions, conditions::READY)
                        && !status.api_enablements.is_empty()
                        && status.resource_summary.is_some()
                })
            })
        });
        match tokio::time::timeout(limit, futures::future::try_join_all(waits)).await {
            Ok(Ok(_)) => Ok(()),
            Ok(Err(error)) => Err(error).context("watch the members"),
            Err(_) => bail!("not every member was Ready within {} s", limit.as_secs()),
        }
    }
}

fn serve(
    server: &Server,
    listener: TcpListener,
    tls: Arc<rustls::ServerConfig>,
    tasks: &TaskTracker,
    token: &CancellationToken,
) {
    let serving = server.clone().serve(listener, tls, token.clone());
    tasks.spawn(async move {
        if let Err(error) = serving.await {
            tracing::error!(%error, "the hub's API server");
        }
    });
    let (server, ends) = (server.clone(), token.clone());
    tasks.spawn(async move { server.run_controllers(ends).await });
}

/// Installs the CRDs of this version and waits until they are served.
async fn install(client: &Client) -> anyhow::Result<()> {
    let crds: Api<CustomResourceDefinition> = Api::all(client.clone());
    let params = PatchParams::apply(marks::MANAGER).force();
    for crd in atoll_api::crds::all() {
        let name = crd.metadata.name.clone().context("a CRD without a name")?;
        crds.patch(&name, &params, &Patch::Apply(&crd))
            .await
            .with_context(|| format!("install {name}"))?;
        let established =
            await_condition(crds.clone(), &name, kube_conditions::is_crd_established());
        tokio::time::timeout(ESTABLISHED, established)
            .await
            .with_context(|| format!("wait for {name} to be served"))?
            .with_context(|| format!("watch {name}"))?;
    }
    Ok(())
}

/// The parts of the controller of `up`.
struct Control {
    client: Client,
    clock: Clock,
    history: Arc<dyn Store>,
    limits: Limits,
    agents: TcpListener,
    http: Option<TcpListener>,
    trust_domain: TrustDomain,
}

/// Starts the one controller. No other process can use the hub: the data folder is locked. When the controller ends,
/// the hub's API server ends too; if it ends unexpectedly, everything ends.
fn controller(
    Control { client, clock, history, limits, agents, http, trust_domain }: Control,
    serving: DropGuard,
    tasks: &TaskTracker,
    token: &CancellationToken,
) -> anyhow::Result<(Members, Planner)> {
    let incarnation = format!("{}-{}", std::process::id(), clock.now().as_microsecond());
    let hub = atoll_controller::Hub {
        client,
        clock,
        history,
        retention: limits.retention,
        candidate: Candidate {
            namespace: marks::SYSTEM_NAMESPACE.to_owned(),
            name: "atoll-controller".to_owned(),
            place: "atoll-up".to_owned(),
            incarnation,
            address: None,
            exclusive_place: true,
            times: LeaseTimes::default(),
        },
        profiles: Profiles::default(),
        runs_on: RunsOn::Thread,
        seed: 0,
    };
    let members = MembersSide {
        incoming: Incoming::Tcp(agents),
        health: HEALTH,
        trust_domain,
        metrics: Metrics::default(),
    };
    let controller =
        Controller::new(hub, members, token.clone()).context("start the controller")?;
    let mut controller = controller
        .with_traces(limits.tracer)
        .with_pace(limits.pace.into())
        .with_reserved(limits.reserved)
        .with_required_cluster_sets(limits.tenancy.require_cluster_sets)
        .with_recovery(limits.pace.recover_after(RecoverAfter::seconds(RECOVER_AFTER)));
    if let Some(listener) = http {
        controller = controller.with_http(listener);
    }
    let (ends, handles) = (token.clone(), (controller.members(), controller.planner()));
    tasks.spawn(async move {
        if let Err(error) = controller.run().await {
            tracing::error!("controller: {:#}", anyhow::Error::from(error));
        }
        ends.cancel();
        drop(serving);
    });
    Ok(handles)
}

/// Whether an agent has a certificate that is still valid.
fn has_identity(folder: &std::path::Path) -> bool {
    let written = std::fs::metadata(folder.join("identity.json")).and_then(|file| file.modified());
    written.is_ok_and(|written| written.elapsed().is_ok_and(|age| age < IDENTITY_AGE))
}
