//! Filters of records.

use atoll_api::binding::{Outcome, Trigger};
use atoll_api::{BindingUid, ClusterName};
use jiff::Timestamp;
use serde::de::DeserializeOwned;

/// Longest name that Kubernetes accepts; no longer one can match a row.
const MAX_NAME: usize = 253;
/// Characters of a rejected value that an error repeats.
const SHOWN: usize = 64;

/// A filter of records; all set fields must match. The default matches every record.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Filter {
    /// Namespaces to search.
    pub scope: Scope,
    /// uid of the binding.
    pub binding_uid: Option<BindingUid>,
    /// API group of the template, empty for core.
    pub workload_group: Option<String>,
    /// Kind of the template.
    pub workload_kind: Option<String>,
    /// Name of the template.
    pub workload_name: Option<String>,
    /// A cluster whose share the decision changed.
    pub cluster: Option<ClusterName>,
    /// Trigger.
    pub trigger: Option<Trigger>,
    /// Outcome.
    pub outcome: Option<Outcome>,
    /// Decided at or after this time.
    pub since: Option<Timestamp>,
    /// Decided before this time.
    pub until: Option<Timestamp>,
}

/// Namespaces of the wanted records.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Scope {
    /// All namespaces, and cluster-scoped bindings.
    #[default]
    Any,
    /// All namespaces, without cluster-scoped bindings.
    Namespaced,
    /// One namespace.
    Namespace(String),
    /// Cluster-scoped bindings only.
    Cluster,
}

impl Scope {
    /// As conditions on column `namespace`: the value to match, and whether to exclude the empty one.
    pub(crate) fn columns(&self) -> (Option<&str>, bool) {
        match self {
            Self::Any => (None, false),
            Self::Namespaced => (None, true),
            // Rows of cluster-scoped bindings have the empty namespace: a namespace filter must not select them.
            Self::Namespace(namespace) => (Some(namespace), true),
            Self::Cluster => (Some(""), false),
        }
    }
}

/// Why a filter was rejected. Names the field and the accepted values.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{field}: {value:?} {problem}")]
pub struct FilterError {
    /// The field.
    pub field: String,
    /// Its value, shortened.
    pub value: String,
    /// What is wrong with it.
    pub problem: String,
}

impl FilterError {
    pub(crate) fn new(field: &str, value: &str, problem: impl Into<String>) -> Self {
        let mut shown: String = value.chars().take(SHOWN).collect();
        if shown.len() < value.len() {
            shown.push('…');
        }
        Self { field: field.to_owned(), value: shown, problem: problem.into() }
    }
}

/// The fields that [`Filter::set`] takes, as field selectors name them.
pub(crate) const FIELDS: [&str; 9] = [
    "spec.binding.uid",
    "spec.workload.group",
    "spec.workload.kind",
    "spec.workload.name",
    "spec.cluster",
    "spec.trigger",
    "spec.outcome",
    "since",
    "until",
];

impl Filter {
    /// Adds one field of a selector to the filter.
    ///
    /// # Errors
    /// When the field does not exist, cannot have this value, or is already set to another value.
    pub fn set(&mut self, field: &str, value: &str) -> Result<(), FilterError> {
        let error = |problem: &str| Err(FilterError::new(field, value, problem));
        check(field, value)?;
        let fresh = match field {
            "spec.binding.uid" => put(&mut self.binding_uid, value.into()),
            "spec.workload.group" => put(&mut self.workload_group, value.to_owned()),
            "spec.workload.kind" => put(&mut self.workload_kind, value.to_owned()),
            "spec.workload.name" => put(&mut self.workload_name, value.to_owned()),
            "spec.cluster" => put(&mut self.cluster, value.into()),
            "spec.trigger" => put(&mut self.trigger, one_of(field, value)?),
            "spec.outcome" => put(&mut self.outcome, one_of(field, value)?),
            "since" => put(&mut self.since, time(field, value)?),
            "until" => put(&mut self.until, time(field, value)?),
            _ => {
                return error(&format!(
                    "is not a field of the selector; fields are {}",
                    FIELDS.join(", ")
                ));
            }
        };
        if fresh { Ok(()) } else { error("contradicts another value of the same field") }
    }
}

/// Rejects values that no row can have.
pub(crate) fn check(field: &str, value: &str) -> Result<(), FilterError> {
    let error = |problem: String| Err(FilterError::new(field, value, problem));
    if value.len() > MAX_NAME {
        return error(format!("is longer than {MAX_NAME} bytes"));
    }
    if value.chars().any(char::is_control) {
        return error("contains control characters".to_owned());
    }
    Ok(())
}

/// Sets the slot; false if it already holds another value.
fn put<T: PartialEq>(slot: &mut Option<T>, value: T) -> bool {
    match slot {
        Some(present) => *present == value,
        None => {
            *slot = Some(value);
            true
        }
    }
}

fn one_of<T: DeserializeOwned>(field: &str, value: &str) -> Result<T, FilterError> {
    serde_json::from_value(value.into()).map_err(|error| {
        // serde's message lists the variants; ours shows the value.
        let text = error.to_string();
        let expected = text.split_once("expected ").map_or("", |(_, expected)| expected);
        FilterError::new(field, value, format!("must be {expected}"))
    })
}

fn time(field: &str, value: &str) -> Result<Timestamp, FilterError> {
    value.parse().map_err(|_| {
        FilterError::new(field, value, "must be a time such as 2026-01-31T10:00:00Z (RFC 3339)")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hostile_values_are_refused_by_field() {
        let long = "x".repeat(10_000);
        for (field, value, part) in [
            ("spec.trigger", "Explode", "one of `First`"),
            ("spec.outcome", "'; DROP TABLE decisions --", "one of `Placed`"),
            ("since", "yesterday", "RFC 3339"),
            ("until", "2026-13-40T00:00:00Z", "RFC 3339"),
            ("spec.workload.name", "a\0b", "control characters"),
            ("spec.cluster", long.as_str(), "longer than 253"),
            ("spec.secret", "x", "spec.workload.name"),
        ] {
            let error = Filter::default().set(field, value).unwrap_err().to_string();
            assert!(error.starts_with(field) && error.contains(part), "{error}");
            assert!(error.len() < 400, "{error}");
        }
    }

    #[test]
    fn a_field_has_one_value() {
        let mut filter = Filter::default();
        filter.set("spec.cluster", "member1").unwrap();
        filter.set("spec.cluster", "member1").unwrap();
        assert!(filter.set("spec.cluster", "member2").is_err());
        filter.set("since", "2026-01-31T10:00:00+01:00").unwrap();
        assert_eq!(filter.since.unwrap().to_string(), "2026-01-31T09:00:00Z");
    }

    #[test]
    fn every_listed_field_can_be_set() {
        for field in FIELDS {
            let value = match field {
                "spec.trigger" => "Scale",
                "spec.outcome" => "Partial",
                "since" | "until" => "2026-01-31T10:00:00Z",
                _ => "x",
            };
            let mut filter = Filter::default();
            filter.set(field, value).unwrap();
            assert_ne!(filter, Filter::default(), "{field}");
        }
    }
}
