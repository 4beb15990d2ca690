//! The extension points around the pure core: the gate before the queue, the queue's order, and the commit of a
//! decision.
//!
//! PreEnqueue keeps a binding out of the active queue until an event that the plugin names triggers a new evaluation
//! that passes. QueueSort ranks ready bindings; as there is one queue, every profile must have the same plugin there.
//!
//! Reserve, Permit, PreBind, Bind and PostBind run in this order, with the rules of Kubernetes' scheduling framework: a
//! failed Reserve, a Permit that is denied or times out, a failed PreBind and a write that does not arrive unreserve
//! all plugins, in reverse. The engine itself reserves replicas in its ledger. The commit is the Bind plugin
//! `DefaultBinder`.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use atoll_scheduler::detect::Whole;
use atoll_scheduler::framework::plugin::Point;
use atoll_scheduler::{Profiles, lint_policy};
use kube::Client;
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::commit::{self, Ended, Write};
use crate::index::key::BindingKey;
use crate::queue::{Held, Opening, Order, Rank, Urgency};

/// The longest that a Permit may wait, as in Kubernetes.
pub const LONGEST_PERMIT: Duration = Duration::from_secs(15 * 60);

/// Input of a gate.
#[derive(Debug, Clone)]
pub struct Gate<'a> {
    /// The binding.
    pub key: &'a BindingKey,
    /// The object that it binds.
    pub template: Whole<'a>,
    /// Whether it has a decision.
    pub decided: bool,
    /// Whether its policy sets `suspension.scheduling`.
    pub suspended: bool,
    /// Why the priority of its policy is unknown, if so.
    pub no_priority: Option<&'a str>,
    /// Override policies that its policy depends on, and that do not exist.
    pub missing_overrides: &'a [String],
}

/// A ready binding, as input of the queue's order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ready<'a> {
    /// The binding.
    pub key: &'a BindingKey,
    /// Its `spec.schedulePriority.priority`.
    pub priority: i32,
    /// How urgent it is.
    pub urgency: Urgency,
}

/// A decision being committed.
pub struct Passage {
    /// The hub.
    pub client: Client,
    /// The write to perform.
    pub write: Write,
}

/// Result of a Permit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Permit {
    /// Continue.
    Allow,
    /// Stop.
    Deny(String),
    /// Wait for a result through the [`Answer`]; the time-out denies.
    Wait(Duration),
}

/// The results of waiting Permits, one per plugin.
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

/// Where a waiting Permit is answered; the first result counts, and none once the passage has ended.
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

/// A plugin's asynchronous result.
pub type Later<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// A plugin of the controller's extension points; it implements those that it needs.
pub trait Extension: Send + Sync {
    /// Its name in profiles.
    fn name(&self) -> &'static str;

    /// Before a binding becomes ready: an error keeps it out.
    ///
    /// # Errors
    /// With the reason.
    fn pre_enqueue(&self, _: &Gate<'_>) -> Result<(), String> {
        Ok(())
    }

    /// The events after which PreEnqueue is evaluated again for a binding that it keeps out.
    fn opens(&self) -> &'static [Opening] {
        &[Opening::Policy, Opening::Template]
    }

    /// The rank of a ready binding. Smaller first, equal ones in the order in which they became ready.
    fn queue_sort(&self, _: &Ready<'_>) -> Rank {
        Rank::default()
    }

    /// Reserves something for the decision.
    ///
    /// # Errors
    /// With the reason; all plugins are unreserved.
    fn reserve(&self, _: &Passage) -> Result<(), String> {
        Ok(())
    }

    /// Reverts the reservation. Idempotent; may run without Reserve.
    fn unreserve(&self, _: &Passage) {}

    /// Whether the decision may be written. Every plugin is called before any wait.
    fn permit(&self, _: &Passage, _: Answer) -> Permit {
        Permit::Allow
    }

    /// Right before the write.
    fn pre_bind<'a>(&'a self, _: &'a Passage) -> Later<'a, Result<(), String>> {
        Box::pin(std::future::ready(Ok(())))
    }

    /// The write. `None` = not this plugin's task; the first result counts.
    fn bind<'a>(&'a self, _: &'a Passage) -> Later<'a, Option<Ended>> {
        Box::pin(std::future::ready(None))
    }

    /// After a successful write. It cannot fail.
    fn post_bind(&self, _: &Passage) {}
}

/// Suspension keeps a binding from being decided, and so does a missing PriorityClass or override policy before the
/// first decision. Neither failover nor scaling of a binding that was decided waits for one.
#[derive(Debug)]
pub struct SchedulingGates;

impl Extension for SchedulingGates {
    fn name(&self) -> &'static str {
        "SchedulingGates"
    }

    fn pre_enqueue(&self, gate: &Gate<'_>) -> Result<(), String> {
        if gate.suspended {
            return Err("suspension.scheduling is set".to_owned());
        }
        match (gate.no_priority, gate.missing_overrides) {
            _ if gate.decided => Ok(()),
            (Some(why), _) => Err(why.to_owned()),
            (None, []) => Ok(()),
            (None, missing) => {
                Err(format!("spec.dependentOverrides: {} missing: create them", missing.join(", ")))
            }
        }
    }

    fn opens(&self) -> &'static [Opening] {
        use Opening::{Binding, Hub, OverridePolicy, Policy, PriorityClass, Template};
        &[Policy, Template, Binding, OverridePolicy, PriorityClass, Hub]
    }
}

/// Greater `schedulePriority` first; among equals, urgent ones before mere rechecks.
#[derive(Debug)]
pub struct PrioritySort;

