//! The task that owns the controller's state. It takes one event at a time, passes it to the role that this process has,
//! and never blocks: decisions, writes and look-ups run elsewhere and return as events.

use std::num::NonZero;
use std::ops::ControlFlow;
use std::sync::Arc;

use atoll_history::Progress;
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::audit;
use crate::env::Env;
use crate::hub_state::HubState;
use crate::index::Source;
use crate::leader::Leadership;
use crate::leadership::catch_up::{CatchUp, Newer};
use crate::leadership::role::{Done, Role};
use crate::leadership::take_over::TakeOver;
use crate::members::MemberEvent;
use crate::planning::Ask;
use crate::queue::{Lengths, gates};
use crate::schedule::{DecisionResult, SchedulerError};
use crate::watch::Arrival;

/// Events of one kind handled before the others are looked at again, so that none starves.
const BATCH: usize = 256;

/// Where events come from.
pub(crate) struct Inputs {
    pub(crate) leadership: watch::Receiver<Option<Leadership>>,
    /// The hub's streams.
    pub(crate) arrivals: mpsc::Receiver<Arrival>,
    pub(crate) reports: mpsc::Receiver<MemberEvent>,
    pub(crate) decisions: mpsc::Receiver<DecisionResult>,
    /// Asks for a copy of what the leader knows, to plan with.
    pub(crate) plans: mpsc::Receiver<Ask>,
    /// Progress of the history database.
    pub(crate) progress: watch::Receiver<Progress>,
}

/// The event loop.
pub(crate) struct EventLoop {
    env: Arc<Env>,
    hub: HubState,
    role: Role,
    /// Bindings that a new leader passes on before it looks at events again.
    slice: NonZero<usize>,
    /// A report that arrived with the leadership: it waits until that has begun.
    early: Option<MemberEvent>,
    /// The last event was a decision. The next one may be ready at once, so reports and the hub's events get a turn after each:
    /// otherwise they could wait until the queue is empty.
    decided_last: bool,
    inputs: Inputs,
}

impl EventLoop {
    pub(crate) fn new(env: Arc<Env>, hub: HubState, inputs: Inputs, slice: NonZero<usize>) -> Self {
        Self { env, hub, role: Role::Follower, slice, early: None, decided_last: false, inputs }
    }

    /// Runs until cancelled. Running jobs are then aborted.
    pub(crate) async fn run(mut self, token: CancellationToken) -> Result<(), SchedulerError> {
        loop {
            let more = match &mut self.role {
                Role::Leading(leading) => leading.hand_out_work(&mut self.hub),
                Role::TakingOver(_) => {
                    self.take_over();
                    true
                }
                Role::Follower | Role::CatchingUp(_) => false,
            };
            let timer = self.role.next_timer();
            let behind = self.hub.history_error.is_some();
            let takes_reports = matches!(self.role, Role::Follower | Role::Leading(_));
            let takes_over = matches!(self.role, Role::TakingOver(_));
            let others_wait = (takes_reports && !self.inputs.reports.is_empty())
                || (!takes_over && !self.inputs.arrivals.is_empty());
            let takes_decisions = !(std::mem::take(&mut self.decided_last) && others_wait);
            tokio::select! {
                biased;
                () = token.cancelled() => return Ok(()),
                Ok(()) = self.inputs.leadership.changed() => self.follow_leadership(),
                done = self.role.next() => self.progressed(done),
                result = self.inputs.decisions.recv(), if takes_decisions => {
                    self.decided_last = true;
                    self.decided(result.ok_or(SchedulerError::Ended)?);
                }
                Some(event) = self.inputs.reports.recv(), if takes_reports => self.take_reports(event),
                Some(arrival) = self.inputs.arrivals.recv(), if !takes_over => self.take_arrivals(arrival),
                Some(ask) = self.inputs.plans.recv(), if !takes_over => self.copy(ask),
                () = audit::turned(&mut self.inputs.progress, behind) => self.history_turned(),
                () = tokio::task::yield_now(), if more => {}
                () = sleep_until(timer) => {}
            }
        }
    }

    /// The leadership began, ended, or changed its term.
    fn follow_leadership(&mut self) {
        let leadership = *self.inputs.leadership.borrow_and_update();
        let term = leadership.and_then(|leadership| leadership.in_force());
        let held = self.role.term();
        if term == held {
            return;
        }
        if held.is_some() {
            self.step_down();
        }
        if let Some(term) = term {
            let catch_up = CatchUp::begin(&self.env.client, &self.hub.index, term, held.is_some());
            self.role = Role::CatchingUp(catch_up);
        }
    }

