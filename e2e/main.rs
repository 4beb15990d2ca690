//! Scenarios against the real binary, over real sockets. They are one program, because each program would link the whole of
//! Atoll again, which takes 200 MB. `cargo test -p atoll-cli --test e2e walk::` runs one scenario.
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
