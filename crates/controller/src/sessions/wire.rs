//! Converts between generated messages and this module's types. Generated types are not used further inside.

use std::sync::Arc;

use atoll_api::BindingUid;
use atoll_api::cluster::{ApiEnablement, ApiResource, NodeSummary, ResourceSummary};
use atoll_api::customization::Operation;
use atoll_api::policy::ConflictResolution;
use atoll_api::quantity::{Quantity, ResourceList};
use atoll_protocol::transport::MAX_STATUS;
use atoll_protocol::v1;
use atoll_render::Key;
use atoll_traces::TraceContext;
use jiff::Timestamp;
use serde_json::Value;
use tonic::Status;

use super::bounds::{MAX_CLAIMS, MAX_ID, MAX_KEY_FIELD};
use super::customizations::AgentCustomizations;
use super::desired::{Held, Mark, Order};
use crate::member::types::{
    AgentRuleFailed, ApplyResult, Counted, HealthReport, MemberFacts, NodeClass, ObjectHealth,
    Report,
};
use crate::packed::Packed;

/// Largest accepted replica count: Kubernetes uses 32 bits.
const MAX_REPLICAS: i64 = i32::MAX as i64;
/// Largest accepted node count; Kubernetes is tested with 5,000 per cluster.
const MAX_NODES: i64 = 1_000_000;
/// Limit of the namespaces whose ResourceQuotas a member reports, as in the protocol.
const MAX_QUOTAS: usize = 1_000;
/// Largest sum of a resource, in thousandths.
const MAX_MILLI: i128 = i64::MAX as i128 * 1_000;
/// Longest accepted message from an agent, in bytes. Messages of up to 100 members are in one binding's status, and an
/// Event accepts no more.
const MAX_TEXT: usize = 1024;
/// Longest accepted reason from an agent. Kubernetes' own have up to 30 characters.
const MAX_REASON: usize = 64;

pub(super) fn key(key: Option<v1::ObjectKey>) -> Result<Key, Status> {
    let key = key.ok_or_else(|| Status::invalid_argument("key is missing"))?;
    if key.kind.is_empty() || key.name.is_empty() {
        return Err(Status::invalid_argument("key.kind and key.name must not be empty"));
    }
    if [&key.group, &key.kind, &key.namespace, &key.name].iter().any(|f| f.len() > MAX_KEY_FIELD) {
        return Err(Status::invalid_argument("a field of key is longer than 1 KiB"));
    }
    for (field, value) in [
        ("key.group", &key.group),
        ("key.kind", &key.kind),
        ("key.namespace", &key.namespace),
        ("key.name", &key.name),
    ] {
        printable(field, value)?;
    }
    Ok(Key::new(&key.group, &key.kind, Some(&key.namespace), &key.name))
}

pub(super) fn wire_key(key: &Key) -> v1::ObjectKey {
    v1::ObjectKey {
        group: key.group().to_owned(),
        kind: key.kind().to_owned(),
        namespace: key.namespace().unwrap_or_default().to_owned(),
        name: key.name().to_owned(),
    }
}

pub(super) fn held(entry: v1::InventoryEntry) -> Result<(Key, Held), Status> {
    let key = key(entry.key)?;
    id("entry.hash", &entry.hash)?;
    id("entry.object_uid", &entry.object_uid)?;
    if entry.claims.len() > MAX_CLAIMS {
        return Err(Status::invalid_argument("entry.claims has more than 10,000 entries"));
    }
    for claim in &entry.claims {
        id("entry.claims", claim)?;
    }
    let mut claims: Vec<BindingUid> = entry.claims.into_iter().map(BindingUid::from).collect();
    claims.sort_unstable();
    claims.dedup();
    let mark = Mark { hash: entry.hash.into(), claims, preserve: entry.preserve };
    Ok((key, Held { mark: Arc::new(mark), uid: entry.object_uid.as_str().into() }))
}

