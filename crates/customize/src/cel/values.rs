//! JSON as values of CEL and back.

use std::collections::HashMap;
use std::sync::Arc;

use cel::Value as CelValue;
use cel::objects::{Key, Map as CelMap};
use serde_json::{Map, Number, Value};

use crate::error::RuleError;
use crate::limits;

/// JSON as a value of CEL. Fields that are null are absent.
pub(super) fn from_json(value: &Value, depth: usize) -> Result<CelValue, RuleError> {
    if depth > limits::DEPTH {
        return Err(RuleError::Failed(format!(
            "the object is nested deeper than {} levels",
            limits::DEPTH
        )));
    }
    Ok(match value {
        Value::Null => CelValue::Null,
        Value::Bool(value) => CelValue::Bool(*value),
        Value::String(text) => CelValue::String(Arc::new(text.clone())),
        Value::Number(number) => match number.as_i64() {
            Some(whole) => CelValue::Int(whole),
            None => CelValue::Float(number.as_f64().unwrap_or(f64::NAN)),
        },
        Value::Array(items) => {
            let items: Result<Vec<_>, _> =
                items.iter().map(|item| from_json(item, depth + 1)).collect();
            CelValue::List(Arc::new(items?))
        }
        Value::Object(fields) => {
            let fields = fields.iter().filter(|(_, field)| !field.is_null());
            let map: Result<HashMap<Key, CelValue>, RuleError> = fields
                .map(|(name, field)| {
                    Ok((Key::String(Arc::new(name.clone())), from_json(field, depth + 1)?))
                })
                .collect();
            CelValue::Map(CelMap { map: Arc::new(map?) })
        }
    })
}

/// A result as JSON.
pub(super) fn to_json(value: &CelValue) -> Result<Value, String> {
    let mut values = limits::RESULT_VALUES;
    json(value, 0, &mut values)
}

fn json(value: &CelValue, depth: usize, values: &mut usize) -> Result<Value, String> {
    *values = values
        .checked_sub(1)
        .ok_or_else(|| format!("it has more than {} values", limits::RESULT_VALUES))?;
    if depth > limits::DEPTH {
        return Err(format!("it is nested deeper than {} levels", limits::DEPTH));
    }
    Ok(match value {
        CelValue::Null => Value::Null,
        CelValue::Bool(value) => Value::Bool(*value),
        CelValue::Int(number) => (*number).into(),
        CelValue::UInt(number) => (*number).into(),
        CelValue::Float(number) => {
            Value::Number(Number::from_f64(*number).ok_or("an infinite number has no JSON form")?)
        }
        CelValue::String(text) => Value::String(text.as_ref().clone()),
        CelValue::List(items) => {
            let items = items.iter().map(|item| json(item, depth + 1, values));
            Value::Array(items.collect::<Result<_, _>>()?)
        }
        CelValue::Map(map) => {
            let mut fields = Map::new();
            for (key, field) in map.map.iter() {
                let Key::String(key) = key else {
                    return Err("a map has a key that is not a text".to_owned());
                };
                fields.insert(key.as_ref().clone(), json(field, depth + 1, values)?);
            }
            Value::Object(fields)
        }
        other => return Err(format!("a {} has no JSON form", other.type_of())),
    })
}

/// Steps for work on a value: its parts and bytes.
pub(super) fn size(value: &CelValue) -> u64 {
    1 + match value {
        CelValue::String(text) => text.len() as u64 / 8,
        CelValue::Bytes(bytes) => bytes.len() as u64 / 8,
        CelValue::List(items) => items.iter().map(size).sum(),
        CelValue::Map(map) => map.map.values().map(|value| 4 + size(value)).sum(),
        _ => 0,
    }
}

/// As [`size`], for JSON.
pub(super) fn size_of_json(value: &Value) -> u64 {
    1 + match value {
        Value::String(text) => text.len() as u64 / 8,
        Value::Array(items) => items.iter().map(size_of_json).sum(),
        Value::Object(fields) => fields.values().map(|value| 4 + size_of_json(value)).sum(),
        _ => 0,
    }
}
