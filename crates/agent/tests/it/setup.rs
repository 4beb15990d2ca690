//! An agent with its surroundings.

use std::time::Duration;

use atoll_agent::{AgentError, AgentOptions, IdentityStore, Join, Timings};
use atoll_api::{Clock, ReservedNamespaces};
use atoll_protocol::token::BootstrapToken;
use jiff::{SignedDuration, Timestamp};
use serde_json::json;
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::hub::Hub;
use crate::member::Member;

/// Virtual time, starting on a fixed day.
pub(crate) fn clock() -> Clock {
    let (start, day) = (Instant::now(), Timestamp::from_second(1_767_225_600).unwrap());
    Clock::from_fn(move || day + SignedDuration::try_from(start.elapsed()).unwrap())
}

pub(crate) struct Setup {
    pub(crate) clock: Clock,
    pub(crate) hub: Hub,
    pub(crate) member: Member,
    pub(crate) token: BootstrapToken,
}

pub(crate) struct Agent {
    task: JoinHandle<Result<(), AgentError>>,
    token: CancellationToken,
}

impl Setup {
    pub(crate) async fn new() -> Self {
        let clock = clock();
        let (hub, member) = (Hub::start(&clock), Member::start(&clock));
        let namespace =
            json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop"}});
        member.create("/api/v1/namespaces", "admin", namespace).await;
        Self { clock, hub, member, token: BootstrapToken::generate().unwrap() }
    }

    pub(crate) fn options(&self) -> AgentOptions {
        AgentOptions {
            client: self.member.agent_client(),
            addresses: vec!["hub:1".into()],
            connector: self.hub.connector(),
            identity: IdentityStore::Secret("atoll-agent-identity".into()),
            join: Some(Join { token: self.token.clone(), ca_hash: self.hub.ca_hash }),
            namespace: "atoll-system".into(),
            reserved: ReservedNamespaces::default(),
            proxy: None,
            instance: "agent-1".into(),
            runs_on: atoll_api::RunsOn::Thread,
            clock: self.clock.clone(),
            seed: 7,
            timings: Timings::default(),
        }
    }

    pub(crate) fn agent(&self) -> Agent {
        Agent::start(self.options())
    }
}

impl Agent {
    pub(crate) fn start(options: AgentOptions) -> Self {
        let token = CancellationToken::new();
        let task = tokio::spawn(atoll_agent::run(options, token.clone()));
        Self { task, token }
    }

    /// Asks the agent to stop; it has two seconds.
    pub(crate) async fn stop(self) {
        self.token.cancel();
        let stopped = tokio::time::timeout(Duration::from_secs(2), self.task).await;
        stopped.expect("stops in time").unwrap().unwrap();
    }

    /// Like kill -9.
    pub(crate) async fn kill(self) {
        self.task.abort();
        assert!(self.task.await.is_err());
    }

    pub(crate) async fn result(self) -> Result<(), AgentError> {
        let ended = tokio::time::timeout(Duration::from_secs(60), self.task).await;
        ended.expect("ends by itself").unwrap()
    }
}
