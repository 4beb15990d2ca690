//! Sessions with agents: the listener, the gRPC service, one task for each session, and what each member should hold.

pub(crate) mod admission;
pub(crate) mod bounds;
pub(crate) mod customizations;
pub(crate) mod desired;
mod forwarded;
mod gate;
pub(crate) mod handle;
mod handshake;
pub(crate) mod listener;
pub(crate) mod outbox;
mod reader;
pub(crate) mod server;
mod service;
mod session;
pub(crate) mod shared;
mod tunnel;
mod wire;
#[cfg(test)]
mod wire_properties;
mod writer;
