//! Requests as clients write them: paths, query parameters, requested representations.

pub mod accept;
mod path;
pub mod query;

use tokio_util::sync::CancellationToken;

pub use self::path::{ObjectPath, Target};
pub use self::query::{FieldValidation, Query, VersionMatch};

/// In a request's extensions: cancelled when its listener stops.
#[derive(Clone, Debug, Default)]
pub struct Closing(pub CancellationToken);
