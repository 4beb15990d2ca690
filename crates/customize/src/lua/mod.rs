//! Lua 5.1 for scripts that are not trusted. Every run has a Lua state of its own, so no script sees another's globals
//! or libraries.
//!
//! A script cannot reach files, processes, the network, bytecode, metatables or coroutines. Memory is limited by the
//! state's allocator. Instructions are counted by a hook; functions in Rust charge the same budget.

mod args;
mod base;
mod convert;
mod empty;
mod format;
mod kube;
mod numbers;
mod os;
mod pattern;
mod strings;

use std::sync::Arc;

use mlua::chunk::ChunkMode;
use mlua::{Function, HookTriggers, Lua, LuaOptions, MultiValue, StdLib, Value, VmState};
use serde_json::Value as Json;

use crate::budget::Budget;
use crate::error::{Limit, RuleError};
use crate::limits;

pub(crate) use convert::Shape;

/// One Lua state for one run.
pub(crate) struct Machine {
    lua: Lua,
    budget: Arc<Budget>,
}

impl Machine {
    /// A fresh state with the libraries that scripts may use.
    pub(crate) fn new() -> Result<Self, RuleError> {
        let budget = Arc::new(Budget::new());
        let lua = state(&budget).map_err(|error| describe(&error, &budget))?;
        Ok(Self { lua, budget })
    }

    /// Compiles a script and does not run it.
    pub(crate) fn compile(&self, script: &str) -> Result<Function, RuleError> {
        let chunk = self.lua.load(script).set_name("=script").set_mode(ChunkMode::Text);
        chunk.into_function().map_err(|error| match describe(&error, &self.budget) {
            RuleError::Failed(why) => RuleError::Compile(why),
            other => other,
        })
    }

    /// Runs a script, then the function that it defines. Returns what the function returns.
    pub(crate) fn call(
        &self,
        script: &str,
        function: &'static str,
        args: &[&Json],
    ) -> Result<Vec<Value>, RuleError> {
        let chunk = self.compile(script)?;
        self.guarded(chunk.call::<()>(()))?;
        let args = args.iter().map(|arg| convert::to_lua(&self.lua, arg, 0));
        let args: MultiValue = self.guarded(args.collect::<mlua::Result<_>>())?;
        let function = match self.guarded(self.lua.globals().raw_get(function))? {
            Value::Function(function) => function,
            Value::Nil => {
                return Err(RuleError::Failed(format!(
                    "the script does not define the function {function}"
                )));
            }
            other => {
                let found = type_name(&other);
                return Err(RuleError::Failed(format!(
                    "{function} is not a function but a {found}"
                )));
            }
        };
        Ok(self.guarded(function.call::<MultiValue>(args))?.into_vec())
    }

    /// A value as JSON. Empty tables are what they are in the references.
    pub(crate) fn json(
        &self,
        value: &Value,
        top: Shape,
        references: &[&Json],
    ) -> Result<Json, RuleError> {
        convert::to_json(value, top, references, &self.budget)
    }

    /// A run that exhausted its budget is stopped even if the script caught the error.
    fn guarded<T>(&self, result: mlua::Result<T>) -> Result<T, RuleError> {
        match (result, self.budget.stopped()) {
            (_, Some(limit)) => Err(RuleError::Stopped(limit)),
            (Ok(value), None) => Ok(value),
            (Err(error), None) => Err(describe(&error, &self.budget)),
        }
    }
}

fn state(budget: &Arc<Budget>) -> mlua::Result<Lua> {
    let lua = Lua::new_with(StdLib::TABLE | StdLib::STRING | StdLib::MATH, LuaOptions::default())?;
    lua.set_memory_limit(limits::MEMORY)?;
    base::restrict(&lua, budget)?;
    strings::fill(&lua, budget)?;
    os::fill(&lua)?;
    let budget = Arc::clone(budget);
    let triggers = HookTriggers::new().every_nth_instruction(limits::INSTRUCTIONS_PER_CHECK);
    lua.set_hook(triggers, move |_, _| {
        let steps = u64::from(limits::INSTRUCTIONS_PER_CHECK);
        budget.charge_and_look(steps).map(|()| VmState::Continue).map_err(stopped)
    })?;
    Ok(lua)
}

/// An error of a library function.
fn failure(text: impl Into<String>) -> mlua::Error {
    mlua::Error::RuntimeError(text.into())
}

fn stopped(limit: Limit) -> mlua::Error {
    failure(limit.to_string())
}

/// An error's own text: without the stack, and without what mlua wraps around it.
fn message(error: &mlua::Error) -> String {
    match error {
        mlua::Error::CallbackError { cause, .. } => message(cause),
        mlua::Error::RuntimeError(text)
        | mlua::Error::MemoryError(text)
        | mlua::Error::SyntaxError { message: text, .. } => {
            let text = text.split("\nstack traceback:").next().unwrap_or(text);
            text.chars().take(limits::MESSAGE).collect()
        }
        other => other.to_string().chars().take(limits::MESSAGE).collect(),
    }
}

fn is_memory(error: &mlua::Error) -> bool {
    match error {
        mlua::Error::CallbackError { cause, .. } => is_memory(cause),
        mlua::Error::MemoryError(_) => true,
        _ => false,
    }
}

fn describe(error: &mlua::Error, budget: &Budget) -> RuleError {
    if let Some(limit) = budget.stopped() {
        return RuleError::Stopped(limit);
    }
    if is_memory(error) {
        return RuleError::Stopped(Limit::Memory);
    }
    RuleError::Failed(message(error))
}

/// The type of a value as scripts name it.
pub(crate) fn type_name(value: &Value) -> &'static str {
    match value {
        Value::Integer(_) => "number",
        other => other.type_name(),
    }
}

/// A number of either representation.
pub(crate) fn as_number(value: &Value) -> Option<f64> {
    match value {
        Value::Integer(integer) => Some(numbers::from_integer(*integer)),
        Value::Number(number) => Some(*number),
        _ => None,
    }
}

#[cfg(test)]
mod tests;