    /// The tables have what the hub has: the leadership begins.
    fn lead(&mut self) {
        let Role::CatchingUp(CatchUp { term, raised, .. }) = self.role else { return };
        let leadership = self.inputs.leadership.clone();
        let take_over = TakeOver::begin(&self.env, &self.hub, term, leadership, raised, self.slice);
        self.role = Role::TakingOver(Box::new(take_over));
    }

    /// Passes the next slice of the committed decisions on. The leadership is complete after the last one.
    fn take_over(&mut self) {
        let role = std::mem::replace(&mut self.role, Role::Follower);
        self.role = match role {
            Role::TakingOver(take_over) => match take_over.step(&self.hub) {
                ControlFlow::Continue(more) => Role::TakingOver(more),
                ControlFlow::Break(leading) => Role::Leading(Box::new(leading)),
            },
            other => other,
        };
        if matches!(self.role, Role::Leading(_))
            && let Some(event) = self.early.take()
        {
            self.take_report(event);
        }
    }

    /// Takes in bindings that the watch has not delivered.
    fn take_newer(&mut self, newer: Newer) {
        for (key, object) in newer {
            let touched = self.hub.take_reply(&Source::of_binding(&key), object);
            self.hub.refresh_objects(&touched);
            self.hub.follow_bindings(&touched);
        }
    }

    /// Leadership lost: everything that belonged to it is dropped, and its running jobs are aborted.
    fn step_down(&mut self) {
        self.role = Role::Follower;
        self.early = None;
        self.env.load.set_commits(false);
        self.env.counters.leads.set(0);
        self.env.counters.queued(Lengths::default());
        self.env.counters.paced(0, 0);
        self.env.counters.held(0);
        self.env.outlet.stepped_down();
        self.hub.rebuild_tables();
    }

    fn progressed(&mut self, done: Done) {
        match (done, &mut self.role) {
            (Done::Job(done), Role::Leading(leading)) => leading.job_done(&mut self.hub, done),
            (Done::Newer(newer), Role::CatchingUp(_)) => self.take_newer(newer),
            (Done::CaughtUp, Role::CatchingUp(_)) => self.lead(),
            (Done::Job(_) | Done::Newer(_) | Done::CaughtUp, _) => {} // of a role that has ended
        }
    }

    fn decided(&mut self, result: DecisionResult) {
        if let Role::Leading(leading) = &mut self.role {
            leading.decided(&mut self.hub, result);
        }
    }

    fn take_reports(&mut self, first: MemberEvent) {
        self.take_report(first);
        for _ in 1..BATCH {
            if self.early.is_some() {
                return;
            }
            let Ok(event) = self.inputs.reports.try_recv() else { return };
            self.take_report(event);
        }
    }

    fn take_arrivals(&mut self, first: Arrival) {
        self.take_arrival(first);
        for _ in 1..BATCH {
            let Ok(arrival) = self.inputs.arrivals.try_recv() else { return };
            self.take_arrival(arrival);
        }
    }

    fn take_report(&mut self, event: MemberEvent) {
        // The sessions of a leadership may begin before its start was handled here.
        if self.inputs.leadership.has_changed().unwrap_or_default() {
            self.follow_leadership();
        }
        match &mut self.role {
            Role::Follower => {}
            Role::CatchingUp(_) | Role::TakingOver(_) => self.early = Some(event),
            Role::Leading(leading) => leading.take_report(&mut self.hub, event),
        }
    }

    fn take_arrival(&mut self, arrival: Arrival) {
        let opens = gates::opening(&arrival.source);
        let Some((touched, urgency)) = self.hub.take_in(arrival) else { return };
        match &mut self.role {
            Role::Leading(leading) => leading.absorb(&mut self.hub, touched, urgency, opens),
            Role::Follower | Role::CatchingUp(_) | Role::TakingOver(_) => {
                self.hub.refresh_objects(&touched);
                self.hub.follow_bindings(&touched);
            }
        }
        self.hub.report_ready();
    }

    /// Somebody plans a change.
    fn copy(&self, ask: Ask) {
        let known = match &self.role {
            Role::Leading(leading) => Some(leading.known(&self.hub)),
            Role::Follower | Role::CatchingUp(_) | Role::TakingOver(_) => None,
        };
        // A caller that has gone needs no copy.
        let _: Result<(), _> = ask.send(known);
    }

    /// History fell behind, or keeps up again.
    fn history_turned(&mut self) {
        self.hub.history_error = match self.hub.history_error {
            None => Some(self.inputs.progress.borrow().failing.clone().unwrap_or_default()),
            Some(_) => None,
        };
        if let Role::Leading(leading) = &mut self.role {
            leading.history_turned(&self.hub);
        }
    }
}

async fn sleep_until(timer: Option<Instant>) {
    match timer {
        Some(at) => tokio::time::sleep_until(at).await,
        None => std::future::pending().await,
    }
}
