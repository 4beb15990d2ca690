//! Sizes of files, structs and functions.

use syn::visit::{self, Visit};

use super::modules::is_test;
use super::{Finding, MOST_FIELDS, MOST_LINES_OF_FILE, MOST_LINES_OF_FUNCTION, Rule};

/// The finding on a file that is too long.
pub(super) fn file(shown: &str, text: &str) -> Option<Finding> {
    let lines = text.lines().count();
    (lines > MOST_LINES_OF_FILE).then(|| Finding {
        rule: Rule::LongFile,
        subject: shown.to_owned(),
        text: format!("{shown} has {lines} lines, at most {MOST_LINES_OF_FILE} are allowed"),
    })
}

/// Findings on structs and functions of a file, outside tests.
pub(super) fn items(shown: &str, syntax: &syn::File) -> Vec<Finding> {
    let mut sizes = Sizes { shown, owner: Vec::new(), findings: Vec::new() };
    sizes.visit_file(syntax);
    sizes.findings
}

struct Sizes<'a> {
    shown: &'a str,
    /// The types and traits whose `impl` or `trait` block is open.
    owner: Vec<String>,
    findings: Vec<Finding>,
}

impl Sizes<'_> {
    fn add(&mut self, rule: Rule, name: &str, line: usize, problem: &str) {
        let subject = format!("{} {name}", self.shown);
        let text = format!("{}:{line}: {name} {problem}", self.shown);
        self.findings.push(Finding { rule, subject, text });
    }

    fn function(&mut self, signature: &syn::Signature, block: &syn::Block) {
        let first = signature.fn_token.span.start().line;
        let lines = block.brace_token.span.close().end().line + 1 - first;
        if lines > MOST_LINES_OF_FUNCTION {
            let owner = self.owner.last().map_or(String::new(), |owner| format!("{owner}::"));
            let problem =
                format!("has {lines} lines, at most {MOST_LINES_OF_FUNCTION} are allowed");
            self.add(Rule::LongFunction, &format!("{owner}{}", signature.ident), first, &problem);
        }
    }

    fn within(&mut self, owner: String, visit: impl FnOnce(&mut Self)) {
        self.owner.push(owner);
        visit(self);
        self.owner.pop();
    }
}

impl<'ast> Visit<'ast> for Sizes<'_> {
    fn visit_item_mod(&mut self, item: &'ast syn::ItemMod) {
        if !is_test(&item.attrs) {
            visit::visit_item_mod(self, item);
        }
    }

    fn visit_item_struct(&mut self, item: &'ast syn::ItemStruct) {
        let fields = item.fields.len();
        if fields > MOST_FIELDS && !is_test(&item.attrs) {
            let line = item.ident.span().start().line;
            let problem = format!("has {fields} fields, at most {MOST_FIELDS} are allowed");
            self.add(Rule::WideStruct, &item.ident.to_string(), line, &problem);
        }
    }

    fn visit_item_fn(&mut self, item: &'ast syn::ItemFn) {
        if !is_test(&item.attrs) {
            self.function(&item.sig, &item.block);
            visit::visit_item_fn(self, item);
        }
    }

    fn visit_item_impl(&mut self, item: &'ast syn::ItemImpl) {
        if !is_test(&item.attrs) {
            let owner = match &*item.self_ty {
                syn::Type::Path(of) => of.path.segments.last().map(|last| last.ident.to_string()),
                _ => None,
            };
            self.within(owner.unwrap_or_default(), |sizes| visit::visit_item_impl(sizes, item));
        }
    }

    fn visit_impl_item_fn(&mut self, item: &'ast syn::ImplItemFn) {
        if !is_test(&item.attrs) {
            self.function(&item.sig, &item.block);
            visit::visit_impl_item_fn(self, item);
        }
    }

    fn visit_item_trait(&mut self, item: &'ast syn::ItemTrait) {
        if !is_test(&item.attrs) {
            let owner = item.ident.to_string();
            self.within(owner, |sizes| visit::visit_item_trait(sizes, item));
        }
    }

    fn visit_trait_item_fn(&mut self, item: &'ast syn::TraitItemFn) {
        if let Some(block) = &item.default {
            self.function(&item.sig, block);
        }
        visit::visit_trait_item_fn(self, item);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(text: &str) -> Vec<String> {
        let findings = items("a.rs", &syn::parse_file(text).unwrap());
        findings.into_iter().map(|finding| finding.text).collect()
    }

    #[test]
    fn a_file_may_have_600_lines() {
        assert_eq!(file("a.rs", &"\n".repeat(600)), None);
        let long = file("a.rs", &"\n".repeat(601)).unwrap();
        assert_eq!((long.rule, long.subject.as_str()), (Rule::LongFile, "a.rs"));
        assert!(long.text.contains("601"), "{}", long.text);
    }

    #[test]
    fn wide_structs_and_long_functions_are_named_with_their_line_and_tests_are_left_out() {
        let fields = |n: usize| (0..n).map(|n| format!("f{n}: u8, ")).collect::<String>();
        let body = |lines: usize| "\n".repeat(lines - 1);
        let (wide, long) = (fields(16), body(81));
        let text = format!(
            "struct Fits {{ {} }}\nstruct Wide {{ {wide} }}\nfn fits() {{{}}}\nimpl Wide {{ fn long() {{{long}}} }}\n\
             #[cfg(test)] mod tests {{ struct W {{ {wide} }} fn l() {{{long}}} }}\n\
             #[test] fn t() {{{long}}}",
            fields(15),
            body(80),
        );
        assert_eq!(
            found(&text),
            [
                "a.rs:2: Wide has 16 fields, at most 15 are allowed",
                "a.rs:83: Wide::long has 81 lines, at most 80 are allowed",
            ]
        );
    }
}
