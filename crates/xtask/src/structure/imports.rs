//! Which module of a crate imports which.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use proc_macro2::{TokenStream, TokenTree};
use syn::visit::{self, Visit};
use syn::{Attribute, Expr, ImplItem, Item, Stmt, UseTree, Visibility};

use super::modules::{Module, is_test};

/// Longest chain of re-exports that is followed.
const MOST_HOPS: usize = 16;

/// Where an import is written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Site {
    pub(super) file: String,
    pub(super) line: usize,
}

impl fmt::Display for Site {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.file, self.line)
    }
}

/// The modules that each module imports, with the first place of each. Modules are named by their path, `engine::table`.
pub(super) type Imports = BTreeMap<String, BTreeMap<String, Site>>;

/// The imports between the modules of a crate.
///
/// A module is a file; modules that are written inline belong to their file. Module A imports module B if code of A
/// that is not only for tests names something that B defines: in a `use`, or by a path such as `crate::b::f()` or
/// `super::T`, also inside the call of a macro.
///
/// * A name that only passes through a module leads to the module that defines it: a re-export, or an import of the
///   parent that a child reaches by `super::`.
/// * A parent may declare its children (`mod b;`) and re-export what they define (`pub use b::T;`) without importing
///   them. It imports a child when its own code uses it.
///
/// A circle of imports is a set of at least two modules each of which reaches all others along such imports.
pub(super) fn of(modules: &[Module]) -> Imports {
    let index = Index::new(modules);
    let mut imports = Imports::new();
    for module in modules {
        let mut reader = Reader { index: &index, module, inline: 0, found: BTreeMap::new() };
        reader.visit_file(&module.syntax);
        imports.insert(module.path.join("::"), reader.found);
    }
    imports
}

/// The names in a module's file.
#[derive(Debug, Default)]
struct Names {
    /// Modules below it with files of their own.
    children: BTreeSet<String>,
    /// What it defines.
    items: BTreeSet<String>,
    /// The path of what it imports, by the name that it has here.
    imports: BTreeMap<String, Vec<String>>,
    /// Modules of which it imports everything.
    globs: Vec<Vec<String>>,
}

impl Names {
    fn has(&self, name: &str) -> bool {
        self.children.contains(name) || self.items.contains(name) || self.imports.contains_key(name)
    }
}

struct Index(BTreeMap<Vec<String>, Names>);

impl Index {
    fn new(modules: &[Module]) -> Self {
        let mut index: BTreeMap<Vec<String>, Names> = BTreeMap::new();
        for module in modules {
            let names = index.entry(module.path.clone()).or_default();
            for item in module.syntax.items.iter().filter(|item| !is_test(item_attrs(item))) {
                match item {
                    Item::Use(item) => {
                        for leaf in leaves(&item.tree) {
                            match leaf.name {
                                Some(name) => drop(names.imports.insert(name, leaf.path)),
                                None => names.globs.push(leaf.path),
                            }
                        }
                    }
                    item => names.items.extend(name_of(item)),
                }
            }
            if let Some((name, parent)) = module.path.split_last() {
                index.entry(parent.to_vec()).or_default().children.insert(name.clone());
            }
        }
        Self(index)
    }

    /// The module that defines what `path` means in module `from`; `None` for what is not of this crate.
    fn resolve(&self, from: &[String], path: &[String], hops: usize) -> Option<Vec<String>> {
        let mut at = from.to_vec();
        let mut rest = path;
        match path.first()?.as_str() {
            "crate" => {
                at.clear();
                rest = &rest[1..];
            }
            "self" => rest = &rest[1..],
            "super" => {
                while let Some((_, tail)) = rest.split_first().filter(|(name, _)| *name == "super")
                {
                    at.pop()?;
                    rest = tail;
                }
            }
            name if self.0.get(&at)?.has(name) => {}
            _ => return self.by_globs(&at, rest, hops),
        }
        while let Some((name, tail)) = rest.split_first() {
            let names = self.0.get(&at)?;
            if names.children.contains(name) {
                at.push(name.clone());
                rest = tail;
            } else if names.items.contains(name) {
                return Some(at);
            } else if let Some(target) = names.imports.get(name) {
                let target = [target.as_slice(), tail].concat();
                return self.resolve(&at, &target, hops.checked_sub(1)?);
            } else {
                // Otherwise a macro made it.
                return self.by_globs(&at, rest, hops).or(Some(at));
            }
        }
        Some(at)
    }

