//! A controller with a hub, members and history in this process, with paused time.

use std::num::NonZero;
use std::sync::Arc;
use std::time::Duration;

use atoll_api::binding::Trigger;
use atoll_api::{Backoff, RunsOn};
use atoll_history::{Filter, MemoryStore, Store};
use atoll_scheduler::{Profiles, RecoverAfter};
use serde_json::Value;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::interpret::webhooks::WebhookTimes;
use crate::leader::{Candidate, LeaseTimes};
use crate::lifecycle::pace::PaceLimits;
use crate::metrics::Counters;
use crate::planning::Planner;
use crate::run::{ControllerError, Core, Hub as HubOptions};
use crate::schedule::extend::Extension;
use crate::testing::eventually;
use crate::testing::hub::{Hub, Spy};
use crate::testing::members::FakeMembers;

pub(super) const SOON: Duration = Duration::from_secs(30);

pub(super) struct Federation {
    pub(super) hub: Hub,
    pub(super) members: FakeMembers,
    pub(super) store: Arc<MemoryStore>,
    pub(super) spy: Spy,
    pub(super) counters: Counters,
    pub(super) planner: Planner,
    pub(super) token: CancellationToken,
    pub(super) running: JoinHandle<Result<(), ControllerError>>,
    starts: u32,
    setup: Setup,
}

/// Settings of a controller.
#[derive(Clone, Default)]
pub(super) struct Setup {
    pub(super) pace: PaceLimits,
    pub(super) profiles: Profiles,
    pub(super) plugins: Vec<Arc<dyn Extension>>,
    /// Waits after failures, if not the default.
    pub(super) retry: Option<Backoff>,
    /// Times of webhooks, if not the default.
    pub(super) webhooks: Option<WebhookTimes>,
    /// Retention of history, if not the default.
    pub(super) retention: Option<Duration>,
    /// Path suffixes that the controller has no permission for.
    pub(super) forbidden: Vec<&'static str>,
}

/// How long a member must be healthy before workloads move back to it, in these tests.
pub(super) const RECOVER_AFTER: RecoverAfter = RecoverAfter(jiff::SignedDuration::from_secs(90));

/// Bindings that a new leader passes on at a time: few, so that tests have several slices.
pub(super) const SLICE: NonZero<usize> = NonZero::new(2).expect("it is not zero");

fn candidate(start: u32) -> Candidate {
    Candidate {
        namespace: "atoll-system".to_owned(),
        name: "atoll-controller".to_owned(),
        place: "test".to_owned(),
        incarnation: start.to_string(),
        address: None,
        exclusive_place: true,
        times: LeaseTimes::default(),
    }
}

impl Federation {
    /// With members `m1`, `m2`, `m3`, connected, and a controller that leads.
    pub(super) async fn start() -> Self {
        Self::start_with(PaceLimits::default()).await
    }

    /// The same, with these pace limits.
    pub(super) async fn start_with(pace: PaceLimits) -> Self {
        Self::start_on(Hub::open().await, Setup { pace, ..Setup::default() }).await
    }

    /// The same, on a hub with existing content.
    pub(super) async fn start_on(hub: Hub, setup: Setup) -> Self {
        for name in ["m1", "m2", "m3"] {
            hub.cluster(name).await;
        }
        Self::with(hub, Arc::new(MemoryStore::default()), None, 0, setup).await
    }

