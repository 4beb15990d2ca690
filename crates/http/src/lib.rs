//! HTTP and TLS for every server in Atoll that is not gRPC: the embedded API server, the aggregated Decision API, and
//! the pages for probes and metrics. What they serve is a [`tower::Service`]; this crate owns the sockets. [`client`] calls
//! servers of users.

pub mod client;
pub mod connections;
pub mod serve;
pub mod tls;
pub mod upgrade;