    fn by_globs(&self, at: &[String], rest: &[String], hops: usize) -> Option<Vec<String>> {
        let hops = hops.checked_sub(1)?;
        self.0.get(at)?.globs.iter().find_map(|glob| {
            let module = self.resolve(at, glob, hops)?;
            let known = self.0.get(&module)?.has(rest.first()?);
            known.then(|| self.resolve(&module, rest, hops)).flatten()
        })
    }
}

/// One name that a `use` imports.
struct Leaf {
    path: Vec<String>,
    /// The name here; `None` for everything (`*`).
    name: Option<String>,
    line: usize,
}

fn leaves(tree: &UseTree) -> Vec<Leaf> {
    fn walk(tree: &UseTree, before: &[String], leaves: &mut Vec<Leaf>) {
        let line = |name: &syn::Ident| name.span().start().line;
        let to = |name: &syn::Ident| match name == "self" && !before.is_empty() {
            true => before.to_vec(),
            false => [before, &[name.to_string()]].concat(),
        };
        match tree {
            UseTree::Path(path) => walk(&path.tree, &to(&path.ident), leaves),
            UseTree::Name(name) => {
                let (path, line) = (to(&name.ident), line(&name.ident));
                leaves.push(Leaf { name: path.last().cloned(), path, line });
            }
            UseTree::Rename(name) => {
                let (path, line) = (to(&name.ident), line(&name.ident));
                leaves.push(Leaf { path, name: Some(name.rename.to_string()), line });
            }
            UseTree::Glob(star) => {
                let line = star.star_token.span.start().line;
                leaves.push(Leaf { path: before.to_vec(), name: None, line });
            }
            UseTree::Group(group) => group.items.iter().for_each(|tree| walk(tree, before, leaves)),
        }
    }
    let mut found = Vec::new();
    walk(tree, &[], &mut found);
    found
}

/// Collects the imports of a file.
struct Reader<'a> {
    index: &'a Index,
    module: &'a Module,
    /// Inline modules around the current code: as many `super` stay in the file.
    inline: usize,
    found: BTreeMap<String, Site>,
}

impl Reader<'_> {
    fn path(&mut self, path: &[String], line: usize) -> Option<Vec<String>> {
        let supers = path.iter().take_while(|name| *name == "super").count();
        let own = supers.min(self.inline);
        let path: Vec<String> = match own {
            0 => path.to_vec(),
            _ if own == supers => {
                std::iter::once("self".to_owned()).chain(path[own..].iter().cloned()).collect()
            }
            _ => path[own..].to_vec(),
        };
        let to = self.index.resolve(&self.module.path, &path, MOST_HOPS)?;
        let site = Site { file: self.module.file.clone(), line };
        if to != self.module.path {
            self.found.entry(to.join("::")).or_insert(site);
        }
        Some(to)
    }

    /// A path in code. A single name counts only if it was imported: others are local.
    fn code(&mut self, path: &[String], line: usize) {
        let names = self.index.0.get(&self.module.path);
        let counts = |name: &str| names.is_some_and(|names| names.imports.contains_key(name));
        if path.len() > 1 || path.first().is_some_and(|name| counts(name)) {
            self.path(path, line);
        }
    }

    /// The paths in the call of a macro, whose syntax is not known.
    fn tokens(&mut self, tokens: TokenStream) {
        let (mut path, mut line, mut colons) = (Vec::new(), 0, 0);
        for token in tokens {
            match token {
                TokenTree::Ident(name) => {
                    if colons != 2 {
                        self.code(&std::mem::take(&mut path), line);
                        line = name.span().start().line;
                    }
                    path.push(name.to_string());
                    colons = 0;
                }
                TokenTree::Punct(punct) if punct.as_char() == ':' => colons += 1,
                other => {
                    self.code(&std::mem::take(&mut path), line);
                    colons = 0;
                    if let TokenTree::Group(group) = other {
                        self.tokens(group.stream());
                    }
                }
            }
        }
        self.code(&path, line);
    }
}

