//! Times that determine a member's health.

use std::time::Duration;

/// Times of a member's health. All run on the monotonic clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HealthTimes {
    /// Heartbeat interval of an idle agent. 5 s.
    pub heartbeat: Duration,
    /// Silence after which a member is lost: `Ready=Unknown` and the taint `unreachable:NoSchedule`. 15 s, three
    /// heartbeats. An unhealthy member API counts after the same time.
    pub silent_after: Duration,
    /// How long a lost or unhealthy member must be healthy again before its taints are removed. 10 s.
    pub settle: Duration,
    /// From the loss to `NoExecute`. 300 s, like Kubernetes' default toleration of an unreachable node.
    pub failover_after: Duration,
    /// How long a new leader treats no member as silent: agents need time to find it. 30 s.
    pub leader_grace: Duration,
    /// Losses within this time count together for the controller's self-suspicion. 60 s.
    pub suspicion_window: Duration,
    /// Interval of status writes for small changes of figures. 300 s.
    pub status_interval: Duration,
    /// Longest interval between an agent's facts. 60 s.
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
    /// The heartbeat is zero, or too long for the protocol.
    #[error("heartbeat and facts must be at least 10 ms and less than 49 days")]
    Beat,
    /// A single lost heartbeat would mean a lost member.
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

    /// Silence after which a member is quiet: not lost yet, but counted when others are lost. One and a half
    /// heartbeats, so that a healthy member is not counted.
    pub(crate) fn quiet_after(&self) -> Duration {
        self.heartbeat * 3 / 2
    }
}
