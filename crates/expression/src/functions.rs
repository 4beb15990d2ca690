//! Functions on texts for [`crate::Expression::value`], with the names and meaning of Kubernetes' CEL library. Texts that
//! they make are bounded, because a few replacements in a row multiply the length of a text.

use std::sync::Arc;

use cel::extractors::{Arguments, This};
use cel::{Context, ExecutionError, FunctionContext, Value};

/// Longest text that a function makes, in bytes.
const MAX_TEXT: usize = 4096;

type Outcome = Result<Value, ExecutionError>;

thread_local! {
    /// Filled once: there are many functions, and expressions are evaluated for every member.
    static ALL: Context<'static> = context();
}

/// Runs `work` with a context that has every function.
pub(crate) fn with_all<T>(work: impl FnOnce(&Context<'static>) -> T) -> T {
    ALL.with(work)
}

fn context() -> Context<'static> {
    let mut context = Context::default();
    context.add_function("lowerAscii", |This(t): This<Arc<String>>| t.to_ascii_lowercase());
    context.add_function("upperAscii", |This(t): This<Arc<String>>| t.to_ascii_uppercase());
    context.add_function("trim", |This(t): This<Arc<String>>| t.trim().to_owned());
    context.add_function("replace", replace);
    context.add_function("split", split);
    context.add_function("join", join);
    context
}

fn text(value: impl Into<String>) -> Value {
    Value::String(Arc::new(value.into()))
}

fn bounded(ftx: &FunctionContext<'_, '_>, bytes: usize) -> Result<(), ExecutionError> {
    if bytes > MAX_TEXT {
        return Err(ftx.error(format!("makes a text of more than {MAX_TEXT} bytes")));
    }
    Ok(())
}

fn replace(
    ftx: &FunctionContext<'_, '_>,
    This(t): This<Arc<String>>,
    from: Arc<String>,
    to: Arc<String>,
) -> Outcome {
    // At most one replacement for each character, and one at the end.
    let pieces = if from.is_empty() { t.chars().count() + 1 } else { t.matches(&**from).count() };
    bounded(ftx, t.len() + pieces.saturating_mul(to.len()))?;
    Ok(text(t.replace(&**from, &to)))
}

fn split(ftx: &FunctionContext<'_, '_>, This(t): This<Arc<String>>, by: Arc<String>) -> Outcome {
    bounded(ftx, t.len())?;
    Ok(Value::List(Arc::new(t.split(&**by).map(text).collect())))
}

fn join(
    ftx: &FunctionContext<'_, '_>,
    This(items): This<Arc<Vec<Value>>>,
    Arguments(arguments): Arguments,
) -> Outcome {
    let separator = match arguments.as_slice() {
        [] => "",
        [Value::String(separator)] => separator.as_str(),
        _ => return Err(ExecutionError::NoSuchOverload),
    };
    let mut joined = String::new();
    for (at, item) in items.iter().enumerate() {
        let Value::String(item) = item else { return Err(ExecutionError::NoSuchOverload) };
        bounded(ftx, joined.len() + separator.len() + item.len())?;
        if at > 0 {
            joined.push_str(separator);
        }
        joined.push_str(item);
    }
    Ok(text(joined))
}
