//! The protocol between controller and agent: the generated gRPC code, identities, the certificate authority, transport
//! settings and the inventory digest.
//!
//! `atoll-controller` authorises each message; `atoll-agent` carries it out on a member.

pub mod authorities;
pub mod ca;
pub mod digest;
pub mod identity;
pub mod member;
pub mod tls;
pub mod token;
pub mod transport;
pub mod tunnel;

/// Generated from `proto/atoll/agent/v1` by `cargo xtask protocol`.
pub mod v1 {
    #![allow(missing_docs, unreachable_pub, clippy::all)]
    include!("generated/atoll.agent.v1.rs");
}
