//! The member's API server: its client, the kinds that it serves, and watches of them.

mod apis;
mod client;
mod error;
mod rights;
mod watch;

pub(crate) use apis::{Apis, Discovery};
pub use client::client;
pub(crate) use client::{Fence, Follow, Member, Target};
pub(crate) use error::MemberError;
pub(crate) use watch::{Followed, follow};
