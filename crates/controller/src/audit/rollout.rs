//! Progress of decisions on their members.

use std::collections::{BTreeMap, BTreeSet};

use atoll_api::ClusterName;
use atoll_api::binding::{DecisionRecord, TargetCluster};
use atoll_history::{Milestone, Stage, changes};
use jiff::Timestamp;

use crate::index::key::BindingKey;

/// The decisions that are not healthy everywhere yet: at most the last one of each binding.
#[derive(Debug, Default)]
pub(crate) struct RolloutProgress(BTreeMap<BindingKey, Rollout>);

#[derive(Debug)]
struct Rollout {
    decision: DecisionRecord,
    /// The members that are not healthy yet, with the observed stages of each.
    awaited: BTreeMap<ClusterName, BTreeSet<Stage>>,
}

impl RolloutProgress {
    /// A decision was committed. It replaces the previous one, unless it changes no share: then the earlier one's
    /// stages are still awaited.
    pub(crate) fn begin(
        &mut self,
        key: &BindingKey,
        decision: &DecisionRecord,
        before: &[TargetCluster],
        after: &[TargetCluster],
    ) {
        let changed = changes(before, after).into_iter().filter(|(_, (_, after))| after.is_some());
        let awaited: BTreeMap<_, _> =
            changed.map(|(cluster, _)| (ClusterName::from(cluster), BTreeSet::new())).collect();
        if !awaited.is_empty() {
            // Only its id and time matter here.
            let decision = DecisionRecord { pending: Vec::new(), ..decision.clone() };
            self.0.insert(key.clone(), Rollout { decision, awaited });
        } else if after.is_empty() {
            self.0.remove(key);
        }
    }

    /// Continues a decision of an earlier leader, with the stages that members already reached.
    pub(crate) fn resume(
        &mut self,
        key: &BindingKey,
        decision: &DecisionRecord,
        before: &[TargetCluster],
        after: &[TargetCluster],
        reached: &BTreeSet<(ClusterName, Stage)>,
    ) {
        self.begin(key, decision, before, after);
        let Some(rollout) = self.0.get_mut(key) else { return };
        for (cluster, stage) in reached {
            if *stage == Stage::Healthy {
                rollout.awaited.remove(cluster);
            } else if let Some(seen) = rollout.awaited.get_mut(cluster) {
                seen.insert(stage.clone());
            }
        }
        if rollout.awaited.is_empty() {
            self.0.remove(key);
        }
    }

    /// Whether a member's stage is still awaited.
    pub(crate) fn awaits(&self, key: &BindingKey, cluster: &ClusterName, stage: &Stage) -> bool {
        let rollout = self.0.get(key);
        let seen = rollout.and_then(|rollout| rollout.awaited.get(cluster));
        seen.is_some_and(|seen| !seen.contains(stage))
    }

    /// A member reached a stage. Returns a milestone if that is new for the decision in force.
    pub(crate) fn reached(
        &mut self,
        key: &BindingKey,
        cluster: &ClusterName,
        stage: Stage,
        now: Timestamp,
    ) -> Option<Milestone> {
        let rollout = self.0.get_mut(key)?;
        let seen = rollout.awaited.get_mut(cluster)?;
        if !seen.insert(stage.clone()) {
            return None;
        }
        let milestone = Milestone::of(&rollout.decision, Some(cluster), stage.clone(), now);
        if stage == Stage::Healthy {
            rollout.awaited.remove(cluster);
            if rollout.awaited.is_empty() {
                self.0.remove(key);
            }
        }
        Some(milestone)
    }

    /// The binding was deleted.
    pub(crate) fn forget(&mut self, key: &BindingKey) {
        self.0.remove(key);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn record(id: &str) -> DecisionRecord {
        serde_json::from_value(json!({
            "id": id, "trigger": "Scale", "mode": "Steady", "outcome": "Placed", "desired": 3,
            "at": "2026-01-01T00:00:00Z", "term": 1,
        }))
        .unwrap()
    }

    /// Parses `m1=2 m2=1`.
    fn shares(text: &str) -> Vec<TargetCluster> {
        let shares = text.split(' ').map(|share| share.split_once('=').unwrap());
        let target =
            |(name, n): (&str, &str)| json!({"name": name, "replicas": n.parse::<i64>().unwrap()});
        shares.map(|share| serde_json::from_value(target(share)).unwrap()).collect()
    }

    #[test]
    fn each_step_of_a_member_that_has_something_to_do_is_news_once() {
        let key = BindingKey { namespace: Some("shop".into()), name: "web".into() };
        let now = Timestamp::from_millisecond(1_500).unwrap();
        let mut progress = RolloutProgress::default();
        let (before, after) = (shares("a=2 b=1"), shares("a=4 b=1 c=1"));
        progress.begin(&key, &record("one"), &before, &after);
        let step = |progress: &mut RolloutProgress, cluster: &str, stage: Stage| {
            progress
                .reached(&key, &cluster.into(), stage, now)
                .map(|step| (step.decision.to_string(), step.at))
        };
        let news = Some(("one".to_owned(), now));
        assert_eq!(step(&mut progress, "a", Stage::Applied), news);
        assert_eq!(step(&mut progress, "a", Stage::Applied), None, "once");
        assert_eq!(step(&mut progress, "b", Stage::Applied), None, "its share is what it was");
        // The end of an eviction changes no share: the first decision's stages are still awaited.
        progress.begin(&key, &record("two"), &after, &after);
        assert_eq!(step(&mut progress, "a", Stage::Healthy), news);
        assert_eq!(step(&mut progress, "a", Stage::Healthy), None, "nothing is awaited of it");
        assert!(progress.awaits(&key, &"c".into(), &Stage::Healthy));
        progress.begin(&key, &record("three"), &after, &shares("b=2"));
        assert_eq!(step(&mut progress, "c", Stage::Healthy), None, "superseded");
        assert_eq!(step(&mut progress, "b", Stage::Healthy), Some(("three".to_owned(), now)));
        assert!(progress.0.is_empty(), "nothing is kept of what is done");
    }
}
