//! Watches every site, checks invariants at every event, and wakes waiting conditions.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use atoll_controller::members::TOKEN_SECRET_TYPE;
use futures::StreamExt;
use kube::Api;
use kube::api::DynamicObject;
use kube::runtime::watcher::{self, Event, watcher};
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::invariants;
use super::kinds::Kind;
use super::ledger::Ledger;
use super::site::{resource, value};
use super::view::View;

/// A rule that must hold after every event; the error says how it is violated.
type Rule = Box<dyn FnMut(&View) -> Result<(), String> + Send>;

/// One event of a watch.
struct Entry {
    site: String,
    /// How often the site was restored from a backup: its versions restart then.
    life: u32,
    version: u64,
    line: String,
}

#[derive(Default)]
struct State {
    view: View,
    log: Vec<Entry>,
    lives: BTreeMap<String, u32>,
    rules: BTreeMap<u64, (String, Rule)>,
    last_rule: u64,
}

/// Handle of a test's rule, for lifting it.
#[derive(Debug)]
#[must_use = "a rule holds until it is lifted"]
pub struct RuleId(u64);

pub(super) struct Mirror {
    state: Mutex<State>,
    steps: watch::Sender<u64>,
    ledger: Arc<Ledger>,
}

impl Mirror {
    pub(super) fn new(ledger: Arc<Ledger>) -> Arc<Self> {
        Arc::new(Self { state: Mutex::default(), steps: watch::Sender::new(0), ledger })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // A rule that panics is a failed test already.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn read<T>(&self, read: impl FnOnce(&View) -> T) -> T {
        read(&self.state().view)
    }

    pub(super) fn steps(&self) -> watch::Receiver<u64> {
        self.steps.subscribe()
    }

    pub(super) fn rule(&self, name: &str, rule: Rule) -> RuleId {
        let mut state = self.state();
        state.last_rule += 1;
        let id = state.last_rule;
        state.rules.insert(id, (name.to_owned(), rule));
        RuleId(id)
    }

    pub(super) fn lift(&self, rule: &RuleId) {
        self.state().rules.remove(&rule.0);
    }

    pub(super) fn power(&self, member: &str, on: bool) {
        self.state().view.power(member, on);
    }

    /// The store of a member is replaced; the old one is no longer watched.
    pub(super) fn forget(&self, member: &str) {
        let mut state = self.state();
        state.view.forget(member);
        *state.lives.entry(member.to_owned()).or_default() += 1;
    }

    /// Every event, site by site, in the order of the sites' resourceVersions.
    pub(super) fn log(&self) -> Vec<String> {
        let state = self.state();
        let mut entries: Vec<&Entry> = state.log.iter().collect();
        // Stable: events with the same version (a list, several watches) keep their order of arrival.
        entries.sort_by_key(|entry| (&entry.site, entry.life, entry.version));
        entries.into_iter().map(|entry| format!("{} {}", entry.site, entry.line)).collect()
    }

    /// Watches these kinds of a site; returns when all of them have been listed.
    pub(super) async fn follow(
        self: &Arc<Self>,
        site: &str,
        client: &kube::Client,
        kinds: Vec<Kind>,
        tasks: &TaskTracker,
        token: &CancellationToken,
    ) {
        let (listed, mut all) = watch::channel(0);
        let count = kinds.len();
        for kind in kinds {
            let follower = Follower {
                mirror: self.clone(),
                site: site.to_owned(),
                kind,
                listing: None,
                listed: Some(listed.clone()),
            };
            let events = watcher(
                Api::<DynamicObject>::all_with(client.clone(), &resource(&kind)),
                watcher::Config::default(),
            );
            let token = token.clone();
            tasks.spawn(async move {
                let _ = token.run_until_cancelled(follower.run(events)).await;
            });
        }
        drop(listed);
        // The followers own the senders and end with the World.
        let _ = all.wait_for(|listed| *listed == count).await;
    }

