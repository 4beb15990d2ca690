//! The watches behind the pages about the whole federation. They begin with the first page that needs them and end when
//! no page has needed them for a while. One task owns the index; pages send it questions.

use std::fmt::Debug;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use atoll_api::{
    Cluster, ClusterPropagationPolicy, ClusterResourceBinding, PropagationPolicy, ResourceBinding,
};
use atoll_console::data::{Placement, PlacementFilter};
use atoll_console::{Changes, Fault};
use futures::stream::{self, BoxStream, SelectAll};
use futures::{Stream, StreamExt};
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::{self, Event};
use kube::{Api, ResourceExt};
use serde::de::DeserializeOwned;
use tokio::sync::{mpsc, oneshot, watch};

use super::index::{Brief, Index, Key};
use super::policies::Rule;
use crate::hub::Hub;

/// Objects on a page of a list.
const PAGE: u32 = 500;
/// Questions that wait; pages are limited further in front of it.
const QUESTIONS: usize = 64;
/// The watches end when nobody has asked for this long: an open console that nobody looks at costs the hub nothing.
const IDLE: Duration = Duration::from_secs(10 * 60);

/// Returns whether it changed what pages show.
type Question = Box<dyn FnOnce(&mut Index) -> bool + Send>;

/// Asks the task that owns the index.
pub(super) struct Fleet {
    hub: Arc<Hub>,
    only: Option<String>,
    running: Mutex<Option<Running>>,
}

/// The way to a running task.
#[derive(Clone)]
struct Running {
    questions: mpsc::Sender<Question>,
    changes: watch::Receiver<u64>,
}

impl Fleet {
    pub(super) fn new(hub: &Arc<Hub>, only: Option<String>) -> Self {
        Self { hub: hub.clone(), only, running: Mutex::new(None) }
    }

    /// The task, started if there is none.
    fn running(&self) -> Running {
        let mut running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(running) = running.as_ref().filter(|running| !running.questions.is_closed()) {
            return running.clone();
        }
        let (questions, asked) = mpsc::channel(QUESTIONS);
        let (version, changes) = watch::channel(0);
        let owner = Owner {
            index: Index::default(),
            waiting: Kind::all(self.only.is_none()),
            held: Vec::new(),
            version,
        };
        // It ends with the console, which holds the only sender, or when nobody asks.
        tokio::spawn(owner.run(events(&self.hub, self.only.as_deref()), asked));
        running.insert(Running { questions, changes }).clone()
    }

    /// What a function makes of the index.
    pub(super) async fn ask<T: Send + 'static>(
        &self,
        question: impl FnOnce(&Index) -> T + Send + 'static,
    ) -> Result<T, Fault> {
        self.send(false, |index| question(index)).await
    }

    /// As [`Self::ask`], for what is not from the hub. `changes` says whether pages show something else then.
    pub(super) async fn send<T: Send + 'static>(
        &self,
        changes: bool,
        question: impl FnOnce(&mut Index) -> T + Send + 'static,
    ) -> Result<T, Fault> {
        let (answer, answered) = oneshot::channel();
        let question: Question = Box::new(move |index| {
            // Whoever asked may be gone.
            let _ = answer.send(question(index));
            changes
        });
        let gone = || Fault::Failed("the watches of the hub ended: load the page again".to_owned());
        self.running().questions.send(question).await.map_err(|_| gone())?;
        answered.await.map_err(|_| gone())
    }

    pub(super) async fn placement(&self, filter: PlacementFilter) -> Result<Placement, Fault> {
        self.ask(move |index| index.placement(&filter)).await
    }

    /// Says when something changed.
    pub(super) fn changes(&self) -> Changes {
        let mut changes = self.running().changes;
        changes.mark_unchanged();
        stream::unfold(changes, |mut changes| async move {
            changes.changed().await.ok()?;
            Some(((), changes))
        })
        .boxed()
    }
}

/// What is watched.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    Clusters,
    Bindings,
    Global,
    Policies,
    GlobalPolicies,
}

