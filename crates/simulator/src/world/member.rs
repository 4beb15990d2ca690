//! A member of a World: its API server, its simulator, its agent, and their power switch.

use std::sync::Arc;
use std::time::Duration;

use atoll_agent::{AgentOptions, IdentityStore, Join, Timings};
use atoll_api::marks;
use atoll_apiserver::Server;
use atoll_protocol::identity::ClusterUid;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::clocks::Clocks;
use super::ledger::{Actor, Ledger};
use super::line::{Line, Lists, Who};
use super::network::{self, Door, Link};
use super::site::Site;
use super::tap;
use crate::{Member, MemberOptions};

/// Longest wait for a member's parts to end, in simulated time.
const STOP: Duration = Duration::from_secs(30);

/// How an agent authenticates.
#[derive(Debug, Clone)]
pub(super) enum Credentials {
    /// It enrols with a token, over TLS.
    Enrol(Join),
    /// It is identified by its stream, without TLS.
    Known(ClusterUid),
}

/// The parts of a member that survive stops and starts.
pub(super) struct Parts {
    pub(super) name: String,
    pub(super) seed: u64,
    pub(super) clocks: Clocks,
    pub(super) lists: Lists,
    pub(super) server: Server,
    pub(super) credentials: Credentials,
    pub(super) ledger: Arc<Ledger>,
    pub(super) door: Door,
    pub(super) deaths: mpsc::UnboundedSender<Who>,
}

pub(super) struct WorldMember {
    parts: Parts,
    pub(super) site: Site,
    pub(super) link: Link,
    /// Cancelled to end the mirror's watches of the current store.
    pub(super) followed: CancellationToken,
    running: Option<Running>,
    agent: Option<Agent>,
}

/// What runs while the power is on, except the agent.
struct Running {
    token: CancellationToken,
    tasks: TaskTracker,
    machinery: Member,
    line: Arc<Line>,
}

/// A running agent.
struct Agent {
    token: CancellationToken,
    tasks: TaskTracker,
    line: Arc<Line>,
}

impl WorldMember {
    pub(super) fn new(parts: Parts, followed: CancellationToken) -> Self {
        let site = Site::new(&parts.name, parts.server.client(), parts.ledger.clone());
        Self { parts, site, link: Link::default(), followed, running: None, agent: None }
    }

    /// Another cluster, without power, that uses the identity of this one.
    pub(super) fn impostor(
        &self,
        name: &str,
        server: Server,
        seed: u64,
        followed: CancellationToken,
    ) -> Self {
        let parts = Parts {
            name: name.to_owned(),
            seed,
            server,
            clocks: self.parts.clocks.clone(),
            lists: self.parts.lists,
            credentials: self.parts.credentials.clone(),
            ledger: self.parts.ledger.clone(),
            door: self.parts.door.clone(),
            deaths: self.parts.deaths.clone(),
        };
        Self::new(parts, followed)
    }

    pub(super) fn server(&self) -> &Server {
        &self.parts.server
    }

    /// The agent's line to its API server, while it runs.
    pub(super) fn line(&self) -> Option<&Arc<Line>> {
        self.agent.as_ref().map(|agent| &agent.line)
    }

    /// Replaces the store; the member must be off.
    pub(super) fn replace(&mut self, server: Server) {
        self.site = Site::new(&self.parts.name, server.client(), self.parts.ledger.clone());
        self.parts.server = server;
    }

    /// Starts the member; does nothing if it runs.
    pub(super) async fn start(&mut self) {
        if self.running.is_none() {
            self.start_machinery().await;
        }
        self.start_agent();
    }

    async fn start_machinery(&mut self) {
        let parts = &self.parts;
        let (token, tasks, line) = (CancellationToken::new(), TaskTracker::new(), Line::plain());
        let (server, ends) = (parts.server.clone(), token.clone());
        tasks.spawn(async move { server.run_controllers(ends).await });
        let options = MemberOptions {
            seed: parts.seed,
            ..MemberOptions::standard(&parts.name, parts.clocks.right.clone())
        };
        let client =
            tap::client(&parts.server, &parts.name, Actor::Machinery, &parts.ledger, &line);
        let machinery = match Member::start(client, options, token.clone()).await {
            Ok(machinery) => machinery,
            Err(error) => panic!("start the machinery of {}: {error}", parts.name),
        };
        self.running = Some(Running { token, tasks, machinery, line });
    }

    /// Starts the agent, if the member has power and none runs.
    pub(super) fn start_agent(&mut self) {
        if self.agent.is_some() || self.running.is_none() {
            return;
        }
        let parts = &self.parts;
        let (token, tasks) = (CancellationToken::new(), TaskTracker::new());
        let who = Who::Agent(parts.name.clone());
        let line = Line::of(who, parts.deaths.clone());
        line.set_lists(parts.lists);
        let (identity, join, known) = match &parts.credentials {
            Credentials::Enrol(join) => {
                (IdentityStore::Secret("atoll-agent".to_owned()), Some(join.clone()), None)
            }
            Credentials::Known(uid) => {
                (IdentityStore::InProcess(uid.clone()), None, Some(uid.clone()))
            }
        };
        let connector = network::connector(
            parts.door.clone(),
            self.link.clone(),
            known,
            tasks.clone(),
            line.dead(),
        );
        let options = AgentOptions {
            client: tap::client(&parts.server, &parts.name, Actor::Agent, &parts.ledger, &line),
            addresses: vec!["controller.world:443".to_owned()],
            connector,
            identity,
            join,
            namespace: marks::SYSTEM_NAMESPACE.to_owned(),
            reserved: atoll_api::ReservedNamespaces::default(),
            proxy: None,
            instance: format!("{}-agent", parts.name),
            runs_on: atoll_api::RunsOn::Task,
            clock: parts.clocks.of(Who::Agent(parts.name.clone())),
            seed: parts.seed,
            timings: Timings::default(),
        };
        let (name, ledger, ends) = (parts.name.clone(), parts.ledger.clone(), token.clone());
        tasks.spawn(async move {
            if let Err(error) = atoll_agent::run(options, ends).await {
                ledger.violation(format!("the agent of {name} ended: {error}"));
            }
        });
        self.agent = Some(Agent { token, tasks, line });
    }

    /// Crashes the agent: no further request of it reaches the member.
    pub(super) async fn crash_agent(&mut self) {
        let Some(agent) = self.agent.take() else { return };
        agent.line.cut();
        agent.token.cancel();
        agent.tasks.close();
        if tokio::time::timeout(STOP, agent.tasks.wait()).await.is_err() {
            panic!("the agent of {} does not end", self.parts.name);
        }
    }

    /// Cuts the power: nothing is written any more, and the connections are closed.
    pub(super) async fn stop(&mut self) {
        if let Some(running) = &self.running {
            running.line.cut();
        }
        self.crash_agent().await;
        let Some(running) = self.running.take() else { return };
        running.token.cancel();
        running.tasks.close();
        let all = async {
            running.machinery.stopped().await;
            running.tasks.wait().await;
        };
        if tokio::time::timeout(STOP, all).await.is_err() {
            panic!("the parts of {} do not end", self.parts.name);
        }
    }
}