impl<'ast> Visit<'ast> for Reader<'_> {
    fn visit_item(&mut self, item: &'ast Item) {
        if !is_test(item_attrs(item)) {
            visit::visit_item(self, item);
        }
    }

    fn visit_item_mod(&mut self, item: &'ast syn::ItemMod) {
        self.inline += 1;
        visit::visit_item_mod(self, item);
        self.inline -= 1;
    }

    fn visit_item_use(&mut self, item: &'ast syn::ItemUse) {
        let private = matches!(item.vis, Visibility::Inherited);
        for leaf in leaves(&item.tree) {
            let before = self.found.clone();
            let Some(to) = self.path(&leaf.path, leaf.line) else { continue };
            if !private && to.starts_with(&self.module.path) {
                self.found = before;
            }
        }
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        if path.leading_colon.is_none() {
            let names: Vec<String> = path.segments.iter().map(|s| s.ident.to_string()).collect();
            let first = path.segments.first();
            self.code(&names, first.map_or(0, |first| first.ident.span().start().line));
        }
        visit::visit_path(self, path);
    }

    fn visit_macro(&mut self, call: &'ast syn::Macro) {
        visit::visit_macro(self, call);
        self.tokens(call.tokens.clone());
    }

    fn visit_impl_item(&mut self, item: &'ast ImplItem) {
        let attributes = match item {
            ImplItem::Const(item) => &item.attrs,
            ImplItem::Fn(item) => &item.attrs,
            ImplItem::Type(item) => &item.attrs,
            ImplItem::Macro(item) => &item.attrs,
            _ => return,
        };
        if !is_test(attributes) {
            visit::visit_impl_item(self, item);
        }
    }

    fn visit_stmt(&mut self, statement: &'ast Stmt) {
        let attributes = match statement {
            Stmt::Local(local) => &local.attrs[..],
            Stmt::Macro(call) => &call.attrs,
            Stmt::Expr(expression, _) => expr_attrs(expression),
            Stmt::Item(_) => &[],
        };
        if !is_test(attributes) {
            visit::visit_stmt(self, statement);
        }
    }

    fn visit_arm(&mut self, arm: &'ast syn::Arm) {
        if !is_test(&arm.attrs) {
            visit::visit_arm(self, arm);
        }
    }

    fn visit_field(&mut self, field: &'ast syn::Field) {
        if !is_test(&field.attrs) {
            visit::visit_field(self, field);
        }
    }

    /// `pub(in path)` imports nothing.
    fn visit_visibility(&mut self, _: &'ast Visibility) {}

    fn visit_attribute(&mut self, _: &'ast Attribute) {}
}

fn item_attrs(item: &Item) -> &[Attribute] {
    match item {
        Item::Const(item) => &item.attrs,
        Item::Enum(item) => &item.attrs,
        Item::Fn(item) => &item.attrs,
        Item::Impl(item) => &item.attrs,
        Item::Macro(item) => &item.attrs,
        Item::Mod(item) => &item.attrs,
        Item::Static(item) => &item.attrs,
        Item::Struct(item) => &item.attrs,
        Item::Trait(item) => &item.attrs,
        Item::Type(item) => &item.attrs,
        Item::Union(item) => &item.attrs,
        Item::Use(item) => &item.attrs,
        _ => &[],
    }
}

/// The name that an item defines in its module.
fn name_of(item: &Item) -> Option<String> {
    let name = match item {
        Item::Const(item) => &item.ident,
        Item::Enum(item) => &item.ident,
        Item::Fn(item) => &item.sig.ident,
        Item::Macro(item) => item.ident.as_ref()?,
        Item::Mod(item) if item.content.is_some() => &item.ident,
        Item::Static(item) => &item.ident,
        Item::Struct(item) => &item.ident,
        Item::Trait(item) => &item.ident,
        Item::Type(item) => &item.ident,
        Item::Union(item) => &item.ident,
        _ => return None,
    };
    Some(name.to_string())
}

/// Attributes of the expressions that a statement can be.
fn expr_attrs(expression: &Expr) -> &[Attribute] {
    match expression {
        Expr::Assign(expr) => &expr.attrs,
        Expr::Block(expr) => &expr.attrs,
        Expr::Call(expr) => &expr.attrs,
        Expr::ForLoop(expr) => &expr.attrs,
        Expr::If(expr) => &expr.attrs,
        Expr::Loop(expr) => &expr.attrs,
        Expr::Macro(expr) => &expr.attrs,
        Expr::Match(expr) => &expr.attrs,
        Expr::MethodCall(expr) => &expr.attrs,
        Expr::Return(expr) => &expr.attrs,
        Expr::While(expr) => &expr.attrs,
        _ => &[],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The imports of a crate with these modules, as `from -> to`.
    fn found(files: &[(&str, &str)]) -> Vec<String> {
        let modules: Vec<Module> = files
            .iter()
            .map(|(path, text)| Module {
                path: path.split("::").filter(|name| !name.is_empty()).map(str::to_owned).collect(),
                file: format!("{path}.rs"),
                syntax: syn::parse_file(text).unwrap(),
            })
            .collect();
        let edges = of(&modules).into_iter().flat_map(|(from, to)| {
            to.into_keys().map(move |to| format!("{from} -> {to}")).collect::<Vec<_>>()
        });
        edges.collect()
    }

    #[test]
    fn uses_and_paths_import_also_in_macros_and_tests_do_not() {
        let a = "use crate::b::{B, other as o};\n\
                 fn f() { super::c::run(); }\n\
                 fn g() { tokio::select! { x = async { crate::d::D::new(y) } => {} } }\n\
                 #[cfg(test)] use crate::e::E;\n\
                 #[cfg(test)] mod tests { use crate::e::E; }\n\
                 fn h() { #[cfg(test)] if crate::e::is() {} let b = B { x: 1 }; }";
        let modules = [
            ("", "mod a; mod b; mod c; mod d; mod e;"),
            ("a", a),
            ("b", "pub struct B; pub fn other() {} use std::fmt; use serde::b::B as S;"),
            ("c", "pub fn run() {}"),
            ("d", "pub struct D;"),
            ("e", "pub struct E;"),
        ];
        assert_eq!(found(&modules), ["a -> b", "a -> c", "a -> d"]);
    }

    #[test]
    fn a_parent_that_declares_and_re_exports_imports_nothing_and_names_lead_through_it() {
        let modules = [
            ("", "mod p; mod q;"),
            (
                "p",
                "mod one; mod two; pub use one::One; pub(crate) use self::two::*; use std::time::Instant;",
            ),
            ("p::one", "use super::{Instant, Two}; pub struct One;"),
            ("p::two", "pub struct Two;"),
            ("q", "use crate::p::{self, One}; fn f() -> p::Two {}"),
        ];
        let expected = ["p::one -> p::two", "q -> p", "q -> p::one", "q -> p::two"];
        assert_eq!(found(&modules), expected);
        // Its own code uses a child: by a private import, by a path, or by the name that it re-exports.
        for code in
            ["use one::One;", "pub use one::One; fn f() { One::new() }", "fn f() { one::f() }"]
        {
            let parent = format!("mod one; {code}");
            let modules = [("", "mod p;"), ("p", parent.as_str()), ("p::one", "pub struct One;")];
            assert_eq!(found(&modules), ["p -> p::one"], "{code}");
        }
    }

    #[test]
    fn inline_modules_belong_to_their_file() {
        let a =
            "pub struct A; pub mod inner { use super::A; use super::super::b::B; pub struct I; }";
        let modules =
            [("", "mod a; mod b;"), ("a", a), ("b", "pub struct B; use crate::a::inner::I;")];
        assert_eq!(found(&modules), ["a -> b", "b -> a"]);
    }
}
