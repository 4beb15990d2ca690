//! Stops calls to a webhook that does not answer: objects are not decided later because of one that is down.

use std::time::Duration;

use tokio::time::Instant;

/// Calls in a row that may fail. One lost call must not stop the others.
pub(super) const MOST_FAILED: u32 = 5;

/// Times of webhooks that do not answer.
#[derive(Debug, Clone, Copy)]
pub(crate) struct WebhookTimes {
    /// How long one that failed several times in a row is not called.
    pub(crate) pause: Duration,
    /// After what time it is asked again about an object for which it did not answer.
    pub(crate) again: Duration,
}

impl Default for WebhookTimes {
    /// Short enough that a restarted server is in use within a minute, long enough that ten thousand objects whose
    /// questions are refused cost nothing.
    fn default() -> Self {
        Self { pause: Duration::from_secs(15), again: Duration::from_secs(30) }
    }
}

/// The calls to one webhook.
#[derive(Debug, Default)]
pub(super) struct Breaker {
    failed_in_a_row: u32,
    /// Calls are refused until then; afterwards one at a time is a trial.
    open_until: Option<Instant>,
    trying: bool,
    last_error: String,
    /// Whether a call was answered since the last failure.
    reached: bool,
}

/// Why a call is refused.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Open {
    pub(super) failed: u32,
    pub(super) last_error: String,
    /// Until the next trial.
    pub(super) wait: Duration,
}

impl Breaker {
    /// Begins a call. Each call that begins ends with [`Breaker::answered`], [`Breaker::failed`] or
    /// [`Breaker::abandoned`].
    pub(super) fn begin(&mut self, now: Instant) -> Result<(), Open> {
        let Some(until) = self.open_until else { return Ok(()) };
        if now < until || self.trying {
            let (failed, last_error) = (self.failed_in_a_row, self.last_error.clone());
            return Err(Open { failed, last_error, wait: until.saturating_duration_since(now) });
        }
        self.trying = true;
        Ok(())
    }

    /// The server answered. Returns whether it did not before.
    pub(super) fn answered(&mut self) -> bool {
        let news = !self.reached;
        *self = Self { reached: true, ..Self::default() };
        news
    }

    /// The server did not answer.
    pub(super) fn failed(&mut self, error: &str, times: WebhookTimes, now: Instant) {
        self.failed_in_a_row = self.failed_in_a_row.saturating_add(1);
        error.clone_into(&mut self.last_error);
        self.reached = false;
        self.trying = false;
        if self.failed_in_a_row >= MOST_FAILED {
            self.open_until = Some(now + times.pause);
        }
    }

    /// The caller did not wait for the answer.
    pub(super) fn abandoned(&mut self) {
        self.trying = false;
    }

    /// A leadership begins: the next answer is news.
    pub(super) fn begin_term(&mut self) {
        self.reached = false;
    }

    pub(super) fn is_open(&self) -> bool {
        self.open_until.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIMES: WebhookTimes =
        WebhookTimes { pause: Duration::from_secs(15), again: Duration::from_secs(30) };

    #[test]
    fn after_five_failures_one_trial_at_a_time_decides_whether_calls_go_on() {
        let (mut breaker, start) = (Breaker::default(), Instant::now());
        assert!(breaker.answered(), "the first answer is news");
        for _ in 0..MOST_FAILED {
            assert_eq!(breaker.begin(start), Ok(()));
            breaker.failed("timeout", TIMES, start);
        }
        let open = Open { failed: MOST_FAILED, last_error: "timeout".into(), wait: TIMES.pause };
        assert_eq!(breaker.begin(start), Err(open));
        let later = start + TIMES.pause;
        assert_eq!(breaker.begin(later), Ok(()));
        assert!(breaker.begin(later).is_err(), "one trial at a time");
        breaker.failed("refused", TIMES, later);
        assert!(breaker.begin(later).is_err());
        let last = later + TIMES.pause;
        assert_eq!(breaker.begin(last), Ok(()));
        breaker.abandoned();
        assert_eq!(breaker.begin(last), Ok(()));
        assert!(breaker.answered() && !breaker.answered());
        breaker.begin_term();
        assert!(breaker.answered(), "the status may have a failure that another leader wrote");
        assert!(!breaker.is_open());
        assert_eq!((breaker.begin(last), breaker.begin(last)), (Ok(()), Ok(())));
        // A single failure between answers opens nothing.
        breaker.failed("reset", TIMES, last);
        assert_eq!(breaker.begin(last), Ok(()));
    }
}