    async fn with(
        hub: Hub,
        store: Arc<MemoryStore>,
        members: Option<FakeMembers>,
        starts: u32,
        setup: Setup,
    ) -> Self {
        let (client, spy) = hub.spied();
        setup.forbidden.iter().for_each(|path| spy.forbid(path));
        let mut core = Core::new(HubOptions {
            client,
            clock: hub.clock.clone(),
            retention: setup.retention.unwrap_or(atoll_history::RETENTION),
            history: store.clone(),
            candidate: candidate(starts),
            profiles: setup.profiles.clone(),
            runs_on: RunsOn::Task,
            seed: 1,
        })
        .unwrap();
        core.settings.pace = setup.pace;
        core.settings.recover_after = RECOVER_AFTER;
        core.settings.slice = SLICE;
        core.settings.retry = setup.retry.unwrap_or(core.settings.retry);
        core.settings.plugins.clone_from(&setup.plugins);
        core.settings.webhooks = setup.webhooks.unwrap_or_default();
        let (counters, planner) = (core.counters.clone(), core.planner.clone());
        let seen = spy.clone();
        // I5: before an order reaches a member, its decision is durable in the hub.
        let durable = move || {
            let calls = seen.calls();
            let written = calls
                .iter()
                .any(|call| call.path.contains("resourcebindings") && call.status.is_success());
            assert!(written, "an order before any decision was durable: {calls:?}");
        };
        let members = match members {
            Some(members) => members.rewire(core.events.clone()),
            None => FakeMembers::new(core.events.clone(), durable),
        };
        let token = CancellationToken::new();
        let outlet = Arc::new(members.clone());
        let running = tokio::spawn(core.run(outlet, token.clone(), CancellationToken::new()));
        let federation =
            Self { hub, members, store, spy, counters, planner, token, running, starts, setup };
        let members = &federation.members;
        eventually("leads", SOON, || async { members.is_complete() }).await;
        for name in ["m1", "m2", "m3"] {
            members.connect(name).await;
        }
        federation
    }

    /// Stops the controller.
    pub(super) async fn stop(self) {
        self.token.cancel();
        self.running.await.unwrap().unwrap();
    }

    /// Stops the controller and starts another on the same hub, members and history.
    pub(super) async fn restart(self) -> Self {
        self.token.cancel();
        self.running.await.unwrap().unwrap();
        Self::with(self.hub, self.store, Some(self.members), self.starts + 1, self.setup).await
    }

    /// The same with the next controller on another hub.
    pub(super) async fn restart_on(self, hub: Hub) -> Self {
        self.token.cancel();
        self.running.await.unwrap().unwrap();
        Self::with(hub, self.store, Some(self.members), self.starts + 1, self.setup).await
    }

    /// The same, and the new one lacks permission for paths with this suffix.
    pub(super) async fn restart_without(mut self, path: &'static str) -> Self {
        self.setup.forbidden.push(path);
        self.restart().await
    }

    /// Waits until a path of an object of the namespace `shop` has a value.
    pub(super) async fn until(&self, kind: (&str, &str), name: &str, path: &str, value: Value) {
        let what = format!("{} {name} {path} = {value}", kind.1);
        eventually(&what, SOON, || async {
            let object = self.hub.get(kind.0, kind.1, Some("shop"), name).await;
            object.pointer(path) == Some(&value)
        })
        .await;
    }

    /// Waits until members hold these replicas.
    pub(super) async fn until_replicas(&self, expected: &[(&str, i64)]) {
        let expected = expected.iter().map(|(name, n)| ((*name).into(), *n)).collect();
        eventually(&format!("replicas {expected:?}"), Duration::from_secs(900), || async {
            self.members.replicas() == expected
        })
        .await;
    }

    /// Whether the hub serves a kind.
    pub(super) async fn serves(&self, api_version: &str, kind: &str) -> bool {
        let (group, version) = api_version.rsplit_once('/').unwrap_or(("", api_version));
        let gvk = kube::core::GroupVersionKind::gvk(group, version, kind);
        kube::discovery::pinned_kind(&self.hub.client, &gvk).await.is_ok()
    }

    /// Lines of the metrics' page without comments.
    pub(super) fn metrics(&self) -> Vec<String> {
        let (mut registry, mut page) =
            (prometheus_client::registry::Registry::default(), String::new());
        self.counters.register(&mut registry);
        prometheus_client::encoding::text::encode(&mut page, &registry).unwrap();
        page.lines().filter(|line| !line.starts_with('#')).map(str::to_owned).collect()
    }

    /// Triggers of all recorded decisions, oldest first.
    pub(super) async fn history(&self) -> Vec<Trigger> {
        let page = self.store.page(&Filter::default(), 1000, None).await.unwrap();
        let rows = page.rows.iter().rev();
        rows.map(|row| row.entry.record().unwrap().record.trigger).collect()
    }

    pub(super) async fn until_history(&self, expected: &[Trigger]) {
        eventually(&format!("history {expected:?}"), SOON, || async {
            self.history().await == expected
        })
        .await;
    }
}

pub(super) const DEPLOYMENT: (&str, &str) = ("apps/v1", "Deployment");
pub(super) const BINDING: (&str, &str) = ("work.atoll.dev/v1alpha1", "ResourceBinding");
