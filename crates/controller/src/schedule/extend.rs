//! The extension points beside the pure core: the gate before a decision, and the way of a decision into the hub.
//!
//! Reserve, Permit, PreBind, Bind and PostBind run in this order, with the rules of Kubernetes' scheduling framework: a
//! Reserve that fails, a Permit that denies or is not given in time, a PreBind that fails and a write that does not
//! arrive unreserve all plugins, in reverse. The ledger of replicas is booked and unbooked by the engine itself. The
//! commit is the Bind plugin `DefaultBinder`.

use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use atoll_scheduler::Profiles;
use atoll_scheduler::framework::plugin::Point;
use kube::Client;
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::commit::{self, Ended, Write};
use crate::index::key::BindingKey;

/// The longest that a Permit may wait, as in Kubernetes.
pub const LONGEST_PERMIT: Duration = Duration::from_secs(15 * 60);

/// What a gate is asked about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Gate<'a> {
    /// The binding.
    pub key: &'a BindingKey,
    /// Whether its policy says `suspension.scheduling`.
    pub suspended: bool,
}

/// A decision on its way into the hub.
pub struct Passage {
    /// The hub.
    pub client: Client,
    /// What is to be written.
    pub write: Write,
}

/// Answer of a Permit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Permit {
    /// Go on.
    Allow,
    /// Do not.
    Deny(String),
    /// Not yet: somebody answers through the [`Answer`], or the time passes, which denies.
    Wait(Duration),
}

/// The answers of Permits that wait, one a plugin.
#[derive(Debug, Default)]
struct Answers {
    given: Mutex<BTreeMap<&'static str, Result<(), String>>>,
    news: Notify,
}

impl Answers {
    fn of(&self, plugin: &str) -> Option<Result<(), String>> {
        self.given.lock().unwrap_or_else(PoisonError::into_inner).get(plugin).cloned()
    }
}

/// Where a Permit that waits is answered; the first answer counts, and none once the passage has ended.
#[derive(Debug, Clone)]
pub struct Answer {
    plugin: &'static str,
    to: Arc<Answers>,
}

impl Answer {
    /// Allows.
    pub fn allow(&self) {
        self.give(Ok(()));
    }

    /// Denies.
    pub fn deny(&self, why: impl Into<String>) {
        self.give(Err(why.into()));
    }

    fn give(&self, answer: Result<(), String>) {
        let mut given = self.to.given.lock().unwrap_or_else(PoisonError::into_inner);
        given.entry(self.plugin).or_insert(answer);
        drop(given);
        self.to.news.notify_one();
    }
}

/// What a plugin does later.
pub type Later<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// A plugin of the controller's extension points; it implements those that it needs.
pub trait Extension: Send + Sync {
    /// Its name in profiles.
    fn name(&self) -> &'static str;

    /// Before a binding is decided: an error says why it is not, until something of it is edited.
    ///
    /// # Errors
    /// With the reason.
    fn pre_enqueue(&self, _: &Gate<'_>) -> Result<(), String> {
        Ok(())
    }

    /// Books something for the decision.
    ///
    /// # Errors
    /// With the reason; all plugins are unreserved.
    fn reserve(&self, _: &Passage) -> Result<(), String> {
        Ok(())
    }

    /// Takes the booking back. Idempotent; may run without Reserve.
    fn unreserve(&self, _: &Passage) {}

    /// Whether the decision may be written. Every plugin is asked before anybody is waited for.
    fn permit(&self, _: &Passage, _: Answer) -> Permit {
        Permit::Allow
    }

    /// Right before the write.
    fn pre_bind<'a>(&'a self, _: &'a Passage) -> Later<'a, Result<(), String>> {
        Box::pin(std::future::ready(Ok(())))
    }

    /// The write. `None` = not this plugin's business; the first that answers has written.
    fn bind<'a>(&'a self, _: &'a Passage) -> Later<'a, Option<Ended>> {
        Box::pin(std::future::ready(None))
    }

    /// After a write that the hub holds. It cannot fail.
    fn post_bind(&self, _: &Passage) {}
}

/// Suspension keeps a binding from being decided.
#[derive(Debug)]
pub struct SchedulingGates;

impl Extension for SchedulingGates {
    fn name(&self) -> &'static str {
        "SchedulingGates"
    }

    fn pre_enqueue(&self, gate: &Gate<'_>) -> Result<(), String> {
        if gate.suspended { Err("suspension.scheduling".to_owned()) } else { Ok(()) }
    }
}

/// The commit: one guarded write to the hub.
#[derive(Debug)]
pub struct DefaultBinder;

impl Extension for DefaultBinder {
    fn name(&self) -> &'static str {
        "DefaultBinder"
    }

    fn bind<'a>(&'a self, passage: &'a Passage) -> Later<'a, Option<Ended>> {
        Box::pin(async move { Some(commit::perform(&passage.client, &passage.write).await) })
    }
}

type Chain = Vec<Arc<dyn Extension>>;

/// The plugins of every profile, by extension point, in the profile's order.
#[derive(Clone, Default)]
pub struct Extensions(BTreeMap<String, BTreeMap<Point, Chain>>);

