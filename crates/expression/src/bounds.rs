//! Limits of expressions.

use cel::IdedExpr;
use cel::common::ast::{EntryExpr, Expr, IdedEntryExpr};

/// Limits of one expression.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Longest text, in bytes.
    pub length: usize,
    /// Deepest nesting of brackets and of conditions (`a ? b : c ? d : e`). Brackets inside string literals are
    /// counted too, because this is checked before parsing.
    pub nesting: usize,
    /// Operators, each of which may be a level of the evaluation: `1+1+1`.
    pub operators: usize,
    /// Macros (`map`, `filter`, `all`, `exists`, ...). Nested, they multiply the work.
    pub macros: Option<usize>,
}

impl Limits {
    /// For the rules of CRDs. Those of published CRDs have some thousand bytes and some dozen operators. Macros are not
    /// limited, because only administrators install CRDs.
    pub const RULE: Self = Self { length: 16 * 1024, nesting: 32, operators: 250, macros: None };
    /// For one value of an object, computed from a few properties. Two macros over lists of at most 64 items and 64
    /// operators bound the work to some 100,000 steps, and the length of a text to some MiB before it is checked.
    pub const VALUE: Self = Self { length: 1024, nesting: 16, operators: 64, macros: Some(2) };

    /// Refuses a text that would exhaust the stack of the parser; otherwise returns the number of operators.
    pub(crate) fn check_text(&self, text: &str) -> Result<usize, String> {
        if text.len() > self.length {
            return Err(format!("expression is longer than {} bytes", self.length));
        }
        let (mut depth, mut conditions, mut operators) = (0_usize, 0_usize, 0_usize);
        for byte in text.bytes() {
            match byte {
                b'(' | b'[' | b'{' => {
                    depth += 1;
                    operators += 1;
                }
                b')' | b']' | b'}' => depth = depth.saturating_sub(1),
                b'?' => conditions += 1,
                b'+' | b'-' | b'*' | b'/' | b'%' | b'!' | b'<' | b'>' | b'=' | b'.' | b'&'
                | b'|' => {
                    operators += 1;
                }
                _ => {}
            }
            if depth + conditions > self.nesting {
                return Err(format!("expression is nested deeper than {} levels", self.nesting));
            }
            if operators > self.operators {
                return Err(format!("expression has more than {} operators", self.operators));
            }
        }
        Ok(operators)
    }

    /// Refuses an expression with too many macros.
    pub(crate) fn check_macros(&self, expression: &IdedExpr) -> Result<(), String> {
        let Some(most) = self.macros else { return Ok(()) };
        let mut macros = 0;
        visit(expression, &mut |node| {
            macros += usize::from(matches!(node.expr, Expr::Comprehension(_)));
        });
        if macros > most {
            return Err(format!("expression has more than {most} macros (map, filter, all, ...)"));
        }
        Ok(())
    }
}

/// Calls `found` on every part of an expression.
pub(crate) fn visit<'a>(expression: &'a IdedExpr, found: &mut dyn FnMut(&'a IdedExpr)) {
    found(expression);
    match &expression.expr {
        Expr::Call(call) => {
            call.target.iter().for_each(|target| visit(target, found));
            call.args.iter().for_each(|argument| visit(argument, found));
        }
        Expr::Comprehension(comprehension) => {
            for part in [
                &comprehension.iter_range,
                &comprehension.accu_init,
                &comprehension.loop_cond,
                &comprehension.loop_step,
                &comprehension.result,
            ] {
                visit(part, found);
            }
        }
        Expr::List(list) => list.elements.iter().for_each(|element| visit(element, found)),
        Expr::Map(map) => entries(&map.entries, found),
        Expr::Struct(message) => entries(&message.entries, found),
        Expr::Select(select) => visit(&select.operand, found),
        Expr::Unspecified | Expr::Ident(_) | Expr::Literal(_) => {}
    }
}

fn entries<'a>(entries: &'a [IdedEntryExpr], found: &mut dyn FnMut(&'a IdedExpr)) {
    for entry in entries {
        match &entry.expr {
            EntryExpr::StructField(field) => visit(&field.value, found),
            EntryExpr::MapEntry(entry) => {
                visit(&entry.key, found);
                visit(&entry.value, found);
            }
        }
    }
}
