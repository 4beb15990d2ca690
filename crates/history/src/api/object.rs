//! A row as an object, and an object as a table row.

use atoll_api::binding::TargetCluster;
use atoll_api::{HISTORY_GROUP, VERSION};
use jiff::Timestamp;
use serde_json::{Map, Value, json};

use super::query::{LABEL_KIND, LABEL_OUTCOME, LABEL_TRIGGER, LABEL_WORKLOAD};
use super::{Kind, life, members, text};
use crate::{Milestone, Record, Row, StoredRecord, moves};

/// A row as an object, with its progress as `status`.
pub(super) fn with_status(row: &Row, with_detail: bool, steps: &[Milestone]) -> Value {
    let mut object = object(row, with_detail);
    if let StoredRecord::Record(record) = &row.entry {
        object["status"] = life::status(record, steps);
    }
    object
}

/// A row as an object. Its name is the decision's id, its resourceVersion the row's number, its spec the decision; with
/// `with_detail` the spec has the full Decision as `detail`, or the reason why it is missing.
#[must_use]
pub fn object(row: &Row, with_detail: bool) -> Value {
    let (kind, namespace, at, labels, spec) = match &row.entry {
        StoredRecord::Record(record) => (
            kind(record.binding.namespace.as_deref()),
            record.binding.namespace.as_deref(),
            record.decided_at(),
            labels(record),
            spec(record, with_detail),
        ),
        StoredRecord::Unreadable { namespace, at, error, .. } => (
            kind(namespace.as_deref()),
            namespace.as_deref(),
            *at,
            Map::new(),
            json!({"at": time(*at), "unreadable": error}),
        ),
    };
    let id = row.entry.id();
    let mut metadata = json!({
        "name": id,
        "uid": uid(id),
        "resourceVersion": row.seq.to_string(),
        "creationTimestamp": time(at),
    });
    if let Some(namespace) = namespace {
        metadata["namespace"] = json!(namespace);
    }
    if !labels.is_empty() {
        metadata["labels"] = Value::Object(labels);
    }
    json!({
        "apiVersion": format!("{HISTORY_GROUP}/{VERSION}"),
        "kind": kind.name(),
        "metadata": metadata,
        "spec": spec,
    })
}

fn kind(namespace: Option<&str>) -> Kind {
    if namespace.is_some() { Kind::Decision } else { Kind::ClusterDecision }
}

/// A time to the millisecond: stages follow each other within less than a second.
pub(super) fn precise(at: Timestamp) -> String {
    Timestamp::from_millisecond(at.as_millisecond()).unwrap_or(at).to_string()
}

/// A time in Kubernetes' format.
pub(super) fn time(at: Timestamp) -> String {
    Timestamp::from_second(at.as_second()).unwrap_or(at).to_string()
}

/// The id in the form of a uid, if Atoll made it (128 bits in hex).
fn uid(id: &str) -> String {
    if id.len() != 32 || !id.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return id.to_owned();
    }
    format!("{}-{}-{}-{}-{}", &id[..8], &id[8..12], &id[12..16], &id[16..20], &id[20..])
}

fn labels(record: &Record) -> Map<String, Value> {
    let mut labels = Map::from_iter([
        (LABEL_TRIGGER.to_owned(), json!(record.record.trigger)),
        (LABEL_OUTCOME.to_owned(), json!(record.record.outcome)),
        (LABEL_KIND.to_owned(), json!(record.workload.kind)),
    ]);
    // Names may be longer than label values and contain other characters: then use the field selector.
    if is_label_value(&record.workload.name) {
        labels.insert(LABEL_WORKLOAD.to_owned(), json!(record.workload.name));
    }
    labels
}

/// By apimachinery's rule for label values.
pub(super) fn is_label_value(value: &str) -> bool {
    let inner = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    let edge = |byte: Option<&u8>| byte.is_some_and(u8::is_ascii_alphanumeric);
    let bytes = value.as_bytes();
    bytes.len() <= 63
        && edge(bytes.first())
        && edge(bytes.last())
        && bytes.iter().all(|b| inner(*b))
}

