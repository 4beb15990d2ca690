//! CEL functions that Kubernetes adds to the language: strings, lists, regular expressions, quantities compared
//! as numbers (apiserver `pkg/cel/library`), and `size` of strings in characters.
//!
//! Not implemented: url, ip, cidr, format and semver libraries, dates; a CRD that uses one is accepted and its rule
//! then
//! refuses objects with the function's name in the message.

use std::sync::Arc;

use cel::{
    Context, ExecutionError, FunctionContext, Value, extractors::This, objects::OptionalValue,
};
use regex::Regex;

type Outcome = Result<Value, ExecutionError>;

fn text(value: impl Into<String>) -> Value {
    Value::String(Arc::new(value.into()))
}

fn list(items: impl Iterator<Item = String>) -> Value {
    Value::List(Arc::new(items.map(text).collect()))
}

/// An optional value, for `oldSelf` under `optionalOldSelf`.
pub(super) fn optional(value: Option<Value>) -> Value {
    let value = match value {
        Some(value) => OptionalValue::of(value),
        None => OptionalValue::none(),
    };
    Value::Opaque(Arc::new(value))
}

thread_local! {
    /// Filled once: there are many functions, and rules are evaluated on every write.
    static ALL: Context<'static> = context();
}

/// Runs `work` with a context that has every function.
pub(super) fn with_all<T>(work: impl FnOnce(&Context<'static>) -> T) -> T {
    ALL.with(work)
}

fn context() -> Context<'static> {
    let mut context = Context::default();
    context.add_function("size", size);
    context.add_function("matches", matches);
    context.add_function("find", find);
    context.add_function("findAll", find_all);
    context.add_function("charAt", char_at);
    context.add_function("indexOf", index_of);
    context.add_function("lastIndexOf", last_index_of);
    context.add_function("lowerAscii", |This(t): This<Arc<String>>| t.to_ascii_lowercase());
    context.add_function("upperAscii", |This(t): This<Arc<String>>| t.to_ascii_uppercase());
    context.add_function("trim", |This(t): This<Arc<String>>| t.trim().to_owned());
    context.add_function(
        "replace",
        |This(t): This<Arc<String>>, from: Arc<String>, to: Arc<String>| t.replace(&**from, &to),
    );
    context.add_function("split", |This(t): This<Arc<String>>, by: Arc<String>| -> Outcome {
        Ok(list(t.split(&**by).map(str::to_owned)))
    });
    context.add_function("substring", substring);
    context.add_function("join", join);
    context.add_function("isSorted", is_sorted);
    context.add_function("sum", sum);
    context.add_function("isQuantity", |t: Arc<String>| {
        crate::kinds::rules::quantity(&serde_json::Value::from(&**t)).is_ok()
    });
    context
}

/// Strings are counted in characters, as CEL says; the engine counts bytes.
fn size(ftx: &FunctionContext<'_, '_>, This(this): This<Value>) -> Outcome {
    let size = match this {
        Value::List(items) => items.len(),
        Value::Map(map) => map.map.len(),
        Value::String(text) => text.chars().count(),
        Value::Bytes(bytes) => bytes.len(),
        other => return Err(ftx.error(format!("{} has no size", other.type_of()))),
    };
    Ok(Value::Int(size as i64))
}

fn pattern(ftx: &FunctionContext<'_, '_>, text: &str) -> Result<Regex, ExecutionError> {
    Regex::new(text).map_err(|e| ftx.error(format!("{text:?} is not a regular expression: {e}")))
}

fn matches(ftx: &FunctionContext<'_, '_>, This(t): This<Arc<String>>, p: Arc<String>) -> Outcome {
    Ok(Value::Bool(pattern(ftx, &p)?.is_match(&t)))
}

fn find(ftx: &FunctionContext<'_, '_>, This(t): This<Arc<String>>, p: Arc<String>) -> Outcome {
    Ok(text(pattern(ftx, &p)?.find(&t).map_or("", |m| m.as_str())))
}

