//! CEL expressions with bounds on size, nesting and work, for the rules of CRDs and for values of override policies.
//!
//! The language has no loops but macros over lists and maps. [`Limits`] bounds the text, the nesting (which the parser and
//! the evaluation need stack for), the operators, and the macros. An expression within its limits is compiled and
//! evaluated on a stack of its own if it is large.

mod bounds;
mod functions;
mod value;

use cel::common::ast::Expr;
use cel::{Context, ExecutionError, IdedExpr, Program};
use serde_json::Value;

pub use bounds::Limits;
/// A value of the language.
pub use cel::Value as CelValue;
pub use value::{from_json, to_json};

/// Stack for compiling and for evaluating large expressions, in bytes. The parser needs up to 80 KiB for each nesting level
/// in an unoptimised build, more than the 2 MiB of a runtime thread allow.
const STACK: usize = 16 * 1024 * 1024;
/// Operators from which on an expression is evaluated on a stack of its own: one level of evaluation needs some 10 KiB in an
/// unoptimised build.
const OPERATORS_ON_OWN_STACK: usize = 32;

/// A compiled expression.
#[derive(Debug)]
pub struct Expression {
    program: Program,
    own_stack: bool,
}

impl Expression {
    /// Compiles an expression.
    ///
    /// # Errors
    /// The text is beyond a limit, is not CEL, or uses a part of the language that cannot be evaluated.
    pub fn compile(text: &str, limits: &Limits) -> Result<Self, String> {
        let operators = limits.check_text(text)?;
        stacker::grow(STACK, || {
            let program = Program::compile(text).map_err(|error| error.to_string())?;
            supported(program.expression())?;
            limits.check_macros(program.expression())?;
            Ok(Self { program, own_stack: operators >= OPERATORS_ON_OWN_STACK })
        })
    }

    /// Whether the expression uses a variable.
    #[must_use]
    pub fn uses(&self, variable: &str) -> bool {
        self.program.references().has_variable(variable)
    }

    /// The variables that the expression uses and that are not in `known`, sorted.
    #[must_use]
    pub fn unknown_variables(&self, known: &[&str]) -> Vec<String> {
        let mut of_macros: Vec<&str> = Vec::new();
        bounds::visit(self.program.expression(), &mut |node| {
            if let Expr::Comprehension(comprehension) = &node.expr {
                of_macros.extend([&*comprehension.iter_var, &*comprehension.accu_var]);
                of_macros.extend(comprehension.iter_var2.as_deref());
            }
        });
        let references = self.program.references();
        let variables = references.variables().into_iter();
        let unknown = variables.filter(|name| !known.contains(name) && !of_macros.contains(name));
        let mut unknown: Vec<String> = unknown.map(str::to_owned).collect();
        unknown.sort();
        unknown
    }

    /// Evaluates the expression.
    ///
    /// # Errors
    /// See [`ExecutionError`].
    pub fn evaluate(&self, context: &Context<'_>) -> Result<cel::Value, ExecutionError> {
        if self.own_stack {
            stacker::grow(STACK, || self.program.execute(context))
        } else {
            self.program.execute(context)
        }
    }

    /// Evaluates the expression with variables and functions on texts, to JSON whose texts together have at most `most`
    /// bytes.
    ///
    /// # Errors
    /// Why there is no such value.
    pub fn value(&self, variables: &[(&str, cel::Value)], most: usize) -> Result<Value, String> {
        functions::with_all(|functions| {
            let mut context = functions.new_inner_scope();
            for (name, value) in variables {
                context.add_variable_from_value(*name, value.clone());
            }
            let result = self.evaluate(&context).map_err(|error| explained(&error))?;
            to_json(&result, most)
        })
    }

    /// Whether every macro runs over a list whose order is known: a list in the expression, the result of another
    /// macro or of `split`, or one of the `lists` (variable and field). Maps have no order, so a macro over one may
    /// give another result each time.
    #[must_use]
    pub fn has_known_order(&self, lists: &[(&str, &str)]) -> bool {
        let is_list = |range: &Expr| match range {
            Expr::List(_) | Expr::Comprehension(_) => true,
            Expr::Call(call) => call.func_name == "split",
            Expr::Select(select) => match &select.operand.expr {
                Expr::Ident(variable) => lists.contains(&(variable.as_str(), &select.field)),
                _ => false,
            },
            _ => false,
        };
        let mut known = true;
        bounds::visit(self.program.expression(), &mut |node| {
            if let Expr::Comprehension(comprehension) = &node.expr {
                known &= is_list(&comprehension.iter_range.expr);
            }
        });
        known
    }
}