impl Kind {
    fn all(global: bool) -> Vec<Self> {
        let mut all = vec![Self::Clusters, Self::Bindings, Self::Policies];
        if global {
            all.extend([Self::Global, Self::GlobalPolicies]);
        }
        all
    }

    /// How the names of policies of this kind begin on pages.
    fn prefix(self) -> &'static str {
        match self {
            Self::GlobalPolicies => "ClusterPropagationPolicy ",
            _ => "PropagationPolicy ",
        }
    }

    fn what(self) -> &'static str {
        match self {
            Self::Clusters => "members",
            Self::Bindings => "workloads",
            Self::Global => "cluster-scoped objects",
            Self::Policies => "policies",
            Self::GlobalPolicies => "cluster-scoped policies",
        }
    }
}

/// A change of the index.
enum News {
    Cluster(Box<Event<Cluster>>),
    Binding(Kind, Box<Event<(Key, Brief)>>),
    Policy(Kind, Box<Event<(String, Rule)>>),
    Failed(Kind, String),
}

type Events = SelectAll<BoxStream<'static, News>>;

fn events(hub: &Hub, only: Option<&str>) -> Events {
    let client = &hub.client;
    let clusters =
        watched(Kind::Clusters, Api::all(client.clone()), |event| News::Cluster(Box::new(event)));
    let namespaced: Api<ResourceBinding> = match only {
        Some(namespace) => Api::namespaced(client.clone(), namespace),
        None => Api::all(client.clone()),
    };
    let policies: Api<PropagationPolicy> = match only {
        Some(namespace) => Api::namespaced(client.clone(), namespace),
        None => Api::all(client.clone()),
    };
    let policies = watched(Kind::Policies, policies, |event| {
        let rule = |policy: PropagationPolicy| {
            let namespace = policy.namespace().unwrap_or_default();
            let name = format!("{}{namespace}/{}", Kind::Policies.prefix(), policy.name_any());
            (name, Rule::of(&policy.spec))
        };
        News::Policy(Kind::Policies, Box::new(map(event, rule)))
    });
    let mut all = vec![clusters, policies];
    all.push(watched(Kind::Bindings, namespaced, |event| {
        let brief = |binding: ResourceBinding| {
            let key = (binding.namespace(), binding.name_any());
            (key, Brief::of(&binding.metadata, &binding.spec, binding.status.as_ref()))
        };
        News::Binding(Kind::Bindings, Box::new(map(event, brief)))
    }));
    if only.is_none() {
        let global: Api<ClusterPropagationPolicy> = Api::all(client.clone());
        all.push(watched(Kind::GlobalPolicies, global, |event| {
            let rule = |policy: ClusterPropagationPolicy| {
                let kind = Kind::GlobalPolicies.prefix();
                (format!("{kind}{}", policy.name_any()), Rule::of(&policy.spec))
            };
            News::Policy(Kind::GlobalPolicies, Box::new(map(event, rule)))
        }));
        let global: Api<ClusterResourceBinding> = Api::all(client.clone());
        all.push(watched(Kind::Global, global, |event| {
            let brief = |binding: ClusterResourceBinding| {
                let key = (None, binding.name_any());
                (key, Brief::of(&binding.metadata, &binding.spec, binding.status.as_ref()))
            };
            News::Binding(Kind::Global, Box::new(map(event, brief)))
        }));
    }
    stream::select_all(all)
}

fn map<A, B>(event: Event<A>, change: impl FnOnce(A) -> B) -> Event<B> {
    match event {
        Event::Apply(object) => Event::Apply(change(object)),
        Event::InitApply(object) => Event::InitApply(change(object)),
        Event::Delete(object) => Event::Delete(change(object)),
        Event::Init => Event::Init,
        Event::InitDone => Event::InitDone,
    }
}

