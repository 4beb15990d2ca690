//! Hostile clients against a real controller on an embedded hub: raw TCP, TLS, HTTP/2 and gRPC, with a valid member
//! certificate, with one of a foreign authority, and with none.
//!
//! A test for a new attack is a few lines: start a [`target::Target`], connect with [`client`], assert what the controller
//! does. One module for each topic; add a `mod` line below.

#![expect(clippy::unwrap_used, reason = "a panic is the report of a test")]
#![expect(
    clippy::print_stdout,
    reason = "what a test leaves out, and what its processes say, is for its reader"
)]

mod support;

#[path = "hostile/client.rs"]
mod client;
#[path = "hostile/target.rs"]
mod target;

#[path = "hostile/api.rs"]
mod api;
#[path = "hostile/floods.rs"]
mod floods;
#[path = "hostile/identity.rs"]
mod identity;
#[path = "hostile/objects.rs"]
mod objects;
#[path = "hostile/session.rs"]
mod session;
