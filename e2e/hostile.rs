//! Hostile clients against a real controller on an embedded hub: raw TCP, TLS, HTTP/2 and gRPC, with a valid member
//! certificate, with one of a foreign authority, and with none.
//!
//! A test for a new attack is a few lines: start a [`target::Target`], connect with [`client`], assert what the controller
//! does. One module for each topic; add a `mod` line below.

mod client;
mod target;

mod api;
mod floods;
mod identity;
mod objects;
mod session;
