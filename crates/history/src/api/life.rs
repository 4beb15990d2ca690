//! The progress of a decision, from its milestones.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use serde_json::{Map, Value, json};

use super::object::precise;
use crate::{Milestone, Record, Stage};

/// The `status` of a decision's object: when it was committed, and when each member whose share it changed received it,
/// applied it and was healthy. Unobserved steps are left out: a controller restart or a long database outage leaves
/// gaps. `applied` and `healthy` of the whole are the last member's, and absent while one of them is missing.
pub(super) fn status(record: &Record, steps: &[Milestone]) -> Value {
    let mut status = Map::new();
    let mut members: BTreeMap<&str, Map<String, Value>> = BTreeMap::new();
    let mut last: BTreeMap<&Stage, (Timestamp, &str)> = BTreeMap::new();
    let mut reached: BTreeMap<&Stage, BTreeSet<&str>> = BTreeMap::new();
    for step in steps {
        let time = json!(precise(step.at));
        let Some(cluster) = step.cluster.as_deref() else {
            status.insert(field(&step.stage), time);
            continue;
        };
        members.entry(cluster).or_default().insert(field(&step.stage), time);
        reached.entry(&step.stage).or_default().insert(cluster);
        let slot = last.entry(&step.stage).or_insert((step.at, cluster));
        *slot = (*slot).max((step.at, cluster));
    }
    let awaited = awaited(record);
    for stage in [&Stage::Dispatched, &Stage::Applied, &Stage::Healthy] {
        let all = awaited.iter().all(|c| reached.get(stage).is_some_and(|r| r.contains(c)));
        if let Some((at, slowest)) = last.get(stage).filter(|_| all && !awaited.is_empty()) {
            status.insert(field(stage), json!(precise(*at)));
            if *stage == Stage::Healthy {
                status.insert("slowest".to_owned(), json!(slowest));
            }
        }
    }
    for cluster in &awaited {
        members.entry(cluster).or_default();
    }
    let waits: Vec<&&str> = awaited
        .iter()
        .filter(|c| reached.get(&Stage::Healthy).is_none_or(|healthy| !healthy.contains(*c)))
        .collect();
    if !waits.is_empty() {
        status.insert("notKnownHealthy".to_owned(), json!(waits));
    }
    let list: Vec<Value> = members
        .into_iter()
        .map(|(name, mut steps)| {
            steps.insert("name".to_owned(), json!(name));
            Value::Object(steps)
        })
        .collect();
    if !list.is_empty() {
        status.insert("members".to_owned(), json!(list));
    }
    Value::Object(status)
}

/// The members whose share the decision changed: those that have something to apply.
fn awaited(record: &Record) -> BTreeSet<&str> {
    let before: Option<BTreeMap<&str, i64>> = record
        .before
        .as_ref()
        .map(|before| before.iter().map(|s| (s.name.as_str(), s.replicas)).collect());
    let changed = |name: &str, replicas: i64| {
        before.as_ref().is_none_or(|before| before.get(name) != Some(&replicas))
    };
    let after = record.after.iter();
    after.filter(|s| changed(&s.name, s.replicas)).map(|s| s.name.as_str()).collect()
}

fn field(stage: &Stage) -> String {
    stage.as_str().to_lowercase()
}