fn spec(record: &Record, with_detail: bool) -> Value {
    let decision = &record.record;
    let mut spec = json!({
        "at": time(record.decided_at()),
        "trigger": decision.trigger,
        "mode": decision.mode,
        "outcome": decision.outcome,
        "reason": text::reason(record),
        "desired": decision.desired,
        "pending": decision.pending,
        "term": decision.term,
        "binding": record.binding,
        "workload": record.workload,
        "after": record.after,
    });
    let mut optional = |field: &str, value: Option<Value>| {
        if let Some(value) = value {
            spec[field] = value;
        }
    };
    optional("parent", decision.parent.as_ref().map(|parent| json!(parent)));
    optional("affinityName", decision.affinity_name.as_ref().map(|name| json!(name)));
    optional("before", record.before.as_ref().map(|before| json!(before)));
    optional("moves", record.before.as_ref().map(|before| json!(moves(before, &record.after))));
    optional("gap", record.gap.as_ref().map(|gap| json!(gap)));
    optional("provenance", record.provenance.as_ref().map(|provenance| json!(provenance)));
    optional("withdrawal", record.withdrawal.as_ref().map(|withdrawal| json!(withdrawal)));
    if with_detail {
        match record.detail.as_ref().map(crate::Detail::decode) {
            Some(Ok(detail)) => optional("detail", Some(detail)),
            Some(Err(error)) => {
                let text = match std::error::Error::source(&error) {
                    Some(cause) => format!("{error}: {cause}"),
                    None => error.to_string(),
                };
                optional("detailMissing", Some(json!(text)));
            }
            None => optional("detailMissing", Some(json!("the decision's detail was not stored"))),
        }
    }
    spec
}

/// The table cells of an object, one for each of [`Kind::columns`].
#[must_use]
pub fn cells(object: &Value, now: Timestamp) -> Vec<Value> {
    if object["kind"] == Kind::MemberEvent.name() {
        return members::cells(object, now);
    }
    if object["kind"] == Kind::DecisionInput.name() {
        let missing = object["spec"]["missing"].is_string();
        let state = if missing { "missing" } else { "stored" };
        return vec![object["metadata"]["name"].clone(), json!(state)];
    }
    let spec = &object["spec"];
    let at = spec["at"].as_str().and_then(|at| at.parse::<Timestamp>().ok());
    let age = at.map_or_else(|| "<unknown>".to_owned(), |at| text::age(at, now));
    let shares = |field: &str| -> Option<Vec<TargetCluster>> {
        serde_json::from_value(spec.get(field)?.clone()).ok()
    };
    if let Some(error) = spec["unreadable"].as_str() {
        let reason = format!("this row cannot be read: {error}");
        let mut cells = vec![object["metadata"]["name"].clone(), json!(age)];
        cells.extend(std::iter::repeat_n(json!("?"), 4));
        cells.push(json!(reason));
        cells.extend(std::iter::repeat_n(Value::Null, 6));
        return cells;
    }
    let kind = spec["workload"]["kind"].as_str().unwrap_or_default().to_lowercase();
    let name = spec["workload"]["name"].as_str().unwrap_or_default();
    let pending = spec["pending"].as_array().into_iter().flatten();
    let pending: i64 = pending.filter_map(|group| group["replicas"].as_i64()).sum();
    let change =
        text::change(shares("before").as_deref(), shares("after").as_deref().unwrap_or_default());
    vec![
        object["metadata"]["name"].clone(),
        json!(age),
        json!(format!("{kind}/{name}")),
        spec["trigger"].clone(),
        spec["outcome"].clone(),
        json!(change),
        spec["reason"].clone(),
        spec["desired"].clone(),
        json!(pending),
        spec["mode"].clone(),
        spec.get("parent").cloned().unwrap_or_else(|| json!("")),
        json!(text::took(object, "applied")),
        json!(text::took(object, "healthy")),
    ]
}