fn watched<K>(
    kind: Kind,
    api: Api<K>,
    news: impl Fn(Event<K>) -> News + Send + 'static,
) -> BoxStream<'static, News>
where
    K: kube::Resource + Clone + DeserializeOwned + Debug + Send + 'static,
{
    let events = watcher::watcher(api, watcher::Config::default().page_size(PAGE));
    let failed = move |error: watcher::Error| {
        News::Failed(kind, format!("{} are not shown or not current: {error}", kind.what()))
    };
    events.default_backoff().map(move |event| event.map_or_else(failed, &news)).boxed()
}

/// The task.
struct Owner {
    index: Index,
    /// What was not listed yet; questions wait for it.
    waiting: Vec<Kind>,
    held: Vec<Question>,
    version: watch::Sender<u64>,
}

impl Owner {
    async fn run(
        mut self,
        mut events: impl Stream<Item = News> + Unpin,
        mut asked: mpsc::Receiver<Question>,
    ) {
        let mut idle: Pin<Box<tokio::time::Sleep>> = Box::pin(tokio::time::sleep(IDLE));
        loop {
            tokio::select! {
                question = asked.recv() => {
                    let Some(question) = question else { return };
                    idle.as_mut().reset(tokio::time::Instant::now() + IDLE);
                    match self.waiting.is_empty() || self.held.len() >= QUESTIONS {
                        true => self.answer(question),
                        false => self.held.push(question),
                    }
                }
                news = events.next() => {
                    let Some(news) = news else { return };
                    self.take(news);
                    if self.waiting.is_empty() {
                        for question in std::mem::take(&mut self.held) {
                            self.answer(question);
                        }
                        self.changed();
                    }
                }
                () = &mut idle => {
                    // The handle has one receiver; more are open pages.
                    if self.version.receiver_count() <= 1 {
                        return;
                    }
                    idle.as_mut().reset(tokio::time::Instant::now() + IDLE);
                }
            }
        }
    }

    fn answer(&mut self, question: Question) {
        if question(&mut self.index) {
            self.changed();
        }
    }

    fn changed(&self) {
        self.version.send_modify(|version| *version = version.wrapping_add(1));
    }

    fn take(&mut self, news: News) {
        match news {
            News::Policy(kind, event) => match *event {
                Event::Apply((name, rule)) | Event::InitApply((name, rule)) => {
                    self.index.set_policy(name, Some(rule));
                }
                Event::Delete((name, _)) => self.index.set_policy(name, None),
                Event::Init => {
                    self.index.clear_policies(kind.prefix());
                    self.again(kind);
                }
                Event::InitDone => self.listed(kind),
            },
            News::Cluster(event) => {
                let kind = Kind::Clusters;
                match *event {
                    Event::Apply(cluster) | Event::InitApply(cluster) => {
                        self.index.put_cluster(cluster);
                    }
                    Event::Delete(cluster) => {
                        self.index.remove_cluster(&cluster.name_any());
                    }
                    Event::Init => {
                        self.index.clear_clusters();
                        self.again(kind);
                    }
                    Event::InitDone => self.listed(kind),
                }
            }
            News::Binding(kind, event) => match *event {
                Event::Apply((key, brief)) | Event::InitApply((key, brief)) => {
                    self.index.put(key, brief);
                }
                Event::Delete((key, _)) => {
                    self.index.remove(&key);
                }
                Event::Init => {
                    self.index.clear(kind == Kind::Global);
                    self.again(kind);
                }
                Event::InitDone => self.listed(kind),
            },
            News::Failed(kind, why) => {
                self.index.problems.insert(kind.what(), why);
                self.waiting.retain(|waiting| *waiting != kind);
            }
        }
    }

    /// The list begins again: pages wait until it is complete.
    fn again(&mut self, kind: Kind) {
        if !self.waiting.contains(&kind) && !self.index.problems.contains_key(kind.what()) {
            self.waiting.push(kind);
        }
    }

    fn listed(&mut self, kind: Kind) {
        self.index.problems.remove(kind.what());
        self.waiting.retain(|waiting| *waiting != kind);
    }
}
