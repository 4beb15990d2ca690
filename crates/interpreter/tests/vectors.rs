//! The recorded answers of Karmada's own packages, except where differences.toml says otherwise.

#![allow(clippy::unwrap_used)]

use atoll_interpreter::{Operation, interpret};
use atoll_vectors::{Case, check, without_zeros};
use serde_json::{Value, json};

fn answer(operation: Operation, case: &Case) -> Value {
    match interpret(operation, &case.input) {
        Ok(answer) => answer,
        Err(error) => json!({ "error": error.to_string() }),
    }
}

/// Compares every case of a family exactly.
fn exactly(family: &str) {
    let operation: Operation = family.parse().unwrap();
    check(family, |_, value| value, |case| answer(operation, case));
}

#[test]
fn dependencies_agree() {
    exactly("dependencies");
}

#[test]
fn retained_values_agree() {
    exactly("retain");
}

/// Whether the peer saw something to write is no part of the answer.
fn status(_: &Case, mut value: Value) -> Value {
    if let Some(fields) = value.as_object_mut() {
        fields.remove("unchanged");
    }
    without_zeros(value)
}

#[test]
fn aggregated_statuses_agree() {
    check("aggregate", status, |case| answer(Operation::Aggregate, case));
}

#[test]
fn reflected_statuses_agree() {
    check("reflect", status, |case| answer(Operation::Reflect, case));
}

#[test]
fn health_agrees() {
    exactly("health");
}

#[test]
fn replicas_and_requirements_agree() {
    exactly("replicas");
}

#[test]
fn pruned_objects_agree() {
    exactly("prune");
}

#[test]
fn attached_bindings_agree() {
    exactly("attached");
}

#[test]
fn what_a_failed_reconciliation_of_dependencies_writes_agrees() {
    let failed = |value: &Value| value.get("error").is_some();
    let mut compared = 0;
    for case in atoll_vectors::cases("attached").iter().filter(|case| failed(&case.expected)) {
        let answer = answer(Operation::Attached, case);
        if failed(&answer) {
            compared += 1;
            for field in ["attached", "dependencies", "finalizer"] {
                assert_eq!(answer[field], case.expected[field], "{field} of {}", case.id);
            }
        }
    }
    assert!(compared > 0);
}
