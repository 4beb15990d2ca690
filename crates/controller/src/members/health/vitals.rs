//! Heartbeats of one member, and its resulting state. Synchronous; callers pass the time.

use std::time::Duration;

use tokio::time::Instant;

use super::times::HealthTimes;

/// The member's API as reported by the agent.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Api {
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
pub(crate) enum Standing {
    /// No agent has connected yet; `overdue` when that has lasted for the silence limit.
    NotJoined { overdue: bool },
    /// A session, with the state of the member's API unknown.
    Joining,
    /// Healthy.
    Well,
    /// No session now, but not for long enough to count.
    Away,
    /// Its API does not answer.
    Sick { message: String, since: Instant },
    /// Silent since.
    Lost { since: Instant },
}

/// The change of an evaluation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Turn {
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
pub(crate) struct Vitals {
    /// Silence counts from this time on.
    baseline: Instant,
    frame: Option<Instant>,
    session: Option<Instant>,
    joined: bool,
    overdue: bool,
    /// (start of the silence, time of the judgement).
    lost: Option<(Instant, Instant)>,
    api: Api,
    /// Considered unhealthy since.
    sick: Option<Instant>,
}

impl Vitals {
    /// For a member first seen at `now`; `joined` = it had a session before, perhaps with another controller.
    pub(crate) fn new(now: Instant, joined: bool) -> Self {
        Self {
            baseline: now,
            frame: None,
            session: None,
            joined,
            overdue: false,
            lost: None,
            api: Api::Unknown,
            sick: None,
        }
    }

    /// It was already lost, for this long, when this controller first saw it.
    pub(crate) fn was_lost(&mut self, now: Instant, ago: Duration) {
        let since = now.checked_sub(ago).unwrap_or(now);
        self.lost = Some((since, since));
    }

    /// No silence is counted before `baseline`.
    pub(crate) fn forgive(&mut self, baseline: Instant) {
        self.baseline = self.baseline.max(baseline);
    }

    /// The controller's self-suspicion ended: a continuing loss counts from now. A member that returns slightly later
    /// than the others had the same cause.
    pub(crate) fn count_anew(&mut self, now: Instant) {
        if let Some((since, _)) = &mut self.lost {
            *since = (*since).max(now);
        }
    }

