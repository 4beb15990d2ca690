//! The plans that ChangeGuards hold.

use std::collections::BTreeMap;

use atoll_api::ChangeGuard;
use atoll_api::change_guard;
use atoll_console::Fault;
use atoll_console::data::{HeldPlan, Plan, PlanRow};
use jiff::Timestamp;
use kube::ResourceExt;

use super::{Reader, fault, rows};
use crate::{approve, hub, print};

impl Reader {
    /// The plans that wait, oldest first. A console of one namespace shows none: guards belong to the whole hub.
    pub(super) async fn held(&self, now: Timestamp) -> anyhow::Result<Vec<HeldPlan>> {
        if self.only.is_some() {
            return Ok(Vec::new());
        }
        match approve::list(&self.hub).await {
            Ok(guards) => Ok(held(&guards, now)),
            // A hub that does not have this kind yet.
            Err(error) if hub::status(&error) == Some(404) => Ok(Vec::new()),
            Err(error) => Err(error),
        }
    }

    /// What an approval releases.
    pub(super) async fn read_held(&self, plan: &str) -> Result<Plan, Fault> {
        let guards = approve::list(&self.hub).await.map_err(fault)?;
        released(&guards, plan).ok_or_else(|| {
            Fault::NotFound(format!(
                "no ChangeGuard holds plan {plan}: it went, or a change of it became another plan"
            ))
        })
    }
}

fn plans(guards: &[ChangeGuard]) -> impl Iterator<Item = (&ChangeGuard, &change_guard::HeldPlan)> {
    guards.iter().flat_map(|guard| {
        guard.status.iter().flat_map(|status| &status.held).map(move |held| (guard, held))
    })
}

fn held(guards: &[ChangeGuard], now: Timestamp) -> Vec<HeldPlan> {
    let mut found: BTreeMap<&str, HeldPlan> = BTreeMap::new();
    for (guard, held) in plans(guards) {
        let row = found.entry(&held.plan).or_insert_with(|| HeldPlan {
            plan: held.plan.clone(),
            guards: Vec::new(),
            workloads: held.workloads,
            replicas: held.replicas,
            since: rows::when(held.since.0, now),
            causes: held.causes.clone(),
            why: Vec::new(),
        });
        row.guards.push(guard.name_any());
        if !row.why.contains(&held.reason) {
            row.why.push(held.reason.clone());
        }
    }
    let mut found: Vec<HeldPlan> = found.into_values().collect();
    found.sort_by_key(|plan| plan.since.at);
    found
}

fn released(guards: &[ChangeGuard], plan: &str) -> Option<Plan> {
    let (_, held) = plans(guards).find(|(_, held)| held.plan == plan)?;
    let changes: Vec<PlanRow> = held
        .changes
        .iter()
        .map(|change| PlanRow {
            object: change.workload.clone(),
            change: change.change.split(", ").map(str::to_owned).collect(),
            why: held.causes.join(", "),
        })
        .collect();
    let all = usize::try_from(held.workloads).unwrap_or_default();
    Some(Plan {
        summary: format!(
            "{} of {} would move.",
            print::counted(held.replicas, "replica", "replicas"),
            print::counted(held.workloads, "workload", "workloads"),
        ),
        more: all.saturating_sub(changes.len()),
        changes,
        ..Plan::default()
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn guard(name: &str, why: &str) -> ChangeGuard {
        let object = json!({
            "apiVersion": "policy.atoll.dev/v1alpha1", "kind": "ChangeGuard", "metadata": {"name": name},
            "spec": {"maxWorkloads": 0},
            "status": {"held": [
                {"plan": "beef", "reason": why, "workloads": 3, "replicas": 12, "since": "2026-01-01T00:00:09Z",
                 "causes": ["PropagationPolicy shop/web"],
                 "changes": [{"workload": "Deployment.apps shop/web", "change": "m1: 4 -> -, m2: - -> 4"}]},
                {"plan": "cafe", "reason": why, "workloads": 1, "replicas": 1, "since": "2026-01-01T00:00:00Z"},
            ]},
        });
        serde_json::from_value(object).unwrap()
    }

    #[test]
    fn a_plan_of_several_guards_is_one_row_and_the_oldest_is_first() {
        let guards = [guard("a", "frozen"), guard("b", "too much")];
        let rows = held(&guards, "2026-01-01T00:01:09Z".parse().unwrap());
        let plans: Vec<&str> = rows.iter().map(|row| row.plan.as_str()).collect();
        assert_eq!(plans, ["cafe", "beef"]);
        assert_eq!(
            (&rows[1].guards[..], rows[1].since.age.as_str()),
            (&["a".into(), "b".into()][..], "60s")
        );
        assert_eq!(rows[1].why, ["frozen", "too much"]);
        let plan = released(&guards, "beef").unwrap();
        assert_eq!(plan.summary, "12 replicas of 3 workloads would move.");
        assert_eq!(
            (plan.more, &plan.changes[0].change[..]),
            (2, &["m1: 4 -> -".into(), "m2: - -> 4".into()][..])
        );
        assert!(released(&guards, "0000").is_none());
    }
}
