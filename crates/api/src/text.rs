//! Text for people.

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
