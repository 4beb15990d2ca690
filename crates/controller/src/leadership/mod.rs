//! What a controller has only while it leads, and what it does with it. [`Leading`] is built when a leadership begins
//! and dropped when it ends: nothing of it can survive, and running jobs are aborted with it. Only its methods write.
//!
//! `role` says whether this process leads. A leadership begins with `catch_up`, which completes the tables, and
//! `take_over`, which passes committed decisions on. Then `work` starts what is due, `changes` takes in changes of the
//! hub, `reports` what members report, `outcomes` the results of jobs. Each stage's own state and rules are in its
//! module.

pub(crate) mod catch_up;
mod changes;
mod guarding;
mod interpreting;
mod jobs;
mod later;
mod outcomes;
mod planning;
mod reports;
pub(crate) mod role;
pub(crate) mod take_over;
mod work;

use std::sync::Arc;

use tokio::sync::watch;
use tokio::time::Instant;

use crate::audit::{self, Audit, Outbox};
use crate::env::Env;
use crate::hub_state::HubState;
use crate::index::key::BindingKey;
use crate::leader::{LeaderTerm, Leadership};
use crate::lifecycle::draining::Draining;
use crate::lifecycle::rollouts::Rollouts;
use crate::placements::Placements;
use crate::placements::reissued::Reissued;
use crate::placements::removal_limits::RemovalLimits;
use crate::queue::{BindingQueue, Queue};
use crate::reconcile::attach::Attachments;
use crate::reconcile::{Context, Subject};
use crate::status::facts::Sources;
use crate::status::stage::Statuses;
use jobs::{JobDone, Jobs};

/// One leadership.
pub(crate) struct Leading {
    env: Arc<Env>,
    term: LeaderTerm,
    /// Whether the leadership is still in force: checked before every write.
    leadership: watch::Receiver<Option<Leadership>>,
    queue: BindingQueue,
    /// The binding that the scheduler is deciding.
    deciding: Option<Subject>,
    jobs: Jobs,
    placements: Placements,
    removal_limits: RemovalLimits,
    reissued: Reissued,
    draining: Draining,
    rollouts: Rollouts,
    statuses: Statuses,
    attachments: Attachments,
    /// Decisions on their way to history.
    outbox: Outbox,
    audit: Audit,
}

impl Leading {
    /// A leadership that has done nothing yet. `raised`: the term was raised while this process led.
    fn new(
        env: &Arc<Env>,
        term: LeaderTerm,
        leadership: watch::Receiver<Option<Leadership>>,
        raised: bool,
    ) -> Self {
        Self {
            env: env.clone(),
            term,
            leadership,
            queue: Queue::new(env.extensions.order(), env.waits.retry),
            deciding: None,
            jobs: Jobs::new(env.load.clone()),
            placements: Placements::begin(term),
            removal_limits: RemovalLimits::begin(term, raised),
            reissued: Reissued::default(),
            draining: Draining::begin(env, Instant::now()),
            rollouts: Rollouts::begin(env.waits.pace, Instant::now()),
            statuses: Statuses::default(),
            attachments: Attachments::default(),
            outbox: Outbox::default(),
            audit: Audit::new(env.clone()),
        }
    }

    /// Starts the queries whose answers a new leader needs.
    fn ask_history(&mut self, hub: &HubState) {
        self.publish_limits(hub);
        let compared = self.removal_limits.compare_all(&self.env, &hub.index);
        self.jobs.spawn(async { JobDone::Compared(compared.await) });
        let unconfirmed = audit::unconfirmed::query(&self.env, &hub.index);
        self.jobs.spawn(async { JobDone::Unconfirmed(unconfirmed.await) });
        if let Some(progress) = audit::recovery::known_progress(&self.env, &hub.index) {
            self.jobs.spawn(async { JobDone::Progress(progress.await) });
        }
        let missed = audit::absence::missed(&self.env, &hub.index);
        self.jobs.spawn(async { JobDone::MembersMissed(missed.await) });
    }

    /// Applies the limits on removals.
    fn publish_limits(&self, hub: &HubState) {
        let limit = self.removal_limits.limit(hub.history_error.is_some());
        self.placements.verdicts.limit_all(limit);
        self.env.outlet.limits_changed();
    }

    /// Whether we lead for certain. Checked before every write.
    fn is_in_force(&self) -> bool {
        let leadership = *self.leadership.borrow();
        leadership.and_then(|leadership| leadership.in_force()) == Some(self.term)
    }

    /// Earliest pending deadline.
    fn next_timer(&self) -> Option<Instant> {
        if !self.is_in_force() {
            return None;
        }
        // At a limit, the next completion or the end of the pause re-checks this.
        let status = self.statuses.next_timer().filter(|_| self.may_publish());
        let later = self.jobs.later.next_timer();
        let timers = [self.queue.next_timer(), status, self.outbox.next_timer(), later];
        let paced =
            [self.draining.next_timer(), self.rollouts.next_timer(), self.env.load.paused_until()];
        timers.into_iter().chain(paced).flatten().min()
    }

    fn context<'a>(&'a self, hub: &'a HubState) -> Context<'a> {
        Context {
            env: &self.env,
            hub,
            placements: &self.placements,
            outbox: &self.outbox,
            term: self.term,
        }
    }

    /// The statuses, and what they are computed from.
    fn statuses<'a>(&'a mut self, hub: &'a HubState) -> (&'a mut Statuses, Sources<'a>) {
        let sources = Sources {
            hub,
            placements: &self.placements,
            queue: &self.queue,
            outbox: &self.outbox,
            guards: &self.draining.guards,
            term: self.term,
        };
        (&mut self.statuses, sources)
    }

    /// Something changed that the statuses of a binding and its template may show.
    fn mark_status(&mut self, hub: &HubState, key: &BindingKey) {
        let (statuses, sources) = self.statuses(hub);
        statuses.mark_binding(sources, key);
    }
}
