//! One row of history, as a value.

use std::collections::{BTreeMap, BTreeSet};

use atoll_api::binding::{DecisionRecord, Mode, ObjectReference, Outcome, TargetCluster, Trigger};
use atoll_api::hex;
use atoll_api::{BindingUid, ClusterName, DecisionId};
use atoll_decision::explain::victim;
use atoll_decision::{ClusterOutcome, Decision};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::{Detail, Frame, Provenance};

/// A committed decision with its subject.
#[derive(Debug, Clone, PartialEq)]
pub struct Record {
    /// The decision's summary, as in the binding.
    pub record: DecisionRecord,
    /// The binding.
    pub binding: BindingRef,
    /// The template.
    pub workload: ObjectReference,
    /// Shares before the decision. `None`: unknown; a store then uses `after` of the parent's row.
    pub before: Option<Vec<TargetCluster>>,
    /// Shares that it set.
    pub after: Vec<TargetCluster>,
    /// Why, in one line, if the full Decision was available.
    pub reason: Option<String>,
    /// The row stands for several decisions that did not fit the binding during a long database outage.
    pub gap: Option<Gap>,
    /// For trigger `Withdrawn`: the members that had the binding's objects.
    pub withdrawal: Option<Withdrawal>,
    /// Which scheduler decided and its inputs, if available.
    pub provenance: Option<Provenance>,
    /// How many clusters each rule rejected, if available.
    pub rejections: Option<BTreeMap<String, i64>>,
    /// The full Decision. `None` when it was lost with the controller that made it.
    pub detail: Option<Detail>,
    /// What the decision read, on the way to the database. [`crate::Store::inputs`] reads it.
    pub inputs: Option<Frame>,
}

/// A binding; its uid distinguishes reuses of a name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct BindingRef {
    /// `ResourceBinding` or `ClusterResourceBinding`.
    pub kind: String,
    /// `None` for `ClusterResourceBinding`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// Name.
    pub name: String,
    /// uid.
    pub uid: BindingUid,
}

/// A run of decisions of which only the last one's shares are known.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Gap {
    /// id of the first decision.
    pub from: DecisionId,
    /// Number of decisions, first and last included.
    pub count: i64,
}

/// Which members had confirmed the removal of a binding's objects when its row was written.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Withdrawal {
    /// Every member that had, or may have had, objects of the binding.
    pub clusters: Vec<ClusterName>,
    /// Members that have not confirmed the removal; they receive it when they next connect.
    #[serde(default)]
    pub unconfirmed: Vec<ClusterName>,
}

/// Replicas that a decision moved.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Move {
    /// Source cluster; absent for new replicas.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<ClusterName>,
    /// Target cluster; absent for removed replicas.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to: Option<ClusterName>,
    /// Number of replicas.
    pub count: i64,
}

/// A row: its content and its number. Numbers grow in write order.
#[derive(Debug, Clone, PartialEq)]
pub struct Row {
    /// The number.
    pub seq: i64,
    /// The content.
    pub entry: StoredRecord,
}

/// The content of a row: a record, or one that this version cannot read. Unreadable rows are shown, not skipped.
#[derive(Debug, Clone, PartialEq)]
pub enum StoredRecord {
    /// A record.
    Record(Box<Record>),
    /// A row that cannot be read.
    Unreadable {
        /// id of the decision.
        id: DecisionId,
        /// Namespace of the binding, `None` for a cluster-scoped one.
        namespace: Option<String>,
        /// When the decision was made.
        at: Timestamp,
        /// Which column, and why.
        error: String,
    },
}

impl StoredRecord {
    /// id of the decision.
    #[must_use]
    pub fn id(&self) -> &str {
        match self {
            Self::Record(record) => &record.record.id,
            Self::Unreadable { id, .. } => id,
        }
    }

    /// The record, where the row can be read.
    #[must_use]
    pub fn record(&self) -> Option<&Record> {
        match self {
            Self::Record(record) => Some(record),
            Self::Unreadable { .. } => None,
        }
    }
}

