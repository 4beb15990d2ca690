//! Metrics of members.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

/// Label of [`Metrics::refused`].
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct RefusedLabels {
    pub(crate) reason: &'static str,
}

/// Label of [`Metrics::sent`].
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct SentLabels {
    pub(crate) kind: &'static str,
}

/// Labels of [`Metrics::proxied`].
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct ProxiedLabels {
    pub(crate) cluster: String,
    pub(crate) result: &'static str,
}

/// Counters and gauges. Clones share them.
#[derive(Debug, Clone, Default)]
pub struct Metrics {
    pub(crate) sessions: Gauge,
    pub(crate) lost: Gauge,
    pub(crate) suspicion: Gauge,
    pub(crate) removals_held: Gauge,
    pub(crate) refused: Family<RefusedLabels, Counter>,
    pub(crate) sent: Family<SentLabels, Counter>,
    pub(crate) proxied: Family<ProxiedLabels, Counter>,
    pub(crate) hub_writes: Counter,
}

impl Metrics {
    /// Every family with one member.
    #[cfg(test)]
    pub(crate) fn of_every_kind() -> Self {
        let metrics = Self::default();
        metrics.refused.get_or_create(&RefusedLabels { reason: "token" }).inc();
        metrics.sent.get_or_create(&SentLabels { kind: "manifest" }).inc();
        let labels = ProxiedLabels { cluster: "member1".to_owned(), result: "ok" };
        metrics.proxied.get_or_create(&labels).inc();
        metrics
    }

    /// Registers them.
    pub fn register(&self, registry: &mut Registry) {
        let registry = registry.sub_registry_with_prefix("atoll_members");
        registry.register("sessions", "Agents with a session", self.sessions.clone());
        registry.register("lost", "Members that are lost", self.lost.clone());
        registry.register(
            "suspicion",
            "1 while the controller suspects itself and writes no taint",
            self.suspicion.clone(),
        );
        registry.register(
            "removals_held",
            "Removals from members that are held back by their limit",
            self.removals_held.clone(),
        );
        registry.register("refused", "Calls refused, by reason", self.refused.clone());
        registry.register(
            "proxied",
            "Requests of users to members through the hub, by member and result",
            self.proxied.clone(),
        );
        registry.register("sent", "Messages sent to agents, by kind", self.sent.clone());
        registry.register(
            "hub_writes",
            "Writes of Cluster status and taints",
            self.hub_writes.clone(),
        );
    }
}
