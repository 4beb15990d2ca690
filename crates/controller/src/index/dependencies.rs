//! Which bindings need which other objects: what the templates of bindings with `propagateDeps` refer to.

use atoll_scheduler::detect::off_limits;

use super::key::{BindingKey, TemplateKey};
use super::rows::Binding;
use super::{Index, Touched};

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
                let template = self.templates.rows.get(&binding.template);
                template.and_then(|template| self.references(template)).map(|mut needs| {
                    needs.retain(|key, _| off_limits(key, &self.reserved).is_none());
                    needs
                })
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
            touched.waiting.extend(self.parents(template).cloned());
        }
    }

    fn propagates(&self, binding: &Binding) -> bool {
        binding.spec.propagate_deps && self.refusal(binding).is_none()
    }
}
