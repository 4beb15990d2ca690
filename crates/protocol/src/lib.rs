//! What controller and agent share on the wire: the generated gRPC code, identities and the certificate authority.
//!
//! Who may do what is decided at the edges of `atoll-controller`; what a message makes happen on a member is
//! `atoll-agent`'s.

/// Generated from `proto/atoll/agent/v1/agent.proto`.
pub mod v1 {
    #![allow(missing_docs, unreachable_pub, clippy::all)]
    tonic::include_proto!("atoll.agent.v1");
}
