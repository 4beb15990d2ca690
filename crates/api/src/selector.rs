//! Label selectors, field selectors of clusters and node selectors: parsing and matching, with the rules of apimachinery's
//! `labels`. `kube::core::Selector` does not read the text form, and its errors do not name the key.

use std::borrow::Borrow;
use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;

use crate::{Few, names};

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
    /// The text form has a mistake.
    #[error("unable to parse requirement: {problem} in label selector {selector:?}")]
    Text {
        /// The whole selector.
        selector: String,
        /// The problem.
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
    /// The key's value is a larger integer than this.
    GreaterThan(String, i64),
    /// The key's value is a smaller integer than this.
    LessThan(String, i64),
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

    /// Parses a requirement of a node selector, which has `Gt` and `Lt` in addition.
    ///
    /// # Errors
    /// An unknown operator, or values that do not fit it.
    pub fn parse_node(key: &str, operator: &str, values: &[String]) -> Result<Self, SelectorError> {
        if !matches!(operator, "Gt" | "Lt") {
            return Self::parse(key, operator, values);
        }
        let number = match values {
            [value] => value.parse().ok(),
            _ => None,
        };
        let Some(number) = number else {
            return Err(SelectorError::Values {
                key: key.to_owned(),
                operator: operator.to_owned(),
                problem: "needs one value, an integer",
            });
        };
        let key = key.to_owned();
        Ok(if operator == "Gt" {
            Self::GreaterThan(key, number)
        } else {
            Self::LessThan(key, number)
        })
    }

    /// Parses a requirement of the text form: `key`, `!key`, `key=a`, `key!=a`, `key in (a, b)`, `key>1`. The error is
    /// the problem.
    fn parse_text(part: &str) -> Result<Self, &'static str> {
        if let Some(key) = part.strip_prefix('!') {
            return Ok(Self::DoesNotExist(label_key(key)?));
        }
        if let Some(open) = part.find('(') {
            let values = part[open..].strip_prefix('(').and_then(|list| list.strip_suffix(')'));
            let values = values.ok_or("a list without an end")?;
            let values: Result<Vec<String>, _> = values.split(',').map(label_value).collect();
            let values = values?;
            let mut words = part[..open].split_whitespace();
            let key = label_key(words.next().unwrap_or_default())?;
            return match (words.next(), words.next()) {
                (Some("in"), None) => Ok(Self::In(key, values)),
                (Some("notin"), None) => Ok(Self::NotIn(key, values)),
                _ => Err("an operator other than in and notin before a list"),
            };
        }
        let Some(at) = part.find(['=', '!', '<', '>']) else {
            return Ok(Self::Exists(label_key(part)?));
        };
        let key = label_key(&part[..at])?;
        let (operator, value) = ["==", "!=", "=", "<", ">"]
            .iter()
            .find_map(|operator| Some((*operator, part[at..].strip_prefix(operator)?)))
            .ok_or("an unknown operator")?;
        let value = label_value(value)?;
        let number = || value.parse().map_err(|_| "for 'Gt', 'Lt' the value must be an integer");
        Ok(match operator {
            "<" => Self::LessThan(key, number()?),
            ">" => Self::GreaterThan(key, number()?),
            "!=" => Self::NotIn(key, vec![value]),
            _ => Self::In(key, vec![value]),
        })
    }

    /// The key of the requirement.
    #[must_use]
    pub fn key(&self) -> &str {
        match self {
            Self::In(key, _)
            | Self::NotIn(key, _)
            | Self::Exists(key)
            | Self::DoesNotExist(key)
            | Self::GreaterThan(key, _)
            | Self::LessThan(key, _) => key,
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
            Self::GreaterThan(_, than) => number(value).is_some_and(|number| number > *than),
            Self::LessThan(_, than) => number(value).is_some_and(|number| number < *than),
        }
    }
}

fn number(text: Option<&str>) -> Option<i64> {
    text?.parse().ok()
}

fn label_key(text: &str) -> Result<String, &'static str> {
    let key = text.trim();
    match names::label_key_problem(key) {
        None => Ok(key.to_owned()),
        Some(_) => Err("a bad key"),
    }
}

fn label_value(text: &str) -> Result<String, &'static str> {
    let value = text.trim();
    if names::is_label_value(value) { Ok(value.to_owned()) } else { Err("a bad value") }
}

