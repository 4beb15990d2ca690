//! The server through its front door: kube clients in process, sockets where TLS or kubectl are the point.
//! Tests are named after the upstream behaviour that they mirror.

mod common;
mod kubectl;
mod read;
mod tls;
mod watch;
mod write;
