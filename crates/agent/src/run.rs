//! Life of an agent: take the Lease, get an identity, then run all tasks until cancellation or until another agent
//! takes the Lease.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::capacity;
use crate::engine::{self, EngineOptions};
use crate::error::AgentError;
use crate::facts::{FactsSource, Health, watch_health};
use crate::inventory::index::{Found, Index};
use crate::key::{GroupKind, Key};
use crate::lease::{self, Held, LeaseOptions};
use crate::member::{Discovery, Fence, Member, MemberError, Target};
use crate::metrics::AgentMetrics;
use crate::options::{AgentOptions, IdentityStore};
use crate::session::enrol::{Enrolment, Renewal};
use crate::session::identity::Keeper;
use crate::session::tunnel::Proxy;
use crate::session::{self, Addresses, Credentials, Sessions};
use crate::terms::Terms;
use atoll_api::{Backoff, Jitter};

/// Waits at start while the member's API does not answer.
const START: Backoff = Backoff { first: Duration::from_millis(500), most: Duration::from_secs(10) };
/// Controller messages queued for the engine; a full queue stops the stream (HTTP/2 flow control).
const COMMANDS: usize = 256;
/// Queued changes of pod reports.
const WORKLOADS: usize = 256;
/// How long a stop waits for all tasks; each has its own shorter limit.
const STOP: Duration = Duration::from_millis(1500);

/// Runs an agent until the token ends it.
///
/// # Errors
/// When no address is given, or when there is no identity and no way to get one.
pub async fn run(options: AgentOptions, token: CancellationToken) -> Result<(), AgentError> {
    run_measured(options, AgentMetrics::default(), token).await
}

/// As [`run`], with metrics that the caller can show.
///
/// # Errors
/// As [`run`].
pub async fn run_measured(
    options: AgentOptions,
    metrics: AgentMetrics,
    token: CancellationToken,
) -> Result<(), AgentError> {
    let jitter = Jitter::new(options.seed);
    let backoff = options.timings.reconnect;
    let mut addresses = Addresses::new(options.addresses.clone(), backoff, jitter.clone())
        .ok_or(AgentError::NoAddress)?;
    let lease_options = LeaseOptions {
        namespace: options.namespace.clone(),
        instance: options.instance.clone(),
        times: options.timings.lease,
        clock: options.clock.clone(),
        jitter: jitter.clone(),
    };
    let unfenced = Member::unfenced(options.client.clone());
    loop {
        let fence = Fence::default();
        let held = lease::acquire(&unfenced, &lease_options, fence.clone(), &token).await;
        let Some(held) = held else { return Ok(()) };
        let holds = metrics.holds_lease();
        let active = Active {
            options: &options,
            jitter: jitter.clone(),
            member: Member::new(options.client.clone(), fence.clone()),
            fence,
            held: &held,
            metrics: &metrics,
        };
        // Cancelled when the agent stops or loses the Lease.
        let scope = token.child_token();
        let result = tokio::select! {
            biased;
            () = async { held.lost.cancelled().await; scope.cancel(); std::future::pending().await } => Ok(()),
            result = active.run(&mut addresses, &scope) => result,
        };
        let lost = held.lost.is_cancelled();
        drop(holds);
        held.release().await;
        if !lost || token.is_cancelled() {
            return result;
        }
        tracing::info!("standing by: another agent may hold the lease");
    }
}

/// An agent that holds the Lease.
struct Active<'a> {
    options: &'a AgentOptions,
    jitter: Jitter,
    member: Member,
    fence: Fence,
    held: &'a Held,
    metrics: &'a AgentMetrics,
}

