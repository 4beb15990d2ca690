//! What history is told besides decisions: how far each has come, what happened to members, and who changed what a
//! decision was made from.
//!
//! All of it is noted as it is seen, by the leader that saw it, through the recorder's queue: nothing is written to the
//! hub, and nothing waits. What no leader saw the next one tells as far as objects say it, with their times or as noticed
//! later; the rest is missing in history, never made up.

mod absence;
mod authors;
mod lives;
mod members;

pub(crate) use absence::Found;
pub(crate) use authors::{Authors, reduce};
pub(crate) use lives::Lives;
pub(crate) use members::{between, suspected};
