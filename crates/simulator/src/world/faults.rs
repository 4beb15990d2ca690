//! Faults of a World: power, processes, networks, watches, databases, backups.

use std::time::Duration;

use atoll_controller::Planner;

use super::builder::copy;
use super::clocks::Skew;
use super::control::Running;
use super::ledger::Actor;
use super::line::{Flow, Fuse, Line, Weather, Who};
use super::tap::{self, HUB};
use super::{World, kinds};

/// Directions in which a partition cuts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// Both directions.
    Both,
    /// From the agent to the controller.
    ToController,
    /// From the controller to the agent.
    ToAgent,
}

/// Fault of the events in a client's watches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Events {
    /// No fault.
    Normal,
    /// Events are lost. Afterwards the watches expire, so that the client lists again: it never sees the states in
    /// between.
    Lost,
    /// Events stop until the fault ends: a stale replica. Reads with `resourceVersion=0` return the state at the start
    /// of the fault; all others still return the newest state, as API servers guarantee. A process that restarts during
    /// the fault reads from the same replica.
    Behind,
    /// Every event is delivered twice.
    Twice,
    /// Every event is delayed by this much, in order within its watch.
    Late(Duration),
}

impl World {
    /// Cuts a member's power: its objects are kept, but none of its parts acts or answers.
    pub async fn stop_member(&mut self, name: &str) {
        self.mirror.power(name, false);
        self.member_mut(name).stop().await;
    }

    /// Restores a member's power, network and agent.
    pub async fn start_member(&mut self, name: &str) {
        self.mirror.power(name, true);
        let member = self.member_mut(name);
        member.link.up(true);
        member.start().await;
        self.lag(&Who::Agent(name.to_owned()));
    }

    /// Cuts the network of a member's agent; its workloads continue.
    pub fn cut_member(&mut self, name: &str) {
        self.member_mut(name).link.up(false);
    }

    /// Cuts the network of a member's agent in this direction, or restores it.
    pub fn partition(&mut self, name: &str, way: Option<Way>) {
        self.member_mut(name).link.change(|road| {
            road.there = !matches!(way, Some(Way::Both | Way::ToController));
            road.back = !matches!(way, Some(Way::Both | Way::ToAgent));
        });
    }

    /// Slows the network of a member's agent: it carries this many bytes at once, with a pause after each; normal with
    /// `None`.
    pub fn slow_network(&mut self, name: &str, pace: Option<(usize, Duration)>) {
        self.member_mut(name).link.change(|road| road.pace = pace);
    }

    /// Breaks the connection of a member's agent after this many more bytes from the controller.
    pub fn break_stream(&mut self, name: &str, after: Option<usize>) {
        self.member_mut(name).link.break_after(after);
    }

    /// Crashes the agent of a member; the rest of the member continues.
    pub async fn crash_agent(&mut self, name: &str) {
        self.member_mut(name).crash_agent().await;
    }

    /// Starts the agent of a member that has power and no agent.
    pub fn start_agent(&mut self, name: &str) {
        self.member_mut(name).start_agent();
        self.lag(&Who::Agent(name.to_owned()));
    }

    /// Takes a backup of a member.
    pub fn back_up(&mut self, name: &str) {
        let count = self.backups.get(name).map_or(0, Vec::len) as u64;
        // The restored cluster must not assign the same uids as the lost one.
        let seed = self.plan.seed ^ ((count + 1) << 40);
        let backup = copy(self.member_ref(name).server(), &self.plan.clocks.right, seed);
        self.backups.entry(name.to_owned()).or_default().push(backup);
    }

    /// Restores a member from its last backup, or empty (`wiped`).
    ///
    /// # Panics
    /// When there is no backup.
    pub async fn restore(&mut self, name: &str, wiped: bool) {
        self.stop_member(name).await;
        let backups = self.backups.get(name).map(Vec::as_slice).unwrap_or_default();
        let backup = if wiped { backups.first() } else { backups.last() };
        let Some(backup) = backup else { panic!("{name} has no backup") };
        // The backup itself is not changed.
        let seed = self.plan.seed ^ (u64::from(self.starts + 1) << 44);
        self.starts += 1;
        let server = copy(backup, &self.plan.clocks.right, seed);
        // A stale replica belonged to the old store.
        self.replicas.remove(&Who::Agent(name.to_owned()));
        let followed = self.token.child_token();
        let member = self.member_mut(name);
        std::mem::replace(&mut member.followed, followed.clone()).cancel();
        member.replace(server.clone());
        self.mirror.forget(name);
        let (client, kinds) = (server.client(), kinds::on_member(self.plan.customized));
        self.mirror.follow(name, &client, kinds, &self.tasks, &followed).await;
        self.start_member(name).await;
    }

    /// Stops the controller gracefully.
    pub async fn stop_controller(&mut self) {
        self.stop_controller_at(1).await;
    }

    /// Stops the controller with this number gracefully.
    pub async fn stop_controller_at(&mut self, number: u32) {
        self.door.close(number);
        if let Some(controller) = self.controllers.remove(&number) {
            controller.stop().await;
        }
    }

    /// Crashes the controller: no further request of it reaches the hub.
    pub async fn crash_controller(&mut self) {
        self.crash_controller_at(1).await;
    }

    /// Crashes the controller with this number.
    pub async fn crash_controller_at(&mut self, number: u32) {
        self.door.close(number);
        if let Some(controller) = self.controllers.remove(&number) {
            controller.crash().await;
        }
    }

    /// Starts a new controller.
    ///
    /// # Panics
    /// When one runs.
    pub fn start_controller(&mut self) {
        self.start_controller_at(1);
    }

