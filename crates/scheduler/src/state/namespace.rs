//! The bindings of one namespace, and their groups.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::affinity_group::{AffinityGroup, GroupMembers};
use super::binding_tree::BindingTree;
use super::change::TableChange;
use super::quotas::Quotas;
use super::tables::BindingFacts;
use atoll_decision::BindingKey;

/// The bindings of one namespace, and the groups of those that have any.
#[derive(Debug, Clone, Default)]
pub(super) struct Namespace {
    bindings: BindingTree,
    groups: Arc<BTreeMap<AffinityGroup, Arc<GroupMembers>>>,
    /// Its FederatedResourceQuotas and the use, if it has any.
    quotas: Option<Arc<Quotas>>,
}

impl Namespace {
    /// A namespace with these bindings and quotas, as a decision read them.
    pub(super) fn restored(
        bindings: impl Iterator<Item = Arc<BindingFacts>>,
        quotas: Option<Quotas>,
    ) -> Self {
        let mut namespace = Self { quotas: quotas.map(Arc::new), ..Self::default() };
        for facts in bindings {
            namespace.insert(facts.clone());
            namespace.regroup(None, Some(&facts));
        }
        namespace
    }

    pub(super) fn bindings(&self) -> impl Iterator<Item = &Arc<BindingFacts>> {
        self.bindings.iter()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.bindings.is_empty() && self.quotas.is_none()
    }

    pub(super) fn quotas(&self) -> Option<&Quotas> {
        self.quotas.as_deref()
    }

    pub(super) fn shared_quotas(&self) -> Option<Arc<Quotas>> {
        self.quotas.clone()
    }

    /// Changes the quotas. Returns whether anything changed.
    pub(super) fn change_quotas(&mut self, change: impl FnOnce(&mut Quotas)) -> bool {
        let mut quotas = match &self.quotas {
            Some(quotas) => (**quotas).clone(),
            None => {
                let mut quotas = Quotas::default();
                quotas.recount(self.bindings());
                quotas
            }
        };
        change(&mut quotas);
        let quotas = (!quotas.is_empty()).then_some(quotas);
        let changed = self.quotas.as_deref() != quotas.as_ref();
        self.quotas = quotas.map(Arc::new);
        changed
    }

    /// Updates the use from a binding's old facts to its new ones.
    pub(super) fn book_quotas(
        &mut self,
        old: Option<&BindingFacts>,
        new: Option<&BindingFacts>,
    ) -> Option<TableChange> {
        let quotas = Arc::make_mut(self.quotas.as_mut()?);
        let freed = quotas.book(old, new)?;
        let key = &new.or(old)?.key;
        let namespace = key.namespace().unwrap_or_default().to_owned();
        Some(TableChange::Quota { namespace, free: quotas.free(), freed })
    }

    pub(super) fn get(&self, key: &BindingKey) -> Option<&Arc<BindingFacts>> {
        self.bindings.get(key)
    }

    pub(super) fn group(&self, group: &AffinityGroup) -> Option<&Arc<GroupMembers>> {
        self.groups.get(group)
    }

    pub(super) fn insert(&mut self, facts: Arc<BindingFacts>) -> Option<Arc<BindingFacts>> {
        self.bindings.insert(facts)
    }

    pub(super) fn remove(&mut self, key: &BindingKey) -> Option<Arc<BindingFacts>> {
        self.bindings.remove(key)
    }

    /// Updates the groups of a binding from its old facts to its new ones. Returns the groups whose members or clusters
    /// changed.
    pub(super) fn regroup(
        &mut self,
        old: Option<&Arc<BindingFacts>>,
        new: Option<&Arc<BindingFacts>>,
    ) -> Vec<TableChange> {
        let none = |facts: Option<&Arc<BindingFacts>>| facts.is_none_or(|f| f.groups.is_empty());
        if none(old) && none(new) {
            return Vec::new();
        }
        let names = |facts: &Arc<BindingFacts>| {
            facts.shares.iter().map(|share| share.name.clone()).collect::<Vec<_>>()
        };
        let alike = |(old, new): (&Arc<BindingFacts>, &Arc<BindingFacts>)| {
            old.groups == new.groups && names(old) == names(new)
        };
        // Groups use the names of clusters only, so reports of members do not change them.
        if old.zip(new).is_some_and(alike) {
            return Vec::new();
        }
        let Some(key) = new.or(old).map(|facts| facts.key.clone()) else { return Vec::new() };
        let all = Arc::make_mut(&mut self.groups);
        let mut changed: Vec<AffinityGroup> = Vec::new();
        for (facts, joins) in old.map(|f| (f, false)).into_iter().chain(new.map(|f| (f, true))) {
            for of in facts.groups.iter() {
                let members = Arc::make_mut(all.entry(of.group.clone()).or_default());
                if joins {
                    members.add(facts, of.required);
                } else {
                    members.take(facts, of.required);
                }
                if !changed.contains(&of.group) {
                    changed.push(of.group.clone());
                }
            }
        }
        for group in &changed {
            if all.get(group).is_some_and(|members| members.is_empty()) {
                all.remove(group);
            }
        }
        let change = |group| TableChange::AffinityGroup { key: key.clone(), group };
        changed.into_iter().map(change).collect()
    }
}
