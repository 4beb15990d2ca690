//! Recorded answers of Karmada's own packages (`tests/vectors/objects/FAMILY.jsonl`), and the cases on which Atoll
//! differs on purpose (`tests/vectors/differences.toml`). Used by tests only.
//!
//! A test of a family calls [`check`] with a function that computes Atoll's answer. The test fails if an answer differs
//! from the recorded one and is not listed, and if a listed difference is not the answer or is no longer a difference.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde_json::{Map, Value};

/// One line of a family's file.
#[derive(Debug, Clone, Deserialize)]
pub struct Case {
    /// `FAMILY-NUMBER`.
    pub id: String,
    /// The input. Its fields depend on the family.
    pub input: Value,
    /// The recorded answer; `{"error": CLASS}` if Karmada refuses the input.
    pub expected: Value,
}

/// A case on which Atoll differs from the recorded answer on purpose.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct Difference {
    id: String,
    /// The design's section and rule.
    rule: String,
    /// Atoll's answer as JSON; `{"error": TEXT}` for an error whose text contains TEXT.
    expected: String,
}

/// The folder of the vectors.
#[must_use]
pub fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/vectors")
}

/// The cases of a family.
///
/// # Panics
/// If the file is missing, empty or malformed: the test that reads it fails.
#[must_use]
pub fn cases(family: &str) -> Vec<Case> {
    let path = folder().join("objects").join(format!("{family}.jsonl"));
    let text = read(&path);
    let parse = |(at, line): (usize, &str)| {
        serde_json::from_str(line)
            .unwrap_or_else(|error| panic!("{}:{}: {error}", path.display(), at + 1))
    };
    let cases: Vec<Case> = text.lines().enumerate().map(parse).collect();
    assert!(!cases.is_empty(), "{} has no cases", path.display());
    cases
}

/// Compares Atoll's `answer` to every case of a family with the recorded one. `answer` returns `{"error": TEXT}` where
/// Atoll refuses the input. `normalize` is applied to both sides before they are compared, for example
/// [`without_zeros`]; numbers are compared by value.
///
/// # Panics
/// If answers differ and are not listed, or if entries of the list are wrong, unnecessary or name no case.
pub fn check(
    family: &str,
    normalize: impl Fn(&Case, Value) -> Value,
    answer: impl Fn(&Case) -> Value,
) {
    let list = read(&folder().join("differences.toml"));
    let problems = problems(&cases(family), &differences(&list, family), normalize, answer);
    assert!(problems.is_empty(), "{} problems:\n{}", problems.len(), problems.join("\n"));
}

fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The differences of one family. The file has one section for each family: `[[FAMILY]]` with id, rule and expected.
fn differences(text: &str, family: &str) -> Vec<Difference> {
    let sections: BTreeMap<String, Vec<Difference>> =
        basic_toml::from_str(text).unwrap_or_else(|error| panic!("differences.toml: {error}"));
    sections.into_iter().find(|(name, _)| name == family).map(|(_, list)| list).unwrap_or_default()
}

fn problems(
    cases: &[Case],
    differences: &[Difference],
    normalize: impl Fn(&Case, Value) -> Value,
    answer: impl Fn(&Case) -> Value,
) -> Vec<String> {
    let mut problems = Vec::new();
    let known: BTreeSet<&str> = cases.iter().map(|case| case.id.as_str()).collect();
    let mut listed: BTreeMap<&str, Value> = BTreeMap::new();
    for difference in differences {
        let Difference { id, rule, expected } = difference;
        match serde_json::from_str(expected) {
            Ok(expected) => {
                if listed.insert(id, expected).is_some() {
                    problems.push(format!("{id} is listed twice in differences.toml"));
                }
            }
            Err(error) => problems.push(format!("{id}: expected is not JSON: {error}")),
        }
        if rule.trim().is_empty() {
            problems.push(format!("{id} has no rule in differences.toml"));
        }
        if !known.contains(id.as_str()) {
            problems.push(format!("differences.toml lists {id}, but there is no such case"));
        }
    }
    for case in cases {
        let got = answer(case);
        let same = |expected: &Value, text: bool| match (expected.get("error"), got.get("error")) {
            // The recorded class of an error is not compared; a listed text must be part of ours.
            (Some(Value::String(part)), Some(Value::String(error))) => {
                !text || error.contains(part.as_str())
            }
            (None, None) => {
                equal(&normalize(case, expected.clone()), &normalize(case, got.clone()))
            }
            _ => false,
        };
        let recorded = same(&case.expected, false);
        match listed.get(case.id.as_str()) {
            None if !recorded => {
                problems.push(format!("{}: recorded {}\n  got {got}", case.id, case.expected));
            }
            Some(_) if recorded => problems.push(format!(
                "{}: the answer is the recorded one; remove it from differences.toml",
                case.id
            )),
            Some(expected) if !same(expected, true) => {
                problems.push(format!("{}: differences.toml has {expected}\n  got {got}", case.id))
            }
            _ => {}
        }
    }
    problems
}

