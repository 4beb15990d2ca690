//! Agents of Hosted members, beside the controller: one for each Cluster of that mode, while this process leads.
//!
//! Such an agent is like any other: it enrols with its own token, has a certificate for its Cluster and speaks TLS with
//! the controller's listener. Only its start differs: the member's kubeconfig comes from a Secret of the hub.

use std::collections::BTreeMap;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use atoll_agent::{AgentMetrics, AgentOptions, Connector, IdentityStore, Join, Timings};
use atoll_api::cluster::ClusterMode;
use atoll_api::{Backoff, Clock, Cluster, ReservedNamespaces, marks};
use atoll_controller::leader::Leadership;
use atoll_controller::members::{self, Members, TOKEN_LIFE};
use atoll_traces::Tracer;
use futures::StreamExt;
use k8s_openapi::api::core::v1::{ObjectReference, Secret};
use k8s_openapi::api::events::v1::Event as Note;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};
use kube::api::PostParams;
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::{self, Event};
use kube::{Api, Client, Resource, ResourceExt};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::member_config;
use crate::print;
use atoll_program::agent::IDENTITY_SECRET;

/// How long agents may take to stop when the leadership ends.
const STOP: Duration = Duration::from_secs(3);
/// Backoff before an ended agent is restarted.
const RETRY: Backoff = Backoff { first: Duration::from_secs(2), most: Duration::from_secs(120) };
/// After running this long, an agent restarts with the first pause again.
const STEADY: Duration = Duration::from_secs(60);
/// Limit of one call to the hub.
const CALL: Duration = Duration::from_secs(10);

/// What agents beside the controller need from it.
#[derive(Clone)]
pub(super) struct Host {
    pub(super) hub: Client,
    pub(super) members: Members,
    /// Address where this process listens for agents.
    pub(super) address: String,
    /// Records traces of decisions, if that is on.
    pub(super) tracer: Tracer,
    /// Identity of this process in the election.
    pub(super) place: String,
    /// Namespaces into which these agents apply nothing.
    pub(super) reserved: ReservedNamespaces,
    pub(super) clock: Clock,
}

/// The inputs that an agent was started with; a change restarts it.
#[derive(Debug, Clone, PartialEq)]
struct Start {
    uid: String,
    kubeconfig: String,
}

struct Running {
    start: Start,
    token: CancellationToken,
    task: JoinHandle<()>,
}

/// Runs agents while this process leads, until `token` is cancelled.
pub(super) async fn run(
    host: Host,
    mut leadership: watch::Receiver<Option<Leadership>>,
    token: CancellationToken,
) {
    loop {
        tokio::select! {
            biased;
            () = token.cancelled() => return,
            leads = leadership.wait_for(Option::is_some) => if leads.is_err() { return },
        }
        let (scope, tasks) = (token.child_token(), TaskTracker::new());
        tokio::select! {
            biased;
            () = token.cancelled() => {}
            // An error means that the election is over, and with it the leadership.
            _ = leadership.wait_for(Option::is_none) => {}
            () = lead(&host, &tasks, &scope) => {}
        }
        scope.cancel();
        tasks.close();
        if tokio::time::timeout(STOP, tasks.wait()).await.is_err() {
            tracing::warn!("an agent of a Hosted member did not end in time");
        }
    }
}

/// Watches Clusters and Secrets. Never returns.
async fn lead(host: &Host, tasks: &TaskTracker, scope: &CancellationToken) {
    let clusters: Api<Cluster> = Api::all(host.hub.clone());
    let secrets: Api<Secret> = Api::namespaced(host.hub.clone(), marks::SYSTEM_NAMESPACE);
    let config = watcher::Config::default;
    let mut clusters = pin!(watcher::watcher(clusters, config()).default_backoff());
    let mut secrets = pin!(watcher::watcher(secrets, config()).default_backoff());
    let (mut known, mut configs) = (Known::default(), Known::default());
    let mut running: BTreeMap<String, Running> = BTreeMap::new();
    loop {
        tokio::select! {
            biased;
            Some(event) = clusters.next() => match event {
                Ok(event) => known.take(event, hosted),
                Err(error) => tracing::warn!(%error, "watch Clusters"),
            },
            Some(event) = secrets.next() => match event {
                Ok(event) => configs.take(event, kubeconfig),
                Err(error) => tracing::warn!(%error, "watch Secrets of {}", marks::SYSTEM_NAMESPACE),
            },
            else => return,
        }
        if known.complete && configs.complete {
            reconcile(host, &known.objects, &configs.objects, &mut running, tasks, scope);
        }
    }
}

