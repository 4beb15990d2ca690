//! Bugs that other federations had, brought back one at a time, in test builds only: each must be caught by the scenario
//! that tells its story (`engine/tests/corpus.rs`).

use std::cell::Cell;

use atoll_api::binding::GracefulEvictionTask;

/// A bug.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mutant {
    /// An update of something else in a binding loses its eviction tasks (Karmada #7302).
    TasksLostByUpkeep,
    /// FullyApplied speaks of those members that said something, not of those that were decided on (Karmada #7226).
    AppliedByThoseWhoAnswered,
    /// What failed in passing is tried again after minutes (Karmada #7340).
    RetryAfterMinutes,
    /// A member that was lost keeps its copy when it is back, beside those that replaced it (Karmada #2769).
    LostAreNotTold,
    /// A cluster stays target and leaving at once (Karmada #3283).
    TargetAndLeaving,
    /// A kind that cannot be read stops all others (Karmada #6683).
    OneBadKindStopsAll,
    /// A member whose API fails once is not ready (Karmada #7426).
    SickAtOnce,
    /// The grace period of one eviction task holds for those behind it too (Karmada #7184).
    GraceLeaks,
}

thread_local! {
    static ACTIVE: Cell<Option<Mutant>> = const { Cell::new(None) };
}

/// Whether this bug is back, on this thread.
pub(crate) fn is(mutant: Mutant) -> bool {
    ACTIVE.get() == Some(mutant)
}

/// With [`Mutant::GraceLeaks`], the tasks with the first one's deadline; otherwise as they are.
pub(crate) fn grace_leaks(mut tasks: Vec<GracefulEvictionTask>) -> Vec<GracefulEvictionTask> {
    if is(Mutant::GraceLeaks) {
        let first = tasks.first().and_then(|task| task.deadline.clone());
        for task in &mut tasks {
            task.deadline.clone_from(&first);
        }
    }
    tasks
}

/// Runs something on this thread with a bug brought back.
pub(crate) fn with<T>(mutant: Option<Mutant>, run: impl FnOnce() -> T) -> T {
    /// Ends it however the run ends.
    struct Reset;
    impl Drop for Reset {
        fn drop(&mut self) {
            ACTIVE.set(None);
        }
    }
    let _reset = Reset;
    ACTIVE.set(mutant);
    run()
}
