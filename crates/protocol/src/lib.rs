//! What controller and agent share on the wire: the generated gRPC code, identities, the certificate authority, the
//! transport's settings and the inventory digest.
//!
//! Who may do what is decided at the edges of `atoll-controller`; what a message makes happen on a member is
//! `atoll-agent`'s.

pub mod ca;
pub mod digest;
pub mod identity;
pub mod member;
pub mod tls;
pub mod token;
pub mod transport;

/// Generated from `proto/atoll/agent/v1/agent.proto`.
pub mod v1 {
    #![allow(missing_docs, unreachable_pub, clippy::all)]
    tonic::include_proto!("atoll.agent.v1");
}