    /// Starts the controller with this number.
    ///
    /// # Panics
    /// When it runs.
    pub fn start_controller_at(&mut self, number: u32) {
        assert!(!self.controllers.contains_key(&number), "controller {number} runs");
        self.starts += 1;
        let line = Line::of(Who::Controller(number), self.deaths.clone());
        line.set_lists(self.plan.lists);
        let client = tap::client(&self.server, HUB, Actor::Controller, &self.ledger, &line);
        match Running::start(&self.plan, client, line, number, self.starts) {
            Ok(running) => {
                self.door.open(number, running.arrivals.clone(), running.alive.clone());
                self.controllers.insert(number, running);
                self.lag(&Who::Controller(number));
            }
            Err(error) => panic!("start a controller: {error}"),
        }
    }

    /// Numbers of the running controllers.
    #[must_use]
    pub fn controllers(&self) -> Vec<u32> {
        self.controllers.keys().copied().collect()
    }

    /// A user approves a plan, as `atoll approve` does. One that nothing holds any more is left alone.
    ///
    /// # Panics
    /// When the hub does not take the approval.
    pub async fn approve(&self, plan: &str) {
        self.ledger.approved(plan);
        let clock = self.clock();
        let now = move || clock.now_seconds();
        match atoll_controller::approve(&self.hub.client(), plan, "reviewer", now).await {
            Ok(_) | Err(atoll_controller::ApproveError::NotHeld { .. }) => {}
            Err(error) => panic!("approve {plan}: {error}"),
        }
    }

    /// The controllers that believe they lead. Two at once violate an invariant, except while one is stepping down.
    #[must_use]
    pub fn leaders(&self) -> Vec<u32> {
        let leading = self.controllers.iter().filter(|(_, controller)| controller.leads());
        leading.map(|(number, _)| *number).collect()
    }

    /// The planners of the controllers that believe they lead.
    #[must_use]
    pub fn planners(&self) -> Vec<Planner> {
        let leading = self.controllers.values().filter(|controller| controller.leads());
        leading.map(|controller| controller.planner.clone()).collect()
    }

    /// Holds all traffic between a process and its API server: requests arrive when the line is released, even if the
    /// process no longer waits for the answer.
    pub fn hold(&self, who: &Who, held: bool) {
        self.with_line(who, |line| line.set(if held { Flow::Held } else { Flow::Open }));
    }

    /// Adds latency to every request between a process and its API server.
    pub fn slow_api(&self, who: &Who, latency: Duration) {
        self.with_line(who, |line| line.set_latency(latency));
    }

    /// Delays the answers to a process' writes, which are done at once.
    pub fn late_answers(&self, who: &Who, by: Duration) {
        self.with_line(who, |line| line.set_late(by));
    }

    /// Sets the fault of the events in a process' watches.
    pub fn events(&mut self, who: &Who, events: Events) {
        match events {
            Events::Behind if !self.replicas.contains_key(who) => {
                let server = match who {
                    Who::Controller(_) => &self.server,
                    Who::Agent(name) => self.member_ref(name).server(),
                };
                // It writes nothing, so its seed does not matter.
                let replica = copy(server, &self.plan.clocks.right, self.plan.seed).service();
                self.replicas.insert(who.clone(), replica);
            }
            Events::Behind => {}
            _ => drop(self.replicas.remove(who)),
        }
        let replica = self.replicas.get(who).cloned();
        self.with_line(who, |line| {
            line.set_replica(replica);
            let before = *line.weather().borrow();
            line.set_weather(match events {
                Events::Normal => None,
                Events::Lost => Some(Weather::Lost),
                Events::Behind => Some(Weather::Behind),
                Events::Twice => Some(Weather::Twice),
                Events::Late(by) => Some(Weather::Late(by)),
            });
            if before == Some(Weather::Lost) && events != Events::Lost {
                line.expire();
            }
        });
    }

    /// A restarted process reads from the same stale replica as before.
    fn lag(&self, who: &Who) {
        if let Some(replica) = self.replicas.get(who) {
            self.with_line(who, |line| {
                line.set_replica(Some(replica.clone()));
                line.set_weather(Some(Weather::Behind));
            });
        }
    }

    /// Sets the error of a process' wall clock; right with `None`.
    pub fn skew(&self, who: &Who, skew: Option<Skew>) {
        self.plan.clocks.set(who, skew);
    }

    /// A client for the API server of a process, over that process' line.
    ///
    /// # Panics
    /// When the process does not run.
    #[must_use]
    pub fn client_of(&self, who: &Who) -> kube::Client {
        let (server, line, actor) = match who {
            Who::Controller(number) => (
                &self.server,
                self.controllers.get(number).map(|running| &running.line),
                Actor::Controller,
            ),
            Who::Agent(name) => {
                let member = self.member_ref(name);
                (member.server(), member.line(), Actor::Agent)
            }
        };
        let Some(line) = line else { panic!("{who:?} does not run") };
        tap::client(server, HUB, actor, &self.ledger, line)
    }

    /// Makes a process crash at one of its writes; `None` cancels that. [`World::death`] reports the crash.
    pub fn lay(&self, who: &Who, fuse: Option<Fuse>) {
        self.with_line(who, |line| line.lay(fuse));
    }

    /// Waits for the next crash by a fuse. The caller must still clean up with a crash method.
    pub async fn death(&mut self) -> Who {
        match self.died.recv().await {
            Some(who) => who,
            // The World holds a sender itself.
            None => std::future::pending().await,
        }
    }

    fn with_line(&self, who: &Who, act: impl FnOnce(&Line)) {
        let line = match who {
            Who::Controller(number) => self.controllers.get(number).map(|running| &running.line),
            Who::Agent(name) => self.members.get(name).and_then(|member| member.line()),
        };
        // A process that does not run has no line.
        if let Some(line) = line {
            act(line);
        }
    }
}
