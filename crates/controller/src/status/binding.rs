//! The status of a binding.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::num::NonZeroI64;

use atoll_api::binding::{
    AggregatedStatusItem, BindingSummary, Outcome, ResourceBindingStatus, ResourceHealth,
};
use atoll_api::conditions::{
    self, CLAIMED, DEPENDENCIES, FULLY_APPLIED, HEALTHY, HELD, RECORDED, SCHEDULED, Status,
    WORKLOAD_AFFINITY,
};
use atoll_api::text::counted;
use atoll_decision::{OVERCOMMITTED, QUOTA_EXCEEDED};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;

use crate::guards::Held;
use crate::index::rows::Binding;
use crate::placements::observed::{Certainty, Observed};

/// Reason of a binding that is not decided because a gate is shut, as for Pods in kube-scheduler.
pub(crate) const GATED: &str = "SchedulingGated";
/// Reason of a binding that is not processed.
pub(crate) const REFUSED: &str = "BindingRefused";
/// Reason of a binding whose template cannot be rendered for a member.
pub(crate) const CANNOT_RENDER: &str = "CannotRender";
/// Limit of clusters in `aggregatedStatus`.
pub(crate) const MOST_ITEMS: usize = 100;
/// Limit of clusters with their raw status in it.
pub(crate) const MOST_RAW: usize = 20;
/// Limit of its raw statuses in bytes of JSON, as they arrived. One member may send 64 KiB, and an object of the hub must
/// stay below etcd's limit of 1.5 MiB, even if all numbers grow fourfold when they are written (`1e15`).
const MOST_RAW_BYTES: u32 = 256 * 1024;

