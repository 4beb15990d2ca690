//! The drills of docs/operations.md, with the processes and commands that it names.

#![expect(clippy::unwrap_used, reason = "a panic is the report of a test")]
#![expect(clippy::print_stdout, reason = "what a test measured is for its reader")]

mod authority;
mod restoring;
mod skew;
mod support;
mod traces;
mod upgrading;
