//! Decision records in SQL: what was decided, when, why, and what followed.
//!
//! The binding is the outbox: `spec.decision` and `spec.unrecorded` hold the decisions that the database may lack, so
//! this crate keeps no state of its own between a commit and its row, and an unreachable database delays rows, never
//! scheduling. [`outbox`] turns bindings into records, [`Recorder`] writes them to a [`Store`], [`api`] presents them
//! as Kubernetes objects. Serving those objects, and deciding, is done by other crates.

pub mod api;
mod detail;
mod events;
mod filter;
pub mod inputs;
mod keeper;
mod memory;
pub mod migrations;
pub mod outbox;
// Before the databases, which use its macros.
#[macro_use]
mod sql;
mod postgres;
mod record;
mod recorder;
mod sqlite;
mod store;
mod weeks;

pub use detail::{Detail, DetailError};
pub use events::{
    ApprovedPlan, Event, LastChange, MemberEvent, MemberEventKind, MemberFilter, MemberPage,
    Milestone, Provenance, Resident, SourceObject, Stage,
};
pub use filter::{Filter, FilterError, Scope};
pub use inputs::{Frame, Inputs};
pub use keeper::{Keeper, RETENTION};
pub use memory::{Fault, MemoryStore};
pub use postgres::PostgresStore;
pub use record::{
    BindingRef, Gap, Move, Record, Row, StoredRecord, Withdrawal, changes, moves, reason,
    rejections,
};
pub use recorder::{
    Drained, Observer, Progress, QueueFull, Receipt, RecordState, Recorder, RecorderOptions, Writer,
};
pub use sqlite::SqliteStore;
pub use store::{
    BoxFuture, Durability, MILESTONES, Maintained, NEWEST, Newest, Page, Position, Store,
    StoreError,
};
