//! Scheduling without a hub: objects from files become [`Tables`](crate::Tables) and [`Request`](crate::Request)s by the
//! functions that the controller uses, and the core answers.
//!
//! [`documents`] reads text, [`World`] holds the objects and decides on them, [`case`] and [`batch`] read a case a line.
//! Files, clocks and tables for people are the caller's.

pub mod batch;
pub mod case;
pub mod documents;
mod kinds;
mod world;

pub use self::case::{Case, CaseError};
pub use self::documents::{Document, InputError};
pub use self::world::{Answer, Fate, Settings, Workload, World};