/// A message for the agent, and its kind for metrics; with the trace that the agent continues.
pub(super) fn message(
    order: Order,
    trace: Option<TraceContext>,
) -> (v1::controller_message::Message, &'static str) {
    use v1::controller_message::Message;
    match order {
        Order::Ensure(packed) => {
            (Message::Upsert(upsert(&packed, ConflictResolution::Abort, true)), "ensure")
        }
        Order::Upsert(packed, conflict) => {
            let traceparent = trace.map(|context| context.to_string()).unwrap_or_default();
            let upsert = v1::Upsert { traceparent, ..upsert(&packed, conflict, false) };
            (Message::Upsert(upsert), "upsert")
        }
        Order::Remove(key, object_uid) => {
            (Message::Remove(v1::Remove { key: Some(wire_key(&key)), object_uid }), "remove")
        }
        Order::Release(key, object_uid) => {
            (Message::Release(v1::Release { key: Some(wire_key(&key)), object_uid }), "release")
        }
        Order::Synced(digest) => {
            (Message::Synced(v1::Synced { digest: digest.to_vec() }), "synced")
        }
    }
}

fn upsert(packed: &Packed, conflict: ConflictResolution, if_absent: bool) -> v1::Upsert {
    let conflict = match conflict {
        ConflictResolution::Abort => v1::ConflictResolution::Abort,
        ConflictResolution::Overwrite => v1::ConflictResolution::Overwrite,
    };
    v1::Upsert {
        key: Some(wire_key(&packed.key)),
        hash: (&packed.hash).into(),
        manifest_json: packed.manifest(),
        api_version: packed.api_version.to_string(),
        conflict_resolution: conflict.into(),
        if_absent,
        traceparent: String::new(),
    }
}

pub(super) fn apply_result(result: v1::ApplyResult) -> Result<ApplyResult, Status> {
    Ok(match result {
        v1::ApplyResult::Unspecified => {
            return Err(Status::invalid_argument("applied.result is not specified"));
        }
        v1::ApplyResult::Applied => ApplyResult::Applied,
        v1::ApplyResult::Removed => ApplyResult::Removed,
        v1::ApplyResult::Released => ApplyResult::Released,
        v1::ApplyResult::Conflict => ApplyResult::Conflict,
        v1::ApplyResult::Failed => ApplyResult::Failed,
        v1::ApplyResult::NotOurs => ApplyResult::NotOurs,
        v1::ApplyResult::Waiting => ApplyResult::Waiting,
    })
}

/// Checks a hash or a uid: a truncated or cleaned one would identify something else.
pub(super) fn id(field: &str, value: &str) -> Result<(), Status> {
    match value.len() {
        0..=MAX_ID => printable(field, value),
        _ => Err(Status::invalid_argument(format!("{field} is longer than {MAX_ID} bytes"))),
    }
}

fn printable(field: &str, value: &str) -> Result<(), Status> {
    if value.chars().any(is_unprintable) {
        return Err(Status::invalid_argument(format!("{field} must have no control characters")));
    }
    Ok(())
}

/// Text from a member, made safe for statuses, Events and logs: one line of at most 1 KiB, without terminal control
/// characters.
pub(super) fn text(text: String) -> String {
    if text.len() <= MAX_TEXT && !text.chars().any(is_unprintable) {
        return text;
    }
    let mut clean = String::with_capacity(text.len().min(MAX_TEXT));
    for c in text.chars() {
        let c = match c {
            '\n' | '\t' | '\r' => ' ',
            c if is_unprintable(c) => continue,
            c => c,
        };
        if clean.len() + c.len_utf8() > MAX_TEXT {
            break;
        }
        clean.push(c);
    }
    clean
}

/// A reason from a member. Conditions and Events accept only CamelCase words: with anything else the hub would reject
/// the whole status.
pub(super) fn reason(text: &str) -> String {
    let starts_well = text.starts_with(|c: char| c.is_ascii_alphabetic());
    if starts_well && text.len() <= MAX_REASON && text.chars().all(|c| c.is_ascii_alphanumeric()) {
        return text.to_owned();
    }
    let words = text.chars().filter(char::is_ascii_alphanumeric);
    words.skip_while(|c| !c.is_ascii_alphabetic()).take(MAX_REASON).collect()
}

