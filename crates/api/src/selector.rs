//! Matches label selectors and field selectors.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;

/// Why a selector is invalid. An API server would have rejected it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SelectorError {
    /// Not one of the known operators.
    #[error("operator {operator:?} of key {key:?} must be In, NotIn, Exists or DoesNotExist")]
    Operator {
        /// Key of the requirement.
        key: String,
        /// The given operator.
        operator: String,
    },
    /// `In` and `NotIn` need values; `Exists` and `DoesNotExist` take none.
    #[error("operator {operator} of key {key:?} {problem}")]
    Values {
        /// Key of the requirement.
        key: String,
        /// The operator.
        operator: String,
        /// The problem with the values.
        problem: &'static str,
    },
}

/// One requirement on the value under a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Requirement {
    /// The key's value is one of these.
    In(String, Vec<String>),
    /// The key is absent or its value is none of these.
    NotIn(String, Vec<String>),
    /// The key is present.
    Exists(String),
    /// The key is absent.
    DoesNotExist(String),
}

impl Requirement {
    /// Parses a requirement of a selector.
    ///
    /// # Errors
    /// An unknown operator, or values that do not fit it.
    pub fn parse(key: &str, operator: &str, values: &[String]) -> Result<Self, SelectorError> {
        let problem = |problem| SelectorError::Values {
            key: key.to_owned(),
            operator: operator.to_owned(),
            problem,
        };
        match operator {
            "In" | "NotIn" if values.is_empty() => Err(problem("needs at least one value")),
            "Exists" | "DoesNotExist" if !values.is_empty() => Err(problem("takes no values")),
            "In" => Ok(Self::In(key.to_owned(), values.to_vec())),
            "NotIn" => Ok(Self::NotIn(key.to_owned(), values.to_vec())),
            "Exists" => Ok(Self::Exists(key.to_owned())),
            "DoesNotExist" => Ok(Self::DoesNotExist(key.to_owned())),
            _ => {
                Err(SelectorError::Operator { key: key.to_owned(), operator: operator.to_owned() })
            }
        }
    }

    /// The key of the requirement.
    #[must_use]
    pub fn key(&self) -> &str {
        match self {
            Self::In(key, _)
            | Self::NotIn(key, _)
            | Self::Exists(key)
            | Self::DoesNotExist(key) => key,
        }
    }

    /// Whether a value (or its absence) satisfies the requirement.
    #[must_use]
    pub fn accepts(&self, value: Option<&str>) -> bool {
        match self {
            Self::In(_, values) => value.is_some_and(|value| values.iter().any(|v| v == value)),
            Self::NotIn(_, values) => !value.is_some_and(|value| values.iter().any(|v| v == value)),
            Self::Exists(_) => value.is_some(),
            Self::DoesNotExist(_) => value.is_none(),
        }
    }
}

/// A parsed label selector. The empty one matches everything, as in Kubernetes.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Selector(Vec<Requirement>);

impl Selector {
    /// Parses a selector.
    ///
    /// # Errors
    /// See [`Requirement::parse`].
    pub fn parse(selector: &LabelSelector) -> Result<Self, SelectorError> {
        let mut requirements: Vec<_> = selector
            .match_labels
            .iter()
            .flatten()
            .map(|(key, value)| Requirement::In(key.clone(), vec![value.clone()]))
            .collect();
        for expression in selector.match_expressions.iter().flatten() {
            let values = expression.values.as_deref().unwrap_or_default();
            requirements.push(Requirement::parse(&expression.key, &expression.operator, values)?);
        }
        Ok(Self(requirements))
    }

    /// Whether these labels satisfy every requirement.
    #[must_use]
    pub fn matches(&self, labels: &BTreeMap<String, String>) -> bool {
        self.first_failing(labels).is_none()
    }

    /// The first requirement that these labels do not satisfy.
    #[must_use]
    pub fn first_failing(&self, labels: &BTreeMap<String, String>) -> Option<&Requirement> {
        self.0.iter().find(|r| !r.accepts(labels.get(r.key()).map(String::as_str)))
    }

    /// The requirements, in order.
    #[must_use]
    pub fn requirements(&self) -> &[Requirement] {
        &self.0
    }
}

impl std::fmt::Display for Requirement {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::In(key, values) if values.len() == 1 => write!(f, "{key}={}", values[0]),
            Self::In(key, values) => write!(f, "{key} in ({})", values.join(", ")),
            Self::NotIn(key, values) => write!(f, "{key} not in ({})", values.join(", ")),
            Self::Exists(key) => write!(f, "{key} exists"),
            Self::DoesNotExist(key) => write!(f, "{key} does not exist"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_operator_means_what_kubernetes_says() {
        let labels = BTreeMap::from([("tier".to_owned(), "gold".to_owned())]);
        let selector = |json: &str| Selector::parse(&serde_json::from_str(json).unwrap()).unwrap();
        let expression = |operator: &str, key: &str, values: &str| {
            selector(&format!(
                r#"{{"matchExpressions":[{{"key":"{key}","operator":"{operator}"{values}}}]}}"#
            ))
        };
        assert!(selector("{}").matches(&labels));
        assert!(selector(r#"{"matchLabels":{"tier":"gold"}}"#).matches(&labels));
        assert!(expression("In", "tier", r#","values":["silver","gold"]"#).matches(&labels));
        assert!(!expression("NotIn", "tier", r#","values":["gold"]"#).matches(&labels));
        assert!(expression("NotIn", "zone", r#","values":["gold"]"#).matches(&labels));
        assert!(expression("Exists", "tier", "").matches(&labels));
        assert!(!expression("DoesNotExist", "tier", "").matches(&labels));
    }

    #[test]
    fn a_bad_requirement_names_its_key() {
        let error = Requirement::parse("tier", "Near", &[]).unwrap_err();
        assert!(error.to_string().contains("\"tier\""), "{error}");
        assert!(Requirement::parse("tier", "In", &[]).is_err());
        assert!(Requirement::parse("tier", "Exists", &["x".into()]).is_err());
    }
}
