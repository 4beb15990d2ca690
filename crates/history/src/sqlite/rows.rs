//! Between rows and records.

use atoll_api::binding::{DecisionRecord, ObjectReference, TargetCluster};
use jiff::Timestamp;
use serde::Serialize;
use serde::de::DeserializeOwned;
use sqlx::Row as _;
use sqlx::sqlite::SqliteRow;

use crate::{BindingRef, Detail, Entry, Record, Row};

/// A value as JSON text. Our own types always have one.
pub(super) fn json(value: &impl Serialize) -> String {
    serde_json::to_string(value).expect("records are plain JSON")
}

/// The name of an enum's variant, as JSON has it.
pub(super) fn name(value: &impl Serialize) -> String {
    json(value).trim_matches('"').to_owned()
}

/// What a row says. Only the columns by which it is found must be of their type; whatever else cannot be read makes it
/// an [`Entry::Unreadable`].
pub(super) fn read(row: &SqliteRow, detail: Option<Detail>) -> Result<Row, sqlx::Error> {
    let seq = row.try_get("seq")?;
    let id: String = row.try_get("id")?;
    let decided_at: i64 = row.try_get("decided_at")?;
    let namespace: String = row.try_get("namespace")?;
    let at = Timestamp::from_microsecond(decided_at).unwrap_or_default();
    let namespace = Some(namespace).filter(|namespace| !namespace.is_empty());
    let entry = match record(row, &id, at, namespace.clone(), detail) {
        Ok(record) => Entry::Record(Box::new(record)),
        Err(error) => Entry::Unreadable { id, namespace, at, error },
    };
    Ok(Row { seq, entry })
}

fn record(
    row: &SqliteRow,
    id: &str,
    at: Timestamp,
    namespace: Option<String>,
    detail: Option<Detail>,
) -> Result<Record, String> {
    let version: String = text(row, "workload_version")?;
    let group: String = text(row, "workload_group")?;
    Ok(Record {
        record: DecisionRecord {
            id: id.to_owned(),
            parent: text(row, "parent")?,
            trigger: variant(row, "trigger_name")?,
            mode: variant(row, "mode")?,
            outcome: variant(row, "outcome")?,
            desired: number(row, "desired")?,
            pending: parse(row, "pending")?,
            affinity_name: text(row, "affinity_name")?,
            at: at.into(),
            term: number(row, "term")?,
        },
        binding: BindingRef {
            kind: text(row, "binding_kind")?,
            namespace: namespace.clone(),
            name: text(row, "binding_name")?,
            uid: text(row, "binding_uid")?,
        },
        workload: ObjectReference {
            api_version: if group.is_empty() { version } else { format!("{group}/{version}") },
            kind: text(row, "workload_kind")?,
            namespace,
            name: text(row, "workload_name")?,
            uid: text(row, "workload_uid")?,
        },
        before: parse_option::<Vec<TargetCluster>>(row, "before_clusters")?,
        after: parse(row, "after_clusters")?,
        reason: text(row, "reason")?,
        gap: parse_option(row, "gap")?,
        withdrawal: parse_option(row, "withdrawal")?,
        detail,
    })
}

fn text<'r, T>(row: &'r SqliteRow, column: &str) -> Result<T, String>
where
    T: sqlx::Decode<'r, sqlx::Sqlite> + sqlx::Type<sqlx::Sqlite>,
{
    row.try_get(column).map_err(|error| format!("column {column}: {error}"))
}

fn number(row: &SqliteRow, column: &str) -> Result<i64, String> {
    text(row, column)
}

fn variant<T: DeserializeOwned>(row: &SqliteRow, column: &str) -> Result<T, String> {
    let name: String = text(row, column)?;
    serde_json::from_value(name.into()).map_err(|error| format!("column {column}: {error}"))
}

fn parse<T: DeserializeOwned>(row: &SqliteRow, column: &str) -> Result<T, String> {
    let json: &str = text(row, column)?;
    serde_json::from_str(json).map_err(|error| format!("column {column}: {error}"))
}

fn parse_option<T: DeserializeOwned>(row: &SqliteRow, column: &str) -> Result<Option<T>, String> {
    let json: Option<&str> = text(row, column)?;
    json.map(|json| serde_json::from_str(json).map_err(|error| format!("column {column}: {error}")))
        .transpose()
}
