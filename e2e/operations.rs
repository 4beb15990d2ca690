//! The drills of docs/operations.md, with the processes and commands that it names.

mod authority;
mod restoring;
mod skew;
mod traces;
mod upgrading;
