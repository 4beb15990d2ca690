//! The modules of a crate, one for each file.

use std::path::Path;

use anyhow::Context;
use syn::Meta;
use syn::punctuated::Punctuated;

/// A module with a file of its own.
pub(super) struct Module {
    /// Its path in the crate: empty for the root, `["engine", "table"]` for `engine/table.rs`.
    pub(super) path: Vec<String>,
    /// The file, from the crate's source folder.
    pub(super) file: String,
    pub(super) syntax: syn::File,
}

/// Parses the modules of a crate, from its root along its `mod` items; those of tests are left out.
pub(super) fn read(source: &Path) -> anyhow::Result<Vec<Module>> {
    let roots = ["lib.rs", "main.rs"].map(str::to_owned);
    let root = roots.into_iter().find(|file| source.join(file).is_file());
    let root = root.with_context(|| format!("{} has no lib.rs or main.rs", source.display()))?;
    let mut modules = Vec::new();
    let mut open = vec![(Vec::new(), root)];
    while let Some((path, file)) = open.pop() {
        let text = std::fs::read_to_string(source.join(&file))
            .with_context(|| format!("read {}", source.join(&file).display()))?;
        let syntax = syn::parse_file(&text).with_context(|| format!("parse {file}"))?;
        for name in declared(&syntax.items) {
            let path: Vec<String> = [path.as_slice(), &[name]].concat();
            let stem = path.join("/");
            let file = [format!("{stem}.rs"), format!("{stem}/mod.rs")];
            let file = file.into_iter().find(|file| source.join(file).is_file());
            open.push((path, file.with_context(|| format!("find the file of module {stem}"))?));
        }
        modules.push(Module { path, file, syntax });
    }
    modules.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(modules)
}

/// Names of the modules that have files of their own.
fn declared(items: &[syn::Item]) -> Vec<String> {
    let modules = items.iter().filter_map(|item| match item {
        syn::Item::Mod(module) if module.content.is_none() && !is_test(&module.attrs) => {
            Some(module.ident.to_string())
        }
        _ => None,
    });
    modules.collect()
}

/// Whether an item exists only in tests: `#[test]`, or a `#[cfg]` that needs `test`.
pub(super) fn is_test(attributes: &[syn::Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        attribute.path().is_ident("test")
            || attribute.path().is_ident("cfg")
                && attribute.parse_args::<Meta>().is_ok_and(|condition| needs_test(&condition))
    })
}

fn needs_test(condition: &Meta) -> bool {
    match condition {
        Meta::Path(path) => path.is_ident("test"),
        Meta::List(list) => {
            let parser = Punctuated::<Meta, syn::Token![,]>::parse_terminated;
            let Ok(inner) = list.parse_args_with(parser) else { return false };
            (list.path.is_ident("all") && inner.iter().any(needs_test))
                || (list.path.is_ident("any") && inner.iter().all(needs_test))
        }
        Meta::NameValue(_) => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_needs_test_is_a_test() {
        let is = |attributes: &str| {
            let item: syn::ItemFn = syn::parse_str(&format!("{attributes} fn f() {{}}")).unwrap();
            is_test(&item.attrs)
        };
        for test in ["#[test]", "#[cfg(test)]", "#[cfg(all(unix, test))]", "#[cfg(any(test))]"] {
            assert!(is(test), "{test}");
        }
        for other in
            ["", "#[cfg(not(test))]", "#[cfg(any(test, unix))]", "#[cfg(feature = \"test\")]"]
        {
            assert!(!is(other), "{other}");
        }
    }
}
