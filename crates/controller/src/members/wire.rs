//! Between the generated messages and this module's types. Nothing generated goes further in.

use atoll_api::cluster::{ApiEnablement, ApiResource, NodeSummary, ResourceSummary};
use atoll_api::policy::ConflictResolution;
use atoll_api::quantity::{Quantity, ResourceList};
use atoll_protocol::v1;
use atoll_render::Key;
use jiff::Timestamp;
use tonic::Status;

use super::desired::{Held, Mark, Next, Packed};
use super::types::{ApplyResult, Counted, MemberFacts, NodeClass, ObjectHealth, Report};

/// Longest text of a reason or message that is taken from an agent.
const MAX_TEXT: usize = 4 * 1024;

pub(super) fn key(key: Option<v1::ObjectKey>) -> Result<Key, Status> {
    let key = key.ok_or_else(|| Status::invalid_argument("key is missing"))?;
    if key.kind.is_empty() || key.name.is_empty() {
        return Err(Status::invalid_argument("key.kind and key.name must not be empty"));
    }
    Ok(Key {
        group: key.group,
        kind: key.kind,
        namespace: Some(key.namespace).filter(|namespace| !namespace.is_empty()),
        name: key.name,
    })
}

fn wire_key(key: &Key) -> v1::ObjectKey {
    v1::ObjectKey {
        group: key.group.clone(),
        kind: key.kind.clone(),
        namespace: key.namespace.clone().unwrap_or_default(),
        name: key.name.clone(),
    }
}

pub(super) fn held(entry: v1::InventoryEntry) -> Result<(Key, Held), Status> {
    let key = key(entry.key)?;
    let mut claims = entry.claims;
    claims.sort_unstable();
    claims.dedup();
    let mark = Mark { hash: entry.hash, claims, preserve: entry.preserve };
    Ok((key, Held { mark, uid: entry.object_uid }))
}

/// A message for the agent, and its kind for counting.
pub(super) fn message(next: Next) -> (v1::controller_message::Message, &'static str) {
    use v1::controller_message::Message;
    match next {
        Next::Ensure(packed) => {
            (Message::Upsert(upsert(&packed, ConflictResolution::Abort, true)), "ensure")
        }
        Next::Upsert(packed, conflict) => {
            (Message::Upsert(upsert(&packed, conflict, false)), "upsert")
        }
        Next::Remove(key, object_uid) => {
            (Message::Remove(v1::Remove { key: Some(wire_key(&key)), object_uid }), "remove")
        }
        Next::Release(key, object_uid) => {
            (Message::Release(v1::Release { key: Some(wire_key(&key)), object_uid }), "release")
        }
        Next::Synced(digest) => (Message::Synced(v1::Synced { digest: digest.to_vec() }), "synced"),
    }
}

fn upsert(packed: &Packed, conflict: ConflictResolution, if_absent: bool) -> v1::Upsert {
    let conflict = match conflict {
        ConflictResolution::Abort => v1::ConflictResolution::Abort,
        ConflictResolution::Overwrite => v1::ConflictResolution::Overwrite,
    };
    v1::Upsert {
        key: Some(wire_key(&packed.key)),
        hash: packed.hash.clone(),
        manifest_json: packed.manifest.clone(),
        api_version: packed.api_version.clone(),
        conflict_resolution: conflict.into(),
        if_absent,
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

/// Text from an agent, cut to a bound.
pub(super) fn text(mut text: String) -> String {
    if text.len() > MAX_TEXT {
        let mut end = MAX_TEXT;
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        text.truncate(end);
    }
    text
}

pub(super) fn report(status: v1::Status, current: bool) -> Result<Report, Status> {
    let health = match status.health() {
        v1::Health::Healthy => ObjectHealth::Healthy,
        v1::Health::Unhealthy => ObjectHealth::Unhealthy,
        v1::Health::Unspecified | v1::Health::Unknown => ObjectHealth::Unknown,
    };
    let value = if status.status_json.is_empty() {
        None
    } else {
        let value = serde_json::from_slice(&status.status_json)
            .map_err(|_| Status::invalid_argument("status.status_json is not JSON"))?;
        Some(value)
    };
    let since = status.unschedulable_since;
    Ok(Report {
        hash: status.hash,
        current,
        generation: status.generation,
        observed_generation: status.observed_generation,
        replicas: status.replicas.map(|count| count.max(0)),
        ready: status.ready.map(|count| count.max(0)),
        unschedulable: status.unschedulable.max(0),
        unschedulable_since: if since > 0 { Timestamp::from_second(since).ok() } else { None },
        unschedulable_reason: text(status.unschedulable_reason),
        health,
        health_reason: text(status.health_reason),
        status: value,
        gone: status.gone,
        object_uid: status.object_uid,
    })
}

pub(super) fn facts(facts: v1::Facts, now: Timestamp) -> Result<MemberFacts, Status> {
    let api = |group: v1::ApiGroupVersion| ApiEnablement {
        group_version: group.group_version,
        resources: group
            .kinds
            .into_iter()
            .map(|kind| ApiResource { name: kind.plural, kind: kind.kind })
            .collect(),
    };
    let mut apis: Vec<_> = facts.apis.into_iter().map(api).collect();
    apis.sort_by(|a, b| a.group_version.cmp(&b.group_version));
    for api in &mut apis {
        api.resources.sort_by(|a, b| (&a.kind, &a.name).cmp(&(&b.kind, &b.name)));
    }
    let mut unlisted: Vec<_> = facts.unlisted_kinds.into_iter().map(text).collect();
    unlisted.sort_unstable();
    // Without a time nobody has counted yet: that is no empty member.
    let counted = if facts.taken_at_ms == 0 {
        None
    } else {
        Some(Counted {
            nodes: NodeSummary { total_num: facts.nodes_total, ready_num: facts.nodes_ready },
            resources: ResourceSummary {
                allocatable: list("allocatable_milli", facts.allocatable_milli)?,
                allocated: list("allocated_milli", facts.allocated_milli)?,
                allocating: list("allocating_milli", facts.allocating_milli)?,
                allocatable_modelings: Vec::new(),
            },
            node_classes: facts.node_classes.into_iter().map(node_class).collect(),
            taken_at: now,
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
            Ok(milli) if milli >= 0 => Ok((name, Quantity::from_milli(milli))),
            _ => Err(Status::invalid_argument(format!(
                "facts.{field}[{name:?}] must be a whole number of thousandths, 0 or more"
            ))),
        })
        .collect()
}

fn node_class(class: v1::NodeClass) -> NodeClass {
    let mut taints: Vec<_> =
        class.taints.into_iter().map(|taint| (taint.key, taint.value, taint.effect)).collect();
    taints.sort_unstable();
    NodeClass {
        taints,
        labels: class.labels,
        free: class.free.into_iter().map(|free| (free.nodes, free.milli)).collect(),
    }
}
