//! One raw watch stream per source, started and stopped at run time as policies name kinds.
//!
//! A stream passes whole lists and single changes to the index task: bindings of a list and templates as rows, a changed
//! binding as text, other objects as JSON with apiVersion and kind. A malformed object is passed on too, with the reason,
//! and never stops a stream. An error only means that the source cannot be read for now.

mod served;

use std::collections::BTreeMap;
use std::hash::Hasher;
use std::time::Duration;

use atoll_api::{
    Backoff, ChangeGuard, Cluster, ClusterOverridePolicy, ClusterPropagationPolicy,
    ClusterResourceBinding, ClusterSet, FederatedResourceQuota, Jitter, OverridePolicy,
    PropagationPolicy, ResourceBinding, ResourceInterpreterCustomization,
    ResourceInterpreterWebhookConfiguration, WorkloadPolicy, WorkloadSpread,
};
use futures::StreamExt;
use k8s_openapi::api::apps::v1::ReplicaSet;
use k8s_openapi::api::core::v1::{Namespace, Node, Pod};
use k8s_openapi::api::scheduling::v1::PriorityClass;
use kube::api::{Api, ApiResource, GroupVersionKind};
use kube::runtime::watcher::{self, watcher};
use kube::{Client, discovery};
use rustc_hash::FxHasher;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::authors;
use crate::index::Source;
use crate::index::binding_object::BindingText;
use crate::index::received::{Received, Reply};
use crate::index::template::RecentlyParsed;
use crate::object::Object;

/// Backoff after failed lists and watches. A recovered hub is noticed within the longest wait.
const RETRY: Backoff = Backoff { first: Duration::from_millis(250), most: Duration::from_secs(15) };
/// Limit of one discovery request.
const DISCOVERY_TIMEOUT: Duration = Duration::from_secs(20);
/// Time between two lists of all kinds, while a policy selects every kind: two requests, after which a new kind is
/// watched.
const KINDS_INTERVAL: Duration = Duration::from_secs(30);

/// A message of a stream.
#[derive(Debug)]
pub(crate) struct Arrival {
    /// Which stream.
    pub source: Source,
    /// Start count of the stream: messages of an earlier start are ignored.
    pub epoch: u64,
    /// The message.
    pub news: News,
}

/// What happened to a source's objects.
#[derive(Debug)]
pub(crate) enum News {
    /// All current objects.
    All(Vec<Received>),
    /// An object was created or changed.
    Applied(Received),
    /// An object was deleted.
    Deleted(Received),
    /// The API server does not serve them (now), and why.
    Unreadable(String),
    /// The API resource of the kind.
    Served(ApiResource),
}

struct Running {
    epoch: u64,
    version: String,
    token: CancellationToken,
}

/// The running streams.
pub(crate) struct Streams {
    client: Client,
    news: mpsc::Sender<Arrival>,
    /// Where templates stay parsed for a while.
    parsed: RecentlyParsed,
    tasks: TaskTracker,
    token: CancellationToken,
    running: BTreeMap<Source, Running>,
    started: u64,
    seed: u64,
}

impl Streams {
    /// Creates an empty set. All streams end with `token` and run in `tasks`. `news` is bounded: while it is full the
    /// streams wait, and list again what they missed.
    #[must_use]
    pub(crate) fn new(
        client: Client,
        news: mpsc::Sender<Arrival>,
        tasks: TaskTracker,
        token: CancellationToken,
        seed: u64,
    ) -> Self {
        let (parsed, running) = (RecentlyParsed::default(), BTreeMap::new());
        Self { client, news, parsed, tasks, token, running, started: 0, seed }
    }

    /// Sets where the templates of lists stay parsed for a while.
    pub(crate) fn keep_parsed(mut self, parsed: RecentlyParsed) -> Self {
        self.parsed = parsed;
        self
    }

    /// Whether the message is from the stream's current start.
    #[must_use]
    pub(crate) fn is_current(&self, arrival: &Arrival) -> bool {
        self.running.get(&arrival.source).is_some_and(|running| running.epoch == arrival.epoch)
    }

    /// Starts and stops streams to match `wanted` (each with the version of its kind; empty for Atoll's own) and
    /// returns the sources that were stopped.
    pub(crate) fn set(&mut self, wanted: &BTreeMap<Source, String>) -> Vec<Source> {
        let running = self.running.iter();
        let stopped: Vec<_> = running
            .filter(|(source, running)| wanted.get(source) != Some(&running.version))
            .map(|(source, _)| source.clone())
            .collect();
        for source in &stopped {
            if let Some(running) = self.running.remove(source) {
                running.token.cancel();
            }
        }
        for (source, version) in wanted {
            if !self.running.contains_key(source) {
                self.start(source.clone(), version.clone());
            }
        }
        stopped.into_iter().filter(|source| !wanted.contains_key(source)).collect()
    }