/// Control characters, and characters that change the text direction.
fn is_unprintable(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// Cleans every text of an object's status. Its messages may have several lines. Recursion is bounded: the parser
/// accepts at most 128 levels.
fn clean(value: &mut Value) {
    let is_bad = |c: char| is_unprintable(c) && !matches!(c, '\n' | '\t');
    match value {
        Value::String(text) if text.chars().any(is_bad) => text.retain(|c| !is_bad(c)),
        Value::Array(items) => items.iter_mut().for_each(clean),
        Value::Object(fields) => fields.values_mut().for_each(clean),
        Value::String(_) | Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// The validated result of an order.
pub(super) fn applied(mut applied: v1::Applied) -> Result<v1::Applied, Status> {
    id("applied.hash", &applied.hash)?;
    id("applied.object_uid", &applied.object_uid)?;
    applied.reason = reason(&applied.reason);
    applied.message = text(applied.message);
    Ok(applied)
}

pub(super) fn report(status: v1::Status, current: bool) -> Result<Report, Status> {
    let health = match status.health() {
        v1::Health::Healthy => ObjectHealth::Healthy,
        v1::Health::Unhealthy => ObjectHealth::Unhealthy,
        v1::Health::Unspecified | v1::Health::Unknown => ObjectHealth::Unknown,
    };
    id("status.hash", &status.hash)?;
    id("status.object_uid", &status.object_uid)?;
    let sent = status.status_json.len();
    let (value, left_out) = if sent > MAX_STATUS {
        // Atoll's agents leave it out themselves.
        (None, sent as u64)
    } else if sent == 0 {
        (None, status.status_left_out)
    } else {
        let mut value = serde_json::from_slice(&status.status_json)
            .map_err(|_| Status::invalid_argument("status.status_json is not JSON"))?;
        clean(&mut value);
        (Some(value), 0)
    };
    let since = status.unschedulable_since;
    Ok(Report {
        hash: status.hash.into(),
        current,
        generation: status.generation.max(0),
        observed_generation: status.observed_generation.max(0),
        replicas: status.replicas.map(replicas),
        ready: status.ready.map(replicas),
        unschedulable: replicas(status.unschedulable),
        unschedulable_since: if since > 0 { Timestamp::from_second(since).ok() } else { None },
        unschedulable_reason: text(status.unschedulable_reason),
        health: HealthReport {
            state: health,
            reason: reason(&status.health_reason),
            message: text(status.health_message),
            failing: status.failing,
        },
        status: value,
        status_bytes: if left_out > 0 { 0 } else { sent },
        status_left_out: left_out,
        gone: status.gone,
        object_uid: status.object_uid,
    })
}

/// The failure of a rule; `None` if the customization has changed since, or if the agent is of a later version and uses it
/// for something that is not known here.
pub(super) fn rule_failure(
    customizations: &AgentCustomizations,
    failure: v1::RuleFailure,
) -> Result<Option<AgentRuleFailed>, Status> {
    let operation = match failure.operation() {
        v1::RuleOperation::Unspecified => return Ok(None),
        v1::RuleOperation::Retention => Operation::Retain,
        v1::RuleOperation::StatusReflection => Operation::InterpretStatus,
        v1::RuleOperation::HealthInterpretation => Operation::InterpretHealth,
    };
    let key = key(failure.key)?;
    let hash = customizations.spec_hash(&failure.customization, &failure.hash);
    Ok(hash.map(|hash| AgentRuleFailed {
        customization: failure.customization,
        spec_hash: hash.clone(),
        operation,
        key,
        message: text(failure.message),
    }))
}

pub(super) fn facts(facts: v1::Facts, now: Timestamp) -> Result<MemberFacts, Status> {
    let api = |group: v1::ApiGroupVersion| ApiEnablement {
        group_version: text(group.group_version),
        resources: group
            .kinds
            .into_iter()
            .map(|kind| ApiResource { name: text(kind.plural), kind: text(kind.kind) })
            .collect(),
    };
    let mut apis: Vec<_> = facts.apis.into_iter().map(api).collect();
    apis.sort_by(|a, b| a.group_version.cmp(&b.group_version));
    for api in &mut apis {
        api.resources.sort_by(|a, b| (&a.kind, &a.name).cmp(&(&b.kind, &b.name)));
    }
    let mut unlisted: Vec<_> = facts.unlisted_kinds.into_iter().map(text).collect();
    unlisted.sort_unstable();
    // Without a time nothing was counted yet: that is not an empty member.
    let counted = if facts.taken_at_ms == 0 {
        None
    } else {
        Some(Counted {
            nodes: NodeSummary {
                total_num: facts.nodes_total.clamp(0, MAX_NODES),
                ready_num: facts.nodes_ready.clamp(0, MAX_NODES),
            },
            resources: ResourceSummary {
                allocatable: list("allocatable_milli", facts.allocatable_milli)?,
                allocated: list("allocated_milli", facts.allocated_milli)?,
                allocating: list("allocating_milli", facts.allocating_milli)?,
                allocatable_modelings: Vec::new(),
            },
            node_classes: facts.node_classes.into_iter().map(node_class).collect(),
            quotas: quotas(facts.quotas)?,
            taken_at: now,
            counted_at_ms: facts.taken_at_ms,
        })
    };
    Ok(MemberFacts {
        kubernetes_version: text(facts.kubernetes_version),
        api_healthy: facts.api_healthy,
        api_message: text(facts.api_message),
        apis,
        apis_complete: facts.apis_complete,
        unlisted,
        counted,
    })
}

fn list(
    field: &str,
    milli: std::collections::BTreeMap<String, String>,
) -> Result<ResourceList, Status> {
    milli
        .into_iter()
        .map(|(name, value)| match value.parse::<i128>() {
            Ok(milli) if (0..=MAX_MILLI).contains(&milli) => {
                Ok((name, Quantity::from_milli(milli)))
            }
            _ => Err(Status::invalid_argument(format!(
                "facts.{field}[{name:?}] must be a whole number of thousandths from 0 to 2^63 - 1 units"
            ))),
        })
        .collect()
}

/// What ResourceQuotas leave. Too many namespaces are refused: an agent sends at most so many.
fn quotas(
    quotas: Vec<v1::NamespaceQuota>,
) -> Result<std::collections::BTreeMap<String, std::collections::BTreeMap<String, i64>>, Status> {
    if quotas.len() > MAX_QUOTAS {
        return Err(Status::invalid_argument(format!(
            "facts.quotas has {} entries, at most {MAX_QUOTAS} are allowed",
            quotas.len()
        )));
    }
    let free = |free: std::collections::BTreeMap<String, i64>| {
        free.into_iter().map(|(resource, milli)| (text(resource), milli.max(0))).collect()
    };
    Ok(quotas.into_iter().map(|of| (text(of.namespace), free(of.free_milli))).collect())
}

fn replicas(claimed: i64) -> i64 {
    claimed.clamp(0, MAX_REPLICAS)
}

fn free(free: v1::FreeVector) -> (i64, std::collections::BTreeMap<String, i64>) {
    let milli = free.milli.into_iter();
    let milli = milli.map(|(name, milli)| (name, milli.max(0))).collect();
    (free.nodes.clamp(0, MAX_NODES), milli)
}

fn node_class(class: v1::NodeClass) -> NodeClass {
    let taint = |taint: v1::NodeTaint| (text(taint.key), text(taint.value), text(taint.effect));
    let mut taints: Vec<_> = class.taints.into_iter().map(taint).collect();
    taints.sort_unstable();
    NodeClass { taints, labels: class.labels, free: class.free.into_iter().map(free).collect() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn free_amounts_of_quotas_are_bounded_in_number_and_never_negative() {
        let quota = |n: usize| v1::NamespaceQuota {
            namespace: format!("n{n:04}"),
            free_milli: [("cpu".to_owned(), -5), ("pods".to_owned(), 7_000)].into(),
        };
        let facts = |count: usize| v1::Facts {
            quotas: (0..count).map(quota).collect(),
            taken_at_ms: 1,
            ..v1::Facts::default()
        };
        let read = super::facts(facts(MAX_QUOTAS), Timestamp::UNIX_EPOCH).unwrap();
        let quotas = read.counted.unwrap().quotas;
        assert_eq!(quotas.len(), MAX_QUOTAS);
        assert_eq!(quotas["n0007"], [("cpu".to_owned(), 0), ("pods".to_owned(), 7_000)].into());
        let refused = super::facts(facts(MAX_QUOTAS + 1), Timestamp::UNIX_EPOCH).unwrap_err();
        assert!(refused.message().starts_with("facts.quotas has 1001 entries"), "{refused}");
    }

    fn status() -> v1::Status {
        v1::Status { status_json: b"{}".to_vec().into(), ..v1::Status::default() }
    }

    #[test]
    fn what_members_say_cannot_steer_a_terminal_or_fill_a_status() {
        let hostile = format!("\u{1b}[2Jpull\r\n\u{202e}failed\u{9b}31m{}", "ä".repeat(5000));
        let cleaned = report(
            v1::Status {
                health: v1::Health::Unhealthy.into(),
                health_reason: hostile.clone(),
                health_message: hostile.clone(),
                unschedulable_reason: hostile.clone(),
                status_json:
                    serde_json::json!({"conditions": [{"message": "two\nlines\u{1b}[2J"}]})
                        .to_string()
                        .into_bytes()
                        .into(),
                ..status()
            },
            true,
        )
        .unwrap();
        for text in [&cleaned.health.message, &cleaned.unschedulable_reason] {
            assert!(text.starts_with("[2Jpull  failed31mä"), "{text}");
            assert!(text.len() <= MAX_TEXT && !text.chars().any(is_unprintable));
        }
        assert!(cleaned.health.reason.starts_with("Jpullfailed31m"), "{}", cleaned.health.reason);
        assert!(cleaned.health.reason.len() <= MAX_REASON);
        assert!(cleaned.health.reason.chars().all(|c| c.is_ascii_alphanumeric()));
        let message = &cleaned.status.unwrap()["conditions"][0]["message"];
        assert_eq!(message, "two\nlines[2J");

        let applied = applied(v1::Applied {
            reason: "Not a reason!".to_owned(),
            message: hostile,
            ..v1::Applied::default()
        })
        .unwrap();
        assert_eq!(applied.reason, "Notareason");
        assert!(applied.message.len() <= MAX_TEXT);
        assert_eq!(reason("ImagePullBackOff"), "ImagePullBackOff");
        assert_eq!(text("as it is".to_owned()), "as it is");
    }

    #[test]
    fn an_id_that_is_too_long_or_unprintable_is_refused_by_name() {
        let long = "x".repeat(MAX_ID + 1);
        for (field, result) in [
            ("status.hash", report(v1::Status { hash: long.clone(), ..status() }, true).err()),
            (
                "applied.object_uid",
                applied(v1::Applied { object_uid: "a\nb".into(), ..v1::Applied::default() }).err(),
            ),
            (
                "entry.claims",
                held(v1::InventoryEntry {
                    key: Some(v1::ObjectKey {
                        kind: "Pod".into(),
                        name: "p".into(),
                        ..v1::ObjectKey::default()
                    }),
                    claims: vec![long.clone()],
                    ..v1::InventoryEntry::default()
                })
                .err(),
            ),
            (
                "key.name",
                key(Some(v1::ObjectKey {
                    kind: "Pod".into(),
                    name: "a\u{1b}b".into(),
                    ..v1::ObjectKey::default()
                }))
                .err(),
            ),
        ] {
            let error = result.unwrap();
            assert!(error.message().starts_with(field), "{field}: {}", error.message());
        }
    }
}
