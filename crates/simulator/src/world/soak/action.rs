//! Actions of a random history.

use std::fmt;
use std::time::Duration;

use super::super::{Events, Fuse, Skew, Way, Who};

/// Kinds of faults.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fault {
    /// A crash before or after a durable write.
    Crash,
    /// A crash between two steps of a decision: decided, committed, sent, applied, reported, recorded.
    Gap,
    /// Events are lost, then everything is listed again.
    LostEvents,
    /// Events are duplicated or delayed.
    OddEvents,
    /// A stale replica.
    Stale,
    /// A process starts on a stale replica: its lists are current, its watches are stale.
    TimeTravel,
    /// A partition: both ways, one way, flapping.
    Partition,
    /// A leader is held past its lease in mid-write and returns beside its successor.
    TwoLeaders,
    /// The history database is unreachable, silent, or loses its answers.
    History,
    /// A slow member.
    Slow,
    /// An object that cannot be placed or applied, or that is very large.
    Poison,
    /// A member comes back empty or from a backup.
    Restored,
    /// A third, two thirds or all of the members fail at once.
    Mass,
    /// A stream breaks in the middle of a message.
    Break,
    /// A wrong wall clock.
    Clock,
    /// Data that an agent keeps on its member is damaged.
    Damage,
    /// Writes are done at once and answered later: their events come first.
    LateAnswers,
    /// A member's user deletes or edits what Atoll applied, or removes fields of it.
    Drift,
}

impl Fault {
    /// All, in the order of their numbers.
    pub const ALL: [Fault; 18] = [
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
        Self::LateAnswers,
        Self::Drift,
    ];

    /// The name on the command line.
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
            Self::LateAnswers => "late-answers",
            Self::Drift => "drift",
        }
    }
}

/// How members fail.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Going {
    /// Without power.
    Dark,
    /// Behind a partition.
    Cut,
}

/// Which of an agent's data on its member is damaged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Damaged {
    /// Half of the index of kinds and namespaces is gone.
    Index,
    /// The index cannot be parsed.
    IndexUnreadable,
    /// The hashes of applied objects have a wrong bit.
    Hashes,
    /// Epoch and term of the Lease cannot be read.
    Lease,
}

/// What a member's user does to the objects that Atoll applied.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tampering {
    /// Deletes them.
    Delete,
    /// Changes their content.
    Edit,
    /// Removes fields, which leaves no trace in managed fields.
    Unset,
}

/// An object that cannot be handled normally.
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
    /// An override policy that cannot be applied on a member.
    Inapplicable,
}

