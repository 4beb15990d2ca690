//! The rules of requests that go through the hub to a member's API server: as whom they run there, which paths and
//! headers they may have, and what a member may answer.
//!
//! Controller and agent both apply them. The member trusts only its agent, so a compromised controller gains nothing
//! that the agent's rules refuse. Pure: no network, no clock.

pub mod headers;
pub mod identity;
pub mod path;
