//! JSON values in CEL, and results as JSON.

use std::collections::HashMap;
use std::sync::Arc;

use cel::objects::{Key, Map};
use serde_json::{Number, Value};

/// A JSON value as CEL sees it: whole numbers are integers.
#[must_use]
pub fn from_json(value: &Value) -> cel::Value {
    match value {
        Value::Null => cel::Value::Null,
        Value::Bool(value) => cel::Value::Bool(*value),
        Value::Number(number) => match number.as_i64() {
            Some(whole) => cel::Value::Int(whole),
            None => cel::Value::Float(number.as_f64().unwrap_or(f64::NAN)),
        },
        Value::String(text) => cel::Value::String(Arc::new(text.clone())),
        Value::Array(items) => cel::Value::List(Arc::new(items.iter().map(from_json).collect())),
        Value::Object(fields) => {
            let field = |(name, value): (&String, &Value)| {
                (Key::String(Arc::new(name.clone())), from_json(value))
            };
            let map: HashMap<Key, cel::Value> = fields.iter().map(field).collect();
            cel::Value::Map(Map { map: Arc::new(map) })
        }
    }
}

/// A result as JSON, if its texts together have at most `most` bytes.
///
/// # Errors
/// The result is too long, or has a part that JSON cannot express.
pub fn to_json(value: &cel::Value, most: usize) -> Result<Value, String> {
    let mut left = most;
    convert(value, &mut left).map_err(|problem| match problem {
        Problem::TooLong => format!("the result is longer than {most} bytes"),
        Problem::Type(kind) => format!("the result has a {kind}, which JSON cannot express"),
    })
}

enum Problem {
    TooLong,
    Type(String),
}

/// Bytes that every value counts at least.
const LEAST: usize = 1;

fn convert(value: &cel::Value, left: &mut usize) -> Result<Value, Problem> {
    let mut spend = |bytes: usize| {
        *left = left.checked_sub(bytes).ok_or(Problem::TooLong)?;
        Ok(())
    };
    spend(LEAST)?;
    Ok(match value {
        cel::Value::Null => Value::Null,
        cel::Value::Bool(value) => Value::Bool(*value),
        cel::Value::Int(number) => Value::from(*number),
        cel::Value::UInt(number) => Value::from(*number),
        cel::Value::Float(number) => Number::from_f64(*number)
            .map(Value::Number)
            .ok_or_else(|| Problem::Type("number that is not finite".to_owned()))?,
        cel::Value::String(text) => {
            spend(text.len())?;
            Value::String(text.to_string())
        }
        cel::Value::List(items) => {
            let items: Result<_, _> = items.iter().map(|item| convert(item, left)).collect();
            Value::Array(items?)
        }
        cel::Value::Map(map) => {
            let mut fields = serde_json::Map::new();
            for (key, value) in map.map.iter() {
                let Key::String(name) = key else {
                    return Err(Problem::Type("map with keys other than strings".to_owned()));
                };
                *left = left.checked_sub(name.len()).ok_or(Problem::TooLong)?;
                fields.insert(name.to_string(), convert(value, left)?);
            }
            Value::Object(fields)
        }
        other => return Err(Problem::Type(other.type_of().to_string())),
    })
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn values_come_back_and_long_ones_are_refused() {
        let value = json!({"a": [1, 2.5, "x", null, true], "b": {"c": -1}});
        assert_eq!(to_json(&from_json(&value), 100).unwrap(), value);
        assert!(to_json(&from_json(&json!("four")), 4).unwrap_err().contains("longer than 4"));
        let infinite = cel::Value::Float(f64::INFINITY);
        assert!(to_json(&infinite, 9).unwrap_err().contains("not finite"));
    }
}