    fn take(&self, site: &str, kind: Kind, object: DynamicObject, gone: bool) {
        let meta = &object.metadata;
        let name = meta.name.as_deref().unwrap_or_default();
        let key = match &meta.namespace {
            Some(namespace) => format!("{namespace}/{name}"),
            None => name.to_owned(),
        };
        let version = meta.resource_version.as_deref().and_then(|v| v.parse().ok()).unwrap_or(0);
        let mut object = value(object);
        object["apiVersion"] = json!(kind.api_version);
        object["kind"] = json!(kind.kind);
        if let Some(data) = object.get_mut("data").filter(|_| kind.kind == "Secret") {
            for value in data.as_object_mut().into_iter().flat_map(|data| data.values_mut()) {
                *value = Value::Null;
            }
        }
        // The hash of a random key.
        if let Some(authority) = object.pointer_mut("/status/session/authority") {
            *authority = Value::Null;
        }
        let mut state = self.state();
        let state = &mut *state;
        let before = state.view.on(site, &kind, &key).clone();
        if !gone && before == object {
            return;
        }
        let what = if gone { "gone" } else { "set" };
        // Even the name of a token is random.
        if object["type"] != TOKEN_SECRET_TYPE {
            let line = format!("{version} {what} {} {key} {object}", kind.kind);
            let life = state.lives.get(site).copied().unwrap_or_default();
            state.log.push(Entry { site: site.to_owned(), life, version, line });
        }
        match gone {
            true => state.view.remove(site, &kind, &key),
            false => state.view.set(site, kind, &key, object.clone()),
        }
        if !gone {
            for broken in invariants::broken(&state.view, &self.ledger, site, &before, &object) {
                self.ledger.violation(format!("{site} {} {key}: {broken}", kind.kind));
            }
        }
        for (name, rule) in state.rules.values_mut() {
            if let Err(how) = rule(&state.view) {
                let at = format!("at {what} {} {key} of {site}", kind.kind);
                self.ledger.violation(format!("{name}: {how} ({at})"));
            }
        }
        self.steps.send_modify(|step| *step += 1);
    }
}

/// The watch of one kind on one site.
struct Follower {
    mirror: Arc<Mirror>,
    site: String,
    kind: Kind,
    /// Keys that the current list has not returned yet.
    listing: Option<BTreeSet<String>>,
    listed: Option<watch::Sender<usize>>,
}

impl Follower {
    async fn run(
        mut self,
        events: impl futures::Stream<Item = watcher::Result<Event<DynamicObject>>>,
    ) {
        let mut events = std::pin::pin!(events);
        while let Some(event) = events.next().await {
            match event {
                Ok(event) => self.event(event),
                Err(error) => self.mirror.ledger.violation(format!(
                    "cannot watch {} on {}: {error}",
                    self.kind.plural, self.site
                )),
            }
        }
    }

    fn event(&mut self, event: Event<DynamicObject>) {
        let (mirror, site, kind) = (&self.mirror, &self.site, self.kind);
        match event {
            Event::Apply(object) => mirror.take(site, kind, object, false),
            Event::Delete(object) => mirror.take(site, kind, object, true),
            Event::Init => self.listing = Some(mirror.read(|view| view.keys(site, &kind))),
            Event::InitApply(object) => {
                if let (Some(rest), Some(name)) = (&mut self.listing, &object.metadata.name) {
                    rest.retain(|key| key.rsplit('/').next() != Some(name));
                }
                mirror.take(site, kind, object, false);
            }
            Event::InitDone => {
                // These servers keep every event for longer than a watch takes to reconnect.
                let missed = self.listing.take().filter(|rest| !rest.is_empty());
                if let Some(missed) = missed {
                    let text = format!(
                        "the watch of {} on {site} missed the end of {missed:?}",
                        kind.plural
                    );
                    mirror.ledger.violation(text);
                }
                if let Some(listed) = self.listed.take() {
                    listed.send_modify(|count| *count += 1);
                }
            }
        }
    }
}
