//! The status of override policies: whether they are valid, what they match, where they are applied, and where they
//! hold objects back.

use std::collections::BTreeSet;

use atoll_api::conditions::{self, ACCEPTED, Status};
use atoll_api::override_policy::{OverrideFailure, OverridePolicyStatus};
use atoll_render::RenderError;
use atoll_render::overrides::{self, Scope};
use jiff::Timestamp;
use serde::Deserialize;
use serde_json::Value;

use super::facts::Sources;
use crate::index::key::PolicyKey;

/// Limit of failures in a status, as in its schema.
const MOST_FAILURES: usize = 20;

/// The desired status of an override policy.
#[must_use]
pub(crate) fn status(
    sources: Sources<'_>,
    key: &PolicyKey,
    row: &Value,
    now: Timestamp,
) -> OverridePolicyStatus {
    // A status that is not ours to read is written anew.
    let held = OverridePolicyStatus::deserialize(&row["status"]).unwrap_or_default();
    let generation = row["metadata"]["generation"].as_i64();
    let mut status = OverridePolicyStatus {
        observed_generation: generation,
        conditions: held.conditions,
        ..OverridePolicyStatus::default()
    };
    let (holds, reason, message) = accepted(row);
    let conditions = &mut status.conditions;
    conditions::set(conditions, ACCEPTED, holds, reason, &message, generation, now);
    count(sources, key, &mut status);
    status
}

/// Whether a policy is valid. What is wrong in one rule does not stop the others.
fn accepted(row: &Value) -> (Status, &'static str, String) {
    let problems = overrides::check(row);
    let Some(first) = problems.iter().find(|problem| problem.error) else {
        return (Status::True, ACCEPTED, String::new());
    };
    let message = format!("{}: {}; {}", first.field, first.problem, first.fix);
    (Status::False, "Invalid", message)
}

fn count(sources: Sources<'_>, key: &PolicyKey, status: &mut OverridePolicyStatus) {
    let (index, placements) = (&sources.hub.index, sources.placements);
    let policies = index.overrides();
    let Some(policy) = policies.and_then(|all| all.get(key.namespace.as_deref(), &key.name)) else {
        return;
    };
    let scope = policy.scope();
    let mut applied = BTreeSet::new();
    for binding in index.bindings() {
        let in_scope =
            key.namespace.is_none() || key.namespace.as_deref() == binding.key.namespace();
        let Some(template) = index.template(&binding.template).filter(|_| in_scope) else {
            continue;
        };
        status.matched += i64::from(policy.selects(&template.object()));
        for (cluster, sent) in placements.all_sent(&binding.key) {
            let by_us = |rule: &overrides::Applied| rule.scope == scope && rule.policy == key.name;
            if sent.applied.iter().any(by_us) {
                applied.insert(cluster);
            }
        }
        for (cluster, error) in placements.render_errors(&binding.key) {
            let Some(failure) = failure(error, scope, key) else { continue };
            status.failing += 1;
            if status.failures.len() < MOST_FAILURES {
                let object = template.key.to_string();
                let cluster = cluster.to_string();
                status.failures.push(OverrideFailure { cluster, object, ..failure });
            }
        }
    }
    status.applied = i64::try_from(applied.len()).unwrap_or(i64::MAX);
}

/// The failure of a rule of this policy.
fn failure(error: &RenderError, scope: Scope, key: &PolicyKey) -> Option<OverrideFailure> {
    let RenderError::Override(error) = error else { return None };
    let ours = (error.scope, &error.policy, &error.namespace) == (scope, &key.name, &key.namespace);
    ours.then(|| OverrideFailure {
        cluster: String::new(),
        object: String::new(),
        rule: i64::try_from(error.rule).unwrap_or(i64::MAX),
        message: format!("{}: {}", error.field, error.problem),
    })
}
