//! The times by which a member's health is judged.

use std::time::Duration;

/// Times of a member's health. All run on the monotonic clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HealthTimes {
    /// How often an agent with nothing else to say gives a sign of life. 5 s.
    pub heartbeat: Duration,
    /// Silence after which a member is lost: `Ready=Unknown` and the taint `unreachable:NoSchedule`. 15 s, three beats.
    /// An unhealthy member API is believed after as long.
    pub silent_after: Duration,
    /// How long a lost or unhealthy member must be well again before its taints go. 10 s.
    pub settle: Duration,
    /// From the loss to `NoExecute`. 300 s, as Kubernetes' default toleration of an unreachable node.
    pub failover_after: Duration,
    /// How long a new leader judges no member silent: agents need to find it. 30 s.
    pub leader_grace: Duration,
    /// Losses within this time count together when the controller suspects itself. 60 s.
    pub suspicion_window: Duration,
    /// Figures that changed little are written to the Cluster this often. 300 s.
    pub status_interval: Duration,
    /// How often an agent sends its facts at least. 60 s.
    pub facts: Duration,
}

impl Default for HealthTimes {
    fn default() -> Self {
        let seconds = Duration::from_secs;
        Self {
            heartbeat: seconds(5),
            silent_after: seconds(15),
            settle: seconds(10),
            failover_after: seconds(300),
            leader_grace: seconds(30),
            suspicion_window: seconds(60),
            status_interval: seconds(300),
            facts: seconds(60),
        }
    }
}

/// Times that contradict each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum TimesError {
    /// A beat of no length, or longer than the wire can say.
    #[error("heartbeat and facts must be at least 10 ms and less than 49 days")]
    Beat,
    /// One lost beat would be a lost member.
    #[error("silent-after ({silent_after:?}) must be at least twice the heartbeat ({heartbeat:?})")]
    Silent {
        /// As given.
        silent_after: Duration,
        /// As given.
        heartbeat: Duration,
    },
}

impl HealthTimes {
    /// Checks that the times fit together.
    ///
    /// # Errors
    /// When they do not; the error names them.
    pub fn check(&self) -> Result<(), TimesError> {
        let wire =
            |span: Duration| span.as_millis() >= 10 && u32::try_from(span.as_millis()).is_ok();
        if !wire(self.heartbeat) || !wire(self.facts) {
            return Err(TimesError::Beat);
        }
        if self.silent_after < self.heartbeat * 2 {
            let (silent_after, heartbeat) = (self.silent_after, self.heartbeat);
            return Err(TimesError::Silent { silent_after, heartbeat });
        }
        Ok(())
    }

    /// Without a frame for so long a member is quiet: not lost yet, but counted when others are lost. One beat and a
    /// half, so that a member which lives is not counted.
    pub(crate) fn quiet_after(&self) -> Duration {
        self.heartbeat * 3 / 2
    }
}
