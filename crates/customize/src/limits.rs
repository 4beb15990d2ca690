//! The limits within which rules run.

use std::time::Duration;

/// Steps of one run: instructions of Lua, characters that a string function looks at, operators of CEL. A run that uses them
/// all takes about 0.3 s; an ordinary rule needs some thousand.
pub const STEPS: u64 = 20_000_000;
/// Longest run. The same limit as in Karmada.
pub const TIME: Duration = Duration::from_secs(1);
/// Memory of one Lua run, in bytes. An object is at most 1.5 MiB and needs up to five times as much as tables.
pub const MEMORY: usize = 16 * 1024 * 1024;
/// Instructions between two checks of the limits: a few microseconds.
pub(crate) const INSTRUCTIONS_PER_CHECK: u32 = 200;
/// Longest argument of a string function, in bytes. The same limit as in Karmada.
pub(crate) const STRING: usize = 1_000_000;
/// Largest result, in bytes of text and in values. Objects are at most 1.5 MiB.
pub(crate) const RESULT_BYTES: usize = 4 * 1024 * 1024;
/// See [`RESULT_BYTES`].
pub(crate) const RESULT_VALUES: usize = 200_000;
/// Deepest nesting of objects and results.
pub(crate) const DEPTH: usize = 100;
/// Characters of an error message that are kept.
pub(crate) const MESSAGE: usize = 400;
/// Longest wait for a thread of the pool. Callers answer by the next layer instead of waiting longer.
pub const WAIT: Duration = Duration::from_secs(5);
