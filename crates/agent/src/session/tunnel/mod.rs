//! Requests of the hub's users to the member's API server, over a connection of their own.
//!
//! The agent is the member's guard: it checks path and headers again, whatever the controller passed on, and decides as
//! whom a request runs. It never sends one with its own rights only.

mod answer;
mod connection;
mod proxy;
mod request;
mod service;

pub(crate) use connection::keep;
pub(crate) use proxy::Proxy;

#[cfg(test)]
mod tests;
