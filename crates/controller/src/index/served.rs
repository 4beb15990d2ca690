//! The kinds of the hub that `kind: "*"` selects, and the policies that do so.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde_json::Value;

use super::key::{GroupKind, PolicyKey, TemplateKey};
use super::rows::Policy;
use super::secondary::{add, remove};
use super::{Index, Source, Touched};
use atoll_scheduler::detect::ServedKinds;

impl Index {
    /// Whether a policy selects every kind.
    #[must_use]
    pub fn selects_every_kind(&self) -> bool {
        !self.by.policies_for_every_kind.is_empty()
    }

    /// Policies with a selector for every kind.
    pub(super) fn policies_for_every_kind(&self) -> impl Iterator<Item = &Arc<Policy>> {
        let keys = self.by.policies_for_every_kind.values().flatten();
        keys.filter_map(|key| self.policies.get(key))
    }

    /// Policies that may select an object: those of its namespace, and those without one.
    pub fn policies_for(&self, key: &TemplateKey) -> impl Iterator<Item = &Arc<Policy>> {
        let namespace = key.namespace();
        let first = |namespace| PolicyKey { namespace, name: String::new() };
        let kind = key.group_kind().to_owned();
        let of_kind = self.by.policies_by_kind.get(&kind);
        let named = of_kind.into_iter().flat_map(move |named| {
            // Keys without a namespace come first. The first of a namespace follows the last of the one before.
            let global = named.range(..first(Some(String::new())));
            let own = namespace.into_iter().flat_map(move |namespace| {
                let of = named.range(first(Some(namespace.to_owned()))..);
                of.take_while(move |policy| policy.namespace.as_deref() == Some(namespace))
            });
            global.chain(own)
        });
        let every = namespace.and_then(|namespace| self.by.policies_for_every_kind.get(namespace));
        let every = every.filter(|_| self.templates.served.selects(&kind));
        let unnamed =
            move |policy: &&PolicyKey| of_kind.is_none_or(|named| !named.contains(policy));
        let every = every.into_iter().flatten().filter(unnamed);
        named.chain(every).filter_map(|key| self.policies.get(key))
    }

    /// Policies with a selector for this kind or for every kind.
    pub fn policies_of(&self, kind: &GroupKind) -> impl Iterator<Item = &Arc<Policy>> {
        let named = self.by.policies_by_kind.get(kind).into_iter().flatten();
        let named = named.filter_map(|key| self.policies.get(key));
        named.chain(self.policies_for_every_kind())
    }

    /// The kinds that the selectors of a policy select.
    #[must_use]
    pub fn kinds_of(&self, policy: &Policy) -> BTreeSet<GroupKind> {
        let mut kinds: BTreeSet<GroupKind> = policy.named_kinds().cloned().collect();
        if policy.selects_every_kind() {
            kinds.extend(self.templates.served.selected().map(|(kind, _)| kind.clone()));
        }
        kinds
    }

    /// Why the list of kinds is missing, if so.
    #[must_use]
    pub fn kinds_unread(&self) -> Option<String> {
        let reading = self.reading(&Source::Kinds);
        match (reading.unreadable, reading.complete) {
            (Some(why), _) => Some(why),
            (None, true) => None,
            (None, false) => Some("they have not been listed yet".to_owned()),
        }
    }

    /// Kinds of the hub that `kind: "*"` leaves out because there are too many.
    pub fn kinds_beyond_limit(&self) -> impl Iterator<Item = &GroupKind> {
        self.templates.served.beyond_limit()
    }

    /// The list of kinds is no longer read.
    pub fn forget_served(&mut self) {
        self.templates.served = ServedKinds::default();
        self.readings.remove(&Source::Kinds);
    }

    pub(super) fn link_every_kind(&mut self, key: &PolicyKey, policy: Option<&Policy>) {
        let Some(namespace) = &key.namespace else { return };
        let by_namespace = &mut self.by.policies_for_every_kind;
        match policy.is_some_and(Policy::selects_every_kind) {
            true => add(by_namespace, namespace.clone(), key.clone()),
            false => remove(by_namespace, namespace, key),
        }
    }

    pub(super) fn put_served(&mut self, object: &Value, touched: &mut Touched) {
        let (Some(api_version), Some(kind)) =
            (object["apiVersion"].as_str(), object["kind"].as_str())
        else {
            return;
        };
        let version = api_version.rsplit_once('/').map_or(api_version, |(_, version)| version);
        let kind = GroupKind::of(api_version, kind);
        // Every listing repeats all of them.
        if self.templates.served.version(&kind) == Some(version) {
            return;
        }
        self.change_served(touched, |served| served.insert(kind, version.to_owned()));
    }

    pub(super) fn take_served(&mut self, name: &str, touched: &mut Touched) {
        let (kind, group) = name.split_once('.').unwrap_or((name, ""));
        let kind = GroupKind { group: group.to_owned(), kind: kind.to_owned() };
        self.change_served(touched, |served| served.remove(&kind));
    }

    fn change_served(&mut self, touched: &mut Touched, change: impl FnOnce(&mut ServedKinds)) {
        let selected = |served: &ServedKinds| -> BTreeMap<GroupKind, String> {
            let rows = served.selected();
            rows.map(|(kind, version)| (kind.clone(), version.to_owned())).collect()
        };
        let before = selected(&self.templates.served);
        let count = self.templates.served.len();
        change(&mut self.templates.served);
        let now = selected(&self.templates.served);
        if before == now && count == self.templates.served.len() {
            return;
        }
        touched.kinds = true;
        touched.policies.extend(self.policies_for_every_kind().map(|policy| policy.key.clone()));
        // A kind that other policies name is watched already.
        let changed = before.iter().chain(&now).map(|(kind, _)| kind);
        let changed: BTreeSet<_> =
            changed.filter(|kind| before.get(*kind) != now.get(*kind)).collect();
        for template in changed.into_iter().flat_map(|kind| self.templates_of(kind)) {
            touched.keys.insert(template.key.binding());
        }
    }
}