    fn start(&mut self, source: Source, version: String) {
        self.started += 1;
        let token = self.token.child_token();
        let mut hasher = FxHasher::default();
        std::hash::Hash::hash(&source, &mut hasher);
        let stream = Stream {
            client: self.client.clone(),
            source: source.clone(),
            epoch: self.started,
            version: version.clone(),
            news: self.news.clone(),
            parsed: self.parsed.clone(),
            failures: 0,
            jitter: Jitter::new(self.seed ^ hasher.finish()),
        };
        let run = token.clone();
        self.tasks.spawn(async move { run.run_until_cancelled_owned(stream.run()).await });
        self.running.insert(source, Running { epoch: self.started, version, token });
    }
}

struct Stream {
    client: Client,
    source: Source,
    epoch: u64,
    version: String,
    news: mpsc::Sender<Arrival>,
    parsed: RecentlyParsed,
    /// Failures since the last success.
    failures: u32,
    jitter: Jitter,
}

/// The index task has ended, so the stream ends too.
struct Closed;

impl Stream {
    async fn run(mut self) {
        loop {
            if self.source == Source::Kinds {
                if self.list_kinds().await.is_err() {
                    return;
                }
                continue;
            }
            let ended = match self.resource().await {
                Ok(resource) => match self.send(News::Served(resource.clone())).await {
                    Ok(()) => self.follow(&resource).await,
                    Err(closed) => Err(closed),
                },
                Err(why) => self.fail(Some(why)).await,
            };
            if ended.is_err() {
                return;
            }
        }
    }

    /// Lists the kinds that the hub serves, once, and waits until the next list is due.
    async fn list_kinds(&mut self) -> Result<(), Closed> {
        let listed = tokio::time::timeout(DISCOVERY_TIMEOUT, served::kinds(&self.client)).await;
        match listed {
            Ok(Ok(kinds)) => {
                self.failures = 0;
                self.send(News::All(kinds.into_iter().map(Received::from).collect())).await?;
                tokio::time::sleep(KINDS_INTERVAL).await;
                Ok(())
            }
            Ok(Err(error)) => self.fail(Some(error.to_string())).await,
            Err(_) => {
                let why = format!("no answer from the hub within {DISCOVERY_TIMEOUT:?}");
                self.fail(Some(why)).await
            }
        }
    }

    /// The API resource of this source; for a user's kind by discovery, because its plural is unknown.
    async fn resource(&self) -> Result<ApiResource, String> {
        let kind = match &self.source {
            Source::Templates(kind) => kind,
            own => return Ok(fixed_resource(own)),
        };
        let gvk = GroupVersionKind::gvk(&kind.group, &self.version, &kind.kind);
        let found = discovery::pinned_kind(&self.client, &gvk);
        match tokio::time::timeout(DISCOVERY_TIMEOUT, found).await {
            Ok(Ok((resource, _))) => Ok(resource),
            Ok(Err(error)) => {
                Err(format!("the hub does not serve {kind} in version {}: {error}", self.version))
            }
            Err(_) => Err(format!(
                "no answer from the hub within {DISCOVERY_TIMEOUT:?} about whether it serves {kind}"
            )),
        }
    }

    /// Lists and watches until the kind must be discovered again.
    async fn follow(&mut self, resource: &ApiResource) -> Result<(), Closed> {
        let (source, parsed) = (self.source.clone(), self.parsed.clone());
        match source {
            Source::ResourceBindings | Source::ClusterResourceBindings => {
                self.follow_as::<BindingText>(resource, Received::from).await
            }
            _ => {
                let received = |object: Object| {
                    Received::read(&source, object.complete(resource, authors::reduce), &parsed)
                };
                self.follow_as(resource, received).await
            }
        }
    }