/// Inputs of a status, in addition to the binding.
pub(crate) trait Knowledge {
    /// The binding's state on a member.
    fn observed(&self, cluster: &str) -> Option<&Observed>;
    /// Hash of what the member was sent; `None` before that.
    fn sent(&self, cluster: &str) -> Option<&str>;
    /// Why the binding is not processed, if so.
    fn refused(&self) -> Option<String>;
    /// Why it is not decided for now, if so.
    fn gated(&self) -> Option<String>;
    /// Whether a ChangeGuard holds a change of it.
    fn held(&self) -> Held<'_>;
    /// Why nothing is sent to members for now, if so.
    fn hindrance(&self) -> Option<(&'static str, String)>;
    /// Why no policy in effect claims the template, if so.
    fn unclaimed(&self) -> Option<(&'static str, String)>;
    /// The objects that its template refers to and that do not go along: the worst reason, and which.
    fn obstacles(&self) -> Option<(&'static str, Vec<String>)>;
    /// How its clusters violate the required rules of `placement.workloadAffinity`. `None` if it has no such rules.
    fn affinity_violations(&self) -> Option<Vec<String>>;
    /// Why history lacks its last decision, if the database is the cause.
    fn unrecorded(&self) -> Option<String>;
}

/// One member's entry without its raw status, and whether the member is connected.
fn item(cluster: &str, knowledge: &impl Knowledge) -> (AggregatedStatusItem, bool) {
    let Some(view) = knowledge.observed(cluster) else {
        let unknown = AggregatedStatusItem {
            cluster_name: cluster.to_owned(),
            ..AggregatedStatusItem::default()
        };
        return (unknown, false);
    };
    let mut item = view.item.entry(cluster);
    match view.certainty {
        Certainty::Seeded => return (item, true),
        Certainty::Lost => {
            item.health = ResourceHealth::Unknown;
            item.health_reason = Some("MemberLost".to_owned());
            item.health_message = None;
            item.healthy_since = None;
            item.applied = false;
            item.applied_message = Some("member disconnected; this is its last report".to_owned());
            return (item, false);
        }
        Certainty::Fresh => {}
    }
    item.applied = !view.hash.is_empty() && knowledge.sent(cluster) == Some(view.hash.as_str());
    if let Some(trouble) = &view.trouble {
        item.applied = false;
        item.applied_message = Some(format!("{}: {}", trouble.reason, trouble.message));
    }
    (item, true)
}

/// Whether nothing is pending: every target runs what it was sent, healthily, and nothing is leaving.
#[must_use]
pub(crate) fn is_settled(binding: &Binding, knowledge: &impl Knowledge) -> bool {
    let holds = |cluster: &str| {
        let (item, known) = item(cluster, knowledge);
        known && item.applied && item.health == ResourceHealth::Healthy
    };
    binding.spec.graceful_eviction_tasks.is_empty()
        && binding.required_on().all(holds)
        && binding.spec.clusters.iter().all(|target| {
            let (item, known) = item(&target.name, knowledge);
            known
                && item.applied
                && item.health == ResourceHealth::Healthy
                && (binding.spec.replicas.is_none()
                    || item.ready_replicas.is_none_or(|ready| ready >= target.replicas))
        })
}

/// The desired status of a binding.
#[must_use]
pub(crate) fn status(
    binding: &Binding,
    knowledge: &impl Knowledge,
    now: Timestamp,
) -> ResourceBindingStatus {
    let spec = &binding.spec;
    let mut items = items(binding, knowledge);
    let mut status = ResourceBindingStatus {
        conditions: conditions_of(binding, knowledge, &items, now),
        summary: Some(summary(&items)),
        truncated: items.len() > MOST_ITEMS,
        ..ResourceBindingStatus::default()
    };
    // Faults first, then by name, which is the existing order.
    items.sort_by_key(|(item, known)| {
        (Reverse(item.health == ResourceHealth::Unhealthy || !item.applied), Reverse(!known))
    });
    items.truncate(MOST_ITEMS);
    status.aggregated_status = items.into_iter().map(|(item, _)| item).collect();
    add_raw(&mut status.aggregated_status, knowledge);
    if let Some(decision) = &spec.decision {
        status.last_scheduled_time = Some(decision.at.clone());
        status.scheduler_observing_affinity_name.clone_from(&decision.affinity_name);
    }
    status
}

/// Every member that the decision names, by name, with its state and whether that is known.
fn items(binding: &Binding, knowledge: &impl Knowledge) -> Vec<(AggregatedStatusItem, bool)> {
    let spec = &binding.spec;
    let kept = spec.graceful_eviction_tasks.iter().filter(|task| task.keep);
    let mut clusters: Vec<&str> = spec
        .clusters
        .iter()
        .map(|target| target.name.as_str())
        .chain(kept.map(|task| task.from_cluster.as_str()))
        .chain(binding.required_on())
        .collect();
    clusters.sort_unstable();
    clusters.dedup();
    #[cfg(test)]
    if crate::mutants::is(crate::mutants::Mutant::AppliedByThoseWhoAnswered) {
        clusters.retain(|cluster| knowledge.observed(cluster).is_some());
    }
    clusters.iter().map(|cluster| item(cluster, knowledge)).collect()
}

fn summary(items: &[(AggregatedStatusItem, bool)]) -> BindingSummary {
    let mut summary = BindingSummary::default();
    for (item, known) in items {
        summary.applied += i64::from(item.applied);
        summary.unhealthy += i64::from(item.health == ResourceHealth::Unhealthy);
        if *known {
            let ready = item.ready_replicas.unwrap_or_default();
            summary.ready = summary.ready.saturating_add(ready);
        } else {
            summary.unknown += 1;
        }
    }
    summary
}

fn conditions_of(
    binding: &Binding,
    knowledge: &impl Knowledge,
    items: &[(AggregatedStatusItem, bool)],
    now: Timestamp,
) -> Vec<Condition> {
    let mut conditions = binding.status.read().conditions;
    let recorded = conditions::find(&conditions, RECORDED).is_some();
    let (violations, guarded) = (knowledge.affinity_violations(), knowledge.held());
    conditions.retain(|held| match held.type_.as_str() {
        DEPENDENCIES => binding.spec.propagate_deps,
        WORKLOAD_AFFINITY => violations.is_some(),
        HELD => guarded != Held::No,
        _ => true,
    });
    let mut set = |type_, holds, reason: &str, message: &str| {
        let generation = binding.meta.generation.map(NonZeroI64::get);
        conditions::set(&mut conditions, type_, holds, reason, message, generation, now);
    };
    let (scheduled_holds, mut reason, mut message) = scheduled(binding);
    if let Some(why) = knowledge.gated() {
        (reason, message) = (GATED.to_owned(), why);
    }
    set(SCHEDULED, scheduled_holds, &reason, &message);
    let total = items.len();
    // Scaled to zero: a client that waits for "applied" must not wait forever.
    let nothing_wanted =
        total == 0 && binding.spec.replicas == Some(0) && scheduled_holds == Status::True;
    let (holds, reason, message) = match knowledge.hindrance() {
        // Known: these members do not get what is wanted.
        Some((CANNOT_RENDER, message)) => (Status::False, CANNOT_RENDER, message),
        Some((reason, message)) => (Status::Unknown, reason, message),
        None if nothing_wanted => (Status::True, "NothingWanted", String::new()),
        None if total == 0 => (Status::False, "NothingPlaced", String::new()),
        None => applied(items),
    };
    set(FULLY_APPLIED, holds, reason, &message);
    let (holds, reason, message) = match total {
        0 if nothing_wanted => (Status::True, "NothingWanted".to_owned(), String::new()),
        0 => (Status::Unknown, "NothingPlaced".to_owned(), String::new()),
        _ => healthy(items.iter().map(|(item, _)| item)),
    };
    set(HEALTHY, holds, &reason, &message);
    match knowledge.unclaimed() {
        None => set(CLAIMED, Status::True, "PolicyClaims", ""),
        Some(_) if binding.is_attached() => set(CLAIMED, Status::True, "Required", ""),
        Some((reason, why)) => set(CLAIMED, Status::False, reason, &why),
    }
    if let Some(why) = knowledge.refused() {
        for type_ in [SCHEDULED, FULLY_APPLIED, CLAIMED] {
            set(type_, Status::False, REFUSED, &why);
        }
    }
    match knowledge.obstacles() {
        Some((reason, which)) => set(DEPENDENCIES, Status::False, reason, &shorten(&which)),
        None if binding.spec.propagate_deps => set(DEPENDENCIES, Status::True, "Propagated", ""),
        None => {}
    }
    match violations.as_deref() {
        None => {}
        Some([]) => set(WORKLOAD_AFFINITY, Status::True, "Satisfied", ""),
        Some(violations) => {
            set(WORKLOAD_AFFINITY, Status::False, "GroupChanged", &shorten(violations));
        }
    }
    if let Held::Yes(plan, why) = guarded {
        let message = format!("{why}. Plan {plan}: atoll approve {plan}");
        set(HELD, Status::True, "ChangeGuard", &message);
    }
    // Present only after it was once False: before, it is implied.
    match knowledge.unrecorded() {
        Some(why) => set(RECORDED, Status::False, "HistoryBehind", &why),
        None if recorded => {
            set(RECORDED, Status::True, "Recorded", "");
        }
        None => {}
    }
    conditions
}

/// Whether every member holds what it was sent, and which do not.
fn applied(items: &[(AggregatedStatusItem, bool)]) -> (Status, &'static str, String) {
    let failing: Vec<String> = items
        .iter()
        .filter(|(item, _)| !item.applied)
        .map(|(item, _)| match &item.applied_message {
            Some(message) => format!("{}: {message}", item.cluster_name),
            None => item.cluster_name.to_string(),
        })
        .collect();
    match failing.is_empty() {
        true => (Status::True, "Applied", String::new()),
        false => (Status::False, "NotApplied", shorten(&failing)),
    }
}

/// Adds the raw statuses of the first members, up to the limits in number and bytes. A status counts with its size as it
/// arrived.
fn add_raw(items: &mut [AggregatedStatusItem], knowledge: &impl Knowledge) {
    let mut room = MOST_RAW_BYTES;
    for item in items.iter_mut().take(MOST_RAW) {
        let Some(observed) = knowledge.observed(&item.cluster_name) else { continue };
        if let Some(left) = room.checked_sub(observed.status_bytes) {
            room = left;
            item.status = observed.status.value();
        }
    }
}

/// The fault of an object on a member; a rollout in progress is none.
#[must_use]
pub(crate) fn fault(item: &AggregatedStatusItem) -> Option<(&str, &str)> {
    let message = item.health_message.as_deref();
    let message = message.filter(|_| item.health == ResourceHealth::Unhealthy)?;
    Some((item.health_reason.as_deref().unwrap_or("Unhealthy"), message))
}

/// Whether the object is healthy everywhere. Of several faults, the most frequent gives the reason. Figures of a
/// rollout are left out: they are in the members' entries, and would cause additional writes.
fn healthy<'a>(
    items: impl Iterator<Item = &'a AggregatedStatusItem> + Clone,
) -> (Status, String, String) {
    let mut faults: BTreeMap<&str, usize> = BTreeMap::new();
    for (reason, _) in items.clone().filter_map(fault) {
        *faults.entry(reason).or_default() += 1;
    }
    let most = faults.into_iter().max_by_key(|(reason, count)| (*count, Reverse(*reason)));
    if let Some((reason, _)) = most {
        let described: Vec<String> = items
            .filter_map(|item| Some((item, fault(item)?)))
            .map(|(item, (reason, message))| format!("{}: {reason}: {message}", item.cluster_name))
            .collect();
        return (Status::False, reason.to_owned(), shorten(&described));
    }
    let names = |health: ResourceHealth| -> Vec<String> {
        let those = items.clone().filter(|item| item.health == health);
        those.map(|item| item.cluster_name.clone()).collect()
    };
    let (rolling, unknown) = (names(ResourceHealth::Unhealthy), names(ResourceHealth::Unknown));
    match (rolling.is_empty(), unknown.is_empty()) {
        (false, _) => (Status::False, "Progressing".to_owned(), shorten(&rolling)),
        (true, false) => (Status::Unknown, "NotReported".to_owned(), shorten(&unknown)),
        (true, true) => (Status::True, "Healthy".to_owned(), String::new()),
    }
}

fn scheduled(binding: &Binding) -> (Status, String, String) {
    if binding.is_attached() {
        let by = counted(binding.spec.required_by.len(), "binding");
        return (Status::True, "Required".to_owned(), format!("required by {by}"));
    }
    let Some(decision) = &binding.spec.decision else {
        return (Status::Unknown, "NotDecided".to_owned(), String::new());
    };
    let pending: Vec<String> = decision
        .pending
        .iter()
        .map(|pending| {
            format!("{} pending: {}", counted(pending.replicas, "replica"), pending.reason)
        })
        .collect();
    let waiting = decision.pending.iter().any(|pending| pending.replicas > 0);
    let holds = match decision.outcome {
        Outcome::Placed | Outcome::Unchanged => Status::from(!waiting),
        Outcome::Partial
        | Outcome::Unschedulable
        | Outcome::NoFit
        | Outcome::FailoverInfeasible
        | Outcome::Invalid => Status::False,
    };
    let message = match &decision.reason {
        Some(reason) if pending.is_empty() => reason.clone(),
        _ => shorten(&pending),
    };
    let overcommitted = pending.is_empty() && message.starts_with(OVERCOMMITTED);
    // Where other replicas are pending for another reason, more quota alone would not place everything.
    let by_quota = !decision.pending.is_empty()
        && decision.pending.iter().all(|group| group.reason.starts_with(QUOTA_EXCEEDED));
    let reason = match (overcommitted, by_quota) {
        (true, _) => OVERCOMMITTED.to_owned(),
        (false, true) => QUOTA_EXCEEDED.to_owned(),
        (false, false) => decision.outcome.to_string(),
    };
    (holds, reason, message)
}

/// Entries that a line names.
pub(super) const MOST_NAMED: usize = 5;

/// Entries in one line that fits a terminal.
pub(super) fn shorten(entries: &[String]) -> String {
    named(entries, 0)
}

/// As [`shorten`], with the number of further entries that were not written out.
pub(super) fn named(entries: &[String], more: usize) -> String {
    let mut text = entries.iter().take(MOST_NAMED).cloned().collect::<Vec<_>>().join("; ");
    let more = more + entries.len().saturating_sub(MOST_NAMED);
    if more > 0 {
        text.push_str(&format!("; and {more} more"));
    }
    text
}

#[cfg(test)]
mod tests;
