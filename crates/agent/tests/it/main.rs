//! The agent between a member (the embedded API server) and a scripted controller over gRPC and TLS in memory, on a paused
//! clock: minutes of the agent's life take milliseconds.

// A panic in test helpers is a failed test, as in the tests themselves.
#![allow(clippy::unwrap_used)]

mod applying;
mod authorization;
mod customized;
mod hub;
mod index;
mod member;
mod removing;
mod reporting;
mod retaining;
mod rights;
mod sessions;
mod setup;
mod transcripts;