fn find_all(ftx: &FunctionContext<'_, '_>, This(t): This<Arc<String>>, p: Arc<String>) -> Outcome {
    let pattern = pattern(ftx, &p)?;
    Ok(list(pattern.find_iter(&t).map(|m| m.as_str().to_owned())))
}

fn char_at(ftx: &FunctionContext<'_, '_>, This(t): This<Arc<String>>, at: i64) -> Outcome {
    let length = t.chars().count() as i64;
    if at < 0 || at > length {
        return Err(ftx.error(format!("index out of range: {at}")));
    }
    Ok(text(t.chars().nth(at as usize).map(String::from).unwrap_or_default()))
}

fn index_of(This(this): This<Value>, wanted: Value) -> Outcome {
    position(&this, &wanted, false)
}

fn last_index_of(This(this): This<Value>, wanted: Value) -> Outcome {
    position(&this, &wanted, true)
}

/// Index of an item or substring, -1 if absent. Strings are indexed in characters.
fn position(this: &Value, wanted: &Value, last: bool) -> Outcome {
    let found = match (this, wanted) {
        (Value::String(t), Value::String(w)) => {
            let at = if last { t.rfind(&***w) } else { t.find(&***w) };
            at.map(|at| t[..at].chars().count())
        }
        (Value::List(items), w) if last => items.iter().rposition(|i| i == w),
        (Value::List(items), w) => items.iter().position(|i| i == w),
        _ => return Err(ExecutionError::NoSuchOverload),
    };
    Ok(Value::Int(found.map_or(-1, |at| at as i64)))
}

fn substring(
    ftx: &FunctionContext<'_, '_>,
    This(t): This<Arc<String>>,
    cel::extractors::Arguments(arguments): cel::extractors::Arguments,
) -> Outcome {
    let length = t.chars().count() as i64;
    let (start, end) = match arguments.as_slice() {
        [Value::Int(start)] => (*start, length),
        [Value::Int(start), Value::Int(end)] => (*start, *end),
        _ => return Err(ExecutionError::NoSuchOverload),
    };
    if start < 0 || end > length || start > end {
        return Err(ftx.error(format!("index out of range: {start}, {end}")));
    }
    Ok(text(t.chars().skip(start as usize).take((end - start) as usize).collect::<String>()))
}

fn join(
    This(items): This<Arc<Vec<Value>>>,
    cel::extractors::Arguments(arguments): cel::extractors::Arguments,
) -> Outcome {
    let separator = match arguments.as_slice() {
        [] => "",
        [Value::String(separator)] => separator,
        _ => return Err(ExecutionError::NoSuchOverload),
    };
    let texts: Option<Vec<&str>> = items
        .iter()
        .map(|i| match i {
            Value::String(t) => Some(t.as_str()),
            _ => None,
        })
        .collect();
    texts.map(|t| text(t.join(separator))).ok_or(ExecutionError::NoSuchOverload)
}

fn is_sorted(This(items): This<Arc<Vec<Value>>>) -> Outcome {
    let in_order = items.windows(2).all(|w| {
        matches!(
            w[0].partial_cmp(&w[1]),
            Some(std::cmp::Ordering::Less | std::cmp::Ordering::Equal)
        )
    });
    Ok(Value::Bool(in_order))
}

/// An empty list sums up to 0.
fn sum(This(items): This<Arc<Vec<Value>>>) -> Outcome {
    let mut whole = 0_i64;
    let mut fraction = None;
    for item in items.iter() {
        match item {
            Value::Int(n) => {
                whole = whole
                    .checked_add(*n)
                    .ok_or_else(|| ExecutionError::function_error("sum", "integer overflow"))?;
            }
            Value::Float(f) => *fraction.get_or_insert(0.0) += f,
            _ => return Err(ExecutionError::NoSuchOverload),
        }
    }
    Ok(fraction.map_or(Value::Int(whole), |f| Value::Float(f + whole as f64)))
}
