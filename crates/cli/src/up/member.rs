//! One simulated member of `atoll up`: its API server, its simulator, its agent, and their power switch.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use atoll_agent::{AgentMetrics, AgentOptions, IdentityStore, Join, Passed, Timings};
use atoll_api::{Clock, ReservedNamespaces};
use atoll_apiserver::{Server, pki};
use atoll_simulator::{Member, MemberOptions};
use atoll_traces::Tracer;
use tokio::net::TcpListener;
use tokio::sync::Mutex;
use tokio_util::sync::{CancellationToken, DropGuard};
use tokio_util::task::TaskTracker;

use super::control::{MemberState, Power};
use super::network::Network;

/// Timeout for a member's parts to stop on `atoll sim stop`.
const STOP: Duration = Duration::from_secs(4);

/// The parts of a member that survive stops and starts.
pub(crate) struct Parts {
    pub(crate) name: String,
    pub(crate) address: SocketAddr,
    pub(crate) server: Server,
    pub(crate) tls: Arc<rustls::ServerConfig>,
    pub(crate) context: pki::Context,
    /// The agent's own client of the member's API, over HTTPS as in production.
    pub(crate) client: kube::Client,
    pub(crate) controller: SocketAddr,
    /// Namespaces into which the agent applies nothing.
    pub(crate) reserved: ReservedNamespaces,
    pub(crate) identity: PathBuf,
    /// Absent once the agent has its certificate.
    pub(crate) join: Option<Join>,
    pub(crate) timings: Timings,
    pub(crate) seed: u64,
    /// Records the agent's part of traces, if that is on.
    pub(crate) tracer: Tracer,
}

/// A simulated member.
pub(crate) struct SimulatedMember {
    parts: Parts,
    state: Mutex<State>,
}

struct State {
    power: Power,
    running: Option<Running>,
}

/// What runs while the member is on. The agent stops before its API server, so that a stop by hand logs no meaningless
/// errors.
struct Running {
    /// Stops the agent and its network.
    agent: DropGuard,
    agent_task: TaskTracker,
    /// Stops everything else.
    rest: DropGuard,
    tasks: TaskTracker,
    machinery: Member,
    network: Network,
}

impl SimulatedMember {
    /// Starts the member on a bound listener.
    ///
    /// # Errors
    /// When its simulator does not start.
    pub(crate) async fn start(parts: Parts, listener: TcpListener) -> anyhow::Result<Self> {
        let running = Running::start(&parts, listener).await?;
        let state = State { power: Power::Running, running: Some(running) };
        Ok(Self { parts, state: Mutex::new(state) })
    }

    /// The member's name.
    pub(crate) fn name(&self) -> &str {
        &self.parts.name
    }

    /// The member's context for the kubeconfig.
    pub(crate) fn context(&self) -> &pki::Context {
        &self.parts.context
    }

    /// The state of the member.
    pub(crate) async fn state(&self) -> MemberState {
        MemberState {
            name: self.parts.name.clone(),
            power: self.state.lock().await.power,
            server: format!("https://{}", self.parts.address),
        }
    }

    /// Stops the member; does nothing if it is stopped.
    pub(crate) async fn power_off(&self) {
        let mut state = self.state.lock().await;
        if let Some(running) = state.running.take() {
            running.stop(&self.parts.name).await;
        }
        state.power = Power::Stopped;
    }

    /// Restores power and network.
    ///
    /// # Errors
    /// When the member's address is in use, or its simulator does not start.
    pub(crate) async fn power_on(&self) -> anyhow::Result<()> {
        let mut state = self.state.lock().await;
        match &state.running {
            Some(running) => running.network.set(true),
            None => {
                let listener = TcpListener::bind(self.parts.address).await.with_context(|| {
                    format!("listen on {} for {} again", self.parts.address, self.parts.name)
                })?;
                state.running = Some(Running::start(&self.parts, listener).await?);
            }
        }
        state.power = Power::Running;
        Ok(())
    }

    /// Cuts the agent's network.
    ///
    /// # Errors
    /// When the member is down.
    pub(crate) async fn cut(&self) -> anyhow::Result<()> {
        let mut state = self.state.lock().await;
        let name = &self.parts.name;
        let running = state
            .running
            .as_ref()
            .with_context(|| format!("{name} is down: start it before you cut its network"))?;
        running.network.set(false);
        state.power = Power::Cut;
        Ok(())
    }
}

impl Running {
    async fn start(parts: &Parts, listener: TcpListener) -> anyhow::Result<Self> {
        let (agent, rest) = (CancellationToken::new(), CancellationToken::new());
        let (agent_task, tasks) = (TaskTracker::new(), TaskTracker::new());
        // From here on a failure stops what was started.
        let (agent_guard, rest_guard) = (agent.clone().drop_guard(), rest.clone().drop_guard());
        let name = parts.name.clone();
        let serve = parts.server.clone().serve(listener, parts.tls.clone(), rest.clone());
        tasks.spawn(async move {
            if let Err(error) = serve.await {
                tracing::error!(member = name, %error, "API server");
            }
        });
        let (server, ends) = (parts.server.clone(), rest.clone());
        tasks.spawn(async move { server.run_controllers(ends).await });
        let options = MemberOptions {
            seed: parts.seed,
            ..MemberOptions::standard(&parts.name, Clock::system())
        };
        let machinery = Member::start(parts.server.client(), options, rest.clone())
            .await
            .with_context(|| format!("start the simulated member {}", parts.name))?;
        let network = Network::new(agent.clone());
        let options = AgentOptions {
            client: parts.client.clone(),
            addresses: vec![parts.controller.to_string()],
            connector: network.connector(),
            identity: IdentityStore::Folder(parts.identity.clone()),
            join: parts.join.clone(),
            namespace: atoll_api::marks::SYSTEM_NAMESPACE.to_owned(),
            reserved: parts.reserved.clone(),
            proxy: Some(Passed { all_groups: true, ..Passed::default() }),
            instance: format!("{}-agent", parts.name),
            runs_on: atoll_api::RunsOn::Thread,
            clock: Clock::system(),
            seed: parts.seed,
            timings: parts.timings,
        };
        let name = parts.name.clone();
        let metrics = AgentMetrics::default().with_traces(parts.tracer.clone());
        agent_task.spawn(async move {
            if let Err(error) = atoll_agent::run_measured(options, metrics, agent).await {
                tracing::error!(member = name, "agent: {:#}", anyhow::Error::from(error));
            }
        });
        agent_task.close();
        tasks.close();
        Ok(Self { agent: agent_guard, agent_task, rest: rest_guard, tasks, machinery, network })
    }

    async fn stop(self, name: &str) {
        let all = async {
            drop(self.agent);
            self.agent_task.wait().await;
            self.network.closed().await;
            drop(self.rest);
            self.machinery.stopped().await;
            self.tasks.wait().await;
        };
        if tokio::time::timeout(STOP, all).await.is_err() {
            tracing::warn!(member = name, "some of the member's parts did not stop in time");
        }
    }
}
