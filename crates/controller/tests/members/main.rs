//! `members` against a hub in this process and scripted agents: over TLS on in-memory streams with paused time, and
//! over real sockets.
#![allow(clippy::unwrap_used, reason = "helpers of tests: a panic is the report")]

mod agent;
mod customizations;
mod enrolment;
mod health;
mod identities;
mod live;
mod operator_requests;
mod proofs;
mod proxied;
mod real;
mod rig;
mod rotation;
mod sessions;
mod sockets;
mod terms;
mod transcripts;
