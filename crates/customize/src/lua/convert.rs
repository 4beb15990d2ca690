//! Values of Lua as JSON and back.
//!
//! As in Karmada a null does not exist in Lua: it is left out of maps and lists. A table with the keys 1 to n is a list,
//! one with texts as keys a map; [`super::empty`] decides what an empty table is. All numbers are floating point.

use std::collections::HashSet;
use std::ffi::c_void;

use mlua::{Lua, Table, Value};
use serde_json::{Map, Number, Value as Json};

use super::{as_number, empty, failure, numbers, type_name};
use crate::budget::Budget;
use crate::error::RuleError;
use crate::limits;

/// JSON as a value of Lua.
pub(super) fn to_lua(lua: &Lua, value: &Json, depth: usize) -> mlua::Result<Value> {
    if depth > limits::DEPTH {
        return Err(failure(format!("the object is nested deeper than {} levels", limits::DEPTH)));
    }
    Ok(match value {
        Json::Null => Value::Nil,
        Json::Bool(value) => Value::Boolean(*value),
        Json::Number(number) => Value::Number(number.as_f64().unwrap_or(f64::NAN)),
        Json::String(text) => Value::String(lua.create_string(text)?),
        Json::Array(items) => {
            let table = lua.create_table_with_capacity(items.len(), 0)?;
            for item in items.iter().filter(|item| !item.is_null()) {
                table.raw_push(to_lua(lua, item, depth + 1)?)?;
            }
            Value::Table(table)
        }
        Json::Object(fields) => {
            let table = lua.create_table_with_capacity(0, fields.len())?;
            for (name, field) in fields.iter().filter(|(_, field)| !field.is_null()) {
                table.raw_set(name.as_str(), to_lua(lua, field, depth + 1)?)?;
            }
            Value::Table(table)
        }
    })
}

/// What an empty table at the top of a result is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Shape {
    List,
    Map,
}

/// A value of Lua as JSON. Empty tables are what they are in the references at the same path; others are left out.
pub(super) fn to_json(
    value: &Value,
    top: Shape,
    references: &[&Json],
    budget: &Budget,
) -> Result<Json, RuleError> {
    let mut conversion = Conversion { budget, open: HashSet::new(), values: 0, bytes: 0 };
    let json = conversion.value(value, 0);
    if let Some(limit) = budget.stopped() {
        return Err(RuleError::Stopped(limit));
    }
    Ok(empty::settle(json.map_err(RuleError::Result)?, top, references))
}

/// Steps for each value that is converted.
const STEPS_PER_VALUE: u64 = 20;

struct Conversion<'a> {
    budget: &'a Budget,
    /// The tables that contain the current one. A table that occurs twice side by side is not a recursion.
    open: HashSet<*const c_void>,
    values: usize,
    bytes: usize,
}

impl Conversion<'_> {
    fn value(&mut self, value: &Value, depth: usize) -> Result<Json, String> {
        self.values += 1;
        self.budget.charge(STEPS_PER_VALUE).map_err(|limit| limit.to_string())?;
        if self.values > limits::RESULT_VALUES {
            return Err(format!("it has more than {} values", limits::RESULT_VALUES));
        }
        match value {
            Value::Nil => Ok(Json::Null),
            Value::Boolean(value) => Ok(Json::Bool(*value)),
            Value::String(text) => Ok(Json::String(self.text(text)?)),
            Value::Integer(_) | Value::Number(_) => number(as_number(value).unwrap_or(f64::NAN)),
            Value::Table(table) => {
                if depth >= limits::DEPTH {
                    return Err(format!("it is nested deeper than {} levels", limits::DEPTH));
                }
                let here = table.to_pointer();
                if !self.open.insert(here) {
                    return Err("a table contains itself".to_owned());
                }
                let json = self.table(table, depth + 1);
                self.open.remove(&here);
                json
            }
            other => Err(format!("a {} has no JSON form", type_name(other))),
        }
    }

    fn text(&mut self, text: &mlua::LuaString) -> Result<String, String> {
        self.bytes += text.as_bytes().len();
        if self.bytes > limits::RESULT_BYTES {
            return Err(format!("it has more than {} bytes of text", limits::RESULT_BYTES));
        }
        Ok(valid(&text.as_bytes()))
    }

    fn table(&mut self, table: &Table, depth: usize) -> Result<Json, String> {
        let mut fields = Map::new();
        let mut items = 0_usize;
        let mut problem = None;
        let length = table.raw_len();
        let outcome = table.for_each(|key: Value, value: Value| {
            let found = match &key {
                Value::String(key) => self.text(key).and_then(|key| {
                    fields.insert(key, self.value(&value, depth)?);
                    Ok(())
                }),
                key => match as_number(key).and_then(numbers::integer) {
                    Some(at) if usize::try_from(at).is_ok_and(|at| (1..=length).contains(&at)) => {
                        items += 1;
                        Ok(())
                    }
                    Some(_) => Err("a list has gaps, or does not begin at 1".to_owned()),
                    None => Err(format!("a table has a {} as key", type_name(key))),
                },
            };
            found.map_err(|why| {
                problem = Some(why);
                failure("unusable")
            })
        });
        if let Some(problem) = problem {
            return Err(problem);
        }
        outcome.map_err(|error| error.to_string())?;
        match (items, fields.is_empty()) {
            (0, true) => Ok(Json::Array(Vec::new())),
            (0, false) => Ok(Json::Object(fields)),
            (_, false) => Err("a table has both numbers and texts as keys".to_owned()),
            (items, true) if items != length => Err("a list has gaps".to_owned()),
            (_, true) => {
                let items = (1..=length).map(|at| {
                    let item: Value = table.raw_get(at).map_err(|error| error.to_string())?;
                    self.value(&item, depth)
                });
                Ok(Json::Array(items.collect::<Result<_, _>>()?))
            }
        }
    }
}

/// Bytes as text. As in Go, each byte that is no UTF-8 becomes U+FFFD.
pub(super) fn valid(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        text.push_str(chunk.valid());
        text.extend(chunk.invalid().iter().map(|_| char::REPLACEMENT_CHARACTER));
    }
    text
}

/// A number as Go writes it: the fewest digits, without a fraction where it has none.
fn number(number: f64) -> Result<Json, String> {
    if !number.is_finite() {
        return Err(format!("the number {} has no JSON form", numbers::text(number)));
    }
    let whole = (number.trunc() == number).then(|| format!("{number}"));
    let integer = whole.and_then(|digits| {
        digits
            .parse::<i64>()
            .map(Number::from)
            .or_else(|_| digits.parse::<u64>().map(Number::from))
            .ok()
    });
    Ok(Json::Number(match integer {
        Some(integer) => integer,
        None => Number::from_f64(number).ok_or("a number has no JSON form")?,
    }))
}
