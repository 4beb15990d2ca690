//! The additional data of a custom kind.

use serde_json::Value;

use super::{cel, columns};

/// The additional data of a custom kind.
pub(crate) struct Custom {
    /// The revision of the source CRD; a newer CRD makes a new kind.
    pub(crate) revision: u64,
    /// The CRD is being deleted: nothing new may be created.
    pub(crate) terminating: bool,
    pub(crate) columns: Vec<columns::PrinterColumn>,
    /// `openAPIV3Schema` as given, for documents.
    pub(crate) openapi: Value,
    pub(crate) programs: cel::Programs,
    /// Paths of objects whose content neither the schema nor a field selector reads.
    pub(crate) open: Vec<Vec<String>>,
}
