//! The agent between a member (the embedded API server) and a scripted controller over gRPC and TLS in memory, on a paused
//! clock: minutes of the agent's life take milliseconds.

mod applying;
mod hub;
mod member;
mod removing;
mod reporting;
mod sessions;
mod setup;
