//! What can happen in a history.

use std::fmt;
use std::time::Duration;

use super::super::{Events, Fuse, Skew, Way, Who};

/// Kinds of faults.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fault {
    /// A crash before or after a durable write.
    Crash,
    /// A crash between two steps of a decision's way: decided, committed, sent, applied, reported, recorded.
    Gap,
    /// Events are lost, then everything is listed again.
    LostEvents,
    /// Events come twice or late.
    OddEvents,
    /// A view of an earlier time: a replica that lags behind.
    Stale,
    /// A process starts on a replica that lags behind: what it lists is of now, what it watches is of then.
    TimeTravel,
    /// A partition: both ways, one way, flapping.
    Partition,
    /// A leader is held past its lease in mid-write and comes back beside the next one.
    TwoLeaders,
    /// The history database is away, silent, or its answers are lost.
    History,
    /// A slow member.
    Slow,
    /// An object that cannot be placed or applied, or that is very large.
    Poison,
    /// A member comes back empty or from a backup.
    Restored,
    /// A third, two thirds or all of the members are gone at once.
    Mass,
    /// A stream breaks in the middle of a message.
    Break,
    /// A clock on the wall that is wrong.
    Clock,
    /// What an agent keeps on its member is damaged.
    Damage,
}

impl Fault {
    /// All, in the order of their numbers.
    pub const ALL: [Fault; 16] = [
        Self::Crash,
        Self::Gap,
        Self::LostEvents,
        Self::OddEvents,
        Self::Stale,
        Self::TimeTravel,
        Self::Partition,
        Self::TwoLeaders,
        Self::History,
        Self::Slow,
        Self::Poison,
        Self::Restored,
        Self::Mass,
        Self::Break,
        Self::Clock,
        Self::Damage,
    ];

    /// A word for the command line.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Crash => "crash",
            Self::Gap => "gap",
            Self::LostEvents => "lost-events",
            Self::OddEvents => "odd-events",
            Self::Stale => "stale",
            Self::TimeTravel => "time-travel",
            Self::Partition => "partition",
            Self::TwoLeaders => "two-leaders",
            Self::History => "history",
            Self::Slow => "slow",
            Self::Poison => "poison",
            Self::Restored => "restored",
            Self::Mass => "mass",
            Self::Break => "break",
            Self::Clock => "clock",
            Self::Damage => "damage",
        }
    }
}

/// How members go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Going {
    /// Without power.
    Dark,
    /// Behind a partition.
    Cut,
}

/// What of an agent's memory on its member is damaged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Damaged {
    /// Half of the index of kinds and namespaces is gone.
    Index,
    /// The index says nothing that can be read.
    IndexUnreadable,
    /// The hashes of what was applied have a wrong bit.
    Hashes,
    /// Epoch and term of the Lease cannot be read.
    Lease,
}

/// An object that hurts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Poison {
    /// A Deployment with an annotation of 200 KiB.
    Large,
    /// A ConfigMap of 900 KiB on every member.
    Huge,
    /// A policy that names 1,000 clusters which do not exist.
    Crowd,
    /// A Deployment that no member can take: each of its replicas asks for 1,000 processors.
    Greedy,
    /// A ConfigMap whose name a member's own users have taken already.
    Taken,
}

