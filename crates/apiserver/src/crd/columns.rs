//! `additionalPrinterColumns` (apiextensions `registry/customresource/tableconvertor`).

use atoll_apimachinery::read_only::Column;
use jiff::Timestamp;
use serde_json::Value;

use super::{fields::text, jsonpath::JsonPath};
use crate::table::age;

/// A column and the path of its cells.
pub(crate) struct PrinterColumn {
    pub(crate) column: Column,
    path: JsonPath,
}

const AGE_HELP: &str =
    "CreationTimestamp is a timestamp representing the server time when this object was created.";

/// The columns of a version, after the name: the declared ones, or the age.
pub(crate) fn of(version: &Value) -> Vec<PrinterColumn> {
    let own = version.get("additionalPrinterColumns").and_then(Value::as_array);
    let own: Vec<PrinterColumn> = own
        .into_iter()
        .flatten()
        .filter_map(|c| {
            // Malformed paths were refused when the CRD was installed.
            let path = JsonPath::parse(text(c, "jsonPath")).ok()?;
            let column = Column {
                name: text(c, "name").to_owned(),
                kind: text(c, "type").to_owned(),
                format: text(c, "format").to_owned(),
                description: text(c, "description").to_owned(),
                priority: c.get("priority").and_then(Value::as_i64).unwrap_or(0),
            };
            Some(PrinterColumn { column, path })
        })
        .collect();
    if !own.is_empty() {
        return own;
    }
    let column = Column {
        name: "Age".to_owned(),
        kind: "date".to_owned(),
        format: String::new(),
        description: AGE_HELP.to_owned(),
        priority: 0,
    };
    let path = JsonPath::parse(".metadata.creationTimestamp");
    path.into_iter().map(|path| PrinterColumn { column: column.clone(), path }).collect()
}

/// Why a column cannot be served; `None` if it can.
pub(super) fn problem(column: &Value) -> Option<(&'static str, String)> {
    if text(column, "name").is_empty() {
        return Some(("name", "Required value".to_owned()));
    }
    let kinds = ["boolean", "date", "integer", "number", "string"];
    if !kinds.contains(&text(column, "type")) {
        let why = format!(
            "Invalid value: {:?}: must be one of boolean,date,integer,number,string",
            text(column, "type")
        );
        return Some(("type", why));
    }
    let path = text(column, "jsonPath");
    JsonPath::parse(path).err().map(|why| ("jsonPath", format!("Invalid value: {path:?}: {why}")))
}

/// A cell; null if the value is missing or does not have the column's type.
pub(crate) fn cell(column: &PrinterColumn, object: &Value, now: Timestamp) -> Value {
    let Some(value) = column.path.first(object) else { return Value::Null };
    match (column.column.kind.as_str(), value) {
        ("string", Value::String(text)) => text.as_str().into(),
        ("string", other) => other.to_string().into(),
        ("integer", Value::Number(n)) => {
            n.as_i64().or_else(|| n.as_f64().map(|f| f as i64)).map_or(Value::Null, Value::from)
        }
        ("number", Value::Number(_)) | ("boolean", Value::Bool(_)) => value.clone(),
        ("date", Value::String(_)) => match age::parse(Some(value)) {
            Some(_) => age::since(Some(value), now).into(),
            None => "<invalid>".into(),
        },
        _ => Value::Null,
    }
}
