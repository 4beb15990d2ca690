//! Values of overriders: given, or computed from the properties of the cluster.

use std::cell::OnceCell;

use atoll_expression::{CelValue, Expression, Limits, from_json};
use serde_json::{Value, json};

use super::matching::ClusterProperties;

/// The variable of expressions.
const CLUSTER: &str = "cluster";
/// Its lists, over which macros may run.
const LISTS: [(&str, &str); 1] = [(CLUSTER, "zones")];
/// Longest result, in bytes of its texts.
const MAX_RESULT: usize = 4096;

/// Where a value comes from.
#[derive(Debug)]
pub(super) enum Source {
    /// There is none.
    Missing,
    Given(Value),
    Computed(Box<Expression>),
    /// The problem of the expression.
    Invalid(String),
}

impl Source {
    pub(super) fn of(value: Option<Value>, expression: Option<String>) -> Self {
        match (value, expression) {
            (None, None) => Self::Missing,
            (Some(value), None) => Self::Given(value),
            (None, Some(text)) => match compile(&text) {
                Ok(expression) => Self::Computed(Box::new(expression)),
                Err(problem) => Self::Invalid(problem),
            },
            (Some(_), Some(_)) => {
                Self::Invalid("value and valueFrom are both given: remove one".to_owned())
            }
        }
    }
}

fn compile(text: &str) -> Result<Expression, String> {
    let expression = Expression::compile(text, &Limits::VALUE)?;
    if let Some(name) = expression.unknown_variables(&[CLUSTER]).first() {
        return Err(format!("{name:?} is not known: expressions have only the variable cluster"));
    }
    if !expression.has_known_order(&LISTS) {
        return Err(
            "a macro runs over a map or over a value that may be one, and maps have no order: use a list, for \
             example cluster.zones"
                .to_owned(),
        );
    }
    Ok(expression)
}

/// One cluster, for all rules that are applied to an object.
pub(super) struct Values<'a> {
    pub(super) cluster: &'a ClusterProperties,
    /// The cluster as a value of expressions. Most policies have none.
    variable: OnceCell<CelValue>,
}

impl<'a> Values<'a> {
    pub(super) fn new(cluster: &'a ClusterProperties) -> Self {
        Self { cluster, variable: OnceCell::new() }
    }

    /// The value for this cluster; `None` if the source has none. The error names the field below the overrider.
    pub(super) fn get(&self, source: &Source) -> Result<Option<Value>, (String, String)> {
        let at = |problem| (".valueFrom.cluster.cel".to_owned(), problem);
        match source {
            Source::Missing => Ok(None),
            Source::Given(value) => Ok(Some(value.clone())),
            Source::Invalid(problem) => Err(at(problem.clone())),
            Source::Computed(expression) => {
                let variable = self.variable.get_or_init(|| from_json(&properties(self.cluster)));
                let value = expression.value(&[(CLUSTER, variable.clone())], MAX_RESULT);
                value.map(Some).map_err(at)
            }
        }
    }
}

/// The cluster as expressions see it. Absent fields are absent, so that `has(cluster.region)` works.
fn properties(cluster: &ClusterProperties) -> Value {
    let mut fields = json!({
        "name": cluster.name, "labels": cluster.labels, "zones": cluster.zones,
    });
    for (name, value) in [("provider", &cluster.provider), ("region", &cluster.region)] {
        if let Some(value) = value {
            fields[name] = json!(value);
        }
    }
    fields
}
