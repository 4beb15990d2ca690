//! Heartbeats of one member, and its resulting state. Synchronous; callers pass the time.

use std::time::Duration;

use tokio::time::Instant;

use super::times::HealthTimes;

/// The member's API as reported by the agent.
#[derive(Debug, Clone, PartialEq, Eq)]
enum ApiReport {
    /// No report yet.
    Unknown,
    Healthy {
        since: Instant,
    },
    Unhealthy {
        since: Instant,
        message: String,
    },
}

/// State of a member.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum HealthState {
    /// No agent has connected yet; `overdue` when that has lasted for the silence limit.
    NotJoined { overdue: bool },
    /// A session, with the state of the member's API unknown.
    Joining,
    /// A session, and the member's API answers.
    Healthy,
    /// No session now, but not for long enough to count.
    Disconnected,
    /// Its API does not answer.
    ApiUnhealthy { message: String, since: Instant },
    /// Silent since.
    Lost { since: Instant },
}

/// The change of an evaluation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum HealthChange {
    None,
    /// Now lost.
    Lost,
    /// No longer lost.
    Back,
    /// Another change of its state.
    Other,
}

/// A member's category when losses are counted together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Presence {
    /// Never connected.
    Absent,
    Live,
    /// No frame for longer than [`HealthTimes::quiet_after`]; not lost.
    Quiet,
    /// Counted as lost at this time.
    Lost(Instant),
}

#[derive(Debug)]
pub(crate) struct HeartbeatTracker {
    /// Silence counts from this time on.
    baseline: Instant,
    frame: Option<Instant>,
    session: Option<Instant>,
    joined: bool,
    overdue: bool,
    /// (start of the silence, time of the judgement).
    lost: Option<(Instant, Instant)>,
    api: ApiReport,
    /// Considered unhealthy since.
    api_unhealthy: Option<Instant>,
}

impl HeartbeatTracker {
    /// For a member first seen at `now`; `joined` = it had a session before, perhaps with another controller.
    pub(crate) fn new(now: Instant, joined: bool) -> Self {
        Self {
            baseline: now,
            frame: None,
            session: None,
            joined,
            overdue: false,
            lost: None,
            api: ApiReport::Unknown,
            api_unhealthy: None,
        }
    }

    /// It was already lost, for this long, when this controller first saw it.
    pub(crate) fn was_lost(&mut self, now: Instant, ago: Duration) {
        let since = now.checked_sub(ago).unwrap_or(now);
        self.lost = Some((since, since));
    }

    /// No silence is counted before `baseline`.
    pub(crate) fn count_silence_from(&mut self, baseline: Instant) {
        self.baseline = self.baseline.max(baseline);
    }

    /// The controller's self-suspicion ended: a continuing loss counts from now. A member that returns slightly later
    /// than the others had the same cause.
    pub(crate) fn count_loss_from(&mut self, now: Instant) {
        if let Some((since, _)) = &mut self.lost {
            *since = (*since).max(now);
        }
    }

    /// Another controller reported a session at `now`: silence here counts from then on.
    pub(crate) fn connected_elsewhere(&mut self, now: Instant) {
        if !std::mem::replace(&mut self.joined, true) {
            self.count_silence_from(now);
        }
    }

    pub(crate) fn started(&mut self, now: Instant) {
        self.session = Some(now);
        self.joined = true;
        self.frame(now);
    }

    pub(crate) fn frame(&mut self, now: Instant) {
        self.frame = Some(now);
    }

    pub(crate) fn ended(&mut self) {
        self.session = None;
    }

    /// The agent's report about the API. Returns whether that alone changes the state, which only the first report
    /// does.
    pub(crate) fn api(&mut self, now: Instant, healthy: bool, message: &str) -> bool {
        let first = self.api == ApiReport::Unknown;
        match (&mut self.api, healthy) {
            (ApiReport::Healthy { .. }, true) => (),
            (ApiReport::Unhealthy { message: old, .. }, false) => message.clone_into(old),
            (api, true) => *api = ApiReport::Healthy { since: now },
            (api, false) => *api = ApiReport::Unhealthy { since: now, message: message.to_owned() },
        }
        first
    }

