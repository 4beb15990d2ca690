//! The web console: pages over what the hub and the Decision API answer, on a loopback address.
//!
//! [`data`] says what a page shows, [`view`] turns it into HTML and does nothing else, and [`Server`] serves the pages
//! within limits. Whoever starts the console passes a [`Source`] that reads; this crate knows no Kubernetes API, and no
//! credential ever reaches it.

pub mod data;
mod query;
mod server;
mod source;
pub mod view;

pub use query::{encode, pairs};
pub use server::{Serving, Settings, StartError, start};
pub use source::{Answer, Changes, Fault, Source, Topic};
