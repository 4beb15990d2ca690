//! State that the tasks for members share.

use std::sync::Arc;

use atoll_api::Clock;
use atoll_protocol::authorities::Authorities;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::due::Due;
use super::leadership::LeadershipView;
use super::metrics::Metrics;
use super::recent_events::RecentEvents;
use super::registry::Registry;
use crate::health::caution::Caution;
use crate::health::times::HealthTimes;
use crate::leader::LeaderTerm;
use crate::sessions::outbox::Outbox;
use crate::sessions::shared::SessionsShared;

pub(crate) struct Context {
    pub(crate) client: kube::Client,
    pub(crate) clock: Clock,
    pub(crate) times: HealthTimes,
    pub(crate) leadership: LeadershipView,
    /// `None` before it was read from the hub.
    pub(crate) authority: watch::Sender<Option<Arc<Authorities>>>,
    pub(crate) registry: Registry,
    pub(crate) outbox: Outbox,
    pub(crate) sessions: SessionsShared,
    pub(crate) caution: Caution,
    /// Clusters whose status or taints may have to be written.
    pub(crate) writes: Due,
    /// Clusters that are being deleted, or have open requests.
    pub(crate) maintenance: Due,
    pub(crate) recent_events: RecentEvents,
    pub(crate) metrics: Metrics,
    pub(crate) tasks: TaskTracker,
    pub(crate) token: CancellationToken,
}

impl Context {
    /// The leader's term; `None` when this is not the leader.
    pub(crate) fn term(&self) -> Option<LeaderTerm> {
        self.leadership.term()
    }

    /// Waits until the term differs from the one last seen in `term`. `None` once the controller stops.
    pub(crate) async fn next_term(
        &self,
        term: &mut watch::Receiver<Option<LeaderTerm>>,
    ) -> Option<Option<LeaderTerm>> {
        self.token.run_until_cancelled(term.changed()).await?.ok()?;
        Some(*term.borrow_and_update())
    }
}
