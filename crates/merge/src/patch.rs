//! JSON merge patch (RFC 7386) and JSON patch (RFC 6902), with one deviation that Kubernetes clients depend on.
//! Strategic merge is in [`crate::strategic`].

use json_patch::{PatchErrorKind, PatchOperation};
use serde_json::Value;

/// Operations of one JSON patch, as kube-apiserver limits them.
const MAX_OPERATIONS: usize = 10_000;
/// Depth of a document, as JSON is read: deeper ones cannot be written by clients either.
const MAX_DEPTH: usize = 128;
/// Values that the operations of one patch may move, copy, add and compare altogether. An object of 3 MiB has some hundred
/// thousand; a patch that copies its own copies doubles them with each operation.
const MAX_VALUES: usize = 1_000_000;

/// Why a patch was rejected.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PatchError {
    /// The patch document itself is malformed: the request is a 400.
    #[error("malformed patch: {0}")]
    Malformed(String),
    /// A `test` operation failed: the request is a 422.
    #[error("testing value {path} failed (operation {index})")]
    TestFailed {
        /// Position of the operation in the patch, from 0.
        index: usize,
        /// JSON pointer of the operation.
        path: String,
    },
    /// An operation refers to a path that is not in the object: the request is a 422.
    #[error("{op} operation {index} does not apply: {path}: {cause}")]
    NotApplicable {
        /// Position of the operation in the patch, from 0.
        index: usize,
        /// The operation.
        op: &'static str,
        /// JSON pointer of the operation.
        path: String,
        /// The problem.
        cause: String,
    },
    /// The patch would cost too much time or memory: the request is a 413.
    #[error("{0}")]
    TooLarge(String),
    /// A strategic merge patch violates the kind's merge rules: the request is a 400.
    #[error("{path}: {message}")]
    Strategic {
        /// Field of the object, as a dotted path.
        path: String,
        /// The problem and how to fix it.
        message: String,
    },
}

/// Applies a JSON merge patch (RFC 7386) in place: objects merge, `null` removes, other values replace.
pub fn json_merge(target: &mut Value, patch: &Value) {
    json_patch::merge(target, patch);
}

/// Applies a JSON patch (RFC 6902) and returns the new document; `doc` is not changed.
///
/// `test` against `null` passes if the path does not exist. Kubernetes' Go library does the same, and clients that add
/// the first finalizer rely on it.
///
/// # Errors
/// [`PatchError`]; then nothing is applied.
pub fn json_patch(doc: &Value, ops: &Value) -> Result<Value, PatchError> {
    let ops: Vec<PatchOperation> =
        serde_json::from_value(ops.clone()).map_err(|e| PatchError::Malformed(e.to_string()))?;
    if ops.len() > MAX_OPERATIONS {
        return Err(PatchError::TooLarge(format!(
            "The allowed maximum operations in a JSON patch is {MAX_OPERATIONS}, got {}",
            ops.len()
        )));
    }
    let mut out = doc.clone();
    let mut values = MAX_VALUES;
    for (index, op) in ops.iter().enumerate() {
        let path = op.path().to_string();
        spend(&out, op, &mut values).map_err(|why| {
            PatchError::TooLarge(format!(
                "{} operation {index} is refused: {path}: {why}",
                name(op)
            ))
        })?;
        if let PatchOperation::Test(test) = op
            && test.value.is_null()
            && out.pointer(&path).is_none()
        {
            continue;
        }
        json_patch::patch(&mut out, std::slice::from_ref(op)).map_err(|e| match e.kind {
            PatchErrorKind::TestFailed => PatchError::TestFailed { index, path },
            cause => {
                PatchError::NotApplicable { index, op: name(op), path, cause: cause.to_string() }
            }
        })?;
    }
    Ok(out)
}

/// Pays for the values that an operation touches.
fn spend(doc: &Value, op: &PatchOperation, values: &mut usize) -> Result<(), &'static str> {
    let touched = match op {
        PatchOperation::Add(op) => Some(&op.value),
        PatchOperation::Replace(op) => Some(&op.value),
        PatchOperation::Test(op) => Some(&op.value),
        PatchOperation::Move(op) => doc.pointer(op.from.as_str()),
        PatchOperation::Copy(op) => doc.pointer(op.from.as_str()),
        PatchOperation::Remove(_) => None,
    };
    let above = op.path().as_str().bytes().filter(|byte| *byte == b'/').count();
    touched.map_or(Ok(()), |value| count(value, above, values))
}

