//! The Event about a committed decision.

use atoll_api::binding::{DecisionRecord, Outcome, TargetCluster, Trigger};
use atoll_decision::OVERCOMMITTED;
use atoll_decision::explain::victim;

use super::step::Committing;
use crate::events::{Cause, Note, Severity};
use crate::index::rows::Binding;

/// The Event, on the template.
pub(crate) fn note(binding: &Binding, committing: &Committing) -> Note {
    let record = &committing.decided.record;
    let severity = match record.outcome {
        Outcome::Placed | Outcome::Unchanged if !is_overcommitted(record) => Severity::Normal,
        _ => Severity::Warning,
    };
    let has_replicas = binding.spec.replicas.is_some();
    let mut message = format!(
        "{}: {} -> {}",
        record.outcome,
        shares(&committing.before, has_replicas),
        shares(&committing.decided.clusters, has_replicas),
    );
    for pending in &record.pending {
        message.push_str(&format!("; {} pending: {}", pending.replicas, pending.reason));
    }
    let reason = committing.decision.as_ref().map(|decision| decision.reason.as_str());
    if let Some(reason) = reason.filter(|reason| !reason.is_empty()) {
        message.push_str(&format!("; {reason}"));
    }
    let decision = committing.decision.as_ref();
    for taken in decision.into_iter().flat_map(|decision| decision.new_preemptions()) {
        message.push_str(&format!("; preempts {}", victim(taken)));
    }
    if let Some(check) = decision.and_then(|decision| decision.triggers.last())
        && record.trigger == Trigger::Preempted
    {
        message.push_str(&format!("; {}", check.why));
    }
    Note {
        about: binding.spec.resource.clone(),
        id: record.id.to_string(),
        reason: record.trigger.to_string(),
        message,
        severity,
        at: record.at.0,
        cause: cause(record.trigger, &committing.before, &committing.decided.clusters),
        repeat_after: None,
    }
}

/// Whether a decision placed more replicas than fit.
fn is_overcommitted(record: &DecisionRecord) -> bool {
    record.reason.as_ref().is_some_and(|reason| reason.starts_with(OVERCOMMITTED))
}

/// What a decision has in common with those of other workloads: its trigger, and the clusters that they leave.
fn cause(trigger: Trigger, before: &[TargetCluster], after: &[TargetCluster]) -> Option<Cause> {
    let words = match trigger {
        Trigger::First => "that were placed for the first time",
        Trigger::Rebalance => "of this rebalance",
        Trigger::Reconcile => "of this change of policy",
        Trigger::Failover => "of this failover",
        Trigger::OutsideClusterSet => "of this change of ClusterSets",
        Trigger::ApplicationFailure => "that were unhealthy there",
        Trigger::ClusterChange => "of this change of clusters",
        Trigger::Overflow => "that did not fit",
        Trigger::Unschedulable => "that stayed unschedulable",
        Trigger::Recover => "of this return",
        Trigger::Retry => "that were waiting",
        Trigger::EvictionDone => "whose old copies are gone",
        Trigger::Preempted => "whose room was taken",
        Trigger::Scale | Trigger::Withdrawn | Trigger::Avoid => return None,
    };
    let stays = |name: &str| after.iter().any(|target| target.name == name);
    let left = before.iter().map(|target| target.name.as_str()).filter(|name| !stays(name));
    let left = left.collect::<Vec<_>>().join(",");
    Some(Cause { key: format!("{trigger} {left}"), words })
}

/// Shares in one line.
fn shares(clusters: &[TargetCluster], has_replicas: bool) -> String {
    const MOST: usize = 12;
    if clusters.is_empty() {
        return "nowhere".to_owned();
    }
    let each = clusters.iter().take(MOST).map(|target| {
        if has_replicas {
            format!("{} {}", target.name, target.replicas)
        } else {
            target.name.clone()
        }
    });
    let mut text = each.collect::<Vec<_>>().join(", ");
    if clusters.len() > MOST {
        text.push_str(&format!(" and {} more", clusters.len() - MOST));
    }
    text
}