/// The text of an error, without the values: the engine prints maps in any order.
fn explained(error: &ExecutionError) -> String {
    match error {
        ExecutionError::NoSuchKey(key) => format!("{key:?} does not exist; test it with has()"),
        ExecutionError::UndeclaredReference(name) => format!("{name:?} is not known"),
        ExecutionError::FunctionError { function, message } => format!("{function}: {message}"),
        ExecutionError::NotSupportedAsMethod { method, target } => {
            format!("{method} is not a function of a {}", target.type_of())
        }
        ExecutionError::UnexpectedType { got, want } => format!("a {got} is given for a {want}"),
        ExecutionError::DivisionByZero(_) | ExecutionError::RemainderByZero(_) => {
            "division by zero".to_owned()
        }
        ExecutionError::Overflow(..) => "a number is out of range".to_owned(),
        ExecutionError::IndexOutOfBounds(_) => "an index is out of range".to_owned(),
        _ => "an operator or function does not take values of these types".to_owned(),
    }
}

/// Refuses what the engine parses but cannot evaluate.
fn supported(expression: &IdedExpr) -> Result<(), String> {
    let mut found = Ok(());
    bounds::visit(expression, &mut |node| match &node.expr {
        Expr::Struct(message) => {
            found = Err(format!("messages ({}{{}}) are not supported", message.type_name));
        }
        Expr::Unspecified => found = Err("a part of the expression is missing".to_owned()),
        _ => {}
    });
    found
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn problem(text: &str) -> String {
        Expression::compile(text, &Limits::RULE).unwrap_err()
    }

    #[test]
    fn text_beyond_the_limits_is_refused_before_it_is_parsed() {
        assert!(problem(&"(".repeat(100)).contains("nested deeper than 32"));
        assert!(problem(&format!("1{}", "+1".repeat(300))).contains("more than 250 operators"));
        assert!(problem(&" ".repeat(17_000)).contains("longer than 16384 bytes"));
        let deep = format!("{}1{}", "[".repeat(32), "]".repeat(32));
        assert!(Expression::compile(&deep, &Limits::RULE).is_ok());
    }

    #[test]
    fn macros_are_counted_and_what_the_engine_cannot_evaluate_is_refused() {
        let nested = "[1].map(a, [1].map(b, [1].map(c, c)))";
        assert!(Expression::compile(nested, &Limits::RULE).is_ok());
        let error = Expression::compile(nested, &Limits::VALUE).unwrap_err();
        assert!(error.contains("more than 2 macros"), "{error}");
        assert!(problem("Thing{a: 1} == 1").contains("Thing"));
    }

    #[test]
    fn unknown_variables_are_named_without_those_of_macros() {
        let expression = Expression::compile("[x].map(y, y + z)[0]", &Limits::VALUE).unwrap();
        assert!(expression.uses("x") && !expression.uses("w"));
        assert_eq!(expression.unknown_variables(&["x"]), ["z"]);
    }

    #[test]
    fn a_macro_over_a_map_has_no_known_order() {
        let known = |text: &str| {
            let expression = Expression::compile(text, &Limits::VALUE).unwrap();
            expression.has_known_order(&[("cluster", "zones")])
        };
        assert!(known("cluster.zones.map(x, x)") && !known("cluster.labels.map(x, x)"));
        assert!(
            known("['a'].map(x, x)") && known("'a,b'.split(',').filter(x, x != 'a').map(x, x)")
        );
        assert!(!known("labels.map(x, x)") && !known("{'a': 1, 'b': 2}.map(x, x)"));
    }

    #[test]
    fn values_are_bounded_and_errors_name_what_is_missing() {
        let cluster =
            from_json(&serde_json::json!({"region": "eu", "labels": {}, "zones": ["a", "b"]}));
        let value = |text: &str| {
            let expression = Expression::compile(text, &Limits::VALUE).unwrap();
            expression.value(&[("cluster", cluster.clone())], 4096)
        };
        assert_eq!(
            value("cluster.region.upperAscii() + '-' + cluster.zones.join('.')").unwrap(),
            "EU-a.b"
        );
        assert_eq!(
            value("cluster.zones.map(z, z.replace('a', 'x'))").unwrap(),
            serde_json::json!(["x", "b"])
        );
        for (text, part) in [
            ("cluster.labels.tier", "\"tier\" does not exist"),
            ("cluster.region + 1", "values of these types"),
            ("status.region", "\"status\" is not known"),
            (
                "'aaaaaaaaaa'.replace('', 'bbbbbbbbbb').replace('', 'cccccccccc').replace('', 'dddddddddd')",
                "4096",
            ),
            ("cluster.zones[7]", ""),
            ("1 / 0", "division by zero"),
        ] {
            let error = value(text).unwrap_err();
            assert!(error.contains(part), "{text}: {error}");
        }
    }
}
