//! Arguments of library functions, checked as in Karmada: numbers are texts where a text is wanted, texts are not
//! numbers where a number is wanted.

use mlua::{MultiValue, Value};

use super::{failure, numbers};

/// The arguments of one call, counted from 1.
pub(super) struct Args {
    function: &'static str,
    values: Vec<Value>,
}

impl Args {
    pub(super) fn new(function: &'static str, values: MultiValue) -> Self {
        Self { function, values: values.into_vec() }
    }

    pub(super) fn function(&self) -> &'static str {
        self.function
    }

    pub(super) fn count(&self) -> usize {
        self.values.len()
    }

    pub(super) fn value(&self, at: usize) -> &Value {
        self.values.get(at - 1).unwrap_or(&Value::Nil)
    }

    pub(super) fn truthy(&self, at: usize) -> bool {
        !matches!(self.value(at), Value::Nil | Value::Boolean(false))
    }

    fn wrong(&self, at: usize, expected: &str) -> mlua::Error {
        let found = super::type_name(self.value(at));
        failure(format!(
            "bad argument #{at} to {}: {expected} expected, got {found}",
            self.function
        ))
    }

    pub(super) fn text(&self, at: usize) -> mlua::Result<Vec<u8>> {
        match self.value(at) {
            Value::String(text) => Ok(text.as_bytes().to_vec()),
            Value::Integer(number) => Ok(number.to_string().into_bytes()),
            Value::Number(number) => Ok(numbers::text(*number).into_bytes()),
            _ => Err(self.wrong(at, "string")),
        }
    }

    pub(super) fn integer(&self, at: usize) -> mlua::Result<i64> {
        match self.value(at) {
            Value::Integer(number) => Ok(*number),
            Value::Number(number) => Ok(numbers::truncated(*number)),
            _ => Err(self.wrong(at, "number")),
        }
    }

    pub(super) fn integer_or(&self, at: usize, default: i64) -> mlua::Result<i64> {
        if self.value(at).is_nil() { Ok(default) } else { self.integer(at) }
    }

    pub(super) fn table(&self, at: usize) -> mlua::Result<&mlua::Table> {
        self.value(at).as_table().ok_or_else(|| self.wrong(at, "table"))
    }

    /// Refuses a call with another number of arguments.
    pub(super) fn exactly(&self, count: usize) -> mlua::Result<()> {
        if self.count() == count {
            return Ok(());
        }
        Err(failure(format!("{} needs {count} arguments, got {}", self.function, self.count())))
    }
}
