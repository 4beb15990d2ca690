//! Where long computations run.

/// Where long computations run: decisions of the scheduler and rules of users.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum RunsOn {
    /// On threads of their own, so that they delay nothing else. For production.
    #[default]
    Thread,
    /// On the tasks that need them, so that a run with paused time is reproducible: when a thread ends is random.
    Task,
}
