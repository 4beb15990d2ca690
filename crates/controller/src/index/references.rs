//! What the templates of bindings with `propagateDeps` refer to.

use std::collections::{BTreeMap, BTreeSet};

use super::key::{BindingKey, GroupKind, TemplateKey};
use super::rows::Binding;
use super::secondary::{add, count, remove};

/// The references: a function of the rows of bindings and templates.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Dependencies {
    /// The objects that a binding's template refers to, with the version of their kind.
    pub(super) needs: BTreeMap<BindingKey, BTreeMap<TemplateKey, String>>,
    pub(super) parents: BTreeMap<TemplateKey, BTreeSet<BindingKey>>,
    /// Bindings whose `requiredBy` names this one.
    pub(super) required: BTreeMap<BindingKey, BTreeSet<BindingKey>>,
    /// Kinds and versions, with the number of references.
    kinds: BTreeMap<(GroupKind, String), usize>,
}

impl Dependencies {
    /// The kinds that are referred to, with their versions.
    pub(super) fn kinds(&self) -> impl Iterator<Item = &(GroupKind, String)> {
        self.kinds.keys()
    }

    /// A binding row was added or removed: follows its `requiredBy`.
    pub(super) fn link(&mut self, binding: &Binding, present: bool) {
        for by in &binding.spec.required_by {
            let parent = BindingKey::of(by.namespace.as_deref(), &by.name);
            match present {
                true => add(&mut self.required, parent, binding.key.clone()),
                false => remove(&mut self.required, &parent, &binding.key),
            }
        }
    }

    /// Bindings whose templates refer to objects of a kind.
    pub(super) fn on_kind<'a>(
        &'a self,
        kind: &'a GroupKind,
    ) -> impl Iterator<Item = &'a BindingKey> {
        let first = TemplateKey::new(kind.borrowed(), None, "");
        let objects =
            self.parents.range(first..).take_while(move |(object, _)| object.group_kind() == *kind);
        objects.flat_map(|(_, parents)| parents)
    }

    /// Sets what a binding needs; `None` if it is gone or needs nothing. Returns what it needed before and needs now.
    pub(super) fn set(
        &mut self,
        key: &BindingKey,
        needs: Option<BTreeMap<TemplateKey, String>>,
    ) -> Option<BTreeSet<TemplateKey>> {
        if self.needs.get(key) == needs.as_ref() {
            return None;
        }
        let before = self.needs.remove(key).unwrap_or_default();
        let now = needs.clone().unwrap_or_default();
        for (needed, version) in &before {
            remove(&mut self.parents, needed, key);
            count(&mut self.kinds, (needed.group_kind().to_owned(), version.clone()), false);
        }
        for (needed, version) in &now {
            add(&mut self.parents, needed.clone(), key.clone());
            count(&mut self.kinds, (needed.group_kind().to_owned(), version.clone()), true);
        }
        if let Some(needs) = needs {
            self.needs.insert(key.clone(), needs);
        }
        Some(before.into_keys().chain(now.into_keys()).collect())
    }
}
