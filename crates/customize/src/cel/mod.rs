//! CEL expressions over one variable, `object`.
//!
//! Length and nesting are limited before the text is parsed. The crate has no step budget, so [`metered`] puts calls that
//! charge one into the expression's tree.

mod metered;
mod values;

use std::sync::Arc;

use cel::{Context, Program, Value as CelValue};
use serde_json::{Map, Value};

use crate::budget::Budget;
use crate::error::RuleError;
use crate::request::{Replicas, Request, Response};
use crate::{pod, results};

/// Longest expression, in bytes. The same as for the rules of CRDs, as the two limits below.
const LENGTH: usize = 16 * 1024;
/// Deepest nesting of brackets and conditions. Brackets in texts count too, because this is checked before parsing.
const NESTING: usize = 32;
/// Most operators; each may be a level of the evaluation.
const OPERATORS: usize = 250;
/// Stack for compiling and evaluating, in bytes. The parser needs up to 80 KiB for a level in an unoptimised build.
const STACK: usize = 16 * 1024 * 1024;
/// Name of the variable.
const OBJECT: &str = "object";

/// A compiled expression.
#[derive(Debug)]
pub(crate) struct Expression(metered::Metered);

impl Expression {
    /// Compiles an expression.
    pub(crate) fn compile(text: &str) -> Result<Self, RuleError> {
        bounded(text).map_err(RuleError::Compile)?;
        stacker::grow(STACK, || {
            let program = Program::compile(text)
                .map_err(|error| RuleError::Compile(one_line(&error.to_string())))?;
            let metered =
                metered::Metered::new(program.expression()).map_err(RuleError::Compile)?;
            Ok(Self(metered))
        })
    }

    /// The answer to a question.
    pub(crate) fn answer(&self, request: &Request) -> Result<Response, RuleError> {
        let object = request.object();
        let value = self.value(object)?;
        match request {
            Request::Replicas(_) => replicas(value).map(Response::Replicas),
            Request::Components(_) => components(value).map(Response::Components),
            Request::Reflect(_) if value.is_object() => Ok(Response::Status(value)),
            Request::Reflect(_) => Err(unusable("a map was expected as status")),
            Request::Health(_) => match value {
                Value::Bool(healthy) => Ok(Response::Healthy(healthy)),
                _ => Err(unusable("a boolean was expected")),
            },
            Request::Dependencies(_) => {
                let namespace = object["metadata"]["namespace"].as_str().unwrap_or("default");
                let all = dependencies(value, namespace)?;
                Ok(Response::Dependencies(results::dependencies(all)?))
            }
            Request::Revise { .. } | Request::Retain { .. } | Request::Aggregate { .. } => {
                Err(RuleError::Compile("this operation takes no CEL expression".to_owned()))
            }
        }
    }

    fn value(&self, object: &Value) -> Result<Value, RuleError> {
        let budget = Arc::new(Budget::new());
        let outcome = stacker::grow(STACK, || {
            let mut context = Context::default();
            context.add_variable_from_value(OBJECT, values::from_json(object, 0)?);
            self.0.evaluate(&mut context, object, &budget)
        });
        // An error in one part of `a || b` may be hidden by the other part.
        if let Some(limit) = budget.stopped() {
            return Err(RuleError::Stopped(limit));
        }
        let value: CelValue = outcome?;
        values::to_json(&value).map_err(RuleError::Result)
    }
}

fn unusable(why: &str) -> RuleError {
    RuleError::Result(why.to_owned())
}

fn one_line(text: &str) -> String {
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    text.chars().take(crate::limits::MESSAGE).collect()
}

/// Refuses expressions that would exhaust the stack.
fn bounded(text: &str) -> Result<(), String> {
    if text.len() > LENGTH {
        return Err(format!("the expression is longer than {LENGTH} bytes"));
    }
    let (mut open, mut deepest, mut conditions, mut operators) =
        (0_usize, 0_usize, 0_usize, 0_usize);
    for byte in text.bytes() {
        match byte {
            b'(' | b'[' | b'{' => (open, operators) = (open + 1, operators + 1),
            b')' | b']' | b'}' => open = open.saturating_sub(1),
            b'?' => conditions += 1,
            b'+' | b'-' | b'*' | b'/' | b'%' | b'!' | b'<' | b'>' | b'=' | b'.' | b'&' | b'|' => {
                operators += 1;
            }
            _ => {}
        }
        deepest = deepest.max(open);
    }
    if deepest + conditions > NESTING {
        return Err(format!("the expression is nested deeper than {NESTING} levels"));
    }
    if operators > OPERATORS {
        return Err(format!("the expression has more than {OPERATORS} operators"));
    }
    Ok(())
}

/// A number, or a map with `replicas` and `podTemplate` or `requirements`.
fn replicas(value: Value) -> Result<Replicas, RuleError> {
    match value {
        Value::Number(number) => {
            let replicas = results::replicas(number.as_f64().unwrap_or(f64::NAN))?;
            Ok(Replicas { replicas, requirements: None })
        }
        Value::Object(mut fields) => {
            let number = fields.remove("replicas").and_then(|number| number.as_f64());
            let number = number.ok_or_else(|| unusable("the map has no number \"replicas\""))?;
            let replicas = results::replicas(number)?;
            templates(&mut fields, "requirements")?;
            let requirements = fields.remove("requirements").filter(|value| !value.is_null());
            only(&fields, "replicas, podTemplate and requirements")?;
            let requirements = requirements.map(results::requirements).transpose()?;
            Ok(Replicas { replicas, requirements })
        }
        _ => Err(unusable("a number or a map was expected")),
    }
}

fn components(value: Value) -> Result<Vec<crate::Component>, RuleError> {
    let Value::Array(items) = value else { return Err(unusable("a list was expected")) };
    let item = |item: Value| {
        let Value::Object(mut fields) = item else {
            return Err(unusable("every component must be a map"));
        };
        templates(&mut fields, "replicaRequirements")?;
        for name in fields.keys() {
            if !["name", "replicas", "replicaRequirements"].contains(&name.as_str()) {
                return Err(RuleError::Result(format!("a component has the unknown key {name}")));
            }
        }
        Ok(Value::Object(fields))
    };
    results::components(items.into_iter().map(item).collect::<Result<_, _>>()?)
}

/// Replaces a pod template by what it requires.
fn templates(fields: &mut Map<String, Value>, requirements: &str) -> Result<(), RuleError> {
    let Some(template) = fields.remove("podTemplate") else { return Ok(()) };
    let found = pod::requirements(&template)
        .map_err(|why| RuleError::Result(format!("podTemplate: {why}")))?;
    if !found.is_null() {
        fields.insert(requirements.to_owned(), found);
    }
    Ok(())
}

fn only(rest: &Map<String, Value>, known: &str) -> Result<(), RuleError> {
    match rest.keys().next() {
        None => Ok(()),
        Some(other) => {
            Err(RuleError::Result(format!("the map has the key {other}, not only {known}")))
        }
    }
}

/// References, where `{podTemplate}` stands for everything that the template names.
fn dependencies(value: Value, namespace: &str) -> Result<Value, RuleError> {
    let Value::Array(items) = value else { return Err(unusable("a list was expected")) };
    let mut all = Vec::new();
    for item in items {
        let Some(template) = item.get("podTemplate") else {
            all.push(item);
            continue;
        };
        let found = pod::dependencies(template, namespace)
            .map_err(|why| RuleError::Result(format!("podTemplate: {why}")))?;
        if let Value::Array(found) = found {
            all.extend(found);
        }
    }
    Ok(Value::Array(all))
}

#[cfg(test)]
mod tests;