/// Objects by name, from a watch stream.
struct Known<T> {
    objects: BTreeMap<String, T>,
    fresh: BTreeMap<String, T>,
    complete: bool,
}

impl<T> Default for Known<T> {
    fn default() -> Self {
        Self { objects: BTreeMap::new(), fresh: BTreeMap::new(), complete: false }
    }
}

impl<T> Known<T> {
    fn take<K: Resource>(&mut self, event: Event<K>, read: impl Fn(K) -> Option<T>) {
        let name = |object: &K| object.meta().name.clone().unwrap_or_default();
        match event {
            Event::Init => self.fresh.clear(),
            Event::InitApply(object) => {
                let name = name(&object);
                self.fresh.extend(read(object).map(|read| (name, read)));
            }
            Event::InitDone => {
                self.objects = std::mem::take(&mut self.fresh);
                self.complete = true;
            }
            Event::Apply(object) => {
                let name = name(&object);
                match read(object) {
                    Some(read) => drop(self.objects.insert(name, read)),
                    None => drop(self.objects.remove(&name)),
                }
            }
            Event::Delete(object) => drop(self.objects.remove(&name(&object))),
        }
    }
}

fn hosted(cluster: Cluster) -> Option<Cluster> {
    (cluster.spec.mode == ClusterMode::Hosted).then_some(cluster)
}

fn kubeconfig(secret: Secret) -> Option<String> {
    let bytes = secret.data?.remove(member_config::KEY)?;
    String::from_utf8(bytes.0).ok()
}

/// Starts missing agents and stops those that are unwanted or changed.
fn reconcile(
    host: &Host,
    clusters: &BTreeMap<String, Cluster>,
    configs: &BTreeMap<String, String>,
    running: &mut BTreeMap<String, Running>,
    tasks: &TaskTracker,
    scope: &CancellationToken,
) {
    running.retain(|name, agent| {
        let wanted = clusters.contains_key(name);
        if !wanted {
            agent.token.cancel();
        }
        wanted
    });
    for (name, cluster) in clusters {
        let secret = cluster.spec.kubeconfig_secret.as_deref().unwrap_or_default();
        // Without the Secret the agent continues with its previous kubeconfig.
        let Some(kubeconfig) = configs.get(secret) else {
            if !running.contains_key(name) {
                tracing::info!(
                    cluster = name,
                    secret,
                    "waiting for the Secret with its kubeconfig"
                );
            }
            continue;
        };
        let uid = cluster.metadata.uid.clone().unwrap_or_default();
        let start = Start { uid, kubeconfig: kubeconfig.clone() };
        if running.get(name).is_some_and(|agent| agent.start == start) {
            continue;
        }
        let before = running.remove(name).map(|agent| {
            agent.token.cancel();
            agent.task
        });
        let token = scope.child_token();
        let (host, cluster, ends) = (host.clone(), Arc::new(cluster.clone()), token.clone());
        let text = kubeconfig.clone();
        let task = tasks.spawn(async move {
            // Two agents of one member must not run at once.
            if let Some(before) = before {
                let _ = before.await;
            }
            keep(&host, &cluster, &text, &ends).await;
        });
        running.insert(name.clone(), Running { start, token, task });
    }
}

/// Runs one agent and restarts it until `token` is cancelled.
async fn keep(host: &Host, cluster: &Cluster, kubeconfig: &str, token: &CancellationToken) {
    let name = cluster.name_any();
    let mut failures = 0_u32;
    while !token.is_cancelled() {
        let began = tokio::time::Instant::now();
        match agent(host, cluster, kubeconfig, token).await {
            Ok(()) => tracing::info!(cluster = name, "the agent of the Hosted member ended"),
            Err(error) if token.is_cancelled() => tracing::debug!(cluster = name, "{error:#}"),
            Err(error) => tell(host, cluster, &print::causes(&error)).await,
        }
        if began.elapsed() >= STEADY {
            failures = 0;
        }
        failures = failures.saturating_add(1);
        tokio::select! {
            biased;
            () = token.cancelled() => return,
            () = tokio::time::sleep(RETRY.ceiling(failures)) => {}
        }
    }
}

