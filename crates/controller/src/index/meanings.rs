//! What users' rules say about templates. Rules take too long for the index, so jobs ask them, and the answers are kept
//! here until the template or the rules change.

use std::collections::BTreeMap;

use atoll_api::Shared;
use atoll_api::customization::Operation;
use atoll_customize::Dependency;

use super::extract::Demand;
use super::key::{GroupKind, KindRef, TemplateKey};
use super::rows::Binding;
use super::rules::Meaning;
use super::template::Template;
use super::{Index, Touched};

impl Index {
    /// Whether the rules of users have answered for this version of a template.
    #[must_use]
    pub fn is_interpreted(&self, template: &Template) -> bool {
        let Some(rules) = self.rules().deciding(template.kind()) else { return true };
        self.customizations.meanings.get(&template.key).is_some_and(|meaning| {
            meaning.rules == Some(rules) && meaning.content == template.content()
        })
    }

    /// Stores what users' rules say about a template.
    pub fn set_meaning(&mut self, key: &TemplateKey, meaning: Meaning) -> Touched {
        let mut touched = Touched::default();
        if self.templates.rows.contains_key(key) {
            self.customizations.meanings.insert(key.clone(), meaning);
            self.relink_needs(&key.binding(), &mut touched);
        }
        touched
    }

    /// The replicas of a template, and what one of them needs. Where a rule failed, or has not answered yet, the answer
    /// that was committed stays: a mistake in a rule moves nothing.
    #[must_use]
    pub fn demand(&self, template: &Template, binding: Option<&Binding>) -> Demand {
        let has_rule = |operation| self.rules().handles(template.kind(), operation);
        let meaning = || self.customizations.meanings.get(&template.key);
        if has_rule(Operation::InterpretComponent) {
            match meaning().and_then(|meaning| meaning.components.as_ref()) {
                Some(said) if !said.is_empty() => return Demand::of_set(said.clone()),
                Some(_) => {}
                None => {
                    if let Some(committed) = Demand::committed(binding) {
                        return committed;
                    }
                }
            }
        }
        if has_rule(Operation::InterpretReplica) {
            if let Some(said) = meaning().and_then(|meaning| meaning.replicas.as_ref()) {
                let requirements = said.requirements.clone().map(Shared::from);
                let replicas = Some(said.replicas);
                return Demand { replicas, requirements, components: Vec::new() };
            }
            if let Some(committed) = Demand::committed(binding) {
                return committed;
            }
        }
        template.extract.demand.clone()
    }

    /// The objects that a template refers to, with the versions of their kinds. `None` while that is not known: what is
    /// committed stays then.
    #[must_use]
    pub fn references(&self, template: &Template) -> Option<BTreeMap<TemplateKey, String>> {
        if !self.rules().handles(template.kind(), Operation::InterpretDependency) {
            return Some(built_in(template));
        }
        let meaning = self.customizations.meanings.get(&template.key)?;
        if let Some(said) = &meaning.dependencies {
            let references = said.iter().filter_map(reference);
            return Some(references.collect());
        }
        let key = template.key.binding();
        let is_committed = self.dependencies.required.contains_key(&key);
        (!is_committed).then(|| built_in(template))
    }

    /// Has the rules asked again about a template. What they said stays in force until then.
    pub fn interpret_again(&mut self, key: &TemplateKey) {
        if let Some(meaning) = self.customizations.meanings.get_mut(key) {
            meaning.rules = None;
        }
    }

    pub(super) fn forget_meaning(&mut self, key: &TemplateKey) {
        self.customizations.meanings.remove(key);
    }

    /// The rules for a kind changed: its templates are interpreted and sent again.
    pub(super) fn touch_kind(&mut self, api_version: &str, kind: &str, touched: &mut Touched) {
        let kind = GroupKind::of(api_version, kind);
        let concerned = self.templates_of(&kind).filter(|row| row.api_version() == api_version);
        let keys: Vec<_> = concerned.map(|row| row.key.binding()).collect();
        for key in keys {
            self.relink_needs(&key, touched);
            touched.statuses.insert(key.clone());
            touched.keys.insert(key);
        }
    }
}

fn built_in(template: &Template) -> BTreeMap<TemplateKey, String> {
    let found = atoll_interpreter::dependencies(&template.object()).into_iter().map(|found| {
        let kind = KindRef::of(&found.api_version, &found.kind);
        let key = TemplateKey::new(kind, Some(&found.namespace), &found.name);
        (key, version(&found.api_version))
    });
    found.collect()
}

fn reference(found: &Dependency) -> Option<(TemplateKey, String)> {
    let kind = KindRef::of(&found.api_version, &found.kind);
    let key = TemplateKey::new(kind, found.namespace.as_deref(), found.name.as_deref()?);
    Some((key, version(&found.api_version)))
}

fn version(api_version: &str) -> String {
    api_version.rsplit_once('/').map_or(api_version, |(_, version)| version).to_owned()
}