/// One action.
#[derive(Debug, Clone, PartialEq)]
pub enum Action {
    /// A user creates a workload and its policy.
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
        /// New number of replicas.
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
    /// A user changes how a workload's copies differ from member to member.
    Override {
        /// Number of the workload.
        app: u64,
        /// Seed of its rules.
        rules: u64,
    },
    /// A user deletes these rules.
    NoOverride {
        /// Number of the workload.
        app: u64,
    },
    /// A user labels a member.
    Label {
        /// The member.
        member: String,
        /// The value of its label `site`.
        site: u64,
    },
    /// A user creates or changes a ConfigMap that workloads may refer to.
    Config {
        /// Its number.
        number: u64,
        /// Its content.
        text: u64,
    },
    /// A user deletes such a ConfigMap, and creates another one of the name later.
    Missing {
        /// Its number.
        number: u64,
        /// How long it is missing.
        span: Duration,
    },
    /// A user lets a workload refer to a ConfigMap, and says whether what it refers to goes along.
    Depend {
        /// Number of the workload.
        app: u64,
        /// Number of the ConfigMap.
        number: u64,
        /// `propagateDeps` of its policy.
        propagate: bool,
    },
    /// A user limits what all workloads together may use, for a time.
    Quota {
        /// Tenths of a processor.
        tenths: u64,
        /// Duration.
        span: Duration,
    },
    /// A user limits the namespace to the members with a label, for a time.
    Tenancy {
        /// The value of the members' label `site`.
        site: u64,
        /// Duration.
        span: Duration,
    },
    /// A workload must run where the others run, or where none of them runs, for a time.
    Together {
        /// Number of the workload.
        app: u64,
        /// Whether it must keep away from the others.
        apart: bool,
        /// Seed of its placement, during that time and afterwards.
        placement: u64,
        /// Duration.
        span: Duration,
    },
    /// A user sends everything of the namespace to members, for a time or for good.
    Everything {
        /// Number of the member that is left out; the number of members: none.
        left_out: u64,
        /// Duration.
        span: Option<Duration>,
    },
    /// A user gives members amounts of their own, for a time or for good.
    Assign {
        /// Seed of the amounts.
        amounts: u64,
        /// Duration.
        span: Option<Duration>,
    },
    /// A user creates or changes the workload whose replicas its members set; a member's autoscaler sets them later.
    Follow {
        /// Its replicas on the hub.
        replicas: u64,
        /// Seed of its placement.
        placement: u64,
        /// The member.
        member: String,
        /// Its replicas on the member, if it runs there then.
        runs: u64,
        /// Time until the autoscaler acts.
        later: Duration,
    },
    /// A user deletes that workload.
    NoFollow,
    /// An administrator limits what changes by people move, from now on.
    Guard {
        /// Most replicas in a day.
        replicas: u64,
        /// Whether every second minute is frozen.
        freezes: bool,
    },
    /// A user approves every plan that waits.
    Approve,
    /// A member's administrator cordons its nodes, for a time: new pods stay Pending.
    Cordon {
        /// The member.
        member: String,
        /// Duration.
        span: Duration,
    },
    /// A user creates or changes an object of a kind that only a customization knows, and its policy.
    Widget {
        /// Number of the object.
        number: u64,
        /// Its replicas.
        size: u64,
        /// Seed of its placement.
        placement: u64,
    },
    /// A user deletes such an object.
    NoWidget {
        /// Number of the object.
        number: u64,
    },
    /// A process crashes at a write, or at the end of `within` if there is none; it restarts later.
    Die {
        /// The process.
        who: Who,
        /// The write.
        fuse: Fuse,
        /// How long to wait for the write.
        within: Duration,
        /// How long it stays down.
        away: Duration,
    },
    /// A process' watch events have a fault for a time.
    Watches {
        /// The process.
        who: Who,
        /// The fault.
        events: Events,
        /// Duration.
        span: Duration,
    },
    /// A process' replica becomes stale; the process crashes and restarts on it.
    Older {
        /// The process.
        who: Who,
        /// Time from the start of the fault to the crash.
        after: Duration,
        /// Total duration of the fault.
        span: Duration,
    },
    /// A wrong wall clock.
    Clock {
        /// The process.
        who: Who,
        /// The error.
        skew: Skew,
        /// Duration.
        span: Duration,
    },
    /// An agent's data on its member is damaged, and the agent restarts.
    Damage {
        /// The member.
        member: String,
        /// The damaged data.
        what: Damaged,
    },
    /// The answers to a process' writes are late for a time.
    Answers {
        /// The process.
        who: Who,
        /// Time from a write to its answer.
        late: Duration,
        /// Duration.
        span: Duration,
    },
    /// A member's user deletes or edits all that Atoll applied there, or removes fields of it, several times.
    Tamper {
        /// The member.
        member: String,
        /// What happens to the objects.
        what: Tampering,
        /// How many times.
        times: u32,
        /// Pause between them.
        pause: Duration,
    },
    /// A partition.
    Cut {
        /// The agent's member.
        member: String,
        /// Direction.
        way: Way,
        /// Duration.
        span: Duration,
    },
    /// A partition that comes and goes.
    Flap {
        /// The agent's member.
        member: String,
        /// Duration of each cut.
        down: Duration,
        /// Pause between cuts.
        up: Duration,
        /// Number of cuts.
        times: u32,
    },
    /// The leader's traffic to the hub is held.
    Hold {
        /// Duration; past the lease, another controller leads.
        span: Duration,
    },
    /// A fault of the history database.
    History {
        /// The fault.
        how: atoll_history::Fault,
        /// Duration.
        span: Duration,
    },
    /// A slow member: its network and its API.
    Slow {
        /// The member.
        member: String,
        /// Bytes that its network carries at once.
        bytes: usize,
        /// The pause after them, and the added latency of each request to its API.
        pause: Duration,
        /// Duration.
        span: Duration,
    },
    /// A problematic object, for a time.
    Poisoned {
        /// The object.
        what: Poison,
        /// Duration.
        span: Duration,
    },
    /// A member is backed up now and restored from that later.
    Restore {
        /// The member.
        member: String,
        /// Whether it is restored empty.
        wiped: bool,
        /// Time until the restore.
        later: Duration,
    },
    /// Members fail at once and return.
    Gone {
        /// The members.
        members: Vec<String>,
        /// How they fail.
        how: Going,
        /// Duration.
        span: Duration,
    },
    /// A stream breaks.
    Break {
        /// The member.
        member: String,
        /// Bytes to the agent until it breaks.
        after: usize,
    },
}

impl Action {
    /// Whether it is about an object of a customized kind.
    pub(super) fn is_customized(&self) -> bool {
        matches!(self, Self::Widget { .. } | Self::NoWidget { .. })
    }

    /// The kind of fault; `None` for user actions.
    #[must_use]
    pub fn fault(&self) -> Option<Fault> {
        let fault = match self {
            Self::Create { .. }
            | Self::Delete { .. }
            | Self::Scale { .. }
            | Self::Image { .. }
            | Self::Place { .. }
            | Self::Override { .. }
            | Self::NoOverride { .. }
            | Self::Label { .. }
            | Self::Config { .. }
            | Self::Missing { .. }
            | Self::Depend { .. }
            | Self::Quota { .. }
            | Self::Tenancy { .. }
            | Self::Together { .. }
            | Self::Everything { .. }
            | Self::Assign { .. }
            | Self::Follow { .. }
            | Self::NoFollow
            | Self::Guard { .. }
            | Self::Approve
            | Self::Cordon { .. }
            | Self::Widget { .. }
            | Self::NoWidget { .. } => return None,
            Self::Die { fuse, .. } if fuse.site.is_some() => Fault::Gap,
            Self::Die { .. } => Fault::Crash,
            Self::Watches { events: Events::Lost, .. } => Fault::LostEvents,
            Self::Watches { events: Events::Behind, .. } => Fault::Stale,
            Self::Watches { .. } => Fault::OddEvents,
            Self::Older { .. } => Fault::TimeTravel,
            Self::Clock { .. } => Fault::Clock,
            Self::Damage { .. } => Fault::Damage,
            Self::Answers { .. } => Fault::LateAnswers,
            Self::Tamper { .. } => Fault::Drift,
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

/// One step of a script.
#[derive(Debug, Clone, PartialEq)]
pub struct Step {
    /// Time from the start of the script.
    pub at: Duration,
    /// The action.
    pub action: Action,
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = self.action.fault().map_or("user", Fault::name);
        write!(f, "{:>7.3} s  {kind:<12} {:?}", self.at.as_secs_f64(), self.action)
    }
}
