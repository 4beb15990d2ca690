//! A client's way to its API server, and everything that can go wrong on it.

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
    /// Connections are refused and open ones are closed.
    Refused,
    /// Everything waits: what was sent arrives when the line is open again, even if nobody waits for the answer any more.
    Held,
}

/// What happens to the events of watches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Weather {
    /// They are lost.
    Lost,
    /// They wait until the weather changes, and come then.
    Behind,
    /// They come twice.
    Twice,
    /// Each comes so much later.
    Late(Duration),
}

/// The moment of a death: at the nth write that counts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fuse {
    /// `METHOD resource` of the writes that count; all but Leases where it is `None`.
    pub site: Option<String>,
    /// Which of them, from 1 on.
    pub nth: u32,
    /// Whether that write still takes effect, its answer lost; otherwise it never left.
    pub after: bool,
}

/// Whose line it is.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Who {
    /// The controller of this number.
    Controller(u32),
    /// The agent of this member.
    Agent(String),
}

/// What lists are asked for that say nothing of how new they are to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Lists {
    /// The newest state, which is what our clients ask for.
    #[default]
    Newest,
    /// Anything that the server has at hand (`resourceVersion=0`), as if our clients asked as client-go's informers do:
    /// what is lost by asking for it.
    AtHand,
}

#[derive(Default)]
struct State {
    latency: Duration,
    fuse: Option<Fuse>,
    /// The API server of an earlier time that answers what may be answered from an earlier time.
    replica: Option<Service>,
    lists: Lists,
}

/// A line of one client. It outlives nothing: a process that starts again gets a new one.
pub(super) struct Line {
    who: Option<Who>,
    flow: watch::Sender<Flow>,
    /// Ends with the process: so do its connections.
    dead: CancellationToken,
    /// Counts up when all watches are to be told that they expired.
    expired: watch::Sender<u64>,
    weather: watch::Sender<Option<Weather>>,
    state: Mutex<State>,
    /// Told when the fuse burns down.
    deaths: Option<mpsc::UnboundedSender<Who>>,
}

impl Line {
    /// A line on which nothing goes wrong but a loss of power.
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
        // Who was refused once is dead, and stays so.
        self.flow
            .send_if_modified(|now| *now != Flow::Refused && std::mem::replace(now, flow) != flow);
    }

    /// Ends with the process.
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

    /// Waits while the line is held; whether requests get through then.
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

    /// The replica at the other end lags behind from now on, or no more.
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

    /// Ends all watches with 410: their clients list again.
    pub(super) fn expire(&self) {
        self.expired.send_modify(|count| *count += 1);
    }

    pub(super) fn lay(&self, fuse: Option<Fuse>) {
        self.state().fuse = fuse;
    }

    /// A write is about to happen: the phase of the death that comes with it, if one does.
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

    /// The process at this end is dead from now on: nothing of it goes out, no answer comes in.
    pub(super) fn die(&self) {
        self.cut();
        if let (Some(deaths), Some(who)) = (&self.deaths, &self.who) {
            // The World is gone: then nobody needs to know.
            let _ = deaths.send(who.clone());
        }
    }

    /// The same without telling anybody: who calls knows.
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
