//! Metrics of the controller. Names and labels are the interface of dashboards and alerts; `members` has its own.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

use atoll_api::binding::DecisionRecord;

use crate::interpret::webhooks::WebhookMetrics;
use crate::latency::Latency;
use crate::queue::Lengths;

/// Label of committed decisions.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Decided {
    trigger: String,
    outcome: String,
}

/// Label of writes to the hub.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Written {
    what: &'static str,
    result: &'static str,
}

/// Label of Events.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Told {
    result: &'static str,
}

/// Label of the program.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Build {
    version: &'static str,
}

/// Label of the queue's depths.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Place {
    place: &'static str,
}

/// Counters and gauges of the engine. Clones share them.
#[derive(Debug, Clone, Default)]
pub(crate) struct Counters {
    decisions: Family<Decided, Counter>,
    /// Decisions without a change, so that nothing was written.
    pub(crate) avoided: Counter,
    /// Commits that conflicted with another write.
    pub(crate) conflicts: Counter,
    /// Manifests that were rendered.
    pub(crate) renders: Counter,
    writes: Family<Written, Counter>,
    events: Family<Told, Counter>,
    queue: Family<Place, Gauge>,
    evictions_waiting: Gauge,
    rollouts_waiting: Gauge,
    bindings_held: Gauge,
    hub_writes_at_once: Gauge,
    /// 1 while this controller leads.
    pub(crate) leads: Gauge,
    /// How long the steps take.
    pub(crate) latency: Latency,
    /// Calls of interpreter webhooks.
    pub(crate) webhooks: WebhookMetrics,
}

impl Counters {
    /// Registers them.
    pub(crate) fn register(&self, registry: &mut Registry) {
        self.webhooks.register(registry);
        let registry = registry.sub_registry_with_prefix("atoll");
        let decisions = self.decisions.clone();
        registry.register("decisions", "Committed decisions, by trigger and outcome", decisions);
        registry.register(
            "decisions_avoided",
            "Decisions that changed nothing and were not written",
            self.avoided.clone(),
        );
        registry.register(
            "commit_conflicts",
            "Commits that another writer's change preceded; each is decided again",
            self.conflicts.clone(),
        );
        registry.register("renders", "Manifests rendered for members", self.renders.clone());
        registry.register(
            "hub_writes",
            "Writes of bindings and statuses to the hub, by result",
            self.writes.clone(),
        );
        registry.register(
            "hub_writes_at_once",
            "How many commits may run at once, from the hub's latency; 0 while the hub refuses writes",
            self.hub_writes_at_once.clone(),
        );
        registry.register(
            "events",
            "Kubernetes Events about templates and Clusters, by what became of them",
            self.events.clone(),
        );
        registry.register(
            "queue_depth",
            "Bindings in the work queue, by place; 0 on a follower",
            self.queue.clone(),
        );
        registry.register(
            "evictions_waiting",
            "Bindings that are to leave a cluster and wait for the pace",
            self.evictions_waiting.clone(),
        );
        registry.register(
            "rollouts_waiting",
            "Bindings whose manifests changed by overrides and wait for the rollout rate",
            self.rollouts_waiting.clone(),
        );
        registry.register(
            "bindings_held",
            "Bindings with a change that a ChangeGuard holds; 0 on a follower",
            self.bindings_held.clone(),
        );
        registry.register("leader", "1 while this controller leads", self.leads.clone());
        self.latency.register(registry);
        let build = Family::<Build, Gauge>::default();
        build.get_or_create(&Build { version: env!("CARGO_PKG_VERSION") }).set(1);
        registry.register("build_info", "1, with the version of this program", build);
    }

    /// Counts a durable decision.
    pub(crate) fn decided(&self, record: &DecisionRecord) {
        let trigger = record.trigger.to_string();
        let outcome = record.outcome.to_string();
        self.decisions.get_or_create(&Decided { trigger, outcome }).inc();
    }

    /// Counts a completed write.
    pub(crate) fn wrote(&self, what: &'static str, result: &'static str) {
        self.writes.get_or_create(&Written { what, result }).inc();
    }

    /// Sets the limit of concurrent commits.
    pub(crate) fn at_once(&self, most: usize) {
        self.hub_writes_at_once.set(i64::try_from(most).unwrap_or(i64::MAX));
    }

    /// Counts the result of an Event.
    pub(crate) fn event(&self, result: &'static str) {
        self.events.get_or_create(&Told { result }).inc();
    }

    /// Sets the numbers of bindings that wait for the eviction pace and for the rollout rate.
    pub(crate) fn paced(&self, leaving: usize, changed: usize) {
        self.evictions_waiting.set(i64::try_from(leaving).unwrap_or(i64::MAX));
        self.rollouts_waiting.set(i64::try_from(changed).unwrap_or(i64::MAX));
    }

    /// Sets the number of bindings with a change that a guard holds.
    pub(crate) fn held(&self, bindings: usize) {
        self.bindings_held.set(i64::try_from(bindings).unwrap_or(i64::MAX));
    }

    /// Sets the queue's depths.
    pub(crate) fn queued(&self, lengths: Lengths) {
        for (place, length) in [
            ("active", lengths.active),
            ("backoff", lengths.backoff),
            ("unplaced", lengths.waiting.unplaced),
            ("mistaken", lengths.waiting.mistaken),
            ("blocked", lengths.waiting.blocked),
            ("improvable", lengths.waiting.improvable),
            ("gated", lengths.held),
            ("inFlight", lengths.in_flight),
        ] {
            let length = i64::try_from(length).unwrap_or(i64::MAX);
            self.queue.get_or_create(&Place { place }).set(length);
        }
    }
}
