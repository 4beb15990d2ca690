//! A whole federation on one thread: the real controller, real agents, embedded API servers, simulated members.
//!
//! It runs on tokio's paused time, so hours pass in a moment, and everything that is drawn at random comes from one seed.
//! Between agent and controller are streams in memory; over them real TLS is spoken, with identities enrolled by token,
//! unless the World is told to do without ([`Identities`]).
//!
//! ```text
//! test ──▶ Site (hub) ◀── Tap ◀── controller ◀══ Network ══▶ agent ──▶ Tap ──▶ Site (member) ◀── machinery
//!             │            │                                             │           │
//!             ▼            ▼                                             ▼           ▼
//!          Mirror       Ledger (who wrote what, which decisions are durable)      Mirror
//! ```
//!
//! The [`Ledger`](Write) stands where requests pass, so it knows in which order things happened; the mirror follows the
//! watches of all sites. Both check invariants at everything they see, and what they find ends the next wait.

mod builder;
mod clocks;
mod control;
mod database;
mod faults;
mod guarded;
mod invariants;
pub mod kinds;
mod ledger;
mod line;
mod member;
mod mirror;
mod network;
mod records;
mod site;
pub mod soak;
mod stream;
mod tap;
mod view;
mod widgets;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use atoll_api::hex;
use atoll_api::{Clock, DecisionId};
use atoll_apiserver::{Server, Service};
use serde_json::Value;
use sha2::{Digest, Sha256};
use tokio::time::{Instant, sleep_until, timeout_at};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

pub use builder::{Builder, Identities};
pub use clocks::Skew;
pub use faults::{Events, Way};
pub use ledger::{Actor, Mark, Write};
pub use line::{Fuse, Lists, Who};
pub use mirror::RuleId;
pub use site::Site;
pub use view::{View, condition, shares};

use control::{Plan, Running};
use kinds::Kind;
use ledger::Ledger;
use member::WorldMember;
use mirror::Mirror;
use network::Door;
use tokio::sync::mpsc;

/// Longest wait for the World's own tasks to end.
const STOP: Duration = Duration::from_secs(30);
/// Simulated time between two looks for a leader: a fraction of an election.
const LOOK_FOR_LEADER: Duration = Duration::from_millis(100);

/// Runs a test of a World on its own runtime, so that two runs of one seed start in the same state.
///
/// # Panics
/// When the test does, or no runtime can be made.
pub fn simulate<T>(test: impl Future<Output = T>) -> T {
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build();
    match runtime {
        Ok(runtime) => runtime.block_on(test),
        Err(error) => panic!("make a runtime: {error}"),
    }
}

/// A federation. It is a test harness: its methods panic with an explanation when something fails.
pub struct World {
    server: Server,
    hub: Site,
    members: BTreeMap<String, WorldMember>,
    /// Backups of members, oldest first; the first one is of the empty cluster.
    backups: BTreeMap<String, Vec<Server>>,
    controllers: BTreeMap<u32, Running>,
    starts: u32,
    /// Stale API servers, by the process that reads from them.
    replicas: BTreeMap<Who, Service>,
    /// Processes that crashed by a fuse.
    deaths: mpsc::UnboundedSender<Who>,
    died: mpsc::UnboundedReceiver<Who>,
    plan: Plan,
    door: Door,
    ledger: Arc<Ledger>,
    mirror: Arc<Mirror>,
    tasks: TaskTracker,
    token: CancellationToken,
}

impl World {
    /// How a World is made.
    #[must_use]
    pub fn builder() -> Builder {
        Builder::default()
    }

    /// The hub.
    #[must_use]
    pub fn hub(&self) -> &Site {
        &self.hub
    }

    /// A member's API server.
    ///
    /// # Panics
    /// When there is no member of this name.
    #[must_use]
    pub fn member(&self, name: &str) -> &Site {
        &self.member_ref(name).site
    }

    /// Time of day in the World.
    #[must_use]
    pub fn clock(&self) -> Clock {
        self.plan.clocks.right.clone()
    }

    /// The current state of hub and members.
    pub fn read<T>(&self, read: impl FnOnce(&View) -> T) -> T {
        self.mirror.read(read)
    }

    /// Waits, up to `limit` in simulated time, until a condition holds, and returns its result. The condition is
    /// checked after every event of any watch; its error says what is still missing.
    ///
    /// # Panics
    /// When the limit has passed, with the last error and the state of hub and members; when an invariant was broken.
    pub async fn until<T>(
        &self,
        what: &str,
        limit: Duration,
        holds: impl Fn(&View) -> Result<T, String>,
    ) -> T {
        let until = Instant::now() + limit;
        let mut steps = self.mirror.steps();
        loop {
            steps.borrow_and_update();
            self.check();
            let last = match self.mirror.read(&holds) {
                Ok(found) => return found,
                Err(last) => last,
            };
            if timeout_at(until, steps.changed()).await.is_err() {
                let summary = self.mirror.read(View::summary);
                panic!("{what}: not within {limit:?} of simulated time: {last}\n{summary}");
            }
        }
    }

