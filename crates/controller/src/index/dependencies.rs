//! Which bindings need which other objects: what the templates of bindings with `propagateDeps` refer to.

use std::collections::{BTreeMap, BTreeSet};

use atoll_scheduler::detect::off_limits;

use super::key::{BindingKey, GroupKind, TemplateKey};
use super::rows::{Binding, Template};
use super::secondary::{add, count, remove};
use super::{Index, Touched};

/// The references: a function of the rows of bindings and templates.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Dependencies {
    /// The objects that a binding's template refers to, with the version of their kind.
    needs: BTreeMap<BindingKey, BTreeMap<TemplateKey, String>>,
    parents: BTreeMap<TemplateKey, BTreeSet<BindingKey>>,
    /// Bindings whose `requiredBy` names this one.
    required: BTreeMap<BindingKey, BTreeSet<BindingKey>>,
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
            let parent = BindingKey { namespace: by.namespace.clone(), name: by.name.clone() };
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
        let first = TemplateKey { kind: kind.clone(), namespace: None, name: String::new() };
        let objects =
            self.parents.range(first..).take_while(move |(object, _)| object.kind == *kind);
        objects.flat_map(|(_, parents)| parents)
    }

    /// Sets what a binding needs; `None` if it is gone or needs nothing. Returns what it needed before and needs now.
    fn set(
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
            count(&mut self.kinds, (needed.kind.clone(), version.clone()), false);
        }
        for (needed, version) in &now {
            add(&mut self.parents, needed.clone(), key.clone());
            count(&mut self.kinds, (needed.kind.clone(), version.clone()), true);
        }
        if let Some(needs) = needs {
            self.needs.insert(key.clone(), needs);
        }
        Some(before.into_keys().chain(now.into_keys()).collect())
    }
}

impl Index {
    /// What a binding's template refers to; `None` if the binding has no `propagateDeps`, or its template is not known.
    pub fn needs(&self, key: &BindingKey) -> Option<impl Iterator<Item = &TemplateKey>> {
        Some(self.dependencies.needs.get(key)?.keys())
    }

    /// Bindings whose templates refer to this object.
    pub fn parents(&self, needed: &TemplateKey) -> impl Iterator<Item = &BindingKey> {
        self.dependencies.parents.get(needed).into_iter().flatten()
    }

    /// Brings a binding's references up to date, after it or its template changed.
    pub(super) fn relink_needs(&mut self, key: &BindingKey, touched: &mut Touched) {
        let needs = match self.bindings.get(key) {
            Some(binding) if self.propagates(binding) => {
                self.templates.get(&binding.template()).map(|template| self.references(template))
            }
            _ => None,
        };
        if let Some(changed) = self.dependencies.set(key, needs) {
            touched.kinds = true;
            touched.keys.extend(changed.iter().map(TemplateKey::binding));
            touched.keys.insert(key.clone());
        }
    }

    /// A binding changed: where it runs, others are needed; where it is, those that need it may run.
    pub(super) fn touch_related(&self, key: &BindingKey, touched: &mut Touched) {
        let needs = self.dependencies.needs.get(key).into_iter().flatten();
        touched.keys.extend(needs.map(|(needed, _)| needed.binding()));
        touched.keys.extend(self.dependencies.required.get(key).into_iter().flatten().cloned());
        if let Some(template) = self.template_for(key) {
            touched.waiting.extend(self.parents(&template).cloned());
        }
    }

    fn references(&self, template: &Template) -> BTreeMap<TemplateKey, String> {
        let found = atoll_interpreter::dependencies(&template.object).into_iter().map(|found| {
            let kind = GroupKind::of(&found.api_version, &found.kind);
            let version =
                found.api_version.rsplit_once('/').map_or(&*found.api_version, |v| v.1).to_owned();
            (TemplateKey { kind, namespace: Some(found.namespace), name: found.name }, version)
        });
        found.filter(|(key, _)| off_limits(key, &self.reserved).is_none()).collect()
    }

    fn propagates(&self, binding: &Binding) -> bool {
        binding.spec.propagate_deps && self.refusal(binding).is_none()
    }
}
