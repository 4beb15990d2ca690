//! The only source of wall-clock time.
//!
//! A simulation can supply its own time here, so that two runs with one seed agree. Durations and timers use
//! `tokio::time` instead, which tests can pause.

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

    /// A clock that returns the values of `source`.
    pub fn from_fn(source: impl Fn() -> Timestamp + Send + Sync + 'static) -> Self {
        Self(Arc::new(source))
    }

    /// The current time.
    #[must_use]
    pub fn now(&self) -> Timestamp {
        (self.0)()
    }

    /// The current time, truncated to whole seconds as in Kubernetes objects.
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
