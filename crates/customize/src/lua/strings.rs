//! The string library. Every function charges the budget for the characters that it looks at.
//!
//! As in Karmada there is no `rep`, `gsub` and `dump`, and texts are at most 1,000,000 bytes long.

use std::sync::Arc;

use mlua::{Lua, MultiValue, Table, Value};

use super::args::Args;
use super::format::{self, Arg};
use super::pattern::{Capture, Match, Pattern, PatternError};
use super::{failure, numbers, stopped};
use crate::budget::Budget;
use crate::limits;

/// Fills `string`: the table is also what methods of texts (`text:upper()`) are looked up in, so it is kept.
pub(super) fn fill(lua: &Lua, budget: &Arc<Budget>) -> mlua::Result<()> {
    let string: Table = lua.globals().get("string")?;
    string.clear()?;
    let add = |name: &'static str, function: Function| {
        let budget = Arc::clone(budget);
        let function = lua.create_function(move |lua, args: MultiValue| {
            function(lua, &Args::new(name, args), &budget)
        })?;
        string.raw_set(name, function)
    };
    add("byte", byte)?;
    add("char", char)?;
    add("find", find)?;
    add("format", formatted)?;
    add("gmatch", gmatch)?;
    add("gfind", gmatch)?;
    add("len", len)?;
    add("lower", |lua, args, budget| cased(lua, args, budget, lower))?;
    add("match", matched)?;
    add("reverse", reverse)?;
    add("sub", sub)?;
    add("upper", |lua, args, budget| cased(lua, args, budget, upper))?;
    for name in ["dump", "gsub", "rep"] {
        add(name, refused)?;
    }
    Ok(())
}

type Outcome = mlua::Result<MultiValue>;
type Function = fn(&Lua, &Args, &Budget) -> Outcome;

fn refused(_: &Lua, args: &Args, _: &Budget) -> Outcome {
    Err(failure(format!("string.{} is not available in customizations", args.function())))
}

/// A text argument within the limits; charged for its length.
fn checked(args: &Args, at: usize, budget: &Budget) -> mlua::Result<Vec<u8>> {
    let text = args.text(at)?;
    if text.len() > limits::STRING {
        return Err(failure(format!(
            "string.{}: the text has {} bytes, at most {} are allowed",
            args.function(),
            text.len(),
            limits::STRING
        )));
    }
    budget.charge_bytes(text.len()).map_err(stopped)?;
    Ok(text)
}

fn values<const N: usize>(values: [Value; N]) -> Outcome {
    Ok(values.into_iter().collect())
}

#[allow(clippy::cast_precision_loss)]
fn number(value: usize) -> Value {
    Value::Number(value as f64)
}

fn text(lua: &Lua, text: impl AsRef<[u8]>) -> mlua::Result<Value> {
    Ok(Value::String(lua.create_string(text)?))
}

fn byte(_: &Lua, args: &Args, budget: &Budget) -> Outcome {
    let text = checked(args, 1, budget)?;
    let length = i64::try_from(text.len()).unwrap_or(i64::MAX);
    let start = args.integer_or(2, 1)? - 1;
    let start = if start < 0 { length.saturating_add(start).saturating_add(1) } else { start };
    let end = args.integer_or(3, -1)?;
    let end = if end < 0 { length.saturating_add(end).saturating_add(1) } else { end };
    let end = if args.count() == 2 { start.saturating_add(1) } else { end.min(length) };
    let (start, end) = (usize::try_from(start).unwrap_or(0), usize::try_from(end).unwrap_or(0));
    if end.saturating_sub(start) > MOST_BYTES {
        return Err(failure(format!("string.byte returns at most {MOST_BYTES} bytes")));
    }
    let bytes = text.get(start..end.min(text.len())).unwrap_or_default();
    Ok(bytes.iter().map(|byte| number(usize::from(*byte))).collect())
}

/// Values that a function can return at once: Lua's stack is limited.
const MOST_BYTES: usize = 5000;

#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
fn char(lua: &Lua, args: &Args, _: &Budget) -> Outcome {
    let bytes: mlua::Result<Vec<u8>> =
        (1..=args.count()).map(|at| Ok(args.integer(at)? as u8)).collect();
    values([text(lua, bytes?)?])
}

/// Start of a part of a text, counted from 0; negative indices count from the end.
fn start_of(index: i64, length: usize) -> usize {
    let length = i64::try_from(length).unwrap_or(i64::MAX);
    let index = if index == 0 { 0 } else { index.saturating_sub(1) };
    let index = if index < 0 { length.saturating_add(index).saturating_add(1) } else { index };
    usize::try_from(index).unwrap_or(0)
}

fn find(lua: &Lua, args: &Args, budget: &Budget) -> Outcome {
    let subject = checked(args, 1, budget)?;
    let pattern = checked(args, 2, budget)?;
    if pattern.is_empty() {
        return values([number(1), number(0)]);
    }
    let from = start_of(args.integer_or(3, 1)?, subject.len());
    if from > subject.len() {
        return values([Value::Nil]);
    }
    if args.truthy(4) {
        return plain(&subject, &pattern, from, budget);
    }
    match search(&pattern, &subject, from, budget)? {
        None => values([Value::Nil]),
        Some((_, found)) => {
            let mut out = vec![number(found.start + 1), number(found.end)];
            captures(lua, &subject, &found, &mut out)?;
            Ok(MultiValue::from_vec(out))
        }
    }
}

/// The first place of a text in another, without patterns.
fn plain(subject: &[u8], wanted: &[u8], from: usize, budget: &Budget) -> Outcome {
    let mut windows = subject[from..].windows(wanted.len()).enumerate();
    let found = windows.find_map(|(at, window)| match budget.charge_bytes(same(window, wanted)) {
        Err(limit) => Some(Err(limit)),
        Ok(()) => (window == wanted).then_some(Ok(at)),
    });
    match found {
        None => values([Value::Nil]),
        Some(Err(limit)) => Err(stopped(limit)),
        Some(Ok(at)) => values([number(from + at + 1), number(from + at + wanted.len())]),
    }
}