    /// Time since the last message of the member, or since silence counts.
    pub(crate) fn silence(&self, now: Instant) -> Duration {
        let heard = self.frame.map_or(self.baseline, |frame| frame.max(self.baseline));
        now.saturating_duration_since(heard)
    }

    pub(crate) fn presence(&self, now: Instant, times: &HealthTimes) -> Presence {
        match self.lost {
            _ if !self.joined && self.session.is_none() => Presence::Absent,
            Some((_, judged)) => Presence::Lost(judged),
            None if self.silence(now) >= times.quiet_after() => Presence::Quiet,
            None => Presence::Live,
        }
    }

    /// Evaluates the state at `now`.
    pub(crate) fn judge(&mut self, now: Instant, times: &HealthTimes) -> HealthChange {
        self.judge_with(now, times, times.silent_after)
    }

    /// As [`HeartbeatTracker::judge`], with the time for which the member's API must be unhealthy before it counts.
    pub(crate) fn judge_with(
        &mut self,
        now: Instant,
        times: &HealthTimes,
        unhealthy_after: Duration,
    ) -> HealthChange {
        let silence = self.silence(now);
        if silence >= times.silent_after {
            if self.lost.is_none() && self.joined {
                self.lost = Some((now.checked_sub(silence).unwrap_or(now), now));
                self.api_unhealthy = None;
                return HealthChange::Lost;
            }
            let overdue = !self.joined && !std::mem::replace(&mut self.overdue, true);
            return if overdue { HealthChange::Other } else { HealthChange::None };
        }
        let stable = |since: Instant, span| now.saturating_duration_since(since) >= span;
        if let Some(session) = self.session
            && self.lost.is_some()
            && stable(session, times.settle)
        {
            self.lost = None;
            return HealthChange::Back;
        }
        match (&self.api, self.api_unhealthy) {
            (ApiReport::Unhealthy { since, .. }, None) if stable(*since, unhealthy_after) => {
                self.api_unhealthy = Some(*since);
                HealthChange::Other
            }
            (ApiReport::Healthy { since }, Some(_)) if stable(*since, times.settle) => {
                self.api_unhealthy = None;
                HealthChange::Other
            }
            _ => HealthChange::None,
        }
    }

