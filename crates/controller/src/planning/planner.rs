//! Whoever wants a plan waits here for the turn, and gets a copy of what the leader knows.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Semaphore, mpsc, oneshot};

use super::base::Base;
use super::types::{Known, PlanError, QUEUED};

/// Limit of the wait for the plans before it.
const TURN: Duration = Duration::from_secs(10);
/// Limit of the wait for the event loop.
const COPY: Duration = Duration::from_secs(5);

/// A request for a copy of what the leader knows; `None` if this process does not lead.
pub(crate) type Ask = oneshot::Sender<Option<Box<Known>>>;

/// Plans changes. Clones share their limits.
#[derive(Debug, Clone)]
pub struct Planner {
    asks: mpsc::Sender<Ask>,
    running: Arc<Semaphore>,
    queued: Arc<Semaphore>,
}

/// A planner without a leader.
impl Default for Planner {
    fn default() -> Self {
        Self::new().0
    }
}

impl Planner {
    /// A planner, and where the event loop gets what it asks for.
    pub(crate) fn new() -> (Self, mpsc::Receiver<Ask>) {
        let (asks, plans) = mpsc::channel(1);
        let (running, queued) = (Semaphore::new(1), Semaphore::new(QUEUED));
        (Self { asks, running: Arc::new(running), queued: Arc::new(queued) }, plans)
    }

    /// What the leader knows at this moment, to plan one change with. The next plan waits until it is dropped.
    ///
    /// # Errors
    /// When this controller does not lead, or other plans wait.
    pub async fn base(&self) -> Result<Base, PlanError> {
        let place = Arc::clone(&self.queued).try_acquire_owned().map_err(|_| PlanError::Busy)?;
        let turn = tokio::time::timeout(TURN, Arc::clone(&self.running).acquire_owned()).await;
        let turn = turn.map_err(|_| PlanError::Busy)?.map_err(|_| PlanError::NotLeading)?;
        drop(place);
        let (ask, answer) = oneshot::channel();
        let asked = async {
            self.asks.send(ask).await.ok()?;
            answer.await.ok().flatten()
        };
        let known = tokio::time::timeout(COPY, asked).await.ok().flatten();
        Ok(Base::new(*known.ok_or(PlanError::NotLeading)?, turn))
    }
}