/// How many bytes are the same at the start.
fn same(one: &[u8], other: &[u8]) -> usize {
    one.iter().zip(other).take_while(|(a, b)| a == b).count()
}

fn search(
    pattern: &[u8],
    subject: &[u8],
    from: usize,
    budget: &Budget,
) -> mlua::Result<Option<(Pattern, Match)>> {
    let pattern = Pattern::parse(pattern, budget).map_err(wrong)?;
    let found = pattern.find(subject, from, budget).map_err(wrong)?;
    Ok(found.map(|found| (pattern, found)))
}

fn wrong(error: PatternError) -> mlua::Error {
    match error {
        PatternError::Malformed(why) => failure(format!("malformed pattern: {why}")),
        PatternError::Stopped(limit) => stopped(limit),
    }
}

fn captures(lua: &Lua, subject: &[u8], found: &Match, out: &mut Vec<Value>) -> mlua::Result<()> {
    for capture in &found.captures {
        out.push(match capture {
            Capture::Text(start, end) => text(lua, &subject[*start..*end])?,
            Capture::Position(at) => number(*at),
        });
    }
    Ok(())
}

/// The captures of a match, or the whole match if the pattern has none.
fn parts(lua: &Lua, subject: &[u8], found: &Match) -> Outcome {
    let mut out = Vec::new();
    captures(lua, subject, found, &mut out)?;
    if out.is_empty() {
        out.push(text(lua, &subject[found.start..found.end])?);
    }
    Ok(MultiValue::from_vec(out))
}

fn matched(lua: &Lua, args: &Args, budget: &Budget) -> Outcome {
    let subject = checked(args, 1, budget)?;
    let pattern = checked(args, 2, budget)?;
    let from = start_of(args.integer_or(3, 1)?, subject.len());
    match search(&pattern, &subject, from, budget)? {
        Some((_, found)) => parts(lua, &subject, &found),
        None => values([Value::Nil]),
    }
}

/// An iterator over all matches. All are computed at once, as in Karmada, so that the text is read once.
fn gmatch(lua: &Lua, args: &Args, budget: &Budget) -> Outcome {
    let subject = checked(args, 1, budget)?;
    let pattern = Pattern::parse(&checked(args, 2, budget)?, budget).map_err(wrong)?;
    let all = lua.create_table()?;
    let mut from = Some(0);
    while let Some(at) = from
        && let Some(found) = pattern.find(&subject, at, budget).map_err(wrong)?
    {
        let parts = parts(lua, &subject, &found)?;
        all.raw_push(lua.create_sequence_from(parts)?)?;
        budget.charge(10).map_err(stopped)?;
        from = pattern.after(&found);
    }
    let next = std::cell::Cell::new(0_i64);
    let iterator = lua.create_function(move |_, ()| {
        next.set(next.get() + 1);
        match all.raw_get::<Option<Table>>(next.get())? {
            Some(parts) => parts.sequence_values::<Value>().collect::<mlua::Result<MultiValue>>(),
            None => values([Value::Nil]),
        }
    })?;
    values([Value::Function(iterator)])
}

fn len(_: &Lua, args: &Args, _: &Budget) -> Outcome {
    values([number(args.text(1)?.len())])
}

fn cased(lua: &Lua, args: &Args, budget: &Budget, case: fn(char) -> char) -> Outcome {
    let subject = checked(args, 1, budget)?;
    let changed: String = super::convert::valid(&subject).chars().map(case).collect();
    values([text(lua, changed)?])
}

/// Upper case of one letter; a letter whose upper case is several letters stays.
fn upper(letter: char) -> char {
    let mut upper = letter.to_uppercase();
    if upper.len() == 1 { upper.next().unwrap_or(letter) } else { letter }
}

fn lower(letter: char) -> char {
    let mut lower = letter.to_lowercase();
    if lower.len() == 1 { lower.next().unwrap_or(letter) } else { letter }
}

fn reverse(lua: &Lua, args: &Args, budget: &Budget) -> Outcome {
    let mut subject = checked(args, 1, budget)?;
    subject.reverse();
    values([text(lua, subject)?])
}

fn sub(lua: &Lua, args: &Args, budget: &Budget) -> Outcome {
    let subject = checked(args, 1, budget)?;
    let start = start_of(args.integer(2)?, subject.len());
    let end = args.integer_or(3, -1)?;
    let length = i64::try_from(subject.len()).unwrap_or(i64::MAX);
    let end = if end < 0 { length.saturating_add(end).saturating_add(1) } else { end };
    let end = usize::try_from(end).unwrap_or(0).min(subject.len());
    values([text(lua, subject.get(start..end).unwrap_or_default())?])
}

fn formatted(lua: &Lua, args: &Args, budget: &Budget) -> Outcome {
    let pattern = checked(args, 1, budget)?;
    let mut given = Vec::new();
    for at in 2..=args.count() {
        given.push(match args.value(at) {
            Value::Integer(integer) => Arg::Number(numbers::from_integer(*integer)),
            Value::Number(number) => Arg::Number(*number),
            Value::Boolean(value) => Arg::Bool(*value),
            Value::String(_) => Arg::Text(checked(args, at, budget)?),
            other => Arg::Other(super::base::shown(other)),
        });
    }
    let out =
        format::format(&pattern, &given).map_err(|why| failure(format!("string.format: {why}")))?;
    budget.charge_bytes(out.len()).map_err(stopped)?;
    values([text(lua, out)?])
}
