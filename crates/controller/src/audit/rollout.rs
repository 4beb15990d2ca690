//! Progress of decisions on their members.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use atoll_api::ClusterName;
use atoll_api::binding::{DecisionRecord, TargetCluster};
use atoll_history::{Milestone, Stage, changes};
use jiff::Timestamp;
use tokio::time::Instant;

use crate::index::key::BindingKey;

/// The decisions that are not healthy everywhere yet: at most the last one of each binding.
#[derive(Debug, Default)]
pub(crate) struct RolloutProgress(BTreeMap<BindingKey, Rollout>);

#[derive(Debug)]
struct Rollout {
    decision: DecisionRecord,
    /// The members that are not healthy yet.
    awaited: BTreeMap<ClusterName, Awaited>,
}

/// A member that is not healthy yet.
#[derive(Debug, Default)]
struct Awaited {
    /// The observed stages.
    seen: BTreeSet<Stage>,
    /// When this leader dispatched the decision.
    dispatched: Option<Instant>,
}

/// A stage that a member reached.
pub(super) struct Reached {
    pub(super) milestone: Milestone,
    /// Time since this leader dispatched the decision; `None` for the dispatch, and where an earlier leader did.
    pub(super) after: Option<Duration>,
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
            changed.map(|(cluster, _)| (ClusterName::from(cluster), Awaited::default())).collect();
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
            } else if let Some(awaited) = rollout.awaited.get_mut(cluster) {
                awaited.seen.insert(stage.clone());
            }
        }
        if rollout.awaited.is_empty() {
            self.0.remove(key);
        }
    }

    /// The members that a decision is awaited on.
    pub(crate) fn awaited(
        &self,
        key: &BindingKey,
        decision: &str,
    ) -> impl Iterator<Item = &ClusterName> {
        let rollout = self.0.get(key).filter(|rollout| rollout.decision.id == decision);
        rollout.into_iter().flat_map(|rollout| rollout.awaited.keys())
    }

    /// Whether a member's stage is still awaited.
    pub(crate) fn awaits(&self, key: &BindingKey, cluster: &ClusterName, stage: &Stage) -> bool {
        let rollout = self.0.get(key);
        let awaited = rollout.and_then(|rollout| rollout.awaited.get(cluster));
        awaited.is_some_and(|awaited| !awaited.seen.contains(stage))
    }

    /// A member reached a stage. Returns a milestone if that is new for the decision in force.
    pub(crate) fn reached(
        &mut self,
        key: &BindingKey,
        cluster: &ClusterName,
        stage: Stage,
        (now, instant): (Timestamp, Instant),
    ) -> Option<Reached> {
        let rollout = self.0.get_mut(key)?;
        let awaited = rollout.awaited.get_mut(cluster)?;
        if !awaited.seen.insert(stage.clone()) {
            return None;
        }
        let after = awaited.dispatched.map(|at| instant.saturating_duration_since(at));
        if stage == Stage::Dispatched {
            awaited.dispatched = Some(instant);
        }
        let milestone = Milestone::of(&rollout.decision, Some(cluster), stage.clone(), now);
        if stage == Stage::Healthy {
            rollout.awaited.remove(cluster);
            if rollout.awaited.is_empty() {
                self.0.remove(key);
            }
        }
        Some(Reached { milestone, after })
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
        let key = BindingKey::of(Some("shop"), "web");
        let now = Timestamp::from_millisecond(1_500).unwrap();
        let mut progress = RolloutProgress::default();
        let (before, after) = (shares("a=2 b=1"), shares("a=4 b=1 c=1"));
        progress.begin(&key, &record("one"), &before, &after);
        let step = |progress: &mut RolloutProgress, cluster: &str, stage: Stage| {
            progress
                .reached(&key, &cluster.into(), stage, (now, Instant::now()))
                .map(|reached| (reached.milestone.decision.to_string(), reached.milestone.at))
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

    #[tokio::test(start_paused = true)]
    async fn stages_count_from_the_dispatch_by_this_leader() {
        let key = BindingKey::of(Some("shop"), "web");
        let (wall, start) = (Timestamp::UNIX_EPOCH, Instant::now());
        let mut progress = RolloutProgress::default();
        progress.begin(&key, &record("one"), &[], &shares("a=2 b=1"));
        let mut after = |cluster: &str, stage: Stage, seconds: u64| {
            let at = (wall, start + Duration::from_secs(seconds));
            progress.reached(&key, &cluster.into(), stage, at).unwrap().after
        };
        assert_eq!(after("a", Stage::Dispatched, 1), None);
        assert_eq!(after("a", Stage::Applied, 3), Some(Duration::from_secs(2)));
        assert_eq!(after("a", Stage::Healthy, 9), Some(Duration::from_secs(8)));
        assert_eq!(after("b", Stage::Applied, 9), None, "an earlier leader dispatched it");
    }
}
