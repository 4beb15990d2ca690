//! A panic anywhere in a history ends and fails it, including one in a task that no code joins.

use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Once;

static HOOK: Once = Once::new();

thread_local! {
    /// Panics of the history on this thread; `None` while none is played.
    static PANICS: RefCell<Option<Vec<String>>> = const { RefCell::new(None) };
}

/// Runs a history. Its panics are returned as the error instead of printed.
pub(super) fn guarded<T>(run: impl FnOnce() -> T) -> Result<T, String> {
    HOOK.call_once(|| {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            let ours = PANICS.with_borrow_mut(|panics| {
                panics.as_mut().map(|panics| panics.push(info.to_string())).is_some()
            });
            if !ours {
                before(info);
            }
        }));
    });
    PANICS.set(Some(Vec::new()));
    let result = catch_unwind(AssertUnwindSafe(run));
    let panics = PANICS.take().unwrap_or_default();
    match result {
        Ok(outcome) if panics.is_empty() => Ok(outcome),
        _ => Err(panics.join("\n")),
    }
}
