//! The status of customizations: whether their rules compile, what they are used for, and the last failure of a rule.

use atoll_api::conditions::{self, COMPILED, FAILING, Status};
use atoll_api::customization::{
    OperationUse, ResourceInterpreterCustomizationStatus, RuleFailure, RuleProblem,
};
use atoll_customize::compile_problems;
use jiff::Timestamp;

use crate::index::rules::{Customization, Rules};

/// Reason of the condition `Compiled` that does not hold.
pub(crate) const DOES_NOT_COMPILE: &str = "DoesNotCompile";
/// Reason of the condition `Failing` that holds.
pub(crate) const RULE_FAILED: &str = "RuleFailed";
/// Reason of the condition `Failing` that does not hold.
pub(super) const NO_FAILURE: &str = "NoFailure";
/// Problems in a message: a customization has at most eight rules, but messages should fit a terminal.
const MOST_PROBLEMS: usize = 3;

/// The desired status of a customization. Compiles its rules, which may take milliseconds: not for the event loop.
#[must_use]
pub(crate) fn status(
    name: &str,
    row: &Customization,
    rules: &Rules,
    failure: Option<&RuleFailure>,
    now: Timestamp,
) -> ResourceInterpreterCustomizationStatus {
    let held = &row.status;
    let generation = row.generation;
    let problems = problems(name, row);
    let mut conditions = held.conditions.clone();
    let (compiled, reason, message) = match problems.is_empty() {
        true => (Status::True, COMPILED, String::new()),
        false => (Status::False, DOES_NOT_COMPILE, listed(&problems)),
    };
    conditions::set(&mut conditions, COMPILED, compiled, reason, &message, generation, now);
    // An earlier leader may have seen the failure.
    let before = held.last_error.as_ref().filter(|_| held.observed_generation == generation);
    let last_error = failure.or(before).cloned();
    let (failing, reason, message) = match &last_error {
        Some(failure) => (Status::True, RULE_FAILED, describe(failure)),
        None => (Status::False, NO_FAILURE, String::new()),
    };
    conditions::set(&mut conditions, FAILING, failing, reason, &message, generation, now);
    ResourceInterpreterCustomizationStatus {
        observed_generation: generation,
        conditions,
        used_for: uses(name, row, rules, &problems),
        last_error,
    }
}

fn problems(name: &str, row: &Customization) -> Vec<RuleProblem> {
    let found = row.spec.problems();
    if !found.is_empty() {
        return found;
    }
    let failures = compile_problems(name, &row.spec).into_iter();
    let problem = |failure: atoll_customize::Failure| RuleProblem {
        field: format!("spec.customizations.{}", failure.operation.field()),
        problem: failure.error.to_string(),
    };
    failures.map(problem).collect()
}

fn listed(problems: &[RuleProblem]) -> String {
    let shown = problems.iter().take(MOST_PROBLEMS).map(ToString::to_string);
    let mut message = shown.collect::<Vec<_>>().join("; ");
    if let Some(more) = problems.len().checked_sub(MOST_PROBLEMS).filter(|more| *more > 0) {
        message.push_str(&format!("; and {more} more"));
    }
    message
}

fn describe(failure: &RuleFailure) -> String {
    let namespace = failure.namespace.as_ref().map(|name| format!("{name}/")).unwrap_or_default();
    let cluster = failure.cluster.as_ref().map(|name| format!(" on {name}")).unwrap_or_default();
    format!(
        "spec.customizations.{}: {}; object {namespace}{}{cluster}",
        failure.operation.field(),
        failure.message,
        failure.name
    )
}

/// What the customization is used for. A rule that does not compile is not.
fn uses(
    name: &str,
    row: &Customization,
    rules: &Rules,
    problems: &[RuleProblem],
) -> Vec<OperationUse> {
    let mut uses = rules.compiled().uses(name, &row.spec);
    for entry in &mut uses {
        let field = format!("spec.customizations.{}", entry.operation.field());
        entry.used &= !problems.iter().any(|problem| problem.field.starts_with(&field));
    }
    uses
}