fn count(value: &Value, depth: usize, values: &mut usize) -> Result<(), &'static str> {
    if depth > MAX_DEPTH {
        return Err("the object would be nested too deeply");
    }
    *values = values.checked_sub(1).ok_or("the patch copies or compares too much")?;
    match value {
        Value::Array(items) => items.iter().try_for_each(|item| count(item, depth + 1, values)),
        Value::Object(fields) => {
            fields.values().try_for_each(|value| count(value, depth + 1, values))
        }
        _ => Ok(()),
    }
}

fn name(op: &PatchOperation) -> &'static str {
    match op {
        PatchOperation::Add(_) => "add",
        PatchOperation::Remove(_) => "remove",
        PatchOperation::Replace(_) => "replace",
        PatchOperation::Move(_) => "move",
        PatchOperation::Copy(_) => "copy",
        PatchOperation::Test(_) => "test",
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn merge_patch_removes_on_null_and_replaces_lists() {
        let mut doc = json!({"a": {"b": 1, "c": [1, 2]}, "d": 3});
        json_merge(&mut doc, &json!({"a": {"b": null, "c": [3]}, "e": {"f": null, "g": 1}}));
        assert_eq!(doc, json!({"a": {"c": [3]}, "d": 3, "e": {"g": 1}}));
    }

    #[test]
    fn finalizer_guard_on_an_object_without_finalizers_passes() {
        let doc = json!({"metadata": {"name": "a"}});
        let ops = json!([
            {"op": "test", "path": "/metadata/finalizers", "value": null},
            {"op": "add", "path": "/metadata/finalizers", "value": ["x/y"]},
        ]);
        let once = json_patch(&doc, &ops).unwrap();
        assert_eq!(once, json!({"metadata": {"name": "a", "finalizers": ["x/y"]}}));
        let twice = json_patch(&once, &ops).unwrap_err();
        let expected = PatchError::TestFailed { index: 0, path: "/metadata/finalizers".into() };
        assert_eq!(twice, expected);
    }

    #[test]
    fn operations_that_do_not_apply_name_themselves_and_change_nothing() {
        let doc = json!({"a": [1]});
        let ops = json!([
            {"op": "add", "path": "/a/-", "value": 2},
            {"op": "remove", "path": "/b"},
        ]);
        let error = json_patch(&doc, &ops).unwrap_err();
        assert!(
            matches!(&error, PatchError::NotApplicable { index: 1, op: "remove", path, .. } if path == "/b"),
            "{error}"
        );
        let missing_test = json!([{"op": "test", "path": "/b", "value": 1}]);
        assert!(json_patch(&doc, &missing_test).is_err());
        assert!(matches!(json_patch(&doc, &json!({"op": "add"})), Err(PatchError::Malformed(_))));
    }

    #[test]
    fn patches_that_grow_or_deepen_without_bound_are_refused() {
        let copy = |from: &str, path: &str| json!({"op": "copy", "from": from, "path": path});
        let doc = json!({"a": [1, 2, 3, 4]});
        let doubling: Vec<_> = (0..60).map(|n| copy("/a", &format!("/a/{n}"))).collect();
        let nesting: Vec<_> = (0..200).map(|_| copy("", "/b")).collect();
        let many = vec![json!({"op": "test", "path": "/a/0", "value": 1}); MAX_OPERATIONS + 1];
        for (ops, part) in
            [(doubling, "too much"), (nesting, "nested too deeply"), (many, "maximum operations")]
        {
            let error = json_patch(&doc, &ops.into()).unwrap_err();
            assert!(matches!(&error, PatchError::TooLarge(why) if why.contains(part)), "{error}");
        }
    }

    #[test]
    fn operations_see_the_effect_of_those_before_them() {
        let ops = json!([
            {"op": "add", "path": "/b", "value": {"x~1": 1}},
            {"op": "move", "from": "/b/x~01", "path": "/c"},
            {"op": "copy", "from": "/c", "path": "/d"},
            {"op": "test", "path": "/d", "value": 1},
            {"op": "replace", "path": "/a/0", "value": 9},
        ]);
        let out = json_patch(&json!({"a": [1]}), &ops).unwrap();
        assert_eq!(out, json!({"a": [9], "b": {}, "c": 1, "d": 1}));
    }
}