    /// Waits until an object of a site (`hub` or a member) meets a condition, and returns it.
    ///
    /// # Panics
    /// As [`World::until`]; the message has the whole object.
    pub async fn until_object(
        &self,
        site: &str,
        kind: &Kind,
        key: &str,
        what: &str,
        limit: Duration,
        holds: impl Fn(&Value) -> bool,
    ) -> Value {
        let look = |view: &View| {
            let object = view.on(site, kind, key);
            match holds(object) {
                true => Ok(object.clone()),
                false => Err(format!("{} {key} of {site} is {object:#}", kind.kind)),
            }
        };
        self.until(what, limit, look).await
    }

    /// Waits until the observed state equals the desired state (I9): every share runs where it should and nothing else
    /// does.
    ///
    /// # Panics
    /// As [`World::until`].
    pub async fn until_settled(&self, limit: Duration) {
        self.until("settled", limit, invariants::settled).await;
    }

    /// Waits until a controller leads.
    ///
    /// # Panics
    /// When none does within the limit.
    pub async fn until_led(&self, limit: Duration) {
        let until = Instant::now() + limit;
        while self.leaders().is_empty() {
            assert!(Instant::now() < until, "no controller leads within {limit:?}");
            self.rest(LOOK_FOR_LEADER).await;
        }
    }

    /// The last decision of each binding, by the binding's uid.
    #[must_use]
    pub fn decided(&self) -> BTreeMap<String, DecisionId> {
        let decisions = self.ledger.decisions();
        let last = |all: Vec<ledger::Committed>| Some(all.last()?.id.clone());
        decisions.into_iter().filter_map(|(uid, all)| Some((uid, last(all)?))).collect()
    }

    /// Adds a rule that must hold after every event until it is lifted.
    pub fn always(
        &self,
        name: &str,
        rule: impl FnMut(&View) -> Result<(), String> + Send + 'static,
    ) -> RuleId {
        self.mirror.rule(name, Box::new(rule))
    }

    /// Lifts a rule.
    pub fn lift(&self, rule: RuleId) {
        self.mirror.lift(&rule);
    }

    /// A mark for [`World::writes`]: later writes count.
    #[must_use]
    pub fn mark(&self) -> Mark {
        self.ledger.mark()
    }

    /// Matching writes since a mark.
    pub fn writes(&self, since: Mark, counts: impl Fn(&Write) -> bool) -> Vec<Write> {
        self.ledger.since(since, counts)
    }

    /// All distinct requests of an actor to its API server, including reads, as `METHOD uri`.
    #[must_use]
    pub fn requests(&self, of: Actor) -> Vec<String> {
        self.ledger.requests(of)
    }

    /// Number of stale answers that an actor received from API servers that lag behind.
    #[must_use]
    pub fn stale_answers(&self, of: Actor) -> u64 {
        self.ledger.stale_answers(of)
    }

    /// Waits until no matching write has happened for `span`.
    ///
    /// # Panics
    /// When that takes longer than `limit`.
    pub async fn quiet(&self, span: Duration, limit: Duration, counts: impl Fn(&Write) -> bool) {
        let began = Instant::now();
        loop {
            let last = self.ledger.last(&counts).map_or(began, |last| last.max(began));
            if last + span <= Instant::now() {
                return self.check();
            }
            assert!(last + span <= began + limit, "not quiet for {span:?} within {limit:?}");
            sleep_until(last + span).await;
        }
    }

    /// Lets time pass.
    pub async fn rest(&self, span: Duration) {
        tokio::time::sleep(span).await;
        self.check();
    }

    /// Checks that no invariant and no rule was violated so far.
    ///
    /// # Panics
    /// When one was, with all violations.
    pub fn check(&self) {
        let violations = self.ledger.violations();
        if !violations.is_empty() {
            panic!("{}\n{}", violations.join("\n"), self.mirror.read(View::summary));
        }
    }

    /// All events of all watches and all of history, in an order that does not depend on the arrival order across
    /// sites. Two runs of one seed are equal, unless randomness or a wall clock leaked in.
    pub async fn account(&self) -> Vec<String> {
        records::account(self, &self.mirror).await
    }

    /// Hash of [`World::account`], in hex.
    pub async fn digest(&self) -> String {
        let mut hash = Sha256::new();
        for line in self.account().await {
            hash.update(line.as_bytes());
            hash.update([b'\n']);
        }
        hex::encode(&hash.finalize())
    }

    /// Stops everything and checks the invariants a last time, including history.
    ///
    /// # Panics
    /// When one is violated, or a part does not stop.
    pub async fn end(mut self) {
        self.check_history().await;
        for member in self.members.values_mut() {
            member.stop().await;
        }
        for number in self.controllers.keys().copied().collect::<Vec<_>>() {
            self.stop_controller_at(number).await;
        }
        self.check();
        self.token.cancel();
        self.tasks.close();
        if tokio::time::timeout(STOP, self.tasks.wait()).await.is_err() {
            panic!("the World's own tasks do not end");
        }
    }

    fn member_ref(&self, name: &str) -> &WorldMember {
        match self.members.get(name) {
            Some(member) => member,
            None => panic!("there is no member {name}"),
        }
    }

    fn member_mut(&mut self, name: &str) -> &mut WorldMember {
        match self.members.get_mut(name) {
            Some(member) => member,
            None => panic!("there is no member {name}"),
        }
    }
}

impl Drop for World {
    fn drop(&mut self) {
        self.token.cancel();
    }
}