    pub(crate) fn health(&self) -> HealthState {
        if let Some((since, _)) = self.lost {
            return HealthState::Lost { since };
        }
        if self.session.is_none() {
            return if self.joined {
                HealthState::Disconnected
            } else {
                HealthState::NotJoined { overdue: self.overdue }
            };
        }
        match (&self.api, self.api_unhealthy) {
            (ApiReport::Unhealthy { message, .. }, Some(since)) => {
                HealthState::ApiUnhealthy { message: message.clone(), since }
            }
            (ApiReport::Healthy { .. }, Some(since)) => {
                HealthState::ApiUnhealthy { message: "its API answers again".to_owned(), since }
            }
            (ApiReport::Unknown, _) => HealthState::Joining,
            (ApiReport::Healthy { .. } | ApiReport::Unhealthy { .. }, None) => HealthState::Healthy,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn tracker(joined: bool) -> (HeartbeatTracker, Instant, HealthTimes) {
        let now = Instant::now();
        (HeartbeatTracker::new(now, joined), now, HealthTimes::default())
    }

    #[tokio::test]
    async fn silence_of_fifteen_seconds_is_a_loss_and_ten_good_seconds_end_it() {
        let (mut member, start, times) = tracker(false);
        assert_eq!(member.health(), HealthState::NotJoined { overdue: false });
        assert_eq!(member.judge(start + 14 * SECOND, &times), HealthChange::None);
        assert_eq!(
            member.judge(start + 15 * SECOND, &times),
            HealthChange::Other,
            "no agent has joined yet"
        );
        assert_eq!(member.judge(start + 60 * SECOND, &times), HealthChange::None);
        assert_eq!(member.health(), HealthState::NotJoined { overdue: true });
        member.started(start + 60 * SECOND);
        assert_eq!(member.health(), HealthState::Joining);
        assert!(member.api(start + 60 * SECOND, true, ""));
        assert_eq!(member.health(), HealthState::Healthy);

        let last = start + 70 * SECOND;
        member.frame(last);
        member.ended();
        assert_eq!(
            member.health(),
            HealthState::Disconnected,
            "the end of a session alone is no loss"
        );
        assert_eq!(member.judge(last + 14 * SECOND, &times), HealthChange::None);
        assert_eq!(member.judge(last + 15 * SECOND, &times), HealthChange::Lost);
        assert_eq!(member.health(), HealthState::Lost { since: last });

        let back = last + 20 * SECOND;
        member.started(back);
        member.api(back, true, "");
        member.frame(back + 9 * SECOND);
        assert_eq!(member.judge(back + 9 * SECOND, &times), HealthChange::None, "hysteresis");
        assert_eq!(member.judge(back + 10 * SECOND, &times), HealthChange::Back);
        assert_eq!(member.health(), HealthState::Healthy);
    }

    #[tokio::test]
    async fn a_session_without_frames_is_a_loss_too_and_flapping_keeps_it_lost() {
        let (mut member, start, times) = tracker(true);
        member.started(start);
        member.judge(start, &times);
        assert_eq!(member.judge(start + 15 * SECOND, &times), HealthChange::Lost);
        for flap in 1..10 {
            let at = start + 15 * SECOND + flap * 5 * SECOND;
            member.started(at);
            assert_eq!(member.judge(at + 4 * SECOND, &times), HealthChange::None);
            member.ended();
        }
        assert_eq!(member.health(), HealthState::Lost { since: start });
    }

    #[tokio::test]
    async fn a_loss_that_outlasts_suspicion_counts_from_its_end() {
        let (mut member, start, times) = tracker(true);
        member.started(start);
        member.judge(start + 400 * SECOND, &times);
        assert_eq!(member.health(), HealthState::Lost { since: start });
        member.count_loss_from(start + 500 * SECOND);
        assert_eq!(member.health(), HealthState::Lost { since: start + 500 * SECOND });
        assert_eq!(
            member.presence(start + 500 * SECOND, &times),
            Presence::Lost(start + 400 * SECOND),
            "when it was judged stays"
        );
        member.started(start + 505 * SECOND);
        member.frame(start + 515 * SECOND);
        assert_eq!(member.judge(start + 515 * SECOND, &times), HealthChange::Back);
        member.count_loss_from(start + 520 * SECOND);
        assert_eq!(member.health(), HealthState::Joining, "a connected member is not lost by it");
    }

    #[tokio::test]
    async fn a_new_leader_counts_no_silence_during_its_grace_period() {
        let (mut member, start, times) = tracker(true);
        member.count_silence_from(start + times.leader_grace - times.silent_after);
        assert_eq!(member.judge(start + 29 * SECOND, &times), HealthChange::None);
        assert_eq!(member.judge(start + 30 * SECOND, &times), HealthChange::Lost);
    }

    #[tokio::test]
    async fn an_api_must_be_unhealthy_or_healthy_for_a_while() {
        let (mut member, start, times) = tracker(true);
        member.started(start);
        let at = |seconds: u32| start + seconds * SECOND;
        member.api(start, true, "");
        member.api(at(1), false, "connection refused");
        for second in 1..16 {
            member.frame(at(second));
            assert_eq!(member.judge(at(second), &times), HealthChange::None);
            assert_eq!(member.health(), HealthState::Healthy);
        }
        member.frame(at(16));
        assert_eq!(member.judge(at(16), &times), HealthChange::Other);
        let message = "connection refused".to_owned();
        assert_eq!(member.health(), HealthState::ApiUnhealthy { message, since: at(1) });
        member.api(at(20), true, "");
        member.frame(at(29));
        assert_eq!(member.judge(at(29), &times), HealthChange::None);
        member.frame(at(30));
        assert_eq!(member.judge(at(30), &times), HealthChange::Other);
        assert_eq!(member.health(), HealthState::Healthy);
    }
}
