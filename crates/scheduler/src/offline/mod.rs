//! Scheduling without a hub. Objects from files become [`Tables`](crate::Tables) and [`Request`](crate::Request)s
//! through the controller's own functions, and the core decides.
//!
//! [`documents`] parses text, [`World`] holds the objects and decides on them, [`case`] and [`batch`] read one case per
//! line. Callers handle files, clocks and output tables.

pub mod batch;
mod bindings;
pub mod case;
pub mod documents;
mod kinds;
mod world;

pub use self::case::{Case, CaseError};
pub use self::documents::{Document, InputError};
pub use self::kinds::default_namespace;
pub use self::world::{Answer, Fate, Settings, Workload, World};
