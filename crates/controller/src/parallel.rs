//! Work on several cores for a caller that waits: short pieces of pure computation, of which there are many at once.

use std::num::NonZero;
use std::panic::resume_unwind;
use std::thread::{self, ScopedJoinHandle};

/// Fewest items of a thread, so that it has more to do than its start costs.
const LEAST: usize = 16;

/// Applies `function` to each item. The results are in the order of the items.
pub(crate) fn map<T: Sync, R: Send>(items: &[T], function: impl Fn(&T) -> R + Sync) -> Vec<R> {
    on_threads(items, thread::available_parallelism().map_or(1, NonZero::get), function)
}

fn on_threads<T: Sync, R: Send>(
    items: &[T],
    threads: usize,
    function: impl Fn(&T) -> R + Sync,
) -> Vec<R> {
    let part = items.len().div_ceil(threads).max(LEAST);
    let (own, others) = items.split_at(part.min(items.len()));
    let function = &function;
    thread::scope(|scope| {
        let threads: Vec<ScopedJoinHandle<'_, Vec<R>>> = others
            .chunks(part)
            .map(|part| scope.spawn(move || part.iter().map(function).collect()))
            .collect();
        let mut results: Vec<R> = own.iter().map(function).collect();
        for thread in threads {
            // A panic goes on in the caller.
            results.extend(thread.join().unwrap_or_else(|panic| resume_unwind(panic)));
        }
        results
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::sync::Mutex;

    use super::*;

    #[test]
    fn results_are_in_order_however_many_threads_there_are() {
        for count in [0, 1, LEAST, LEAST + 1, 1_000] {
            let items: Vec<usize> = (0..count).collect();
            let expected: Vec<usize> = items.iter().map(|item| item * item).collect();
            for threads in [1, 2, 3, 16] {
                assert_eq!(on_threads(&items, threads, |item| item * item), expected);
            }
        }
    }

    #[test]
    fn large_numbers_of_items_are_shared_by_threads_and_small_ones_are_not() {
        let used = |count: usize| {
            let seen = Mutex::new(BTreeSet::new());
            on_threads(&vec![(); count], 4, |()| {
                seen.lock().unwrap().insert(format!("{:?}", thread::current().id()))
            });
            seen.into_inner().unwrap().len()
        };
        assert_eq!((used(LEAST), used(2 * LEAST), used(100 * LEAST)), (1, 2, 4));
    }

    #[test]
    #[should_panic(expected = "item 999")]
    fn a_panic_reaches_the_caller() {
        let items: Vec<usize> = (0..1_000).collect();
        on_threads(&items, 4, |item| assert!(*item != 999, "item {item}"));
    }
}
