//! Rules on the structure of the sources: the size of files, structs and functions, and circles of imports.

mod circles;
mod exceptions;
mod imports;
mod modules;
mod sizes;

use std::collections::BTreeSet;
use std::path::Path;

use anyhow::{Context, bail};

use self::exceptions::EXCEPTIONS;
use crate::run::say;
use crate::sources::rust_files;

/// Longest file, in lines: what one reads in a sitting.
const MOST_LINES_OF_FILE: usize = 600;
/// Most fields of a struct.
const MOST_FIELDS: usize = 15;
/// Longest function, in lines from its signature to its closing brace.
const MOST_LINES_OF_FUNCTION: usize = 80;
/// Crates whose structs and functions are bounded.
const BOUNDED: [&str; 2] = ["agent", "controller"];
/// Crates in which modules import each other in one direction only.
const LAYERED: [&str; 5] = ["agent", "apimachinery", "apiserver", "controller", "http"];

/// The rules.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Rule {
    /// A file above [`MOST_LINES_OF_FILE`], of the whole workspace, tests included.
    LongFile,
    /// A struct above [`MOST_FIELDS`], outside tests.
    WideStruct,
    /// A function above [`MOST_LINES_OF_FUNCTION`], outside tests.
    LongFunction,
    /// A module in a circle of imports: see [`imports::of`].
    Circle,
}

/// A broken rule.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Finding {
    rule: Rule,
    /// What breaks it, as [`EXCEPTIONS`] name it: a file, `file Name` or `crate::module`.
    subject: String,
    /// For people.
    text: String,
}

/// A violation that was there before the rule. An entry that nothing needs any more fails the check: the list shrinks.
#[derive(Debug)]
struct Exception {
    rule: Rule,
    subject: &'static str,
    /// Why it is there and what removes it.
    why: &'static str,
}

/// Fails when a rule is broken without an exception, or an exception is not needed.
pub(crate) fn check(root: &Path) -> anyhow::Result<()> {
    let problems = judge(&findings(root)?, EXCEPTIONS);
    if !problems.is_empty() {
        bail!("{}", problems.join("\n  "));
    }
    say(format!(
        "files, structs, functions and imports are in order, with {} exceptions",
        EXCEPTIONS.len()
    ));
    Ok(())
}

fn judge(findings: &[Finding], exceptions: &[Exception]) -> Vec<String> {
    let excepted = |finding: &&Finding| {
        let mut same = exceptions.iter();
        same.any(|e| e.rule == finding.rule && e.subject == finding.subject)
    };
    let texts: BTreeSet<&str> =
        findings.iter().filter(|f| !excepted(f)).map(|f| f.text.as_str()).collect();
    let mut problems: Vec<String> = texts.into_iter().map(str::to_owned).collect();
    for Exception { rule, subject, why } in exceptions {
        if !findings.iter().any(|f| f.rule == *rule && f.subject == *subject) {
            problems.push(format!(
                "the exception {rule:?} of {subject:?} ({why}) is not needed any more: remove it from xtask's exceptions.rs"
            ));
        }
    }
    problems
}

fn findings(root: &Path) -> anyhow::Result<Vec<Finding>> {
    let mut findings = Vec::new();
    for folder in ["crates", "e2e"] {
        for file in rust_files(&root.join(folder))? {
            let text = std::fs::read_to_string(&file)
                .with_context(|| format!("read {}", file.display()))?;
            let shown = file.strip_prefix(root).unwrap_or(&file).display().to_string();
            findings.extend(sizes::file(&shown, &text));
        }
    }
    for name in LAYERED {
        let source = format!("crates/{name}/src");
        let modules = modules::read(&root.join(&source))?;
        for module in modules.iter().filter(|_| BOUNDED.contains(&name)) {
            let shown = format!("{source}/{}", module.file);
            findings.extend(sizes::items(&shown, &module.syntax));
        }
        findings.extend(circles::find(name, &imports::of(&modules)));
    }
    findings.sort();
    Ok(findings)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn long(subject: &str) -> Finding {
        let (rule, text) = (Rule::LongFile, format!("{subject} is long"));
        Finding { rule, subject: subject.to_owned(), text }
    }

    #[test]
    fn an_exception_covers_its_subject_and_nothing_else_and_must_be_needed() {
        let except = |subject| [Exception { rule: Rule::LongFile, subject, why: "old" }];
        assert_eq!(judge(&[long("a.rs")], &[]), ["a.rs is long"]);
        assert_eq!(judge(&[long("a.rs")], &except("a.rs")), [""; 0]);
        let both = judge(&[long("a.rs")], &except("b.rs"));
        assert!(both.len() == 2 && both[1].contains("is not needed any more"), "{both:?}");
    }

    #[test]
    fn the_workspace_keeps_the_rules() {
        check(&crate::root().unwrap()).unwrap();
    }
}
