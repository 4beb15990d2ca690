//! Data for history in addition to decisions: the progress of each, events of members, and the authors of a decision's
//! inputs.
//!
//! The leader records all of it as observed, through the recorder's queue: nothing is written to the hub, and nothing
//! waits. The next leader recovers unobserved events from the objects, with their times or marked as noticed later; the
//! rest is missing in history, never invented.

mod absence;
mod authors;
mod lives;
mod members;

pub(crate) use absence::Found;
pub(crate) use authors::{Authors, reduce};
pub(crate) use lives::Lives;
pub(crate) use members::{between, suspected};
