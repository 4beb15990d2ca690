//! Kinds of other projects, from the fields that their projects document: one row of [`table`] for each kind.

mod aggregate;
mod components;
mod dependencies;
mod health;
pub(crate) mod path;
mod projects;
mod table;
#[cfg(test)]
mod tests;

use serde_json::Value;

pub(crate) use aggregate::aggregate;
pub use components::{Component, components};
pub(crate) use dependencies::dependencies;
pub(crate) use health::health;
use table::Rules;

use crate::read::text;

/// The rules of a third-party kind, in any version.
fn rules(obj: &Value) -> Option<&'static Rules> {
    let group = text(obj, &["apiVersion"]).split_once('/').map(|(group, _)| group)?;
    let kind = text(obj, &["kind"]);
    table::all().find(|rules| rules.kind == kind && rules.group == group)
}

/// Whether the object is of a third-party kind with rules.
pub(crate) fn is_known(obj: &Value) -> bool {
    rules(obj).is_some()
}

/// The path of the replicas of a kind whose replicas are divided, and the pod template of one.
pub(crate) fn replicas(obj: &Value) -> Option<(&'static str, Option<&Value>)> {
    let rules = rules(obj)?;
    let field = rules.replicas?;
    Some((field, rules.templates.iter().find_map(|template| path::value(obj, template))))
}

/// The part of the status that is sent; the whole status for a kind that lists no fields.
pub(crate) fn reflect(obj: &Value, status: &Value) -> Option<Value> {
    let rules = rules(obj)?;
    if rules.reflect.is_empty() {
        return Some(status.clone());
    }
    let mut out = crate::read::pick(status, rules.reflect);
    out.extend(crate::read::pick(status, &["observedGeneration", "conditions"]));
    Some(Value::Object(out))
}
