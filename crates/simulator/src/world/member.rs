//! A member of a World: its API server, its machinery, its agent, and their power switch.

use std::sync::Arc;
use std::time::Duration;

use atoll_agent::{AgentOptions, IdentityStore, Join, Timings};
use atoll_api::{Clock, marks};
use atoll_apiserver::Server;
use atoll_protocol::identity::ClusterUid;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::ledger::{Actor, Ledger};
use super::network::{self, Door};
use super::site::Site;
use super::tap::{self, Power};
use crate::{Member, MemberOptions};

/// Longest wait for a member's parts to end, in simulated time.
const STOP: Duration = Duration::from_secs(30);

/// How an agent shows who it is.
#[derive(Debug, Clone)]
pub(super) enum Credentials {
    /// It enrols with a token, over TLS.
    Enrol(Join),
    /// It is known, and no TLS is spoken.
    Known(ClusterUid),
}

/// What a member is made of; it stays the same over stops and starts.
pub(super) struct Parts {
    pub(super) name: String,
    pub(super) seed: u64,
    pub(super) clock: Clock,
    pub(super) server: Server,
    pub(super) credentials: Credentials,
    pub(super) ledger: Arc<Ledger>,
    pub(super) door: Door,
}

pub(super) struct WorldMember {
    parts: Parts,
    pub(super) site: Site,
    up: watch::Sender<bool>,
    running: Option<Running>,
}

/// What runs while the power is on.
struct Running {
    token: CancellationToken,
    tasks: TaskTracker,
    machinery: Member,
    power: Power,
}

impl WorldMember {
    pub(super) fn new(parts: Parts) -> Self {
        let site = Site::new(&parts.name, parts.server.client());
        Self { parts, site, up: watch::Sender::new(true), running: None }
    }

    /// Takes the agent's network away, or gives it back.
    pub(super) fn network(&self, up: bool) {
        self.up.send_replace(up);
    }

    /// Gives power; nothing where there is some.
    pub(super) async fn start(&mut self) {
        if self.running.is_some() {
            return;
        }
        let parts = &self.parts;
        let (token, tasks, power) = (CancellationToken::new(), TaskTracker::new(), Power::on());
        let (server, ends) = (parts.server.clone(), token.clone());
        tasks.spawn(async move { server.run_controllers(ends).await });
        let client = |actor| tap::client(&parts.server, &parts.name, actor, &parts.ledger, &power);
        let options = MemberOptions {
            seed: parts.seed,
            ..MemberOptions::standard(&parts.name, parts.clock.clone())
        };
        let machinery = Member::start(client(Actor::Machinery), options, token.clone());
        let machinery = match machinery.await {
            Ok(machinery) => machinery,
            Err(error) => panic!("start the machinery of {}: {error}", parts.name),
        };
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
            self.up.subscribe(),
            known,
            tasks.clone(),
            token.clone(),
        );
        let agent = AgentOptions {
            client: client(Actor::Agent),
            addresses: vec!["controller.world:443".to_owned()],
            connector,
            identity,
            join,
            namespace: marks::SYSTEM_NAMESPACE.to_owned(),
            instance: format!("{}-agent", parts.name),
            clock: parts.clock.clone(),
            seed: parts.seed,
            timings: Timings::default(),
        };
        let (name, ledger, ends) = (parts.name.clone(), parts.ledger.clone(), token.clone());
        tasks.spawn(async move {
            if let Err(error) = atoll_agent::run(agent, ends).await {
                ledger.violation(format!("the agent of {name} ended: {error}"));
            }
        });
        self.running = Some(Running { token, tasks, machinery, power });
    }

    /// Takes the power away: from now on nothing of it is written and its connections are closed.
    pub(super) async fn stop(&mut self) {
        let Some(running) = self.running.take() else { return };
        running.power.set(false);
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
