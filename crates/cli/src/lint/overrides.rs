//! Mistakes in override policies, alone and against the workloads of the input.

use atoll_render::overrides::{self, Policy, Problem};
use atoll_scheduler::lint_policy::{Finding, Severity};
use atoll_scheduler::offline::World;
use serde_json::Value;

use crate::input;

/// The findings on all override policies.
pub(super) fn check(world: &World) -> Vec<Finding> {
    let mut findings = Vec::new();
    for object in &world.overrides {
        let title = input::title(object);
        let found = |problem: Problem| Finding {
            severity: if problem.error { Severity::Error } else { Severity::Warning },
            object: title.clone(),
            field: problem.field,
            problem: problem.problem,
            fix: problem.fix,
        };
        findings.extend(overrides::check(object).into_iter().map(found));
        findings.extend(reach(object, world).into_iter().map(found));
    }
    findings
}

/// Workloads that the policy selects in vain, or none. Without workloads nothing is found.
fn reach(object: &Value, world: &World) -> Vec<Problem> {
    // Another check reports a policy that cannot be read.
    let Ok(policy) = Policy::read(object) else { return Vec::new() };
    let warning = |field: String, problem: String, fix: &str| Problem {
        error: false,
        field,
        problem,
        fix: fix.to_owned(),
    };
    let selected = world.workloads.iter().filter(|workload| policy.selects(&workload.object));
    let selected: Vec<_> = selected.collect();
    if selected.is_empty() && !world.workloads.is_empty() {
        let field = "spec.resourceSelectors".to_owned();
        let problem = "selects no object of the input".to_owned();
        return vec![warning(field, problem, "correct it, or add the object")];
    }
    let left_out = selected.into_iter().flat_map(|workload| {
        let key = &workload.key;
        overrides::left_out(&policy, &workload.object).into_iter().map(move |(field, what)| {
            let problem = format!("Containers leaves out {what} of {key}");
            warning(field, problem, "use AllContainers, or name them with predicate")
        })
    });
    left_out.collect()
}
