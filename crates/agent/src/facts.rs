//! What the agent reports about the member as a whole: version, kinds, health, capacity.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use atoll_api::Clock;
use atoll_protocol::v1;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::capacity::{Figures, Taken};
use crate::key::GroupKind;
use crate::member::{Apis, Member};

/// Limit of one health check of the API.
const LIMIT: Duration = Duration::from_secs(3);
/// Failed checks in a row that make the API unhealthy: a single one may be a restart of its process.
const FAILURES: u32 = 2;

/// Whether the member's API answers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Health {
    /// Whether the last checks succeeded.
    pub healthy: bool,
    /// Why the API is unhealthy.
    pub message: String,
}

impl Default for Health {
    /// Healthy: the agent has just talked to the API when it starts.
    fn default() -> Self {
        Self { healthy: true, message: String::new() }
    }
}

/// Checks the API's health until cancelled.
pub(crate) async fn watch_health(
    member: Member,
    every: Duration,
    health: watch::Sender<Health>,
    token: CancellationToken,
) {
    let mut failures = 0;
    loop {
        let look = tokio::select! {
            biased;
            () = token.cancelled() => return,
            look = member.ready(LIMIT) => look,
        };
        let now = match look {
            Ok(()) => {
                failures = 0;
                Some(Health::default())
            }
            Err(error) => {
                failures += 1;
                (failures >= FAILURES).then(|| Health { healthy: false, message: error.message() })
            }
        };
        if let Some(now) = now {
            health.send_if_modified(|known| {
                // The message may vary between checks: keep the first one.
                let changed = known.healthy != now.healthy;
                if changed {
                    *known = now;
                }
                changed
            });
        }
        tokio::select! {
            biased;
            () = token.cancelled() => return,
            () = tokio::time::sleep(every) => {}
        }
    }
}

/// Source of facts. Each clone tracks on its own what it has already read.
#[derive(Clone)]
pub(crate) struct FactsSource {
    /// Clock.
    pub clock: Clock,
    /// Kinds.
    pub apis: watch::Receiver<Arc<Apis>>,
    /// Capacity.
    pub figures: watch::Receiver<Taken>,
    /// Health.
    pub health: watch::Receiver<Health>,
    /// Kinds that cannot be listed.
    pub unlisted: watch::Receiver<BTreeSet<GroupKind>>,
}

impl FactsSource {
    /// The current facts; marks them as read.
    pub(crate) fn read(&mut self) -> v1::Facts {
        let known = self.apis.borrow_and_update().clone();
        let (apis, apis_complete) = known.to_wire();
        let taken = self.figures.borrow_and_update().clone();
        let health = self.health.borrow().clone();
        let unlisted = self.unlisted.borrow_and_update().iter().map(ToString::to_string).collect();
        let none = (Figures::default(), self.clock.now());
        let (figures, at) = taken.as_deref().unwrap_or(&none);
        let text = |sums: &std::collections::BTreeMap<String, i128>| {
            sums.iter().map(|(resource, milli)| (resource.clone(), milli.to_string())).collect()
        };
        v1::Facts {
            kubernetes_version: known.version().to_owned(),
            api_healthy: health.healthy,
            api_message: health.message,
            apis,
            apis_complete,
            nodes_total: figures.nodes,
            nodes_ready: figures.ready,
            allocatable_milli: text(&figures.allocatable),
            allocated_milli: text(&figures.allocated),
            allocating_milli: text(&figures.allocating),
            node_classes: figures.classes.clone(),
            // 0 means not counted yet.
            taken_at_ms: if taken.is_some() { at.as_millisecond() } else { 0 },
            unlisted_kinds: unlisted,
            quotas: figures.quotas.clone(),
        }
    }

    /// A heartbeat.
    #[must_use]
    pub(crate) fn heartbeat(&self) -> v1::Heartbeat {
        let health = self.health.borrow();
        v1::Heartbeat { api_healthy: health.healthy, api_message: health.message.clone() }
    }

    /// Waits until the capacity is known; forever when the agent may not count it.
    pub(crate) async fn counted(&mut self) {
        if self.figures.wait_for(Option::is_some).await.is_err() {
            std::future::pending::<()>().await;
        }
    }

    /// Waits until kinds, capacity or the unlisted kinds differ from those last read; forever once their sources have
    /// stopped.
    pub(crate) async fn changed(&mut self) {
        tokio::select! {
            biased;
            Ok(()) = self.apis.changed() => {}
            Ok(()) = self.figures.changed() => {}
            Ok(()) = self.unlisted.changed() => {}
            else => std::future::pending().await,
        }
    }

    /// Waits until the health changes.
    pub(crate) async fn health_changed(&mut self) {
        if self.health.changed().await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}