    /// Another controller reported a session at `now`: silence here counts from then on.
    pub(crate) fn came(&mut self, now: Instant) {
        if !std::mem::replace(&mut self.joined, true) {
            self.forgive(now);
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
        let first = self.api == Api::Unknown;
        match (&mut self.api, healthy) {
            (Api::Healthy { .. }, true) => (),
            (Api::Unhealthy { message: old, .. }, false) => message.clone_into(old),
            (api, true) => *api = Api::Healthy { since: now },
            (api, false) => *api = Api::Unhealthy { since: now, message: message.to_owned() },
        }
        first
    }

    fn silence(&self, now: Instant) -> Duration {
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
    pub(crate) fn judge(&mut self, now: Instant, times: &HealthTimes) -> Turn {
        let silence = self.silence(now);
        if silence >= times.silent_after {
            if self.lost.is_none() && self.joined {
                self.lost = Some((now.checked_sub(silence).unwrap_or(now), now));
                self.sick = None;
                return Turn::Lost;
            }
            let overdue = !self.joined && !std::mem::replace(&mut self.overdue, true);
            return if overdue { Turn::Other } else { Turn::None };
        }
        let stable = |since: Instant, span| now.saturating_duration_since(since) >= span;
        if let Some(session) = self.session
            && self.lost.is_some()
            && stable(session, times.settle)
        {
            self.lost = None;
            return Turn::Back;
        }
        let believed = times.silent_after;
        #[cfg(test)]
        let believed = match crate::mutants::is(crate::mutants::Mutant::SickAtOnce) {
            true => Duration::ZERO,
            false => believed,
        };
        match (&self.api, self.sick) {
            (Api::Unhealthy { since, .. }, None) if stable(*since, believed) => {
                self.sick = Some(*since);
                Turn::Other
            }
            (Api::Healthy { since }, Some(_)) if stable(*since, times.settle) => {
                self.sick = None;
                Turn::Other
            }
            _ => Turn::None,
        }
    }

    pub(crate) fn standing(&self) -> Standing {
        if let Some((since, _)) = self.lost {
            return Standing::Lost { since };
        }
        if self.session.is_none() {
            return if self.joined {
                Standing::Away
            } else {
                Standing::NotJoined { overdue: self.overdue }
            };
        }
        match (&self.api, self.sick) {
            (Api::Unhealthy { message, .. }, Some(since)) => {
                Standing::Sick { message: message.clone(), since }
            }
            (Api::Healthy { .. }, Some(since)) => {
                Standing::Sick { message: "its API answers again".to_owned(), since }
            }
            (Api::Unknown, _) => Standing::Joining,
            (Api::Healthy { .. } | Api::Unhealthy { .. }, None) => Standing::Well,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn vitals(joined: bool) -> (Vitals, Instant, HealthTimes) {
        let now = Instant::now();
        (Vitals::new(now, joined), now, HealthTimes::default())
    }

    #[tokio::test]
    async fn silence_of_fifteen_seconds_is_a_loss_and_ten_good_seconds_end_it() {
        let (mut member, start, times) = vitals(false);
        assert_eq!(member.standing(), Standing::NotJoined { overdue: false });
        assert_eq!(member.judge(start + 14 * SECOND, &times), Turn::None);
        assert_eq!(member.judge(start + 15 * SECOND, &times), Turn::Other, "nobody to lose yet");
        assert_eq!(member.judge(start + 60 * SECOND, &times), Turn::None);
        assert_eq!(member.standing(), Standing::NotJoined { overdue: true });
        member.started(start + 60 * SECOND);
        assert_eq!(member.standing(), Standing::Joining);
        assert!(member.api(start + 60 * SECOND, true, ""));
        assert_eq!(member.standing(), Standing::Well);

        let last = start + 70 * SECOND;
        member.frame(last);
        member.ended();
        assert_eq!(member.standing(), Standing::Away, "the end of a session alone is no loss");
        assert_eq!(member.judge(last + 14 * SECOND, &times), Turn::None);
        assert_eq!(member.judge(last + 15 * SECOND, &times), Turn::Lost);
        assert_eq!(member.standing(), Standing::Lost { since: last });

        let back = last + 20 * SECOND;
        member.started(back);
        member.api(back, true, "");
        member.frame(back + 9 * SECOND);
        assert_eq!(member.judge(back + 9 * SECOND, &times), Turn::None, "hysteresis");
        assert_eq!(member.judge(back + 10 * SECOND, &times), Turn::Back);
        assert_eq!(member.standing(), Standing::Well);
    }

    #[tokio::test]
    async fn a_session_without_frames_is_a_loss_too_and_flapping_keeps_it_lost() {
        let (mut member, start, times) = vitals(true);
        member.started(start);
        member.judge(start, &times);
        assert_eq!(member.judge(start + 15 * SECOND, &times), Turn::Lost);
        for flap in 1..10 {
            let at = start + 15 * SECOND + flap * 5 * SECOND;
            member.started(at);
            assert_eq!(member.judge(at + 4 * SECOND, &times), Turn::None);
            member.ended();
        }
        assert_eq!(member.standing(), Standing::Lost { since: start });
    }

    #[tokio::test]
    async fn a_loss_that_outlasts_suspicion_counts_from_its_end() {
        let (mut member, start, times) = vitals(true);
        member.started(start);
        member.judge(start + 400 * SECOND, &times);
        assert_eq!(member.standing(), Standing::Lost { since: start });
        member.count_anew(start + 500 * SECOND);
        assert_eq!(member.standing(), Standing::Lost { since: start + 500 * SECOND });
        assert_eq!(
            member.presence(start + 500 * SECOND, &times),
            Presence::Lost(start + 400 * SECOND),
            "when it was judged stays"
        );
        member.started(start + 505 * SECOND);
        member.frame(start + 515 * SECOND);
        assert_eq!(member.judge(start + 515 * SECOND, &times), Turn::Back);
        member.count_anew(start + 520 * SECOND);
        assert_eq!(member.standing(), Standing::Joining, "who is there is not lost by it");
    }

    #[tokio::test]
    async fn a_new_leader_judges_nobody_silent_for_its_grace() {
        let (mut member, start, times) = vitals(true);
        member.forgive(start + times.leader_grace - times.silent_after);
        assert_eq!(member.judge(start + 29 * SECOND, &times), Turn::None);
        assert_eq!(member.judge(start + 30 * SECOND, &times), Turn::Lost);
    }

    #[tokio::test]
    async fn an_api_must_be_unwell_or_well_for_a_while() {
        let (mut member, start, times) = vitals(true);
        member.started(start);
        let at = |seconds: u32| start + seconds * SECOND;
        member.api(start, true, "");
        member.api(at(1), false, "connection refused");
        for second in 1..16 {
            member.frame(at(second));
            assert_eq!(member.judge(at(second), &times), Turn::None);
            assert_eq!(member.standing(), Standing::Well);
        }
        member.frame(at(16));
        assert_eq!(member.judge(at(16), &times), Turn::Other);
        let message = "connection refused".to_owned();
        assert_eq!(member.standing(), Standing::Sick { message, since: at(1) });
        member.api(at(20), true, "");
        member.frame(at(29));
        assert_eq!(member.judge(at(29), &times), Turn::None);
        member.frame(at(30));
        assert_eq!(member.judge(at(30), &times), Turn::Other);
        assert_eq!(member.standing(), Standing::Well);
    }
}
