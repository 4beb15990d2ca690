//! The basic functions. What is not listed here does not exist for scripts.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;

use mlua::chunk::ChunkMode;
use mlua::{Function, Lua, MultiValue, Table, Value};

use super::{failure, kube, message, numbers, stopped};
use crate::budget::Budget;

/// Global names that stay. `pcall`, `xpcall`, `tostring` are replaced; `require`, `print`, `os` are added.
const GLOBALS: [&str; 15] = [
    "_G", "_VERSION", "assert", "error", "ipairs", "math", "next", "pairs", "pcall", "select",
    "string", "table", "tonumber", "type", "unpack",
];
/// Functions of `table` that stay. `sort` is replaced.
const TABLE: [&str; 5] = ["concat", "getn", "insert", "maxn", "remove"];

/// In Lua because the hook then counts their instructions: protected calls that do not swallow an exhausted budget, and
/// a stable sort, whose order of equal elements does not depend on the implementation. `xpcall` calls the handler after
/// the error, because Lua would call it within the hook that raised the error, and no hook runs during a hook.
const PRELUDE: &str = r#"
local pcall, select, type, tostring, check = ...
local function done(...)
  if (...) then return ... end
  check()
  local why = select(2, ...)
  if type(why) == "userdata" then why = tostring(why) end
  return false, why
end
local function before(a, b) return a < b end
local function sort(list, less)
  less = less or before
  local n, from, to = #list, list, {}
  local width = 1
  while width < n do
    for low = 1, n, 2 * width do
      local middle, high = low + width, low + 2 * width
      if middle > n + 1 then middle = n + 1 end
      if high > n + 1 then high = n + 1 end
      local left, right = low, middle
      for at = low, high - 1 do
        if left < middle and (right >= high or not less(from[right], from[left])) then
          to[at] = from[left]
          left = left + 1
        else
          to[at] = from[right]
          right = right + 1
        end
      end
    end
    from, to = to, (from == list and {} or from)
    width = 2 * width
  end
  if from ~= list then
    for at = 1, n do list[at] = from[at] end
  end
end
local function handled(handler, ...)
  if (...) then return ... end
  return false, select(2, done(pcall(handler, select(2, ...))))
end
return function(f, ...) return done(pcall(f, ...)) end,
  function(f, handler) return handled(handler, done(pcall(f))) end,
  sort
"#;

/// Removes everything that scripts must not reach, and replaces what would let them run on.
pub(super) fn restrict(lua: &Lua, budget: &Arc<Budget>) -> mlua::Result<()> {
    let globals = lua.globals();
    keep(&globals, &GLOBALS)?;
    let table: Table = globals.raw_get("table")?;
    keep(&table, &TABLE)?;
    let shown = lua.create_function(|lua, value: Value| lua.create_string(shown(&value)))?;
    let check = {
        let budget = Arc::clone(budget);
        lua.create_function(move |_, ()| budget.charge(0).map_err(stopped))?
    };
    let prelude = lua.load(PRELUDE).set_name("=library").set_mode(ChunkMode::Text);
    let pcall: Function = globals.raw_get("pcall")?;
    let select: Function = globals.raw_get("select")?;
    let type_of: Function = globals.raw_get("type")?;
    let args = (pcall, select, type_of, shown.clone(), check);
    let (pcall, xpcall, sort): (Function, Function, Function) = prelude.call(args)?;
    globals.raw_set("pcall", pcall)?;
    globals.raw_set("xpcall", xpcall)?;
    globals.raw_set("tostring", shown)?;
    table.raw_set("sort", sort)?;
    globals.raw_set("print", lua.create_function(|_, _: MultiValue| Ok(()))?)?;
    random(lua, &globals)?;
    let budget = Arc::clone(budget);
    let require = lua.create_function(move |lua, name: Value| {
        if name.as_string().is_none_or(|name| name.as_bytes() != b"kube") {
            let name = self::shown(&name);
            return Err(failure(format!(
                "there is no module {:?}, only \"kube\"",
                String::from_utf8_lossy(&name)
            )));
        }
        kube::library(lua, &budget)
    })?;
    globals.raw_set("require", require)
}

fn keep(table: &Table, names: &[&str]) -> mlua::Result<()> {
    let mut other = Vec::new();
    table.for_each(|name: Value, _: Value| {
        let known = name
            .as_string()
            .is_some_and(|name| names.iter().any(|known| name.as_bytes() == known.as_bytes()));
        if !known {
            other.push(name);
        }
        Ok(())
    })?;
    other.into_iter().try_for_each(|name| table.raw_set(name, Value::Nil))
}

/// Random numbers that are the same in every run, so that an answer depends on the object only, and without the
/// process's generator.
#[allow(clippy::cast_precision_loss, clippy::cast_possible_truncation, clippy::cast_sign_loss)]
fn random(lua: &Lua, globals: &Table) -> mlua::Result<()> {
    let math: Table = globals.raw_get("math")?;
    let state = Rc::new(Cell::new(SEED));
    let seeded = Rc::clone(&state);
    let seed = lua.create_function(move |_, seed: f64| {
        seeded.set(seed.to_bits() | 1);
        Ok(())
    })?;
    let random = lua.create_function(move |_, (low, high): (Option<f64>, Option<f64>)| {
        let mut bits = state.get();
        bits ^= bits << 13;
        bits ^= bits >> 7;
        bits ^= bits << 17;
        state.set(bits);
        let share = (bits >> 11) as f64 / (1_u64 << 53) as f64;
        Ok(match (low, high) {
            (None, _) => share,
            (Some(high), None) => 1.0 + (share * high).floor(),
            (Some(low), Some(high)) => low + (share * (high - low + 1.0)).floor(),
        })
    })?;
    math.raw_set("randomseed", seed)?;
    math.raw_set("random", random)
}

/// Any odd number.
const SEED: u64 = 0x9e37_79b9_7f4a_7c15;

/// `tostring`.
pub(super) fn shown(value: &Value) -> Vec<u8> {
    match value {
        Value::String(text) => text.as_bytes().to_vec(),
        Value::Integer(integer) => integer.to_string().into_bytes(),
        Value::Number(number) => numbers::text(*number).into_bytes(),
        Value::Boolean(value) => value.to_string().into_bytes(),
        Value::Nil => b"nil".to_vec(),
        Value::Error(error) => message(error).into_bytes(),
        other => format!("{}: {:p}", other.type_name(), other.to_pointer()).into_bytes(),
    }
}
