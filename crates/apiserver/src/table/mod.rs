//! Tables: what `kubectl get` prints. Columns and cells are those of kubernetes `pkg/printers/internalversion`
//! for built-in kinds, of `additionalPrinterColumns` for custom ones, and the implementation's own for mounted ones.

pub(crate) mod age;
pub(crate) mod builtin;
mod core;
mod workloads;

use jiff::Timestamp;
use serde_json::Value;

/// Columns of a built-in kind: (heading, type, priority); and the function that fills them.
pub(crate) struct Printer {
    pub(crate) columns: &'static [(&'static str, &'static str, i64)],
    pub(crate) cells: fn(&Value, Timestamp) -> Vec<Value>,
}
