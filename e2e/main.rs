//! Scenarios against the real binary, over real sockets. One program has them all: each links the whole of Atoll, and twelve
//! programs took half of the disk and of the time that linking needs. `cargo test -p atoll-cli --test e2e walk::` runs one.
#![expect(clippy::unwrap_used, reason = "a panic is the report of a test")]
#![expect(
    clippy::print_stdout,
    reason = "what a test leaves out or measures, and what its processes say, is for its reader"
)]

mod chaos;
mod console;
mod decisions;
mod fleet;
mod hostile;
mod kubectl;
mod leadership;
mod migrating;
mod operations;
mod processes;
mod promote;
mod support;
mod walk;
