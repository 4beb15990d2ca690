//! What can be done to a World: power, processes, networks, watches, databases, backups.

use std::time::Duration;

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
    /// Neither hears the other.
    Both,
    /// The controller does not hear the agent.
    ToController,
    /// The agent does not hear the controller.
    ToAgent,
}

/// What becomes of the events of a client's watches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Events {
    /// They come as they should.
    Normal,
    /// They are lost. When that is over the watches expire, so that the client lists again: it never sees what was
    /// between.
    Lost,
    /// None comes until this is over: a replica that lags behind. What is read with `resourceVersion=0` is of the moment
    /// in which it fell behind; everything else is of the newest state still, as API servers guarantee. A process that
    /// starts again meanwhile reads from the same replica.
    Behind,
    /// Every one comes twice.
    Twice,
    /// Every one comes so much later, in order within its watch.
    Late(Duration),
}

impl World {
    /// Takes a member's power: its objects stay, nothing of it acts or answers.
    pub async fn stop_member(&mut self, name: &str) {
        self.mirror.power(name, false);
        self.member_mut(name).stop().await;
    }

    /// Gives a member power, network and an agent.
    pub async fn start_member(&mut self, name: &str) {
        self.mirror.power(name, true);
        let member = self.member_mut(name);
        member.link.up(true);
        member.start().await;
        self.lag(&Who::Agent(name.to_owned()));
    }

    /// Takes the network of a member's agent; its workloads go on.
    pub fn cut_member(&mut self, name: &str) {
        self.member_mut(name).link.up(false);
    }

    /// Cuts the network of a member's agent in these directions, or gives it back.
    pub fn partition(&mut self, name: &str, way: Option<Way>) {
        self.member_mut(name).link.change(|road| {
            road.there = !matches!(way, Some(Way::Both | Way::ToController));
            road.back = !matches!(way, Some(Way::Both | Way::ToAgent));
        });
    }

    /// Makes the network of a member's agent so slow that it carries so many bytes at once with a pause after each; normal
    /// with `None`.
    pub fn slow_network(&mut self, name: &str, pace: Option<(usize, Duration)>) {
        self.member_mut(name).link.change(|road| road.pace = pace);
    }

    /// Breaks the connection of a member's agent once so many more bytes of the controller have arrived.
    pub fn break_stream(&mut self, name: &str, after: Option<usize>) {
        self.member_mut(name).link.break_after(after);
    }

    /// The agent of a member dies; the rest of the member goes on.
    pub async fn crash_agent(&mut self, name: &str) {
        self.member_mut(name).crash_agent().await;
    }

    /// Starts the agent of a member that has power and no agent.
    pub fn start_agent(&mut self, name: &str) {
        self.member_mut(name).start_agent();
        self.lag(&Who::Agent(name.to_owned()));
    }

    /// Keeps what a member holds now, to come back to.
    pub fn back_up(&mut self, name: &str) {
        let count = self.backups.get(name).map_or(0, Vec::len) as u64;
        // Uids that the restored cluster gives out are not those of the one that is lost.
        let seed = self.plan.seed ^ ((count + 1) << 40);
        let backup = copy(self.member_ref(name).server(), &self.plan.clocks.right, seed);
        self.backups.entry(name.to_owned()).or_default().push(backup);
    }

    /// Brings a member up with what it held at an earlier time: the last backup, or nothing at all (`wiped`).
    ///
    /// # Panics
    /// When there is no backup.
    pub async fn restore(&mut self, name: &str, wiped: bool) {
        self.stop_member(name).await;
        let backups = self.backups.get(name).map(Vec::as_slice).unwrap_or_default();
        let backup = if wiped { backups.first() } else { backups.last() };
        let Some(backup) = backup else { panic!("{name} has no backup") };
        // The backup itself stays as it is.
        let seed = self.plan.seed ^ (u64::from(self.starts + 1) << 44);
        self.starts += 1;
        let server = copy(backup, &self.plan.clocks.right, seed);
        // What lagged behind was of the store that is gone.
        self.replicas.remove(&Who::Agent(name.to_owned()));
        let followed = self.token.child_token();
        let member = self.member_mut(name);
        std::mem::replace(&mut member.followed, followed.clone()).cancel();
        member.replace(server.clone());
        self.mirror.forget(name);
        let (client, kinds) = (server.client(), kinds::on_member());
        self.mirror.follow(name, &client, kinds, &self.tasks, &followed).await;
        self.start_member(name).await;
    }

    /// Ends the controller in order.
    pub async fn stop_controller(&mut self) {
        self.stop_controller_at(1).await;
    }

    /// Ends the controller of this number in order.
    pub async fn stop_controller_at(&mut self, number: u32) {
        self.door.close(number);
        if let Some(controller) = self.controllers.remove(&number) {
            controller.stop().await;
        }
    }

    /// Ends the controller in the middle of what it does: not one more request of it reaches the hub.
    pub async fn crash_controller(&mut self) {
        self.crash_controller_at(1).await;
    }

    /// The same with the controller of this number.
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

    /// Starts a controller of this number.
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

    /// Numbers of the controllers that run.
    #[must_use]
    pub fn controllers(&self) -> Vec<u32> {
        self.controllers.keys().copied().collect()
    }

    /// The controllers that believe that they lead. Two at once would be a broken invariant, but for the time in which a
    /// step down is under way.
    #[must_use]
    pub fn leaders(&self) -> Vec<u32> {
        let leading = self.controllers.iter().filter(|(_, controller)| controller.leads());
        leading.map(|(number, _)| *number).collect()
    }

    /// Holds everything between a process and its API server: what it sends arrives when the line is given back, whether
    /// it still waits for it or not.
    pub fn hold(&self, who: &Who, held: bool) {
        self.with_line(who, |line| line.set(if held { Flow::Held } else { Flow::Open }));
    }

    /// Makes every request between a process and its API server take so much longer.
    pub fn slow_api(&self, who: &Who, latency: Duration) {
        self.with_line(who, |line| line.set_latency(latency));
    }

    /// What becomes of the events of a process' watches from now on.
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

    /// A process that started reads from the replica that its forerunner read from.
    fn lag(&self, who: &Who) {
        if let Some(replica) = self.replicas.get(who) {
            self.with_line(who, |line| {
                line.set_replica(Some(replica.clone()));
                line.set_weather(Some(Weather::Behind));
            });
        }
    }

    /// How the clock on a process' wall is wrong from now on; right with `None`.
    pub fn skew(&self, who: &Who, skew: Option<Skew>) {
        self.plan.clocks.set(who, skew);
    }

    /// The API server of a process as that process reaches it, for looking.
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

    /// Makes a process die at one of its writes; or not, with `None`. [`World::death`] tells when it did.
    pub fn lay(&self, who: &Who, fuse: Option<Fuse>) {
        self.with_line(who, |line| line.lay(fuse));
    }

    /// Waits for the next death by a fuse. What is dead still has to be taken away, by a crash.
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
        // A process that does not run has no line, and nothing can happen on it.
        if let Some(line) = line {
            act(line);
        }
    }
}
