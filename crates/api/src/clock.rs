//! The one way to ask for the time of day.
//!
//! Wall time enters the program here, so that a simulated world can hand out its own and two runs of one seed agree.
//! Durations and timers are not this module's matter: they use `tokio::time`, which tests pause.

use std::sync::Arc;

use jiff::Timestamp;

/// A source of wall-clock time. Cloning is cheap and shares the source.
#[derive(Clone)]
pub struct Clock(Arc<dyn Fn() -> Timestamp + Send + Sync>);

impl Clock {
    /// The operating system's clock.
    #[must_use]
    pub fn system() -> Self {
        Self(Arc::new(Timestamp::now))
    }

    /// A clock that answers with what `source` returns.
    pub fn from_fn(source: impl Fn() -> Timestamp + Send + Sync + 'static) -> Self {
        Self(Arc::new(source))
    }

    /// The time now.
    #[must_use]
    pub fn now(&self) -> Timestamp {
        (self.0)()
    }

    /// The time now, cut to whole seconds as Kubernetes writes it.
    #[must_use]
    pub fn now_seconds(&self) -> Timestamp {
        let now = self.now();
        Timestamp::from_second(now.as_second()).unwrap_or(now)
    }
}

impl std::fmt::Debug for Clock {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Clock")
    }
}
