//! The parts of a binding that API servers do not check, because they would do so with each write. The controller copies the
//! placement from a policy, whose fields are checked, and writes the status itself. What somebody else wrote there is checked
//! here.

use std::sync::LazyLock;

use atoll_api::crds;
use atoll_api::placement::Placement;
use atoll_merge::schema::{FieldError, Schema, validate};
use serde_json::Value;

/// What the API server checks in a policy's placement.
static PLACEMENT: LazyLock<Schema> = LazyLock::new(|| schema(&crds::placement_schema()));
/// What the API server would check in a status.
static STATUS: LazyLock<Schema> = LazyLock::new(|| schema(&crds::status_schema()));

fn schema(definition: &Value) -> Schema {
    Schema::from_openapi(definition)
        .expect("the definition is generated, and API servers take the CRD that it comes from")
}

/// Why a policy could not have this placement.
pub(super) fn check_placement(placement: &Placement) -> Result<(), FieldError> {
    // It has string keys only, so it can be written.
    check(&serde_json::to_value(placement).unwrap_or_default(), &PLACEMENT)
}

/// Why the controller cannot have written this status.
pub(super) fn check_status(status: &Value) -> Result<(), FieldError> {
    check(status, &STATUS)
}

fn check(part: &Value, schema: &Schema) -> Result<(), FieldError> {
    validate(part, schema).into_iter().next().map_or(Ok(()), Err)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_placement_must_be_one_that_a_policy_can_have() {
        let placement = |value: Value| -> Placement { serde_json::from_value(value).unwrap() };
        let spread = json!({"spreadByField": "region", "minGroups": 1});
        let fits = placement(json!({"spreadConstraints": [spread]}));
        assert_eq!(check_placement(&fits), Ok(()));
        let many: Vec<_> = std::iter::repeat_n(spread, 17).collect();
        let error = check_placement(&placement(json!({"spreadConstraints": many}))).unwrap_err();
        assert_eq!(
            error.to_string(),
            "spreadConstraints: Too many: 17: must have at most 16 items"
        );
    }
}
