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

/// A page waits this long for lists that are not complete, then shows what was read so far and says so. Together with the rest of a page it
/// stays below the 200 ms that a page may take.
const PATIENCE: Duration = Duration::from_millis(100);

/// What is asked of the index.
struct Question {
    /// Returns whether it changed what pages show.
    run: Box<dyn FnOnce(&mut Index) -> bool + Send>,
    /// It waits until all lists are complete.
    complete: bool,
}

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

    /// What a function makes of the index, which says in its notes which lists are not complete.
    pub(super) async fn ask<T: Send + 'static>(
        &self,
        question: impl FnOnce(&Index) -> T + Send + 'static,
    ) -> Result<T, Fault> {
        self.put(false, |index| (false, question(index))).await
    }

    /// As [`Self::ask`], when all lists are complete.
    pub(super) async fn ask_complete<T: Send + 'static>(
        &self,
        question: impl FnOnce(&Index) -> T + Send + 'static,
    ) -> Result<T, Fault> {
        self.put(true, |index| (false, question(index))).await
    }

    /// As [`Self::ask`], for what is not from the hub. `changes` says whether pages show something else then.
    pub(super) async fn send<T: Send + 'static>(
        &self,
        changes: bool,
        question: impl FnOnce(&mut Index) -> T + Send + 'static,
    ) -> Result<T, Fault> {
        self.put(false, move |index| (changes, question(index))).await
    }

    async fn put<T: Send + 'static>(
        &self,
        complete: bool,
        question: impl FnOnce(&mut Index) -> (bool, T) + Send + 'static,
    ) -> Result<T, Fault> {
        let (answer, answered) = oneshot::channel();
        let run = Box::new(move |index: &mut Index| {
            let (changes, value) = question(index);
            // The caller may have stopped waiting.
            let _ = answer.send(value);
            changes
        });
        let question = Question { run, complete };
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
    /// What is not listed completely; questions wait for it, but not longer than [`PATIENCE`].
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
        let mut patience: Pin<Box<tokio::time::Sleep>> = Box::pin(tokio::time::sleep(PATIENCE));
        loop {
            tokio::select! {
                question = asked.recv() => {
                    let Some(question) = question else { return };
                    idle.as_mut().reset(tokio::time::Instant::now() + IDLE);
                    let full = !question.complete && self.held.len() >= QUESTIONS;
                    if self.waiting.is_empty() || full {
                        self.answer(question);
                        continue;
                    }
                    if !question.complete && self.held.iter().all(|held| held.complete) {
                        patience.as_mut().reset(tokio::time::Instant::now() + PATIENCE);
                    }
                    self.held.push(question);
                }
                () = &mut patience, if self.held.iter().any(|held| !held.complete) => self.answer_held(),
                news = events.next() => {
                    let Some(news) = news else { return };
                    self.take(news);
                    if self.waiting.is_empty() {
                        self.answer_held();
                    }
                    // Pages that show a part of a list follow it too.
                    self.changed();
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
        self.index.reading = self.waiting.iter().map(|kind| kind.what()).collect();
        if (question.run)(&mut self.index) {
            self.changed();
        }
    }

    fn answer_held(&mut self) {
        let all = self.waiting.is_empty();
        for question in std::mem::take(&mut self.held) {
            match all || !question.complete {
                true => self.answer(question),
                false => self.held.push(question),
            }
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

    /// The list begins again: pages wait for it.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn pages_show_a_part_of_a_list_and_checks_wait_for_all_of_it() {
        let (news, mut read) = mpsc::unbounded_channel();
        let events = stream::poll_fn(move |context| read.poll_recv(context));
        let (questions, asked) = mpsc::channel(QUESTIONS);
        let (version, changes) = watch::channel(0);
        let owner = Owner {
            index: Index::default(),
            waiting: vec![Kind::Clusters],
            held: Vec::new(),
            version,
        };
        tokio::spawn(owner.run(events, asked));
        let ask = |complete| {
            let (answer, answered) = oneshot::channel();
            let run = Box::new(move |index: &mut Index| {
                answer.send((index.clusters().count(), index.notes())).unwrap();
                false
            });
            let sent = questions.try_send(Question { run, complete });
            assert!(sent.is_ok(), "the queue has room");
            answered
        };
        let cluster = |name| Event::InitApply(Cluster::new(name, Default::default()));
        let send = |event| assert!(news.send(News::Cluster(Box::new(event))).is_ok());
        let mut check = ask(true);
        send(cluster("a"));
        let (members, notes) = ask(false).await.unwrap();
        assert_eq!(members, 1);
        assert_eq!(
            notes,
            ["members are still being read from the hub: 0 workloads and 1 members so far"]
        );
        assert!(check.try_recv().is_err(), "the check waits");
        send(cluster("b"));
        send(Event::InitDone);
        assert_eq!(check.await.unwrap(), (2, vec![]));
        assert_eq!(ask(false).await.unwrap(), (2, vec![]));
        assert!(*changes.borrow() >= 3, "pages are told");
    }
}
