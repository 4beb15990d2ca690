//! Checks what rules return before anything uses it.

use atoll_api::binding::ReplicaRequirements;
use atoll_api::marks;
use atoll_api::quantity::Quantity;
use atoll_api::selector::Selector;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use serde_json::{Map, Value};

use crate::error::RuleError;
use crate::request::{Component, Dependency};

fn unusable(why: impl Into<String>) -> RuleError {
    RuleError::Result(why.into())
}

/// Most components of an object. The largest known kind has some dozen.
const COMPONENTS: usize = 64;
/// Most dependencies of an object.
const DEPENDENCIES: usize = 1000;

/// A number of replicas. As in Karmada a fraction is dropped.
pub(crate) fn replicas(number: f64) -> Result<i64, RuleError> {
    let whole = number.trunc();
    if !(0.0..=f64::from(i32::MAX)).contains(&whole) {
        return Err(unusable(format!("the number of replicas is {number}, not 0 to {}", i32::MAX)));
    }
    #[allow(clippy::cast_possible_truncation)]
    Ok(whole as i64)
}

/// What a replica requires, with quantities in canonical form.
pub(crate) fn requirements(mut value: Value) -> Result<ReplicaRequirements, RuleError> {
    if let Some(Value::Object(requests)) = value.get_mut("resourceRequest") {
        for (name, amount) in requests {
            let text = match &*amount {
                Value::String(text) => text.clone(),
                Value::Number(number) => number.to_string(),
                _ => return Err(unusable(format!("resourceRequest.{name} is not a quantity"))),
            };
            let quantity = Quantity::new(text);
            quantity.milli().map_err(|why| unusable(format!("resourceRequest.{name}: {why}")))?;
            *amount = Value::String(quantity.canonical().to_string());
        }
    }
    let mut requirements: ReplicaRequirements =
        serde_json::from_value(value).map_err(|why| unusable(format!("requirements: {why}")))?;
    requirements.priority_class_name.take_if(|name| name.is_empty());
    Ok(requirements)
}

/// The components of an object.
pub(crate) fn components(value: Value) -> Result<Vec<Component>, RuleError> {
    let Value::Array(items) = value else {
        return Err(unusable("the components are not a list"));
    };
    if items.len() > COMPONENTS {
        return Err(unusable(format!("there are more than {COMPONENTS} components")));
    }
    items.into_iter().enumerate().map(|(at, item)| component(at + 1, item)).collect()
}

fn component(at: usize, item: Value) -> Result<Component, RuleError> {
    let Value::Object(mut fields) = item else {
        return Err(unusable(format!("component {at} is not a map")));
    };
    let name = match fields.remove("name") {
        Some(Value::String(name)) => name,
        None => String::new(),
        Some(_) => return Err(unusable(format!("the name of component {at} is not a text"))),
    };
    let count = fields.remove("replicas").unwrap_or_else(|| 0.into());
    let count = count
        .as_i64()
        .filter(|count| (0..=i64::from(i32::MAX)).contains(count))
        .ok_or_else(|| {
            unusable(format!("the replicas of component {at} are not a whole number of 0 or more"))
        })?;
    let replica_requirements =
        fields.remove("replicaRequirements").map(requirements).transpose()?;
    Ok(Component { name, replicas: count, replica_requirements })
}

/// The references that a rule returns, each with what identifies the objects.
pub(crate) fn dependencies(value: Value) -> Result<Vec<Dependency>, RuleError> {
    let Value::Array(items) = value else {
        return Err(unusable("the dependencies are not a list"));
    };
    if items.len() > DEPENDENCIES {
        return Err(unusable(format!("there are more than {DEPENDENCIES} dependencies")));
    }
    items.into_iter().enumerate().map(|(at, item)| dependency(at + 1, item)).collect()
}

fn dependency(at: usize, item: Value) -> Result<Dependency, RuleError> {
    let mut found: Dependency =
        serde_json::from_value(item).map_err(|why| unusable(format!("dependency {at}: {why}")))?;
    found.namespace.take_if(|namespace| namespace.is_empty());
    found.name.take_if(|name| name.is_empty());
    if found.api_version.is_empty() || found.kind.is_empty() {
        return Err(unusable(format!("dependency {at} has no apiVersion or no kind")));
    }
    match (&found.name, &found.label_selector) {
        (None, None) => Err(unusable(format!("dependency {at} has no name and no labelSelector"))),
        (_, Some(selector)) => match selector_problem(selector) {
            None => Ok(found),
            Some(why) => Err(unusable(format!("dependency {at}: labelSelector: {why}"))),
        },
        (Some(_), None) => Ok(found),
    }
}

/// What is wrong with a selector, as an API server checks it.
fn selector_problem(selector: &LabelSelector) -> Option<String> {
    if let Err(why) = Selector::parse(selector) {
        return Some(why.to_string());
    }
    let labels = selector.match_labels.iter().flatten();
    let expressions = selector.match_expressions.iter().flatten();
    let values = expressions.clone().flat_map(|e| e.values.iter().flatten());
    let mut keys = labels.clone().map(|(key, _)| key).chain(expressions.map(|e| &e.key));
    let mut values = labels.map(|(_, value)| value).chain(values);
    if let Some(key) = keys.find(|key| !is_label_key(key)) {
        return Some(format!("{key:?} is no label key"));
    }
    values
        .find(|value| !value.is_empty() && !is_name(value))
        .map(|value| format!("{value:?} is no label value"))
}

