//! `plaintext`: changes any field by its path.

use atoll_api::override_policy::OverriderOperator;
use serde_json::Value;

use super::Failure;
use super::pointer::Pointer;

/// Makes one change.
pub(super) fn apply(
    manifest: &mut Value,
    path: &Pointer,
    operator: OverriderOperator,
    value: impl FnOnce() -> Result<Option<Value>, Failure>,
) -> Result<(), Failure> {
    let at_path = |problem| (".path".to_owned(), problem);
    if operator == OverriderOperator::Remove {
        return path.remove(manifest).map_err(at_path);
    }
    let Some(value) = value()? else {
        let problem = "is missing: give a value, or use operator remove".to_owned();
        return Err((".value".to_owned(), problem));
    };
    match operator {
        OverriderOperator::Replace => path.replace(manifest, value),
        _ => path.add(manifest, value),
    }
    .map_err(at_path)
}
