//! What every stage of the controller may use: handles to the outside and settings, without state of their own.

use std::sync::Arc;
use std::time::Duration;

use atoll_api::{Backoff, Clock};
use atoll_history::{Recorder, Store};
use atoll_scheduler::RecoverAfter;
use atoll_traces::Tracer;
use kube::Client;

use crate::events::Notes;
use crate::hub_load::HubLoad;
use crate::interpret::Interpreter;
use crate::leader::Election;
use crate::lifecycle::pace::PaceLimits;
use crate::metrics::Counters;
use crate::placements::outlet::Outlet;
use crate::schedule::SchedulerHandle;
use crate::schedule::extend::Extensions;

/// The handles and settings.
pub(crate) struct Env {
    /// For reads and commits and statuses: its writes are measured by `load`.
    pub(crate) client: Client,
    pub(crate) load: HubLoad,
    pub(crate) clock: Clock,
    pub(crate) counters: Counters,
    pub(crate) notes: Notes,
    pub(crate) recorder: Recorder,
    pub(crate) store: Arc<dyn Store>,
    /// Retention of history.
    pub(crate) retention: Duration,
    pub(crate) outlet: Arc<dyn Outlet>,
    pub(crate) election: Election,
    pub(crate) scheduler: SchedulerHandle,
    pub(crate) extensions: Arc<Extensions>,
    pub(crate) interpreter: Arc<Interpreter>,
    pub(crate) waits: Waits,
    /// Records traces of decisions, if that is on.
    pub(crate) tracer: Tracer,
}

/// How long bindings wait.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Waits {
    /// How fast workloads may leave clusters.
    pub(crate) pace: PaceLimits,
    /// How long a cluster must be healthy before workloads move back to it.
    pub(crate) recover_after: RecoverAfter,
    /// After failures.
    pub(crate) retry: Backoff,
}
