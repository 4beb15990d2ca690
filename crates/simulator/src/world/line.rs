//! A client's connection to its API server, with fault injection.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use atoll_apiserver::Service;
use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;

/// Whether requests get through.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Flow {
    /// They do.
    Open,
    /// New connections are refused and open ones are closed.
    Refused,
    /// Everything waits: requests arrive when the line is open again, even if the client no longer waits for the
    /// answer.
    Held,
}

/// Fault of watch events.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Weather {
    /// Events are lost.
    Lost,
    /// Events wait until the fault ends.
    Behind,
    /// Events are delivered twice.
    Twice,
    /// Each event is delayed by this much.
    Late(Duration),
}

/// The moment of a crash: at the nth matching write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fuse {
    /// `METHOD resource` of the matching writes; with `None`, all except Leases.
    pub site: Option<String>,
    /// Which of them, from 1.
    pub nth: u32,
    /// Whether that write still takes effect, with its answer lost; otherwise it is never sent.
    pub after: bool,
}

/// The process at the end of a line.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Who {
    /// The controller of this number.
    Controller(u32),
    /// The agent of this member.
    Agent(String),
}

/// What lists request that do not specify a resource version.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Lists {
    /// The newest state, which is what our clients ask for.
    #[default]
    Newest,
    /// Any version that the server has cached (`resourceVersion=0`), as client-go's informers request: shows what that
    /// would break.
    AtHand,
}

#[derive(Default)]
struct State {
    latency: Duration,
    /// Time from a write to its answer.
    late: Duration,
    fuse: Option<Fuse>,
    /// The stale API server that answers the reads that may be stale.
    replica: Option<Service>,
    lists: Lists,
}

/// The line of one client. A restarted process gets a new one.
pub(super) struct Line {
    who: Option<Who>,
    flow: watch::Sender<Flow>,
    /// Cancelled when the process ends, together with its connections.
    dead: CancellationToken,
    /// Incremented to expire all watches.
    expired: watch::Sender<u64>,
    weather: watch::Sender<Option<Weather>>,
    state: Mutex<State>,
    /// Notified when the fuse fires.
    deaths: Option<mpsc::UnboundedSender<Who>>,
}

impl Line {
    /// A line without faults except loss of power.
    pub(super) fn plain() -> Arc<Self> {
        Arc::new(Self {
            who: None,
            flow: watch::Sender::new(Flow::Open),
            dead: CancellationToken::new(),
            expired: watch::Sender::new(0),
            weather: watch::Sender::new(None),
            state: Mutex::default(),
            deaths: None,
        })
    }

    pub(super) fn of(who: Who, deaths: mpsc::UnboundedSender<Who>) -> Arc<Self> {
        Arc::new(Self {
            who: Some(who),
            flow: watch::Sender::new(Flow::Open),
            dead: CancellationToken::new(),
            expired: watch::Sender::new(0),
            weather: watch::Sender::new(None),
            state: Mutex::default(),
            deaths: Some(deaths),
        })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Nothing panics while it holds the lock.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn set(&self, flow: Flow) {
        // A refused process is dead, and stays so.
        self.flow
            .send_if_modified(|now| *now != Flow::Refused && std::mem::replace(now, flow) != flow);
    }

    /// Cancelled when the process ends.
    pub(super) fn dead(&self) -> CancellationToken {
        self.dead.clone()
    }

    pub(super) fn flow(&self) -> Flow {
        *self.flow.borrow()
    }

    pub(super) fn flows(&self) -> watch::Receiver<Flow> {
        self.flow.subscribe()
    }

    pub(super) fn expirations(&self) -> watch::Receiver<u64> {
        self.expired.subscribe()
    }

    /// Waits while the line is held; returns whether requests get through then.
    pub(super) async fn released(&self) -> bool {
        let mut flow = self.flow.subscribe();
        // The sender is this line's own.
        flow.wait_for(|flow| *flow != Flow::Held).await.is_ok_and(|flow| *flow == Flow::Open)
    }

    pub(super) fn set_weather(&self, weather: Option<Weather>) {
        self.weather.send_replace(weather);
    }

    pub(super) fn weather(&self) -> watch::Receiver<Option<Weather>> {
        self.weather.subscribe()
    }

    pub(super) fn set_latency(&self, latency: Duration) {
        self.state().latency = latency;
    }

    pub(super) fn latency(&self) -> Duration {
        self.state().latency
    }

    pub(super) fn set_late(&self, late: Duration) {
        self.state().late = late;
    }

    /// Time from a write to its answer.
    pub(super) fn late(&self) -> Duration {
        self.state().late
    }

    /// Sets or removes the stale replica at the other end.
    pub(super) fn set_replica(&self, replica: Option<Service>) {
        self.state().replica = replica;
    }

    pub(super) fn replica(&self) -> Option<Service> {
        self.state().replica.clone()
    }

    pub(super) fn set_lists(&self, lists: Lists) {
        self.state().lists = lists;
    }

    pub(super) fn lists(&self) -> Lists {
        self.state().lists
    }

    /// Ends all watches with 410, so that their clients list again.
    pub(super) fn expire(&self) {
        self.expired.send_modify(|count| *count += 1);
    }

    pub(super) fn lay(&self, fuse: Option<Fuse>) {
        self.state().fuse = fuse;
    }

    /// Called before a write: the phase of the crash that it triggers, if any.
    pub(super) fn burn(&self, method: &str, resource: &str) -> Option<bool> {
        let mut state = self.state();
        let fuse = state.fuse.as_mut()?;
        let counts = match &fuse.site {
            Some(site) => site.split_once(' ') == Some((method, resource)),
            None => resource != "leases",
        };
        if !counts {
            return None;
        }
        fuse.nth = fuse.nth.saturating_sub(1);
        if fuse.nth > 0 {
            return None;
        }
        let after = fuse.after;
        state.fuse = None;
        Some(after)
    }

    /// Crashes the process: it sends nothing and receives no answer any more.
    pub(super) fn die(&self) {
        self.cut();
        if let (Some(deaths), Some(who)) = (&self.deaths, &self.who) {
            // The World is gone, so no receiver is left.
            let _ = deaths.send(who.clone());
        }
    }

    /// As [`Self::die`], but without a notification, for callers that end the process themselves.
    pub(super) fn cut(&self) {
        self.flow.send_replace(Flow::Refused);
        self.dead.cancel();
    }

    /// Number of the controller whose line it is; 0 for others.
    pub(super) fn controller(&self) -> u32 {
        match &self.who {
            Some(Who::Controller(number)) => *number,
            _ => 0,
        }
    }
}
