//! Conversion between rows and records, for every SQL database.

use atoll_api::binding::{DecisionRecord, ObjectReference, TargetCluster, Trigger};
use atoll_api::{ClusterName, DecisionId};
use jiff::Timestamp;
use serde::Serialize;
use serde::de::DeserializeOwned;
use sqlx::Row as _;
use sqlx::postgres::PgRow;
use sqlx::sqlite::SqliteRow;

use crate::events::{MemberEvent, MemberEventKind, MemberPage, Milestone, Resident, Stage};
use crate::{BindingRef, Detail, Newest, Page, Position, Record, Row, StoredRecord};

/// Typed access to the columns of a row.
pub trait Columns {
    /// A text, `None` for NULL.
    fn text(&self, column: &str) -> Result<Option<String>, sqlx::Error>;
    /// A number; NULL is an error.
    fn number(&self, column: &str) -> Result<i64, sqlx::Error>;
    /// Bytes, `None` for NULL.
    fn bytes(&self, column: &str) -> Result<Option<Vec<u8>>, sqlx::Error>;
}

macro_rules! columns_of {
    ($($row:ty),*) => {$(
        impl Columns for $row {
            fn text(&self, column: &str) -> Result<Option<String>, sqlx::Error> {
                self.try_get(column)
            }
            fn number(&self, column: &str) -> Result<i64, sqlx::Error> {
                self.try_get(column)
            }
            fn bytes(&self, column: &str) -> Result<Option<Vec<u8>>, sqlx::Error> {
                self.try_get(column)
            }
        }
    )*};
}
columns_of!(SqliteRow, PgRow);

/// A value as JSON text. Serialising our own types cannot fail.
pub(crate) fn json(value: &impl Serialize) -> String {
    serde_json::to_string(value).expect("records are plain JSON")
}

/// The name of an enum's variant in JSON.
pub(crate) fn name(value: &impl Serialize) -> String {
    json(value).trim_matches('"').to_owned()
}

/// Parses a row. Only the columns that locate it must have the right type; any other unreadable column makes it an
/// [`StoredRecord::Unreadable`].
pub(crate) fn read(row: &impl Columns, detail: Option<Detail>) -> Result<Row, sqlx::Error> {
    let seq = row.number("seq")?;
    let id = row.text("id")?.unwrap_or_default();
    let at = Timestamp::from_microsecond(row.number("decided_at")?).unwrap_or_default();
    let namespace = row.text("namespace")?.filter(|namespace| !namespace.is_empty());
    let entry = match record(row, &id, at, namespace.clone(), detail) {
        Ok(record) => StoredRecord::Record(Box::new(record)),
        Err(error) => StoredRecord::Unreadable { id: id.into(), namespace, at, error },
    };
    Ok(Row { seq, entry })
}

/// Like [`read`], including the detail in the row.
pub(crate) fn read_whole(row: &impl Columns) -> Result<Row, sqlx::Error> {
    read(row, row.bytes("detail")?.map(Detail::from_bytes))
}

/// A page of a list. The query asked for one row more than `limit`: that row tells whether there is a next page.
pub(crate) fn page(rows: &[impl Columns], limit: usize) -> Result<Page, sqlx::Error> {
    let mut next = None;
    let mut found = Vec::with_capacity(rows.len().min(limit));
    for row in rows.iter().take(limit) {
        let read = read(row, None)?;
        next = Some(Position { decided_at: row.number("decided_at")?, seq: read.seq });
        found.push(read);
    }
    Ok(Page { rows: found, next: next.filter(|_| rows.len() > limit) })
}

fn time(row: &impl Columns, column: &str) -> Result<Timestamp, sqlx::Error> {
    // Within the databases' own limits; a value outside was inserted by hand.
    Ok(Timestamp::from_microsecond(row.number(column)?).unwrap_or_default())
}

fn filled(row: &impl Columns, column: &str) -> Result<Option<String>, sqlx::Error> {
    Ok(row.text(column)?.filter(|text| !text.is_empty()))
}

fn id_of(row: &impl Columns, column: &str) -> Result<DecisionId, sqlx::Error> {
    Ok(row.text(column)?.unwrap_or_default().into())
}

fn milestone(row: &impl Columns) -> Result<Milestone, sqlx::Error> {
    Ok(Milestone {
        decision: id_of(row, "decision")?,
        decided_at: time(row, "decided_at")?,
        cluster: filled(row, "cluster")?.map(ClusterName::from),
        stage: Stage::from_name(&row.text("stage")?.unwrap_or_default()),
        at: time(row, "at")?,
    })
}

/// The newest rows of bindings.
pub(crate) fn newest(rows: &[impl Columns]) -> Result<Vec<Newest>, sqlx::Error> {
    let withdrawn = name(&Trigger::Withdrawn);
    let mut found = Vec::with_capacity(rows.len());
    for row in rows {
        found.push(Newest {
            binding_uid: row.text("binding_uid")?.unwrap_or_default().into(),
            decision: id_of(row, "id")?,
            term: row.number("term")?,
            withdrawn: row.text("trigger_name")?.as_deref() == Some(withdrawn.as_str()),
        });
    }
    Ok(found)
}