impl Record {
    /// The record of a binding's end. Its id is derived from the binding and its last decision, and `at` is the
    /// binding's deletionTimestamp: a controller that restarts after writing the row creates the same one again.
    #[must_use]
    pub fn withdrawn(
        binding: BindingRef,
        workload: ObjectReference,
        last: Option<&DecisionRecord>,
        before: Vec<TargetCluster>,
        withdrawal: Withdrawal,
        at: Timestamp,
        term: i64,
    ) -> Self {
        let parent = last.map(|decision| decision.id.clone());
        let content = format!("withdrawn\n{}\n{}", binding.uid, parent.as_deref().unwrap_or(""));
        let digest = Sha256::digest(content.as_bytes());
        let id = hex::encode(&digest[..16]);
        Self {
            record: DecisionRecord {
                id: id.into(),
                parent,
                trigger: Trigger::Withdrawn,
                mode: Mode::Steady,
                outcome: Outcome::Placed,
                desired: 0,
                pending: Vec::new(),
                affinity_name: None,
                reason: None,
                full_clusters: Vec::new(),
                at: at.into(),
                term,
            },
            binding,
            workload,
            before: Some(before),
            after: Vec::new(),
            reason: None,
            gap: None,
            withdrawal: Some(withdrawal),
            provenance: None,
            rejections: None,
            detail: None,
            inputs: None,
        }
    }

    /// When it was decided, in whole seconds like in the binding, so that one id always has one time.
    #[must_use]
    pub fn decided_at(&self) -> Timestamp {
        whole_seconds(self.record.at.0)
    }

    /// The changed shares.
    pub(crate) fn changes(&self) -> BTreeMap<&str, (Option<i64>, Option<i64>)> {
        changes(self.before.as_deref().unwrap_or_default(), &self.after)
    }
}

pub(crate) fn whole_seconds(at: Timestamp) -> Timestamp {
    Timestamp::from_second(at.as_second()).unwrap_or(at)
}

/// The clusters whose share changed between two results, with the share before and after. `None` = no target.
#[must_use]
pub fn changes<'a>(
    before: &'a [TargetCluster],
    after: &'a [TargetCluster],
) -> BTreeMap<&'a str, (Option<i64>, Option<i64>)> {
    let mut shares: BTreeMap<&str, (Option<i64>, Option<i64>)> = BTreeMap::new();
    for target in before {
        shares.entry(&target.name).or_default().0 = Some(target.replicas);
    }
    for target in after {
        shares.entry(&target.name).or_default().1 = Some(target.replicas);
    }
    shares.retain(|_, (before, after)| before != after);
    shares
}

/// Why a Decision was made and, unless it fully succeeded, why not: one line for users. `None` when it contains
/// neither.
#[must_use]
pub fn reason(decision: &Decision) -> Option<String> {
    // The last evaluated trigger is the one that caused the decision.
    let why = decision.triggers.last().map(|check| &*check.why);
    let parts = [why, Some(decision.reason.as_str())];
    let mut parts: Vec<&str> =
        parts.into_iter().flatten().filter(|part| !part.is_empty()).collect();
    let taken: Vec<String> = decision.new_preemptions().map(victim).collect();
    let taken = format!("preempts {}", taken.join(", "));
    if decision.new_preemptions().next().is_some() {
        parts.push(&taken);
    }
    (!parts.is_empty()).then(|| parts.join("; "))
}

/// How many clusters each plugin rejected. Clusters that were kept although they fail a rule are not counted: they got
/// their share.
#[must_use]
pub fn rejections(decision: &Decision) -> BTreeMap<String, i64> {
    let mut rules = BTreeMap::new();
    for verdict in decision.verdicts.iter().filter(|v| v.outcome == ClusterOutcome::Refused) {
        let clusters = i64::try_from(verdict.clusters.len()).unwrap_or(i64::MAX);
        // A rule that rejects for two reasons counts once.
        let plugins: BTreeSet<&str> =
            verdict.rejections.iter().map(|rejection| &*rejection.plugin).collect();
        for plugin in plugins {
            *rules.entry(plugin.to_owned()).or_insert(0) += clusters;
        }
    }
    rules
}

