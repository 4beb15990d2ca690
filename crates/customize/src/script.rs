//! Questions to Lua scripts.

use mlua::Value as LuaValue;
use serde_json::{Map, Value};

use crate::error::RuleError;
use crate::lua::{self, Machine, Shape};
use crate::request::{Replicas, Request, Response};
use crate::results;

/// Whether a script compiles.
pub(crate) fn check(script: &str) -> Result<(), RuleError> {
    Machine::new()?.compile(script).map(drop)
}

/// The answer of a script.
pub(crate) fn answer(script: &str, request: &Request) -> Result<Response, RuleError> {
    let machine = Machine::new()?;
    let function = request.operation().function();
    let call = |args: &[&Value]| machine.call(script, function, args);
    let object = request.object();
    match request {
        Request::Replicas(_) => {
            let values = call(&[object])?;
            let replicas = results::replicas(number(&values)?)?;
            let requirements = match values.get(1) {
                None | Some(LuaValue::Nil) => None,
                Some(value @ LuaValue::Table(_)) => {
                    Some(results::requirements(machine.json(value, Shape::Map, &[])?)?)
                }
                Some(other) => return Err(unexpected(other, "a table or nil as requirements")),
            };
            Ok(Response::Replicas(Replicas { replicas, requirements }))
        }
        Request::Components(_) => match call(&[object])?.first() {
            None | Some(LuaValue::Nil) => Ok(Response::Components(Vec::new())),
            Some(value) => {
                let json = machine.json(table(Some(value))?, Shape::List, &[])?;
                Ok(Response::Components(results::components(json)?))
            }
        },
        Request::Revise { replicas, .. } => {
            let values = call(&[object, &Value::from(*replicas)])?;
            changed(&machine, object, &values, &[object])
        }
        Request::Retain { observed, .. } => {
            let values = call(&[object, observed])?;
            changed(&machine, object, &values, &[object, observed])
        }
        Request::Aggregate { items, .. } => {
            let values = call(&[object, &normalized(items)])?;
            changed(&machine, object, &values, &[])
        }
        Request::Reflect(_) => {
            let values = call(&[object])?;
            Ok(Response::Status(machine.json(table(values.first())?, Shape::Map, &[])?))
        }
        Request::Health(_) => match call(&[object])?.first() {
            Some(LuaValue::Boolean(healthy)) => Ok(Response::Healthy(*healthy)),
            other => Err(unexpected(other.unwrap_or(&LuaValue::Nil), "a boolean")),
        },
        Request::Dependencies(_) => {
            let values = call(&[object])?;
            let json = machine.json(table(values.first())?, Shape::List, &[])?;
            Ok(Response::Dependencies(results::dependencies(json)?))
        }
    }
}

fn unexpected(value: &LuaValue, expected: &str) -> RuleError {
    RuleError::Result(format!("{expected} was expected, not a {}", lua::type_name(value)))
}

fn table(value: Option<&LuaValue>) -> Result<&LuaValue, RuleError> {
    match value {
        Some(table @ LuaValue::Table(_)) => Ok(table),
        other => Err(unexpected(other.unwrap_or(&LuaValue::Nil), "a table")),
    }
}

fn number(values: &[LuaValue]) -> Result<f64, RuleError> {
    let value = values.first().unwrap_or(&LuaValue::Nil);
    lua::as_number(value).ok_or_else(|| unexpected(value, "a number of replicas"))
}

fn changed(
    machine: &Machine,
    original: &Value,
    values: &[LuaValue],
    references: &[&Value],
) -> Result<Response, RuleError> {
    let result = machine.json(table(values.first())?, Shape::Map, references)?;
    Ok(Response::Object(results::changed(original, result)?))
}

/// Items as scripts know them: without fields that Karmada's items lack, and without empty ones.
fn normalized(items: &Value) -> Value {
    let Value::Array(items) = items else { return Value::Null };
    let item = |item: &Value| {
        let mut out = Map::new();
        out.insert("clusterName".to_owned(), item["clusterName"].as_str().unwrap_or("").into());
        for name in ["status", "applied", "appliedMessage", "health"] {
            let value = &item[name];
            let empty =
                value.is_null() || value.as_bool() == Some(false) || value.as_str() == Some("");
            if !empty {
                out.insert(name.to_owned(), value.clone());
            }
        }
        Value::Object(out)
    };
    items.iter().map(item).collect()
}