    async fn follow_as<K: Reply + Send + 'static>(
        &mut self,
        resource: &ApiResource,
        received: impl Fn(K) -> Received,
    ) -> Result<(), Closed> {
        let api: Api<K> = Api::all_with(self.client.clone(), resource);
        let mut events = std::pin::pin!(watcher(api, watcher::Config::default()));
        let mut listing: Vec<Received> = Vec::new();
        while let Some(event) = events.next().await {
            match event {
                Ok(watcher::Event::Init) => listing.clear(),
                Ok(watcher::Event::InitApply(object)) => {
                    let mut object = received(object);
                    object.read_binding();
                    if let Some(previous) = listing.last() {
                        object.share(previous);
                    }
                    listing.push(object);
                }
                Ok(watcher::Event::InitDone) => {
                    self.failures = 0;
                    self.send(News::All(std::mem::take(&mut listing))).await?;
                }
                Ok(watcher::Event::Apply(object)) => {
                    self.failures = 0;
                    self.send(News::Applied(received(object))).await?;
                }
                Ok(watcher::Event::Delete(object)) => {
                    self.send(News::Deleted(object.received(resource))).await?;
                }
                Err(error) => {
                    let refused = refusal(&error);
                    let look_up_again = refused.is_some();
                    if refused.is_none() {
                        tracing::debug!(source = ?self.source, %error, "watch interrupted");
                    }
                    self.fail(refused).await?;
                    if look_up_again {
                        return Ok(());
                    }
                }
            }
        }
        Ok(())
    }

    async fn fail(&mut self, refused: Option<String>) -> Result<(), Closed> {
        if let Some(why) = refused {
            self.send(News::Unreadable(why)).await?;
        }
        self.failures = self.failures.saturating_add(1);
        tokio::time::sleep(RETRY.half_jitter(self.failures, &self.jitter)).await;
        Ok(())
    }

    async fn send(&self, news: News) -> Result<(), Closed> {
        let arrival = Arrival { source: self.source.clone(), epoch: self.epoch, news };
        self.news.send(arrival).await.map_err(|_| Closed)
    }
}

/// Why the API server refuses the objects; nothing if it is unreachable or requires a new list.
fn refusal(error: &watcher::Error) -> Option<String> {
    let status = match error {
        watcher::Error::InitialListFailed(kube::Error::Api(status))
        | watcher::Error::WatchStartFailed(kube::Error::Api(status))
        | watcher::Error::WatchFailed(kube::Error::Api(status)) => status,
        watcher::Error::WatchError(status) => status,
        watcher::Error::NoResourceVersion => return Some(error.to_string()),
        _ => return None,
    };
    let passing = matches!(status.code, 410 | 429 | 502 | 503 | 504);
    (!passing).then(|| error.to_string())
}

/// The API resource of a built-in source.
fn fixed_resource(source: &Source) -> ApiResource {
    match source {
        Source::Clusters => ApiResource::erase::<Cluster>(&()),
        Source::ClusterSets => ApiResource::erase::<ClusterSet>(&()),
        Source::PropagationPolicies => ApiResource::erase::<PropagationPolicy>(&()),
        Source::ClusterPropagationPolicies => ApiResource::erase::<ClusterPropagationPolicy>(&()),
        Source::WorkloadPolicies => ApiResource::erase::<WorkloadPolicy>(&()),
        Source::WorkloadSpreads => ApiResource::erase::<WorkloadSpread>(&()),
        Source::Quotas => ApiResource::erase::<FederatedResourceQuota>(&()),
        Source::OverridePolicies => ApiResource::erase::<OverridePolicy>(&()),
        Source::ClusterOverridePolicies => ApiResource::erase::<ClusterOverridePolicy>(&()),
        Source::Customizations => ApiResource::erase::<ResourceInterpreterCustomization>(&()),
        Source::ChangeGuards => ApiResource::erase::<ChangeGuard>(&()),
        Source::Webhooks => ApiResource::erase::<ResourceInterpreterWebhookConfiguration>(&()),
        Source::ResourceBindings => ApiResource::erase::<ResourceBinding>(&()),
        Source::ClusterResourceBindings => ApiResource::erase::<ClusterResourceBinding>(&()),
        Source::Nodes => ApiResource::erase::<Node>(&()),
        Source::ReplicaSets => ApiResource::erase::<ReplicaSet>(&()),
        Source::Pods => ApiResource::erase::<Pod>(&()),
        Source::PriorityClasses => ApiResource::erase::<PriorityClass>(&()),
        // A list of kinds is no API resource, and is read in another way.
        Source::Namespaces | Source::Templates(_) | Source::Kinds => {
            ApiResource::erase::<Namespace>(&())
        }
    }
}

/// Always watched. A leader needs all of them whole; one without ChangeGuards, for example, would commit what they hold.
pub(crate) const REQUIRED: [Source; 14] = [
    Source::Clusters,
    Source::ClusterSets,
    Source::PropagationPolicies,
    Source::ClusterPropagationPolicies,
    Source::WorkloadPolicies,
    Source::WorkloadSpreads,
    Source::Quotas,
    Source::OverridePolicies,
    Source::ClusterOverridePolicies,
    Source::Customizations,
    Source::Webhooks,
    Source::ChangeGuards,
    Source::ResourceBindings,
    Source::ClusterResourceBindings,
];

/// Always watched. A leader does without those that it may not read.
pub(crate) const OPTIONAL: [Source; 3] =
    [Source::Namespaces, Source::Nodes, Source::PriorityClasses];
