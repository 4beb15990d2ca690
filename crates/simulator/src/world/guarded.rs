//! What a ChangeGuard allows: the invariants of what changes by people move (I14). The guard selects everything, has a window
//! that is longer than a history, and exists from the beginning, so every counted release counts to the end.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::view::shares;

/// The guard of a World, and what was moved under it. Entries are made where requests pass.
#[derive(Debug, Default)]
pub(super) struct Guarded {
    /// Most replicas, once a leader has read the guard.
    most: Option<i64>,
    /// Replicas that were released without an approval, by plan.
    released: BTreeMap<String, i64>,
    approved: BTreeSet<String>,
    /// Replicas that moved without an approval, by plan.
    moved: BTreeMap<String, i64>,
    /// The last acknowledged spec of each binding, by uid.
    specs: BTreeMap<String, Value>,
}

impl Guarded {
    /// A user approved a plan.
    pub(super) fn approved(&mut self, plan: &str) {
        self.approved.insert(plan.to_owned());
    }

    /// The hub acknowledged a write of the controller. Returns what it breaks.
    pub(super) fn acknowledged(&mut self, uid: &str, object: &Value) -> Vec<String> {
        match object["kind"].as_str() {
            Some("ChangeGuard") => self.guard(object).err().into_iter().collect(),
            Some("ResourceBinding") => {
                let spec = &object["spec"];
                let before = self.specs.insert(uid.to_owned(), spec.clone());
                let moved = before.map(|before| self.binding(object, &before));
                moved.and_then(Result::err).into_iter().collect()
            }
            _ => Vec::new(),
        }
    }

    fn guard(&mut self, guard: &Value) -> Result<(), String> {
        if guard["status"]["observedGeneration"].is_i64() {
            self.most = guard["spec"]["maxMovedReplicas"].as_i64();
        }
        let mut released: BTreeMap<String, i64> = BTreeMap::new();
        for entry in guard["status"]["released"].as_array().into_iter().flatten() {
            let plan = entry["plan"].as_str().unwrap_or_default().to_owned();
            if entry["by"].is_null() {
                *released.entry(plan).or_default() += entry["replicas"].as_i64().unwrap_or(0);
            } else {
                self.approved.insert(plan);
            }
        }
        for (plan, before) in std::mem::take(&mut self.released) {
            if released.get(&plan).is_none_or(|now| *now < before) {
                return Err(format!("I14: {before} replicas of plan {plan} do not count any more"));
            }
        }
        self.released = released;
        let sum: i64 = self.released.values().sum();
        match self.most {
            Some(most) if sum > most => Err(format!("I14: {sum} replicas were released of {most}")),
            _ => Ok(()),
        }
    }

    /// A decision because of a policy moves what its plan says, after that was released.
    fn binding(&mut self, binding: &Value, before: &Value) -> Result<(), String> {
        let (old, new) = (&before["decision"], &binding["spec"]["decision"]);
        if self.most.is_none() || old["id"] == new["id"] || new["trigger"] != "Reconcile" {
            return Ok(());
        }
        let (had, has) = (shares(&serde_json::json!({"spec": before})), shares(binding));
        let left: i64 =
            had.iter().filter(|(name, _)| !has.contains_key(*name)).map(|(_, share)| share).sum();
        let less = old["desired"].as_i64().unwrap_or(0) - new["desired"].as_i64().unwrap_or(0);
        let moved = left - less.max(0);
        if moved <= 0 {
            return Ok(());
        }
        let name = &binding["metadata"]["name"];
        let Some(plan) = before["held"]["plan"].as_str() else {
            return Err(format!(
                "I14: {moved} replicas of {name} moved in no plan: {had:?} -> {has:?}"
            ));
        };
        if self.approved.contains(plan) {
            return Ok(());
        }
        let all = self.moved.entry(plan.to_owned()).or_default();
        *all += moved;
        let released = self.released.get(plan).copied().unwrap_or(0);
        if *all > released {
            return Err(format!(
                "I14: {all} replicas of plan {plan} moved, {released} were released"
            ));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn guard(released: &Value) -> Value {
        json!({
            "kind": "ChangeGuard", "spec": {"maxMovedReplicas": 5},
            "status": {"observedGeneration": 1, "released": released},
        })
    }

    fn binding(id: &str, on: &str, held: &Value) -> Value {
        json!({
            "kind": "ResourceBinding", "metadata": {"name": "web"},
            "spec": {
                "clusters": [{"name": on, "replicas": 4}], "held": held,
                "decision": {"id": id, "trigger": "Reconcile", "desired": 4},
            },
        })
    }

    #[test]
    fn a_move_without_a_release_and_too_many_releases_are_found() {
        let plan = json!({"plan": "p"});
        let mut guarded = Guarded::default();
        assert!(guarded.acknowledged("g", &guard(&json!([]))).is_empty());
        assert!(guarded.acknowledged("b", &binding("1", "m1", &json!(null))).is_empty());
        let broken = guarded.acknowledged("b", &binding("2", "m2", &plan));
        assert!(broken[0].contains("moved in no plan"), "{broken:?}");
        let broken = guarded.acknowledged("b", &binding("3", "m1", &plan));
        assert!(broken[0].contains("0 were released"), "{broken:?}");
        guarded.approved("p");
        assert!(guarded.acknowledged("b", &binding("4", "m2", &plan)).is_empty());
        let release = |plan: &str| json!({"plan": plan, "replicas": 4});
        assert!(guarded.acknowledged("g", &guard(&json!([release("q")]))).is_empty());
        let broken = guarded.acknowledged("g", &guard(&json!([release("q"), release("r")])));
        assert!(broken[0].contains("8 replicas were released of 5"), "{broken:?}");
        let broken = guarded.acknowledged("g", &guard(&json!([release("r")])));
        assert!(broken[0].contains("do not count any more"), "{broken:?}");
    }
}
