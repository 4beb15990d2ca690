//! Bugs of other federations, reintroduced one at a time, in test builds only: each must be caught by its scenario
//! (`src/tests/corpus.rs`).

use std::cell::Cell;

use atoll_api::binding::GracefulEvictionTask;

/// A bug.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mutant {
    /// An update of something else in a binding loses its eviction tasks (Karmada #7302).
    TasksLostByUpkeep,
    /// FullyApplied covers the members that reported, not those that were decided on (Karmada #7226).
    AppliedByThoseWhoAnswered,
    /// A transient failure is retried only after minutes (Karmada #7340).
    RetryAfterMinutes,
    /// A lost member keeps its copy when it returns, beside the copies that replaced it (Karmada #2769).
    LostAreNotTold,
    /// A cluster is a target and being evicted at the same time (Karmada #3283).
    TargetAndLeaving,
    /// A kind that cannot be read stops all other kinds (Karmada #6683).
    OneBadKindStopsAll,
    /// A member whose API fails once is not ready (Karmada #7426).
    SickAtOnce,
    /// The grace period of one eviction task applies to the following ones too (Karmada #7184).
    GraceLeaks,
}

thread_local! {
    static ACTIVE: Cell<Option<Mutant>> = const { Cell::new(None) };
}

/// Whether this bug is active on this thread.
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

/// Runs a function on this thread with a bug reintroduced.
pub(crate) fn with<T>(mutant: Option<Mutant>, run: impl FnOnce() -> T) -> T {
    /// Deactivates it however the run ends.
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
