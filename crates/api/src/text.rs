//! Text for people.

use schemars::JsonSchema;
use serde_json::Value;

/// The names of an enum's variants as they are written, in their order.
///
/// ```
/// use atoll_api::binding::Outcome;
/// assert_eq!(atoll_api::text::variants::<Outcome>()[..2], ["Placed", "Partial"]);
/// ```
#[must_use]
pub fn variants<T: JsonSchema>() -> Vec<String> {
    let schema = schemars::schema_for!(T);
    // Each variant has a description, so each has a schema of its own.
    let variants = schema.get("oneOf").and_then(Value::as_array).into_iter().flatten();
    variants.filter_map(|variant| variant["const"].as_str()).map(str::to_owned).collect()
}

/// A number with its noun, in the singular for 1: `1 replica`, `2 replicas`.
///
/// ```
/// assert_eq!(atoll_api::text::counted(1, "replica"), "1 replica");
/// assert_eq!(atoll_api::text::counted(0, "replica"), "0 replicas");
/// ```
#[must_use]
pub fn counted<N: PartialEq + From<bool> + std::fmt::Display>(number: N, noun: &str) -> String {
    let ending = if number == N::from(true) { "" } else { "s" };
    format!("{number} {noun}{ending}")
}
