//! A client's way to its API server, and everything that can go wrong on it.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::{mpsc, watch};

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

/// Answers to lists as they were, by URI: what a replica that lags behind would still say.
pub(super) type OldLists = Arc<Mutex<BTreeMap<String, Bytes>>>;

#[derive(Default)]
struct State {
    weather: Option<Weather>,
    latency: Duration,
    fuse: Option<Fuse>,
    /// Lists are answered from here, each URI once.
    stale: BTreeMap<String, Bytes>,
}

/// A line of one client. It outlives nothing: a process that starts again gets a new one.
pub(super) struct Line {
    who: Option<Who>,
    flow: watch::Sender<Flow>,
    /// Counts up when all watches are to be told that they expired.
    expired: watch::Sender<u64>,
    state: Mutex<State>,
    lists: Option<OldLists>,
    /// Told when the fuse burns down.
    deaths: Option<mpsc::UnboundedSender<Who>>,
}

impl Line {
    /// A line on which nothing goes wrong but a loss of power.
    pub(super) fn plain() -> Arc<Self> {
        Arc::new(Self {
            who: None,
            flow: watch::Sender::new(Flow::Open),
            expired: watch::Sender::new(0),
            state: Mutex::default(),
            lists: None,
            deaths: None,
        })
    }

    pub(super) fn of(who: Who, lists: OldLists, deaths: mpsc::UnboundedSender<Who>) -> Arc<Self> {
        Arc::new(Self {
            who: Some(who),
            flow: watch::Sender::new(Flow::Open),
            expired: watch::Sender::new(0),
            state: Mutex::default(),
            lists: Some(lists),
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
        self.state().weather = weather;
    }

    pub(super) fn weather(&self) -> Option<Weather> {
        self.state().weather
    }

    pub(super) fn set_latency(&self, latency: Duration) {
        self.state().latency = latency;
    }

    pub(super) fn latency(&self) -> Duration {
        self.state().latency
    }

    /// Ends all watches with 410: their clients list again.
    pub(super) fn expire(&self) {
        self.expired.send_modify(|count| *count += 1);
    }

    /// Lists are answered as they were before; each once.
    pub(super) fn go_stale(&self) {
        if let Some(lists) = &self.lists {
            let old = lists.lock().unwrap_or_else(PoisonError::into_inner).clone();
            self.state().stale = old;
        }
    }

    pub(super) fn go_fresh(&self) {
        self.state().stale.clear();
    }

    /// The old answer to this list, if this is the time for it.
    pub(super) fn stale(&self, uri: &str) -> Option<Bytes> {
        self.state().stale.remove(uri)
    }

    /// Keeps the answer to a list, for a time at which it is old.
    pub(super) fn keep_list(&self, uri: String, body: Bytes) {
        if let Some(lists) = &self.lists {
            lists.lock().unwrap_or_else(PoisonError::into_inner).insert(uri, body);
        }
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
        self.flow.send_replace(Flow::Refused);
        if let (Some(deaths), Some(who)) = (&self.deaths, &self.who) {
            // The World is gone: then nobody needs to know.
            let _ = deaths.send(who.clone());
        }
    }

    /// The same without telling anybody: who calls knows.
    pub(super) fn cut(&self) {
        self.flow.send_replace(Flow::Refused);
    }

    /// Number of the controller whose line it is; 0 for others.
    pub(super) fn controller(&self) -> u32 {
        match &self.who {
            Some(Who::Controller(number)) => *number,
            _ => 0,
        }
    }
}
