//! Managed fields of writes: field ownership, through `atoll-merge`.

use atoll_apimachinery::{ApiError, meta};
use atoll_merge::managed::{self, ApplyError, Endpoint, Writer};
use serde_json::Value;

use super::call::Call;

/// Maximum length of a manager name from a user agent (same as upstream).
const MANAGER_MAX: usize = 128;

/// The manager of kubectl's server-side apply, unless the user names another.
const KUBECTL: &str = "kubectl";
/// Annotation in which kubectl keeps what it applied on the client's side.
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// The manager: the `fieldManager` parameter or the first part of the user agent.
fn manager(call: &Call) -> &str {
    if let Some(given) = &call.query.field_manager {
        return given;
    }
    let agent = call
        .headers
        .get(http::header::USER_AGENT)
        .and_then(|v| v.to_str().ok())
        .and_then(|v| v.split('/').next())
        .filter(|v| !v.is_empty())
        .unwrap_or("unknown");
    // Header text is ASCII, so any place is a character boundary.
    agent.get(..MANAGER_MAX).unwrap_or(agent)
}

fn with_writer<T>(call: &Call, work: impl FnOnce(&Writer<'_>) -> T) -> T {
    let now = meta::seconds(call.core.now());
    let api_version = call.kind.api_version();
    work(&Writer {
        manager: manager(call),
        api_version: &api_version,
        subresource: call.subresource.as_deref(),
        now: &now,
    })
}

/// The object with `metadata.managedFields` updated for this writer's plain write.
pub(super) fn update(call: &Call, live: Option<&Value>, new: Value) -> Value {
    with_writer(call, |writer| managed::update(live, new, writer, call.kind.schema()))
}

/// The object after a server-side apply.
pub(super) fn apply(call: &Call, live: Option<&Value>, applied: &Value) -> Result<Value, ApiError> {
    let mut config = applied.clone();
    let endpoint = match call.subresource.as_deref() {
        Some("status") => Endpoint::Status,
        _ => Endpoint::Object { status_subresource: call.kind.status },
    };
    endpoint.restrict(&mut config);
    let schema = call.kind.schema();
    let applied_with = |force: bool| {
        with_writer(call, |writer| managed::apply(live, &config, writer, force, schema))
    };
    let mut result = applied_with(call.query.force);
    let before = live.filter(|_| call.subresource.is_none() && manager(call) == KUBECTL);
    let last = before.and_then(last_applied);
    if let (Err(ApplyError::Conflicts(conflicts)), Some(live), Some(last)) =
        (&result, before, &last)
        && conflicts.0.iter().all(|conflict| conflict.is_equal_in(live, last))
    {
        result = applied_with(true);
    }
    if let (Ok(after), Some(_)) = (&mut result, last) {
        note_applied(after, &config);
    }
    result.map_err(|error| match &error {
        ApplyError::Conflicts(conflicts) => ApiError::apply_conflict(
            error.to_string(),
            conflicts.0.iter().map(|c| (c.field.clone(), c.cause())).collect(),
        ),
        ApplyError::Misfit(_) | ApplyError::ManagedFieldsGiven => {
            ApiError::bad_request(error.to_string())
        }
        ApplyError::Entry(source) => ApiError::internal(format_args!("{error}: {source}")),
    })
}

/// What kubectl applied last on the client's side. A server-side apply of kubectl takes over the fields that still have
/// these values (upstream: `lastappliedmanager.go`).
fn last_applied(live: &Value) -> Option<Value> {
    let text = live.pointer("/metadata/annotations")?.get(LAST_APPLIED)?.as_str()?;
    serde_json::from_str(text).ok()
}

/// Keeps that annotation in step, so that a later apply on the client's side still knows its last state (upstream:
/// `lastappliedupdater.go`).
fn note_applied(after: &mut Value, config: &Value) {
    let mut config = config.clone();
    if let Some(annotations) = config.pointer_mut("/metadata/annotations")
        && let Some(annotations) = annotations.as_object_mut()
    {
        annotations.remove(LAST_APPLIED);
    }
    if let Some(annotations) = after.pointer_mut("/metadata/annotations")
        && annotations.is_object()
    {
        annotations[LAST_APPLIED] = format!("{config}\n").into();
    }
}

/// If only the times of managed fields differ, the old times stay: such a write changes nothing.
pub(super) fn keep_times(live: &Value, new: &mut Value) {
    let held = meta::get(live, "managedFields");
    let found = meta::get(new, "managedFields");
    if held == found || !same_but_times(held, found) || !same_but_entries(live, new) {
        return;
    }
    let held = held.cloned();
    meta::set(new, "managedFields", held);
}

/// Whether two lists of managed fields are equal except for their times.
fn same_but_times(a: Option<&Value>, b: Option<&Value>) -> bool {
    let (Some(a), Some(b)) = (a.and_then(Value::as_array), b.and_then(Value::as_array)) else {
        return a == b;
    };
    a.len() == b.len() && a.iter().zip(b).all(|(a, b)| same_but(a, b, "time", |_, _| true))
}

/// Whether two objects are equal except for their managed fields.
fn same_but_entries(a: &Value, b: &Value) -> bool {
    same_but(a, b, "metadata", |a, b| same_but(a, b, "managedFields", |_, _| true))
}

/// Whether two objects are equal, with `same` comparing one field, which may be absent on either side.
fn same_but(a: &Value, b: &Value, field: &str, same: impl Fn(&Value, &Value) -> bool) -> bool {
    let (Some(a), Some(b)) = (a.as_object(), b.as_object()) else { return a == b };
    let others = |fields: &meta::Fields| fields.len() - usize::from(fields.contains_key(field));
    let null = Value::Null;
    others(a) == others(b)
        && a.iter().all(|(name, value)| name == field || b.get(name) == Some(value))
        && same(a.get(field).unwrap_or(&null), b.get(field).unwrap_or(&null))
}
