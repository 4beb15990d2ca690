//! Tables: what `kubectl get` prints. Columns and cells are those of kubernetes `pkg/printers/internalversion`
//! for built-in kinds, of `additionalPrinterColumns` for custom ones, and the implementation's own for mounted ones.

pub(crate) mod age;
pub(crate) mod builtin;
mod core;
mod workloads;

use jiff::Timestamp;
use serde_json::{Value, json};

use crate::{
    crd,
    kinds::{Kind, Origin},
    meta,
    virtual_resource::Column,
};

/// How much of each object is included in its row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Include {
    Nothing,
    Metadata,
    Object,
}

/// Columns of a built-in kind: (heading, type, priority); and the function that fills them.
pub(crate) struct Printer {
    pub(crate) columns: &'static [(&'static str, &'static str, i64)],
    pub(crate) cells: fn(&Value, Timestamp) -> Vec<Value>,
}

fn definition(name: &str, kind: &str, format: &str, description: &str, priority: i64) -> Value {
    json!({
        "name": name,
        "type": kind,
        "format": format,
        "description": description,
        "priority": priority,
    })
}

fn of_column(column: &Column) -> Value {
    definition(&column.name, &column.kind, &column.format, &column.description, column.priority)
}

const NAME_HELP: &str =
    "Name must be unique within a namespace. It identifies the object and cannot be changed.";

/// `columnDefinitions` of a kind.
pub(crate) fn definitions(kind: &Kind) -> Value {
    let name = || definition("Name", "string", "name", NAME_HELP, 0);
    match &kind.origin {
        Origin::Builtin(b) => b
            .printer
            .columns
            .iter()
            .map(|(heading, kind, priority)| match *heading {
                "Name" => definition("Name", "string", "name", NAME_HELP, *priority),
                other => definition(other, kind, "", other, *priority),
            })
            .collect(),
        Origin::Custom(custom) => std::iter::once(name())
            .chain(custom.columns.iter().map(|c| of_column(&c.column)))
            .collect(),
        Origin::Virtual(_, v) => v.columns.iter().map(of_column).collect(),
    }
}

/// The cells of one object.
pub(crate) fn cells(kind: &Kind, object: &Value, now: Timestamp) -> Vec<Value> {
    match &kind.origin {
        Origin::Builtin(b) => (b.printer.cells)(object, now),
        Origin::Custom(custom) => std::iter::once(Value::from(meta::name(object)))
            .chain(custom.columns.iter().map(|c| crd::columns::cell(c, object, now)))
            .collect(),
        Origin::Virtual(resource, _) => resource.cells(object, now),
    }
}