/// Letters, digits, `-`, `_` and `.`, at most 63, with a letter or digit at both ends.
fn is_name(text: &str) -> bool {
    let ends = text.starts_with(|c: char| c.is_ascii_alphanumeric())
        && text.ends_with(|c: char| c.is_ascii_alphanumeric());
    ends && text.len() <= 63
        && text.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_.".contains(&b))
}

fn is_label_key(key: &str) -> bool {
    match key.split_once('/') {
        None => is_name(key),
        Some((domain, name)) => {
            let part = |part: &str| {
                is_name(part) && !part.bytes().any(|b| b.is_ascii_uppercase() || b == b'_')
            };
            domain.len() <= 253 && domain.split('.').all(part) && is_name(name)
        }
    }
}

/// The references of several rules: each once, in order.
pub(crate) fn united(mut all: Vec<Dependency>) -> Vec<Dependency> {
    let labels = |dependency: &Dependency| {
        dependency.label_selector.as_ref().map(|s| serde_json::to_string(s).unwrap_or_default())
    };
    all.sort_by_cached_key(|d| {
        (d.api_version.clone(), d.kind.clone(), d.namespace.clone(), d.name.clone(), labels(d))
    });
    all.dedup();
    all
}

/// An object that a rule changed: still the same object, with Atoll's own marks as they were.
pub(crate) fn changed(original: &Value, mut result: Value) -> Result<Value, RuleError> {
    for pointer in ["/apiVersion", "/kind", "/metadata/name", "/metadata/namespace"] {
        let (before, after) = (original.pointer(pointer), result.pointer(pointer));
        if before != after {
            let field = pointer[1..].replace('/', ".");
            let shown = |value: Option<&Value>| value.map_or("absent".to_owned(), Value::to_string);
            return Err(unusable(format!(
                "{field} is {}, but the object's is {}: a rule cannot change it",
                shown(after),
                shown(before)
            )));
        }
    }
    for group in ["labels", "annotations"] {
        let own = |value: &Value| -> Map<String, Value> {
            let all = value.pointer("/metadata").and_then(|metadata| metadata[group].as_object());
            let own = all.into_iter().flatten().filter(|(key, _)| marks::is_own(key));
            own.map(|(key, value)| (key.clone(), value.clone())).collect()
        };
        let (before, after) = (own(original), own(&result));
        if before == after {
            continue;
        }
        let Some(Value::Object(metadata)) = result.get_mut("metadata") else {
            return Err(unusable("metadata is not a map"));
        };
        let all = metadata.entry(group).or_insert_with(|| Value::Object(Map::new()));
        let Value::Object(all) = all else {
            return Err(unusable(format!("metadata.{group} is not a map")));
        };
        all.retain(|key, _| !marks::is_own(key));
        all.extend(before);
    }
    Ok(result)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_rule_cannot_change_the_identity_or_the_marks_of_an_object() {
        let original = json!({
            "apiVersion": "v1", "kind": "A",
            "metadata": {"name": "a", "labels": {"atoll.dev/managed-by": "atoll", "x": "1"}},
        });
        let mut renamed = original.clone();
        renamed["metadata"]["name"] = json!("b");
        let error = changed(&original, renamed).unwrap_err().to_string();
        assert!(error.contains("metadata.name is \"b\""), "{error}");
        let stripped = json!({
            "apiVersion": "v1", "kind": "A", "spec": {},
            "metadata": {"name": "a", "annotations": {"atoll.dev/hash": "forged", "y": "2"}},
        });
        let kept = changed(&original, stripped).unwrap();
        assert_eq!(kept["metadata"]["labels"], json!({"atoll.dev/managed-by": "atoll"}));
        assert_eq!(kept["metadata"]["annotations"], json!({"y": "2"}));
    }

    #[test]
    fn a_reference_must_identify_objects() {
        let all = |more: Value| {
            let mut one = json!({"apiVersion": "v1", "kind": "Secret"});
            one.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            dependencies(json!([one]))
        };
        assert!(all(json!({"name": "a"})).is_ok());
        assert!(all(json!({"labelSelector": {"matchLabels": {"example.com/app": "web"}}})).is_ok());
        for (wrong, part) in [
            (json!({}), "no name"),
            (json!({"name": ""}), "no name"),
            (json!({"name": "a", "kind": ""}), "no kind"),
            (json!({"labelSelector": {"matchLabels": {"a": "b c"}}}), "no label value"),
            (json!({"labelSelector": {"matchLabels": {"A_b.c/d/e": "x"}}}), "no label key"),
            (
                json!({"labelSelector": {"matchExpressions": [{"key": "a", "operator": "Near"}]}}),
                "Near",
            ),
            (json!({"name": 7}), "dependency 1"),
        ] {
            let error = all(wrong).unwrap_err().to_string();
            assert!(error.contains(part), "{part}: {error}");
        }
    }

    #[test]
    fn requirements_have_canonical_quantities() {
        let found =
            requirements(json!({"resourceRequest": {"memory": "1.5Gi", "cpu": 2}})).unwrap();
        assert_eq!(json!(found), json!({"resourceRequest": {"memory": "1536Mi", "cpu": "2"}}));
        assert!(requirements(json!({"resourceRequest": {"cpu": "lots"}})).is_err());
        assert!(requirements(json!({"nodeClaim": {"nodeSelector": "x"}})).is_err());
    }

    #[test]
    fn unusable_numbers_of_replicas_are_refused() {
        assert_eq!(replicas(2.9), Ok(2));
        for number in [-1.0, f64::NAN, f64::INFINITY, 3e9] {
            assert!(replicas(number).is_err(), "{number}");
        }
    }
}