impl Extensions {
    /// The built-in plugins and further ones, where profiles enable them.
    #[must_use]
    pub fn new(profiles: &Profiles, further: &[Arc<dyn Extension>]) -> Self {
        let built_in: [Arc<dyn Extension>; 2] =
            [Arc::new(SchedulingGates), Arc::new(DefaultBinder)];
        let known: Vec<&Arc<dyn Extension>> = built_in.iter().chain(further).collect();
        let chain = |profile: &str, point: Point| -> Chain {
            let enabled = profiles.get(profile).map_or(&[][..], |profile| profile.at(point));
            let plugin = |name: &str| known.iter().find(|plugin| plugin.name() == name);
            enabled
                .iter()
                .filter_map(|enabled| plugin(enabled.name))
                .map(|p| Arc::clone(p))
                .collect()
        };
        let points = |profile: &str| -> BTreeMap<Point, Chain> {
            Point::ALL.map(|point| (point, chain(profile, point))).into()
        };
        Self(profiles.names().map(|name| (name.to_owned(), points(name))).collect())
    }

    fn at(&self, profile: &str, point: Point) -> &[Arc<dyn Extension>] {
        let name = if profile.is_empty() { atoll_api::policy::DEFAULT_PROFILE } else { profile };
        self.0.get(name).and_then(|points| points.get(&point)).map_or(&[], Vec::as_slice)
    }

    /// PreEnqueue: whether a binding is decided now.
    ///
    /// # Errors
    /// With the first plugin that says no, and why.
    pub fn gate(&self, profile: &str, gate: &Gate<'_>) -> Result<(), String> {
        self.at(profile, Point::PreEnqueue).iter().try_for_each(|plugin| {
            plugin.pre_enqueue(gate).map_err(|why| format!("{}: {why}", plugin.name()))
        })
    }

    /// Reserve to PostBind.
    pub async fn carry(&self, profile: &str, passage: &Passage) -> Ended {
        let mut reserved = Reserved { plugins: self.at(profile, Point::Reserve), passage };
        let before = async {
            for plugin in reserved.plugins {
                plugin.reserve(passage).map_err(|why| held(&**plugin, &why))?;
            }
            self.permit(profile, passage).await?;
            for plugin in self.at(profile, Point::PreBind) {
                plugin.pre_bind(passage).await.map_err(|why| held(&**plugin, &why))?;
            }
            Ok::<(), Ended>(())
        };
        if let Err(ended) = before.await {
            return ended;
        }
        let mut ended = None;
        for plugin in self.at(profile, Point::Bind) {
            ended = plugin.bind(passage).await;
            if ended.is_some() {
                break;
            }
        }
        match ended {
            Some(ended @ Ended::Written(_)) => {
                reserved.plugins = &[]; // what is durable stays booked
                for plugin in self.at(profile, Point::PostBind) {
                    plugin.post_bind(passage);
                }
                ended
            }
            Some(ended) => ended,
            None => Ended::Held("no plugin at extension point bind writes".to_owned()),
        }
    }

    async fn permit(&self, profile: &str, passage: &Passage) -> Result<(), Ended> {
        let plugins = self.at(profile, Point::Permit);
        if plugins.is_empty() {
            return Ok(());
        }
        let answers = Arc::new(Answers::default());
        let mut waits: BTreeMap<&'static str, Instant> = BTreeMap::new();
        for plugin in plugins {
            let answer = Answer { plugin: plugin.name(), to: Arc::clone(&answers) };
            match plugin.permit(passage, answer) {
                Permit::Allow => {}
                Permit::Deny(why) => return Err(held(&**plugin, &why)),
                Permit::Wait(time) => {
                    waits.insert(plugin.name(), Instant::now() + time.min(LONGEST_PERMIT));
                }
            }
        }
        loop {
            for plugin in waits.keys().copied().collect::<Vec<_>>() {
                match answers.of(plugin) {
                    Some(Ok(())) => drop(waits.remove(plugin)),
                    Some(Err(why)) => return Err(Ended::Held(format!("{plugin}: {why}"))),
                    None => {}
                }
            }
            let Some((plugin, until)) = waits.iter().min_by_key(|(_, until)| **until) else {
                return Ok(());
            };
            if tokio::time::timeout_at(*until, answers.news.notified()).await.is_err() {
                return Err(Ended::Held(format!("{plugin}: no permit was given in time")));
            }
        }
    }
}

fn held(plugin: &dyn Extension, why: &str) -> Ended {
    Ended::Held(format!("{}: {why}", plugin.name()))
}

/// What is booked: unreserved in reverse when the passage ends, or is abandoned, before the hub holds the decision.
struct Reserved<'a> {
    plugins: &'a [Arc<dyn Extension>],
    passage: &'a Passage,
}

impl Drop for Reserved<'_> {
    fn drop(&mut self) {
        self.plugins.iter().rev().for_each(|plugin| plugin.unreserve(self.passage));
    }
}

#[cfg(test)]
mod tests;
