//! Decision records: what was decided when, why, and what came of it, in SQL.
//!
//! The binding is the outbox: `spec.decision` and `spec.unrecorded` hold what the database may lack, so this crate keeps
//! no state of its own between a commit and its row, and a database that is away delays rows, never scheduling.
//! [`outbox`] turns bindings into records, [`Recorder`] takes them to a [`Store`], [`api`] shows them as Kubernetes
//! objects. Serving those objects and deciding are other crates' work.

pub mod api;
mod detail;
mod events;
mod filter;
mod keeper;
mod lent;
mod memory;
pub mod outbox;
mod postgres;
mod record;
mod recorder;
mod rows;
mod sqlite;
mod store;
mod weeks;

pub use detail::{Detail, DetailError};
pub use events::{
    Changed, Event, MemberEvent, MemberEventKind, MemberFilter, MemberPage, Milestone, Provenance,
    Resident, Source, Stage,
};
pub use filter::{Filter, FilterError, Scope};
pub use keeper::{Keeper, RETENTION};
pub use memory::{Fault, MemoryStore};
pub use postgres::PostgresStore;
pub use record::{
    BindingRef, Entry, Gap, Move, Record, Row, Withdrawal, changes, moves, reason, rejections,
};
pub use recorder::{
    Drained, Progress, QueueFull, Receipt, Recorder, RecorderOptions, State, Writer,
};
pub use sqlite::SqliteStore;
pub use store::{
    BoxFuture, MILESTONES, Maintained, NEWEST, Newest, Page, Position, Safe, Store, StoreError,
};
