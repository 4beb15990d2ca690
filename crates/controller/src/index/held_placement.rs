//! Placements that bindings hold. The controller copies them from policies, whose fields the API server checks. For
//! bindings the API server does not check them, because it would do so with each write. So a placement that somebody else
//! wrote is checked here.

use std::sync::LazyLock;

use atoll_api::crds;
use atoll_api::placement::Placement;
use atoll_merge::schema::{FieldError, Schema, validate};

/// What the API server checks in a policy's placement.
static SCHEMA: LazyLock<Schema> = LazyLock::new(|| {
    Schema::from_openapi(&crds::placement_schema())
        .expect("the definition is generated, and an API server takes it")
});

/// Why a policy could not have this placement.
pub(super) fn check(placement: &Placement) -> Result<(), FieldError> {
    // It has string keys only, so it can be written.
    let value = serde_json::to_value(placement).unwrap_or_default();
    validate(&value, &SCHEMA).into_iter().next().map_or(Ok(()), Err)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn a_placement_must_be_one_that_a_policy_can_have() {
        let placement = |value: Value| -> Placement { serde_json::from_value(value).unwrap() };
        let spread = json!({"spreadByField": "region", "minGroups": 1});
        let fits = placement(json!({"spreadConstraints": [spread]}));
        assert_eq!(check(&fits), Ok(()));
        let many: Vec<_> = std::iter::repeat_n(spread, 17).collect();
        let error = check(&placement(json!({"spreadConstraints": many}))).unwrap_err();
        assert_eq!(
            error.to_string(),
            "spreadConstraints: Too many: 17: must have at most 16 items"
        );
    }
}