impl Extension for PrioritySort {
    fn name(&self) -> &'static str {
        "PrioritySort"
    }

    fn queue_sort(&self, ready: &Ready<'_>) -> Rank {
        [-i64::from(ready.priority), i64::from(ready.urgency == Urgency::Later)]
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

/// Why the profiles' plugins cannot run together.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ExtensionError {
    /// There is one queue, and so one order, as in KubeSchedulerConfiguration.
    #[error(
        "profile {profile:?}: plugins.queueSort: {theirs} where profile {other:?} has {ours}: there is one queue, so all \
         profiles (the built-in ones too) must enable the same plugin, and exactly one"
    )]
    QueueSort {
        /// The profile that differs.
        profile: String,
        /// What it enables.
        theirs: String,
        /// The profile that it differs from.
        other: String,
        /// What that one enables.
        ours: String,
    },
}

/// The plugins of every profile, by extension point, in the profile's order.
#[derive(Clone)]
pub struct Extensions {
    profiles: BTreeMap<String, BTreeMap<Point, Chain>>,
    sort: Arc<dyn Extension>,
    /// Profiles with hard topologySpreadConstraints for workloads that have none.
    default_skew: BTreeSet<String>,
}

impl fmt::Debug for Extensions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Extensions({:?}, {})", self.profiles.keys(), self.sort.name())
    }
}

impl Extensions {
    /// The built-in plugins and additional ones, where profiles enable them.
    ///
    /// # Errors
    /// When the profiles do not agree on exactly one QueueSort plugin.
    pub fn new(
        profiles: &Profiles,
        further: &[Arc<dyn Extension>],
    ) -> Result<Self, ExtensionError> {
        let built_in: [Arc<dyn Extension>; 3] =
            [Arc::new(SchedulingGates), Arc::new(PrioritySort), Arc::new(DefaultBinder)];
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
        let limits = |name: &&str| profiles.get(name).is_some_and(|of| of.limits_skew_by_default());
        let default_skew = profiles.names().filter(limits).map(str::to_owned).collect();
        let profiles: BTreeMap<String, BTreeMap<Point, Chain>> =
            profiles.names().map(|name| (name.to_owned(), points(name))).collect();
        let sort = one_sort(&profiles)?;
        Ok(Self { profiles, sort, default_skew })
    }

    /// QueueSort: the order of ready bindings.
    #[must_use]
    pub fn order(&self) -> Order<BindingKey> {
        let sort = Arc::clone(&self.sort);
        Order::new(move |key, priority, urgency| sort.queue_sort(&Ready { key, priority, urgency }))
    }

    fn at(&self, profile: &str, point: Point) -> &[Arc<dyn Extension>] {
        let name = if profile.is_empty() { atoll_api::policy::DEFAULT_PROFILE } else { profile };
        self.profiles.get(name).and_then(|points| points.get(&point)).map_or(&[], Vec::as_slice)
    }

    /// Whether a profile limits the skew of workloads that have no constraints of their own.
    #[must_use]
    pub fn limits_skew_by_default(&self, profile: Option<&str>) -> bool {
        self.default_skew.contains(profile.unwrap_or(atoll_api::policy::DEFAULT_PROFILE))
    }

    /// The names of the profiles.
    pub fn profiles(&self) -> impl Iterator<Item = &str> {
        self.profiles.keys().map(String::as_str)
    }

    /// PreEnqueue: whether a binding may become ready. One whose profile does not exist may not: no plugin would decide
    /// or write it.
    ///
    /// # Errors
    /// The first plugin that keeps it out, the reason, and the events that trigger a new evaluation.
    pub fn gate(&self, profile: &str, gate: &Gate<'_>) -> Result<(), Held> {
        if let Some(problem) = lint_policy::unknown_profile(profile, self.profiles()) {
            let why = format!("spec.schedulerName: {problem}; {}", lint_policy::PROFILE_FIX);
            let opens = &[Opening::Policy, Opening::Template];
            return Err(Held { plugin: "SchedulerName", why, opens });
        }
        self.at(profile, Point::PreEnqueue).iter().try_for_each(|plugin| {
            plugin.pre_enqueue(gate).map_err(|why| Held {
                plugin: plugin.name(),
                why,
                opens: plugin.opens(),
            })
        })
    }

    /// Runs Reserve to PostBind.
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
                reserved.plugins = &[]; // a durable decision stays reserved
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

/// The QueueSort plugin of all profiles.
fn one_sort(
    profiles: &BTreeMap<String, BTreeMap<Point, Chain>>,
) -> Result<Arc<dyn Extension>, ExtensionError> {
    let names = |points: &BTreeMap<Point, Chain>| {
        let plugins = points.get(&Point::QueueSort).into_iter().flatten();
        plugins.map(|plugin| plugin.name()).collect::<Vec<_>>().join(", ")
    };
    let said = |names: String| if names.is_empty() { "no plugin".to_owned() } else { names };
    let mut first: Option<(&String, &Arc<dyn Extension>)> = None;
    for (name, points) in profiles {
        let (other, ours) = match (first, points.get(&Point::QueueSort).map(Vec::as_slice)) {
            (None, Some([one])) => {
                first = Some((name, one));
                continue;
            }
            (Some((_, held)), Some([one])) if held.name() == one.name() => continue,
            (Some((other, held)), _) => (other.clone(), held.name().to_owned()),
            (None, _) => (name.clone(), said(names(points))),
        };
        let theirs = said(names(points));
        return Err(ExtensionError::QueueSort { profile: name.clone(), theirs, other, ours });
    }
    // Without any profile there is nothing to order.
    Ok(first.map_or_else(|| Arc::new(PrioritySort) as Arc<dyn Extension>, |(_, one)| one.clone()))
}

fn held(plugin: &dyn Extension, why: &str) -> Ended {
    Ended::Held(format!("{}: {why}", plugin.name()))
}

/// Reservations: reverted in reverse order unless the decision becomes durable.
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