async fn agent(
    host: &Host,
    cluster: &Cluster,
    kubeconfig: &str,
    token: &CancellationToken,
) -> anyhow::Result<()> {
    let secret = cluster.spec.kubeconfig_secret.as_deref().unwrap_or_default();
    let context = || format!("kubeconfig in Secret {}/{secret}", marks::SYSTEM_NAMESPACE);
    let config = member_config::unpack(kubeconfig).await.with_context(context)?;
    let client = atoll_agent::member_client(config).with_context(context)?;
    let ca_hash = host.members.authority().await.hash();
    let bootstrap = members::create_token(&host.hub, &host.clock, cluster, TOKEN_LIFE);
    let bootstrap = bootstrap.await.context("make a token for the agent")?;
    let id = bootstrap.id().clone();
    let options = AgentOptions {
        client,
        addresses: vec![host.address.clone()],
        connector: Connector::tcp(),
        identity: IdentityStore::Secret(IDENTITY_SECRET.to_owned()),
        join: Some(Join { token: bootstrap, ca_hash }),
        namespace: marks::SYSTEM_NAMESPACE.to_owned(),
        reserved: host.reserved.clone(),
        // The kubeconfig's user may do anything; the member's administrator has no role to grant or withhold.
        proxy: None,
        instance: format!("hosted-{}", host.place),
        runs_on: atoll_api::RunsOn::Thread,
        clock: host.clock.clone(),
        seed: cluster.metadata.uid.iter().flat_map(|uid| uid.bytes()).map(u64::from).sum(),
        timings: Timings::default(),
    };
    let tracer = host.tracer.of("atoll-agent", &*options.instance);
    let metrics = AgentMetrics::default().with_traces(tracer);
    let result = atoll_agent::run_measured(options, metrics, token.clone()).await;
    let result = result.context("run its agent");
    // The token is no longer needed, used or not.
    if let Err(error) = members::revoke_token(&host.hub, &id).await {
        tracing::debug!(%error, "cannot delete a token; it expires later");
    }
    result
}

/// Reports on the Cluster why its agent does not run.
async fn tell(host: &Host, cluster: &Cluster, why: &str) {
    let name = cluster.name_any();
    tracing::warn!(cluster = name, why, "the agent of the Hosted member is not running");
    let at = host.clock.now();
    let note = Note {
        metadata: ObjectMeta {
            name: Some(format!("{name}.{:x}", at.as_nanosecond())),
            namespace: Some("default".to_owned()),
            ..ObjectMeta::default()
        },
        event_time: Some(MicroTime(at)),
        type_: Some("Warning".to_owned()),
        reason: Some("HostedAgentFailed".to_owned()),
        action: Some("StartAgent".to_owned()),
        note: Some(why.chars().take(1024).collect()),
        reporting_controller: Some("atoll.dev/hosted".to_owned()),
        reporting_instance: Some(host.place.clone()),
        regarding: Some(ObjectReference {
            api_version: Some(Cluster::api_version(&()).into_owned()),
            kind: Some(Cluster::kind(&()).into_owned()),
            name: Some(name),
            uid: cluster.metadata.uid.clone(),
            ..ObjectReference::default()
        }),
        ..Note::default()
    };
    let notes: Api<Note> = Api::namespaced(host.hub.clone(), "default");
    let params =
        PostParams { field_manager: Some(marks::MANAGER.to_owned()), ..PostParams::default() };
    match tokio::time::timeout(CALL, notes.create(&params, &note)).await {
        Ok(Ok(_)) => {}
        Ok(Err(error)) => tracing::warn!(%error, "event not published"),
        Err(_) => tracing::warn!("event not published: the hub did not answer"),
    }
}