/// Whether two values are equal, with numbers compared by value: 1 equals 1.0.
#[must_use]
pub fn equal(one: &Value, other: &Value) -> bool {
    match (one, other) {
        (Value::Number(one), Value::Number(other)) => {
            one == other || (one.is_f64() != other.is_f64() && one.as_f64() == other.as_f64())
        }
        (Value::Array(one), Value::Array(other)) => {
            one.len() == other.len() && one.iter().zip(other).all(|(a, b)| equal(a, b))
        }
        (Value::Object(one), Value::Object(other)) => {
            one.len() == other.len()
                && one.iter().all(|(key, a)| other.get(key).is_some_and(|b| equal(a, b)))
        }
        _ => one == other,
    }
}

/// The value without nulls, zeros, `false`, empty strings, empty lists and empty maps in maps: what Go's structures
/// cannot distinguish from absence.
#[must_use]
pub fn without_zeros(value: Value) -> Value {
    let zero = |value: &Value| match value {
        Value::Null => true,
        Value::Bool(value) => !value,
        Value::Number(number) => number.as_f64() == Some(0.0),
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(fields) => fields.is_empty(),
    };
    match value {
        Value::Object(fields) => {
            let fields = fields.into_iter().map(|(key, value)| (key, without_zeros(value)));
            Value::Object(fields.filter(|(_, value)| !zero(value)).collect::<Map<_, _>>())
        }
        Value::Array(items) => Value::Array(items.into_iter().map(without_zeros).collect()),
        other => other,
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use serde_json::json;

    use super::*;

    fn found(list: &str, recorded: Value, answer: Value) -> Vec<String> {
        let case = Case { id: "x-1".to_owned(), input: Value::Null, expected: recorded };
        problems(&[case], &differences(list, "x"), |_, value| value, |_| answer.clone())
    }

    fn listed(id: &str, expected: &str) -> String {
        format!("[[x]]\nid = \"{id}\"\nrule = \"1: because\"\nexpected = '{expected}'\n")
    }

    #[test]
    fn an_unlisted_difference_and_an_unneeded_entry_are_problems() {
        let (one, two) = (json!({"a": 1}), json!({"a": 2}));
        assert!(found("", one.clone(), json!({"a": 1.0})).is_empty());
        assert_eq!(found("", one.clone(), two.clone()).len(), 1);
        assert!(found(&listed("x-1", "{\"a\": 2}"), one.clone(), two.clone()).is_empty());
        for (list, part) in [
            (listed("x-1", "{\"a\": 3}"), "differences.toml has"),
            (listed("x-2", "{}"), "no such case"),
            (listed("x-1", "{"), "not JSON"),
            (listed("x-1", "{\"a\": 2}").repeat(2), "twice"),
        ] {
            let problems = found(&list, one.clone(), two.clone());
            assert!(problems.iter().any(|p| p.contains(part)), "{part}: {problems:?}");
        }
        let unneeded = found(&listed("x-1", "{\"a\": 1}"), one.clone(), one);
        assert!(unneeded.len() == 1 && unneeded[0].contains("remove it"), "{unneeded:?}");
    }

    #[test]
    fn errors_are_compared_by_existence_and_listed_ones_by_text() {
        let (refused, fine) = (json!({"error": "Image"}), json!({"a": 1}));
        assert!(found("", refused.clone(), json!({"error": "any text"})).is_empty());
        assert_eq!(found("", refused.clone(), fine.clone()).len(), 1);
        let list = listed("x-1", "{\"error\": \"value\"}");
        assert!(found(&list, fine.clone(), json!({"error": "spec.value is wrong"})).is_empty());
        assert_eq!(found(&list, fine, json!({"error": "another"})).len(), 1);
    }

    #[test]
    fn zeros_are_dropped_in_maps_only() {
        let value = json!({"a": 0, "b": {"c": ""}, "d": [0, {"e": false}], "f": 1});
        assert_eq!(without_zeros(value), json!({"d": [0, {}], "f": 1}));
        assert!(equal(&json!([1, {"a": 2.0}]), &json!([1.0, {"a": 2}])));
        assert!(!equal(&json!(9_007_199_254_740_993_i64), &json!(9_007_199_254_740_992_i64)));
    }

    #[test]
    fn every_section_of_the_list_has_a_file_of_cases() {
        let text = std::fs::read_to_string(folder().join("differences.toml")).unwrap();
        let sections: BTreeMap<String, Vec<Difference>> = basic_toml::from_str(&text).unwrap();
        for family in sections.keys() {
            assert!(folder().join(format!("objects/{family}.jsonl")).exists(), "{family}");
        }
    }
}
