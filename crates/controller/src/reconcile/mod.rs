//! What happens to one binding next. [`read`] looks at the hub's objects; where a decision is needed, [`request`] makes
//! the scheduler's input, and [`conclude`] turns its result into a write. All of it is computed from what the leader
//! holds: the leader carries out the returned [`Step`], and jobs do the writes.

pub(crate) mod announce;
pub(crate) mod attach;
mod conclude;
mod read;
mod request;
pub(crate) mod start;
mod step;
mod subject;
pub(crate) mod template_lookup;

pub(crate) use conclude::{conclude, decided_by, end_of_tasks, upkeep};
pub(crate) use read::read;
pub(crate) use request::{Reported, of_objects, request};
pub(crate) use step::{Committing, Context, Part, Purpose, Step, Waiting, delete};
pub(crate) use subject::Subject;
