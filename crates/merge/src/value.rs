//! Equality and order of JSON values as in Kubernetes: `1` and `1.0` are the same number.

use std::{cmp::Ordering, fmt};

use serde_json::{Number, Value};

/// Deep equality. Numbers compare by value, not by notation.
pub(crate) fn same(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Object(a), Value::Object(b)) => {
            a.len() == b.len() && a.iter().all(|(k, v)| b.get(k).is_some_and(|w| same(v, w)))
        }
        (Value::Array(a), Value::Array(b)) => {
            a.len() == b.len() && a.iter().zip(b).all(|(v, w)| same(v, w))
        }
        (Value::Number(a), Value::Number(b)) => compare_numbers(a, b) == Ordering::Equal,
        _ => a == b,
    }
}

/// A total order over JSON values, consistent with [`same`]. Kinds order as
/// null < bool < number < string < array < object.
pub(crate) fn compare(a: &Value, b: &Value) -> Ordering {
    match (a, b) {
        (Value::Bool(a), Value::Bool(b)) => a.cmp(b),
        (Value::Number(a), Value::Number(b)) => compare_numbers(a, b),
        (Value::String(a), Value::String(b)) => a.cmp(b),
        (Value::Array(a), Value::Array(b)) => {
            let items = a.iter().zip(b).map(|(v, w)| compare(v, w));
            items.fold(Ordering::Equal, Ordering::then).then(a.len().cmp(&b.len()))
        }
        (Value::Object(a), Value::Object(b)) => {
            let entries = a.iter().zip(b).map(|((k, v), (l, w))| k.cmp(l).then(compare(v, w)));
            entries.fold(Ordering::Equal, Ordering::then).then(a.len().cmp(&b.len()))
        }
        _ => rank(a).cmp(&rank(b)),
    }
}

/// Compares by value: integers exactly, other numbers as doubles.
pub(crate) fn compare_numbers(a: &Number, b: &Number) -> Ordering {
    match (integer(a), integer(b)) {
        (Some(a), Some(b)) => a.cmp(&b),
        _ => a.as_f64().unwrap_or(f64::NAN).total_cmp(&b.as_f64().unwrap_or(f64::NAN)),
    }
}

/// The number as an integer if it is written as one.
pub(crate) fn integer(n: &Number) -> Option<i128> {
    n.as_i64().map(i128::from).or_else(|| n.as_u64().map(i128::from))
}

fn rank(v: &Value) -> u8 {
    match v {
        Value::Null => 0,
        Value::Bool(_) => 1,
        Value::Number(_) => 2,
        Value::String(_) => 3,
        Value::Array(_) => 4,
        Value::Object(_) => 5,
    }
}

/// The name of a value's JSON type in the API server's messages.
pub(crate) fn type_name(v: &Value) -> &'static str {
    match v {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(n) if integer(n).is_some() => "integer",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

/// `parent.name`, or only one of the two if the other is empty.
pub(crate) fn child(parent: &str, name: &str) -> String {
    let dot = if parent.is_empty() || name.is_empty() { "" } else { "." };
    format!("{parent}{dot}{name}")
}

/// `parent[index]`.
pub(crate) fn element(parent: &str, index: usize) -> String {
    format!("{parent}[{index}]")
}

/// A path within an object. Walks visit thousands of them but need the text only for errors, so it is built only then.
#[derive(Clone, Copy)]
pub(crate) enum Place<'a> {
    /// The start of the walk.
    Start(&'a str),
    /// `parent.name`.
    Field(&'a Place<'a>, &'a str),
    /// `parent[index]`.
    Item(&'a Place<'a>, usize),
}

impl Place<'_> {
    /// The object itself.
    pub(crate) const ROOT: Place<'static> = Place::Start("");

    fn is_empty(&self) -> bool {
        match self {
            Place::Start(text) => text.is_empty(),
            Place::Field(parent, name) => name.is_empty() && parent.is_empty(),
            Place::Item(..) => false,
        }
    }
}

impl fmt::Display for Place<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Place::Start(text) => f.write_str(text),
            Place::Field(parent, name) => {
                let dot = if parent.is_empty() || name.is_empty() { "" } else { "." };
                write!(f, "{parent}{dot}{name}")
            }
            Place::Item(parent, index) => write!(f, "{parent}[{index}]"),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn numbers_compare_by_value_and_large_integers_exactly() {
        assert!(same(&json!({"a": [1, 2.0]}), &json!({"a": [1.0, 2]})));
        assert!(!same(&json!(9_007_199_254_740_993_i64), &json!(9_007_199_254_740_992_i64)));
        assert_eq!(compare(&json!(u64::MAX), &json!(-1)), Ordering::Greater);
        assert_eq!(compare(&json!(1), &json!(1.5)), Ordering::Less);
        assert_eq!(compare(&json!([1, 2]), &json!([1])), Ordering::Greater);
        assert_eq!(compare(&json!("z"), &json!([])), Ordering::Less);
    }
}
