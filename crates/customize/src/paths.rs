//! Rules without a language: retained paths, and the pointer to the number of replicas.

use serde_json::{Map, Value};

use crate::error::RuleError;

/// The desired object with the observed values at the paths. A path that the observed object lacks keeps the desired
/// value.
pub(crate) fn retain(
    paths: &[Vec<String>],
    desired: &Value,
    observed: &Value,
) -> Result<Value, RuleError> {
    let mut object = desired.clone();
    for path in paths {
        if let Some(value) = get(observed, path) {
            *place(&mut object, path)? = value.clone();
        }
    }
    Ok(object)
}

/// The object with the number of replicas at a path.
pub(crate) fn revise(path: &[String], object: &Value, replicas: i64) -> Result<Value, RuleError> {
    let mut object = object.clone();
    let place = place(&mut object, path)?;
    if !place.is_null() && !place.is_i64() {
        let path = path.join(".");
        return Err(RuleError::Failed(format!("{path} is {place}, not a whole number")));
    }
    *place = replicas.into();
    Ok(object)
}

fn get<'a>(value: &'a Value, path: &[String]) -> Option<&'a Value> {
    path.iter().try_fold(value, |value, token| match value {
        Value::Object(fields) => fields.get(token),
        Value::Array(items) => items.get(token.parse::<usize>().ok()?),
        _ => None,
    })
}

/// The place of a path. Missing maps are made; nothing is added to lists.
fn place<'a>(object: &'a mut Value, path: &[String]) -> Result<&'a mut Value, RuleError> {
    let mut place = object;
    for (depth, token) in path.iter().enumerate() {
        let missing = || {
            let path = path[..=depth].join(".");
            RuleError::Failed(format!("{path} does not exist in the object"))
        };
        if place.is_null() {
            *place = Value::Object(Map::new());
        }
        place = match place {
            Value::Object(fields) => fields.entry(token.clone()).or_insert(Value::Null),
            Value::Array(items) => {
                let index = token.parse::<usize>().map_err(|_| missing())?;
                items.get_mut(index).ok_or_else(missing)?
            }
            _ => return Err(missing()),
        };
    }
    Ok(place)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use serde_json::json;

    use super::*;

    fn path(text: &str) -> Vec<String> {
        atoll_api::customization::pointer_tokens(text).unwrap()
    }

    #[test]
    fn observed_values_are_kept_and_absent_ones_are_not_invented() {
        let desired = json!({"spec": {"a": 1, "list": [{"x": 1}], "only": "desired"}});
        let observed = json!({"spec": {"a": 2, "list": [{"x": 3}], "new": {"deep": true}}});
        let paths: Vec<_> =
            ["/spec/a", "/spec/list/0/x", "/spec/new/deep", "/spec/only"].map(path).into();
        let kept = retain(&paths, &desired, &observed).unwrap();
        let expected =
            json!({"spec": {"a": 2, "list": [{"x": 3}], "new": {"deep": true}, "only": "desired"}});
        assert_eq!(kept, expected);
    }

    #[test]
    fn the_number_of_replicas_is_written_or_refused_with_its_path() {
        let object = json!({"spec": {"name": "x", "groups": [{"size": 1}]}});
        assert_eq!(
            revise(&path("/spec/groups/0/size"), &object, 4).unwrap()["spec"]["groups"][0]["size"],
            4
        );
        assert_eq!(revise(&path("/spec/replicas"), &object, 4).unwrap()["spec"]["replicas"], 4);
        for wrong in ["/spec/name", "/spec/name/x", "/spec/groups/1/size", "/spec/groups/x"] {
            let error = revise(&path(wrong), &object, 4).unwrap_err().to_string();
            assert!(error.contains("spec."), "{wrong}: {error}");
        }
    }
}