impl Active<'_> {
    async fn run(
        &self,
        addresses: &mut Addresses,
        scope: &CancellationToken,
    ) -> Result<(), AgentError> {
        let options = self.options;
        let Some((member_uid, discovery, index)) = self.learn(scope).await else { return Ok(()) };
        let kubernetes_version = discovery.current().version().to_owned();
        let credentials =
            self.credentials(addresses, &member_uid, &kubernetes_version, scope).await?;
        let Some(credentials) = credentials else { return Ok(()) };

        let (health, health_seen) = watch::channel(Health::default());
        let (figures, figures_seen) = watch::channel(None);
        let (labels, labels_seen) = watch::channel(BTreeSet::new());
        let (unlisted, unlisted_seen) = watch::channel(BTreeSet::new());
        let (commands, commands_in) = mpsc::channel(COMMANDS);
        let (workloads, workloads_in) = mpsc::channel(WORKLOADS);
        let (every, mut tasks) = (options.timings.health, JoinSet::new());
        tasks.spawn(discovery.clone().run(self.member.clone(), scope.clone()));
        tasks.spawn(watch_health(self.member.clone(), every, health, scope.clone()));
        tasks.spawn(capacity::run(
            self.member.clone(),
            options.clock.clone(),
            self.jitter.clone(),
            labels_seen,
            figures,
            workloads,
            scope.clone(),
        ));
        let engine = EngineOptions {
            member: self.member.clone(),
            fence: self.fence.clone(),
            namespace: options.namespace.clone(),
            reserved: options.reserved.clone(),
            discovery: discovery.clone(),
            runs_on: options.runs_on,
            clock: options.clock.clone(),
            jitter: self.jitter.clone(),
            timings: options.timings,
            first: self.held.first,
            unlisted,
            metrics: self.metrics.clone(),
        };
        tasks.spawn(engine::run(engine, index, commands_in, workloads_in, scope.clone()));
        let sessions = Sessions {
            connector: options.connector.clone(),
            addresses,
            clock: options.clock.clone(),
            credentials,
            epoch: self.held.epoch,
            member_uid,
            commands,
            facts: FactsSource {
                clock: options.clock.clone(),
                apis: discovery.subscribe(),
                figures: figures_seen,
                health: health_seen,
                unlisted: unlisted_seen,
            },
            proxy: options.proxy.clone().map(|passed| Proxy::new(options.client.clone(), passed)),
            labels,
            metrics: self.metrics.clone(),
        };
        let result = tokio::select! {
            biased;
            () = session::run(sessions, Terms::new(self.held), scope.clone()) => Ok(()),
            // No task returns before cancellation; one that did has panicked.
            _ = tasks.join_next() => match scope.is_cancelled() {
                true => Ok(()),
                false => Err(AgentError::Task),
            },
        };
        scope.cancel();
        let rest = async { while tasks.join_next().await.is_some() {} };
        if tokio::time::timeout(STOP, rest).await.is_err() {
            tracing::warn!("tasks of the agent did not end in time");
        }
        result
    }

    /// The agent's identity; enrols when there is none yet. `None` when cancelled.
    async fn credentials(
        &self,
        addresses: &mut Addresses,
        member_uid: &str,
        kubernetes_version: &str,
        scope: &CancellationToken,
    ) -> Result<Option<Credentials>, AgentError> {
        let options = self.options;
        if let IdentityStore::InProcess(uid) = &options.identity {
            return Ok(Some(Credentials::InProcess(uid.clone())));
        }
        let keeper = Keeper {
            store: options.identity.clone(),
            member: self.member.clone(),
            namespace: options.namespace.clone(),
        };
        let enrolment = Enrolment {
            keeper: &keeper,
            join: options.join.as_ref(),
            connector: &options.connector,
            addresses,
            clock: options.clock.clone(),
            member_uid,
            kubernetes_version,
        };
        let Some(identity) = enrolment.identity(scope).await? else { return Ok(None) };
        Ok(Some(Credentials::Certificate(Renewal {
            keeper,
            identity: watch::Sender::new(Arc::new(identity)),
            clock: options.clock.clone(),
            after: options.timings.renew_after,
            jitter: self.jitter.clone(),
            asked: Arc::default(),
        })))
    }

    /// Reads the facts about the member that everything else depends on; `None` when cancelled.
    async fn learn(&self, scope: &CancellationToken) -> Option<(String, Discovery, Found)> {
        let mut failures = 0;
        loop {
            let ask = async {
                let uid = member_uid(&self.member).await?;
                let discovery = Discovery::start(&self.member).await?;
                let index = Index::read(&self.member, &self.options.namespace).await?;
                Ok::<_, MemberError>((uid, discovery, index))
            };
            let error = tokio::select! {
                biased;
                () = scope.cancelled() => return None,
                learnt = ask => match learnt {
                    Ok(learnt) => return Some(learnt),
                    Err(error) => error,
                },
            };
            failures += 1;
            tracing::warn!(error = %error.message(), "the member's API does not answer yet");
            tokio::select! {
                biased;
                () = scope.cancelled() => return None,
                () = tokio::time::sleep(START.half_jitter(failures, &self.jitter)) => {}
            }
        }
    }
}

/// uid of the kube-system namespace: by convention the identity of a cluster.
async fn member_uid(member: &Member) -> Result<String, MemberError> {
    let target = Target::builtin("", "v1", "Namespace", "namespaces", false);
    let key = Key {
        kind: GroupKind::new("", "Namespace"),
        namespace: String::new(),
        name: "kube-system".to_owned(),
    };
    let namespace = member.get(&target, &key).await?;
    let uid = namespace.as_ref().and_then(|namespace| namespace["metadata"]["uid"].as_str());
    uid.map(str::to_owned)
        .ok_or_else(|| MemberError::Scope("the member has no namespace kube-system".to_owned()))
}