/// Commas separate requirements, except in the parentheses of a list.
fn split_outside_parentheses(text: &str) -> impl Iterator<Item = &str> {
    let mut depth = 0_u32;
    text.split(move |c| {
        match c {
            '(' => depth += 1,
            ')' => depth = depth.saturating_sub(1),
            _ => {}
        }
        c == ',' && depth == 0
    })
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
    pub fn matches(&self, labels: &(impl Labelled + ?Sized)) -> bool {
        self.first_failing(labels).is_none()
    }

    /// Whether the labels that `value_of` yields satisfy every requirement.
    pub fn matches_by<'a>(&self, value_of: impl Fn(&str) -> Option<&'a str>) -> bool {
        self.0.iter().all(|requirement| requirement.accepts(value_of(requirement.key())))
    }

    /// The first requirement that these labels do not satisfy.
    #[must_use]
    pub fn first_failing(&self, labels: &(impl Labelled + ?Sized)) -> Option<&Requirement> {
        self.0.iter().find(|requirement| !requirement.accepts(labels.value_of(requirement.key())))
    }

    /// The requirements, in order.
    #[must_use]
    pub fn requirements(&self) -> &[Requirement] {
        &self.0
    }
}

/// What a selector is evaluated on.
pub trait Labelled: fmt::Debug {
    /// The value of a label, if there is one.
    fn value_of(&self, label: &str) -> Option<&str>;
}

impl Labelled for BTreeMap<String, String> {
    fn value_of(&self, label: &str) -> Option<&str> {
        self.get(label).map(String::as_str)
    }
}

impl<T: Borrow<str> + Ord + fmt::Debug> Labelled for Few<T, T> {
    fn value_of(&self, label: &str) -> Option<&str> {
        self.get(label).map(Borrow::borrow)
    }
}

impl<T: Labelled> Labelled for Arc<T> {
    fn value_of(&self, label: &str) -> Option<&str> {
        (**self).value_of(label)
    }
}

impl From<Vec<Requirement>> for Selector {
    fn from(requirements: Vec<Requirement>) -> Self {
        Self(requirements)
    }
}

/// The text form of queries: `app=web,tier in (a, b),!canary`. Empty text selects everything.
impl FromStr for Selector {
    type Err = SelectorError;

    fn from_str(text: &str) -> Result<Self, SelectorError> {
        if text.trim().is_empty() {
            return Ok(Self::default());
        }
        let parse = |part: &str| match part.trim() {
            "" => Err("an empty requirement"),
            part => Requirement::parse_text(part),
        };
        let requirements: Result<_, _> = split_outside_parentheses(text).map(parse).collect();
        requirements
            .map(Self)
            .map_err(|problem| SelectorError::Text { selector: text.to_owned(), problem })
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
            Self::GreaterThan(key, than) => write!(f, "{key} > {than}"),
            Self::LessThan(key, than) => write!(f, "{key} < {than}"),
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
    fn the_text_form_and_node_selectors_mean_what_kubernetes_says() {
        let labels = BTreeMap::from(
            [("app", "web"), ("tier", "2"), ("a.io/x", "")]
                .map(|(key, value)| (key.to_owned(), value.to_owned())),
        );
        let selects = |text: &str| text.parse::<Selector>().unwrap().matches(&labels);
        for yes in [
            "",
            "app=web",
            "app==web",
            "app!=db",
            "app in (db, web)",
            "app notin (db)",
            "app",
            "!gone",
            "gone!=x",
            "gone notin (x)",
            "tier>1",
            "tier<3",
            "app=web,tier=2",
            "a.io/x=",
            "app in (web),tier",
            " app = web ",
        ] {
            assert!(selects(yes), "{yes}");
        }
        for no in
            ["app=db", "app!=web", "app notin (web)", "!app", "gone", "tier>2", "app=web,gone"]
        {
            assert!(!selects(no), "{no}");
        }
        for bad in ["app in web", "app=web,,tier", "a b", "=x", "tier>x", "app in (a", "app=b@d"] {
            let error = bad.parse::<Selector>().unwrap_err().to_string();
            assert!(error.contains(bad), "{error}");
        }

        let node = |operator: &str, value: &str| {
            let requirement = Requirement::parse_node("tier", operator, &[value.to_owned()]);
            requirement.map(|requirement| requirement.accepts(Some("2")))
        };
        assert_eq!(node("Gt", "1"), Ok(true));
        assert_eq!(node("Lt", "2"), Ok(false));
        assert_eq!(node("In", "2"), Ok(true));
        let error = node("Gt", "many").unwrap_err().to_string();
        assert!(error.contains("\"tier\"") && error.contains("an integer"), "{error}");
        assert!(Requirement::parse("tier", "Gt", &["1".to_owned()]).is_err(), "nodes only");
    }

    #[test]
    fn a_bad_requirement_names_its_key() {
        let error = Requirement::parse("tier", "Near", &[]).unwrap_err();
        assert!(error.to_string().contains("\"tier\""), "{error}");
        assert!(Requirement::parse("tier", "In", &[]).is_err());
        assert!(Requirement::parse("tier", "Exists", &["x".into()]).is_err());
    }
}