/// One thing that happens.
#[derive(Debug, Clone, PartialEq)]
pub enum Action {
    /// A user makes a workload and its policy.
    Create {
        /// Number of the workload.
        app: u64,
        /// Its replicas.
        replicas: u64,
        /// Seed of its placement.
        placement: u64,
    },
    /// A user deletes a workload.
    Delete {
        /// Number of the workload.
        app: u64,
    },
    /// A user scales.
    Scale {
        /// Number of the workload.
        app: u64,
        /// To so many.
        replicas: u64,
    },
    /// A user changes the image.
    Image {
        /// Number of the workload.
        app: u64,
        /// The new tag.
        tag: u64,
    },
    /// A user changes the policy.
    Place {
        /// Number of the workload.
        app: u64,
        /// Seed of its placement.
        placement: u64,
    },
    /// A process dies at a write, or at the end of the time if there is none; after a while it starts again.
    Die {
        /// Which.
        who: Who,
        /// At which write.
        fuse: Fuse,
        /// How long the write is waited for.
        within: Duration,
        /// How long it is away.
        away: Duration,
    },
    /// Something becomes of a process' events for a time.
    Watches {
        /// Whose.
        who: Who,
        /// What.
        events: Events,
        /// How long.
        span: Duration,
    },
    /// A process' replica falls behind; the process dies and starts again on it.
    Older {
        /// Whose.
        who: Who,
        /// How long it is behind when the process dies.
        after: Duration,
        /// How long it is behind in all.
        span: Duration,
    },
    /// A clock on the wall.
    Clock {
        /// Whose.
        who: Who,
        /// How it is wrong.
        skew: Skew,
        /// How long.
        span: Duration,
    },
    /// What an agent keeps on its member is damaged, and the agent starts again.
    Damage {
        /// Whose.
        member: String,
        /// What.
        what: Damaged,
    },
    /// A partition.
    Cut {
        /// Whose agent.
        member: String,
        /// Which way.
        way: Way,
        /// How long.
        span: Duration,
    },
    /// A partition that comes and goes.
    Flap {
        /// Whose agent.
        member: String,
        /// How long it is cut.
        down: Duration,
        /// How long not.
        up: Duration,
        /// How often.
        times: u32,
    },
    /// The leader's way to the hub is held.
    Hold {
        /// How long; past the lease another leads meanwhile.
        span: Duration,
    },
    /// The history database.
    History {
        /// How it is.
        how: atoll_history::Fault,
        /// How long.
        span: Duration,
    },
    /// A slow member: its network and its API.
    Slow {
        /// Which.
        member: String,
        /// Bytes that its network carries at once.
        bytes: usize,
        /// The pause after them, and what each request to its API takes longer.
        pause: Duration,
        /// How long.
        span: Duration,
    },
    /// An object that hurts, for a time.
    Poisoned {
        /// Which.
        what: Poison,
        /// How long.
        span: Duration,
    },
    /// A member is backed up now, and brought up from that later.
    Restore {
        /// Which.
        member: String,
        /// With nothing at all.
        wiped: bool,
        /// After this.
        later: Duration,
    },
    /// Members go at once and come back.
    Gone {
        /// Which.
        members: Vec<String>,
        /// How.
        how: Going,
        /// How long.
        span: Duration,
    },
    /// A stream breaks.
    Break {
        /// Whose.
        member: String,
        /// After so many bytes to the agent.
        after: usize,
    },
}

impl Action {
    /// What kind of fault it is; `None` for what users do.
    #[must_use]
    pub fn fault(&self) -> Option<Fault> {
        let fault = match self {
            Self::Create { .. }
            | Self::Delete { .. }
            | Self::Scale { .. }
            | Self::Image { .. }
            | Self::Place { .. } => return None,
            Self::Die { fuse, .. } if fuse.site.is_some() => Fault::Gap,
            Self::Die { .. } => Fault::Crash,
            Self::Watches { events: Events::Lost, .. } => Fault::LostEvents,
            Self::Watches { events: Events::Behind, .. } => Fault::Stale,
            Self::Watches { .. } => Fault::OddEvents,
            Self::Older { .. } => Fault::TimeTravel,
            Self::Clock { .. } => Fault::Clock,
            Self::Damage { .. } => Fault::Damage,
            Self::Cut { .. } | Self::Flap { .. } => Fault::Partition,
            Self::Hold { .. } => Fault::TwoLeaders,
            Self::History { .. } => Fault::History,
            Self::Slow { .. } => Fault::Slow,
            Self::Poisoned { .. } => Fault::Poison,
            Self::Restore { .. } => Fault::Restored,
            Self::Gone { .. } => Fault::Mass,
            Self::Break { .. } => Fault::Break,
        };
        Some(fault)
    }
}

/// A line of a script.
#[derive(Debug, Clone, PartialEq)]
pub struct Step {
    /// When, from the beginning of the script.
    pub at: Duration,
    /// What.
    pub action: Action,
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = self.action.fault().map_or("user", Fault::name);
        write!(f, "{:>7.3} s  {kind:<11} {:?}", self.at.as_secs_f64(), self.action)
    }
}
