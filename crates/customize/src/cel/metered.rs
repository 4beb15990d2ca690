//! A step budget for CEL: calls in the expression's tree that charge it.
//!
//! Reading a field copies what is below it, so each selection is charged with the size of the whole object: once before
//! the evaluation, and again in each round of a loop. Sums, comparisons and arguments are charged with their own size.

use std::sync::Arc;

use cel::common::ast::{ComprehensionExpr, EntryExpr, Expr, IdedExpr, operators};
use cel::{Context, ExecutionError, FunctionContext, Value as CelValue};
use serde_json::Value;

use super::values;
use crate::budget::Budget;
use crate::error::RuleError;

/// Names that no expression can contain.
const ROUND: &str = "@round";
const SIZED: &str = "@sized";
/// Steps for each part of a value that is copied: an allocation and two lookups of its type.
const STEPS_PER_PART: u64 = 10;

/// An expression with a budget.
#[derive(Debug)]
pub(super) struct Metered {
    expression: IdedExpr,
    selections: u64,
}

impl Metered {
    pub(super) fn new(expression: &IdedExpr) -> Result<Self, String> {
        let mut expression = expression.clone();
        let selections = meter(&mut expression, &mut vec![super::OBJECT.to_owned()])?;
        Ok(Self { expression, selections })
    }

    /// Evaluates the expression in a context that has its variables.
    pub(super) fn evaluate(
        &self,
        context: &mut Context<'_>,
        object: &Value,
        budget: &Arc<Budget>,
    ) -> Result<CelValue, RuleError> {
        let parts = values::size_of_json(object);
        let steps = parts.saturating_mul(1 + self.selections).saturating_mul(STEPS_PER_PART);
        budget.charge_and_look(steps).map_err(RuleError::Stopped)?;
        let meter = Arc::clone(budget);
        context.add_function(
            ROUND,
            move |ftx: &FunctionContext<'_, '_>, goes_on: bool, selections: i64| {
                let selections = u64::try_from(selections).unwrap_or(0);
                let steps = parts.saturating_mul(selections).saturating_mul(STEPS_PER_PART);
                charge(ftx, &meter, steps + STEPS_PER_PART).map(|()| goes_on)
            },
        );
        let meter = Arc::clone(budget);
        context.add_function(SIZED, move |ftx: &FunctionContext<'_, '_>, value: CelValue| {
            charge(ftx, &meter, values::size(&value).saturating_mul(STEPS_PER_PART)).map(|()| value)
        });
        CelValue::resolve(&self.expression, context)
            .map_err(|error| RuleError::Failed(super::one_line(&error.to_string())))
    }
}

fn charge(
    ftx: &FunctionContext<'_, '_>,
    budget: &Budget,
    steps: u64,
) -> Result<(), ExecutionError> {
    budget.charge_and_look(steps).map_err(|limit| ftx.error(limit.to_string()))
}

/// Puts the calls into a tree and checks its variables. Returns the selections that are evaluated once.
fn meter(node: &mut IdedExpr, variables: &mut Vec<String>) -> Result<u64, String> {
    let mut selections = 0;
    match &mut node.expr {
        Expr::Unspecified | Expr::Literal(_) => {}
        Expr::Ident(name) if variables.contains(name) => {}
        Expr::Ident(name) => {
            return Err(format!("there is no variable {name}, only {}", super::OBJECT));
        }
        Expr::Struct(_) => return Err("messages are not supported, use a map".to_owned()),
        Expr::Select(select) => selections += 1 + meter(&mut select.operand, variables)?,
        Expr::List(list) => {
            for element in &mut list.elements {
                selections += meter(element, variables)?;
            }
        }
        Expr::Map(map) => {
            for entry in &mut map.entries {
                let EntryExpr::MapEntry(entry) = &mut entry.expr else {
                    return Err("messages are not supported, use a map".to_owned());
                };
                selections += meter(&mut entry.key, variables)?;
                selections += meter(&mut entry.value, variables)?;
            }
        }
        Expr::Call(call) => {
            // Logical operators and conditions evaluate one part only, and their parts are booleans.
            let logical = [
                operators::CONDITIONAL,
                operators::LOGICAL_AND,
                operators::LOGICAL_OR,
                operators::LOGICAL_NOT,
                operators::NOT_STRICTLY_FALSE,
            ];
            let sized = !logical.contains(&call.func_name.as_str());
            if let Some(target) = &mut call.target {
                // `optional.none()` is the name of one function.
                if !matches!(&target.expr, Expr::Ident(name) if name == "optional") {
                    selections += meter(target, variables)?;
                    sized_part(target);
                }
            }
            for arg in &mut call.args {
                selections += meter(arg, variables)?;
                if sized {
                    sized_part(arg);
                }
            }
            if call.func_name == operators::ADD {
                sized_part(node);
            }
        }
        Expr::Comprehension(comprehension) => selections += meter_loop(comprehension, variables)?,
    }
    Ok(selections)
}

fn meter_loop(
    comprehension: &mut ComprehensionExpr,
    variables: &mut Vec<String>,
) -> Result<u64, String> {
    let mut once = meter(&mut comprehension.iter_range, variables)?;
    once += meter(&mut comprehension.accu_init, variables)?;
    let outside = variables.len();
    variables.push(comprehension.accu_var.clone());
    once += meter(&mut comprehension.result, variables)?;
    variables.push(comprehension.iter_var.clone());
    variables.extend(comprehension.iter_var2.clone());
    sized_part(&mut comprehension.iter_range);
    let mut each = meter(&mut comprehension.loop_cond, variables)?;
    each += meter(&mut comprehension.loop_step, variables)?;
    variables.truncate(outside);
    let each = i64::try_from(each).map_err(|_| "the expression is too long".to_owned())?;
    let condition = std::mem::take(&mut comprehension.loop_cond);
    let selections = IdedExpr {
        id: condition.id,
        expr: Expr::Literal(cel::common::ast::LiteralValue::Int(each.into())),
    };
    comprehension.loop_cond = call(ROUND, vec![condition, selections]);
    Ok(once)
}

/// Charges the size of a part's value.
fn sized_part(part: &mut IdedExpr) {
    if matches!(part.expr, Expr::Literal(_)) {
        return;
    }
    let inner = std::mem::take(part);
    *part = call(SIZED, vec![inner]);
}

fn call(name: &str, args: Vec<IdedExpr>) -> IdedExpr {
    let id = args.first().map_or(0, |arg| arg.id);
    let call = cel::common::ast::CallExpr { func_name: name.to_owned(), target: None, args };
    IdedExpr { id, expr: Expr::Call(call) }
}