/// Milestones by decision, then time, then stage.
pub(crate) fn milestones(rows: &[impl Columns]) -> Result<Vec<Milestone>, sqlx::Error> {
    let found: Result<Vec<_>, _> = rows.iter().map(milestone).collect();
    let mut found = found?;
    found.sort_by(Milestone::order);
    Ok(found)
}

/// A limit in the type that databases expect.
pub(crate) fn limit(limit: usize) -> i64 {
    i64::try_from(limit).unwrap_or(i64::MAX)
}

/// A page of member events. The query asked for one more than `limit`.
pub(crate) fn members(rows: &[impl Columns], limit: usize) -> Result<MemberPage, sqlx::Error> {
    let mut page = MemberPage::default();
    for row in rows.iter().take(limit) {
        page.next = Some(Position { decided_at: row.number("at")?, seq: row.number("seq")? });
        page.events.push(MemberEvent {
            cluster: row.text("cluster")?.unwrap_or_default().into(),
            uid: filled(row, "cluster_uid")?,
            at: time(row, "at")?,
            kind: MemberEventKind::from_name(&row.text("kind")?.unwrap_or_default()),
            reason: row.text("reason")?.unwrap_or_default(),
            message: row.text("message")?.unwrap_or_default(),
        });
    }
    page.next = page.next.filter(|_| rows.len() > limit);
    Ok(page)
}

pub(crate) fn resident(row: &impl Columns) -> Result<Resident, sqlx::Error> {
    Ok(Resident {
        binding_uid: row.text("binding_uid")?.unwrap_or_default().into(),
        namespace: filled(row, "namespace")?,
        workload_kind: row.text("workload_kind")?.unwrap_or_default(),
        workload_name: row.text("workload_name")?.unwrap_or_default(),
        replicas: row.number("replicas")?,
        decision: id_of(row, "id")?,
        since: time(row, "decided_at")?,
    })
}

fn record(
    row: &impl Columns,
    id: &str,
    at: Timestamp,
    namespace: Option<String>,
    detail: Option<Detail>,
) -> Result<Record, String> {
    let version = text(row, "workload_version")?;
    let group = text(row, "workload_group")?;
    Ok(Record {
        record: DecisionRecord {
            id: id.into(),
            parent: option(row, "parent")?.map(DecisionId::from),
            trigger: variant(row, "trigger_name")?,
            mode: variant(row, "mode")?,
            outcome: variant(row, "outcome")?,
            desired: number(row, "desired")?,
            pending: parse(row, "pending")?,
            affinity_name: option(row, "affinity_name")?,
            // The row has one reason, for the decision as a whole.
            reason: None,
            full_clusters: Vec::new(),
            at: at.into(),
            term: number(row, "term")?,
        },
        binding: BindingRef {
            kind: text(row, "binding_kind")?,
            namespace: namespace.clone(),
            name: text(row, "binding_name")?,
            uid: text(row, "binding_uid")?.into(),
        },
        workload: ObjectReference {
            api_version: if group.is_empty() { version } else { format!("{group}/{version}") },
            kind: text(row, "workload_kind")?,
            namespace,
            name: text(row, "workload_name")?,
            uid: option(row, "workload_uid")?,
        },
        before: parse_option::<Vec<TargetCluster>>(row, "before_clusters")?,
        after: parse(row, "after_clusters")?,
        reason: option(row, "reason")?,
        gap: parse_option(row, "gap")?,
        withdrawal: parse_option(row, "withdrawal")?,
        provenance: parse_option(row, "provenance")?,
        rejections: parse_option(row, "rejections")?,
        detail,
        inputs: None,
    })
}

fn option(row: &impl Columns, column: &str) -> Result<Option<String>, String> {
    row.text(column).map_err(|error| format!("column {column}: {error}"))
}

fn text(row: &impl Columns, column: &str) -> Result<String, String> {
    option(row, column)?.ok_or_else(|| format!("column {column}: is NULL"))
}

fn number(row: &impl Columns, column: &str) -> Result<i64, String> {
    row.number(column).map_err(|error| format!("column {column}: {error}"))
}

fn variant<T: DeserializeOwned>(row: &impl Columns, column: &str) -> Result<T, String> {
    let name = text(row, column)?;
    serde_json::from_value(name.into()).map_err(|error| format!("column {column}: {error}"))
}

fn parse<T: DeserializeOwned>(row: &impl Columns, column: &str) -> Result<T, String> {
    let json = text(row, column)?;
    serde_json::from_str(&json).map_err(|error| format!("column {column}: {error}"))
}

fn parse_option<T: DeserializeOwned>(
    row: &impl Columns,
    column: &str,
) -> Result<Option<T>, String> {
    let json = option(row, column)?;
    json.map(|json| {
        serde_json::from_str(&json).map_err(|error| format!("column {column}: {error}"))
    })
    .transpose()
}
