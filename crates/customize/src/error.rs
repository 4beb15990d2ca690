//! Why a rule has no answer.

/// Why a rule has no answer for an object.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RuleError {
    /// The text is not a valid script, expression or path.
    #[error("does not compile: {0}")]
    Compile(String),
    /// The script or expression failed.
    #[error("failed: {0}")]
    Failed(String),
    /// It used up a limit.
    #[error("stopped: {0}")]
    Stopped(Limit),
    /// It returned something that cannot be used.
    #[error("returned what cannot be used: {0}")]
    Result(String),
    /// It was not run.
    #[error("not run: {0}")]
    NotRun(NotRun),
}

/// A limit of a rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Limit {
    /// Instructions and characters that it may process.
    #[error("it took more than {} steps", crate::limits::STEPS)]
    Steps,
    /// Time.
    #[error("it ran longer than {} ms", crate::limits::TIME.as_millis())]
    Time,
    /// Memory.
    #[error("it needs more than {} MiB of memory", crate::limits::MEMORY / 1024 / 1024)]
    Memory,
}

/// Why a rule was not run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NotRun {
    /// The queue of the pool is full.
    #[error("too many rules are waiting to run")]
    QueueFull,
    /// The rule waited too long for a thread.
    #[error("no thread was free within {} s", crate::limits::WAIT.as_secs())]
    Waited,
    /// The pool is stopping.
    #[error("the pool is stopping")]
    Stopping,
}
