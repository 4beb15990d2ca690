//! Pages from fixed data, and the server over real sockets.

#![expect(clippy::unwrap_used, reason = "a panic is the report of a test")]

mod fixed;
mod pages;
mod server;