/// The moves between two results: losses and gains are paired in the order of the clusters' names; the surplus of one
/// side is new or removed.
#[must_use]
pub fn moves(before: &[TargetCluster], after: &[TargetCluster]) -> Vec<Move> {
    let (mut losses, mut gains) = (Vec::new(), Vec::new());
    for (cluster, (before, after)) in changes(before, after) {
        let difference = after.unwrap_or(0) - before.unwrap_or(0);
        match difference {
            ..0 => losses.push((cluster, -difference)),
            1.. => gains.push((cluster, difference)),
            0 => {}
        }
    }
    let (mut losses, mut gains) = (losses.into_iter(), gains.into_iter());
    let (mut loss, mut gain) = (losses.next(), gains.next());
    let mut moves = Vec::new();
    loop {
        let count = match (loss, gain) {
            (Some((_, lost)), Some((_, gained))) => lost.min(gained),
            (Some((_, left)), None) | (None, Some((_, left))) => left,
            (None, None) => return moves,
        };
        moves.push(Move {
            from: loss.map(|(cluster, _)| cluster.into()),
            to: gain.map(|(cluster, _)| cluster.into()),
            count,
        });
        let rest = |(cluster, left): (_, i64)| (left > count).then(|| (cluster, left - count));
        loss = loss.and_then(rest).or_else(|| losses.next());
        gain = gain.and_then(rest).or_else(|| gains.next());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shares(shares: &[(&str, i64)]) -> Vec<TargetCluster> {
        let share = |(name, replicas): &(&str, i64)| TargetCluster {
            name: (*name).to_owned(),
            replicas: *replicas,
        };
        shares.iter().map(share).collect()
    }

    #[test]
    fn moves_pair_losses_with_gains() {
        let text = |before: &[(&str, i64)], after: &[(&str, i64)]| {
            let moves = moves(&shares(before), &shares(after));
            let side = |cluster: &Option<ClusterName>| cluster.clone().unwrap_or_default();
            let each =
                moves.iter().map(|m| format!("{}>{} {}", side(&m.from), side(&m.to), m.count));
            each.collect::<Vec<_>>().join(", ")
        };
        assert_eq!(text(&[("a", 6), ("b", 3)], &[("a", 5), ("b", 2), ("c", 2)]), "a>c 1, b>c 1");
        assert_eq!(text(&[("a", 5)], &[("b", 2), ("c", 3), ("d", 1)]), "a>b 2, a>c 3, >d 1");
        assert_eq!(text(&[], &[("a", 1)]), ">a 1");
        assert_eq!(text(&[("a", 2), ("b", 1)], &[("b", 1)]), "a> 2");
        assert_eq!(text(&[("a", 2)], &[("a", 2)]), "");
    }

    #[test]
    fn a_reason_says_why_it_was_made_and_why_it_ended_so() {
        let with = |triggers: serde_json::Value, reason: &str| {
            let decision: Decision = serde_json::from_value(serde_json::json!({
                "id": "x", "binding": {"namespace": "d", "name": "b"},
                "template": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "b"},
                "profile": "default", "trigger": "Scale", "mode": "Steady", "outcome": "Partial",
                "strategy": "", "verdicts": [], "snapshot": 1, "now": "2026-01-01T00:00:00Z",
                "appliedPlacement": null, "triggers": triggers, "reason": reason,
            }))
            .unwrap();
            super::reason(&decision)
        };
        let check = |trigger: &str, allowed: bool, why: &str| serde_json::json!({"trigger": trigger, "holds": true, "allowed": allowed, "why": why});
        let triggers = serde_json::json!([
            check("Reconcile", false, "the policy changed"),
            check("Scale", true, "9 wanted, 3 placed"),
        ]);
        assert_eq!(with(triggers, "no room").as_deref(), Some("9 wanted, 3 placed; no room"));
        assert_eq!(with(serde_json::json!([]), "no room").as_deref(), Some("no room"));
        assert_eq!(with(serde_json::json!([]), ""), None);
    }

    #[test]
    fn a_withdrawal_has_one_id_however_often_it_is_made() {
        let binding = |uid: &str| BindingRef {
            kind: "ResourceBinding".to_owned(),
            namespace: Some("d".to_owned()),
            name: "b".to_owned(),
            uid: uid.into(),
        };
        let make = |uid: &str, unconfirmed: &[&str]| {
            let withdrawal = Withdrawal {
                clusters: vec!["a".into()],
                unconfirmed: unconfirmed.iter().map(|c| (*c).into()).collect(),
            };
            let workload = ObjectReference::default();
            Record::withdrawn(
                binding(uid),
                workload,
                None,
                vec![],
                withdrawal,
                Timestamp::UNIX_EPOCH,
                1,
            )
        };
        assert_eq!(make("u", &["a"]).record.id, make("u", &[]).record.id);
        assert_ne!(make("u", &[]).record.id, make("v", &[]).record.id);
        assert_eq!(make("u", &[]).record.id.len(), 32);
    }
}
