//! Namespaces of the hub, and the ClusterSets that limit which clusters they may use.

use std::collections::BTreeMap;
use std::sync::Arc;

use atoll_api::ClusterSet;
use atoll_scheduler::state::cluster_sets::{ClusterSets, Reach};
use serde::Deserialize;
use serde_json::Value;

use super::key::{BindingKey, TemplateKey};
use super::rows::{Namespace, Policy, RowError};
use super::secondary::name_of;
use super::{Index, Touched};

impl Index {
    /// Sets whether namespaces that no ClusterSet selects may use no cluster; before the first object arrives.
    pub fn require_cluster_sets(&mut self, required: bool) {
        Arc::make_mut(&mut self.tenancy.rules).require(required);
    }

    /// Which clusters namespaces may use.
    #[must_use]
    pub fn cluster_rules(&self) -> &Arc<ClusterSets> {
        &self.tenancy.rules
    }

    /// Whether objects of a namespace may be sent to a cluster for the first time. While information is missing, what
    /// was decided earlier is sent.
    #[must_use]
    pub fn may_use(&self, namespace: Option<&str>, cluster: &str) -> bool {
        match self.tenancy.rules.reach(namespace) {
            Reach::All => true,
            Reach::Sets(sets) if sets.uncertain => true,
            reach @ Reach::Sets(_) => {
                let cluster = self.cluster(cluster);
                let labels = cluster.and_then(|cluster| cluster.metadata.labels.as_ref());
                reach.has(labels.unwrap_or(&BTreeMap::new()))
            }
        }
    }

    /// Labels of an object's namespace, if they are known.
    #[must_use]
    pub fn namespace_labels(&self, key: &TemplateKey) -> Option<&BTreeMap<String, String>> {
        self.tenancy.rules.labels(key.namespace()?)
    }

    /// Labels of all namespaces.
    pub fn all_namespace_labels(&self) -> impl Iterator<Item = (&str, BTreeMap<String, String>)> {
        let all = self.tenancy.namespaces.iter();
        all.map(|(name, row)| (name.as_str(), row.labels.clone()))
    }

    /// A namespace of the hub.
    #[must_use]
    pub fn namespace(&self, name: &str) -> Option<&Namespace> {
        self.tenancy.namespaces.get(name)
    }

    /// A ClusterSet.
    #[must_use]
    pub fn cluster_set(&self, name: &str) -> Option<&Arc<ClusterSet>> {
        self.tenancy.sets.get(name)
    }

    /// Names of all ClusterSets.
    pub fn cluster_sets(&self) -> impl Iterator<Item = &String> {
        self.tenancy.sets.keys()
    }

    pub(super) fn put_namespace(&mut self, object: &Arc<Value>, touched: &mut Touched) {
        let name = name_of(object).1;
        let row = Namespace::read(&name, object);
        let now = row.labels.clone();
        let before = self.tenancy.namespaces.insert(name.clone(), row);
        if before.is_none_or(|before| before.labels != now) {
            self.change_namespace(&name, |rules| rules.set_namespace(&name, Some(now)), touched);
        }
    }

    pub(super) fn take_namespace(&mut self, name: &str, touched: &mut Touched) {
        if self.tenancy.namespaces.remove(name).is_some() {
            self.change_namespace(name, |rules| rules.set_namespace(name, None), touched);
        }
    }

    fn change_namespace(
        &mut self,
        name: &str,
        change: impl FnOnce(&mut ClusterSets),
        touched: &mut Touched,
    ) {
        let before = self.tenancy.rules.reach(Some(name));
        change(Arc::make_mut(&mut self.tenancy.rules));
        touched.tenancy.rules = true;
        self.touch_cluster_sets(touched);
        let by_labels = |policy: &&Arc<Policy>| policy.namespaces.is_some();
        let policies: Vec<_> =
            self.policies().filter(by_labels).map(|policy| policy.key.clone()).collect();
        if self.tenancy.rules.reach(Some(name)) != before || !policies.is_empty() {
            self.touch_namespace(name, touched);
        }
        touched.policies.extend(policies);
    }

    pub(super) fn put_cluster_set(
        &mut self,
        object: &Value,
        touched: &mut Touched,
    ) -> Result<(), RowError> {
        let set = ClusterSet::deserialize(object).map_err(|e| RowError::Shape(e.to_string()))?;
        let name = name_of(object).1;
        let set = Arc::new(set);
        let before = self.tenancy.sets.insert(name.clone(), set.clone());
        touched.tenancy.sets.insert(name.clone());
        if before.is_none_or(|before| before.spec != set.spec) {
            self.change_set(
                |rules| {
                    // The set's condition and the decisions say what is wrong with an invalid one.
                    let _: Result<(), String> = rules.upsert(&name, &set);
                },
                touched,
            );
        }
        Ok(())
    }

    pub(super) fn take_cluster_set(&mut self, name: &str, touched: &mut Touched) {
        if self.tenancy.sets.remove(name).is_some() {
            touched.tenancy.sets.insert(name.to_owned());
            self.change_set(|rules| rules.remove(name), touched);
        }
    }

    fn change_set(&mut self, change: impl FnOnce(&mut ClusterSets), touched: &mut Touched) {
        let before = self.tenancy.rules.clone();
        change(Arc::make_mut(&mut self.tenancy.rules));
        touched.tenancy.rules = true;
        for namespace in before.differing(&self.tenancy.rules, before.namespaces()) {
            self.touch_namespace(&namespace, touched);
        }
    }

    /// The statuses of all ClusterSets may change.
    pub(super) fn touch_cluster_sets(&self, touched: &mut Touched) {
        touched.tenancy.sets.extend(self.tenancy.sets.keys().cloned());
    }

    /// Bindings that exist because others refer to their objects: a cluster with new labels may be one that their
    /// namespace may use now.
    pub(super) fn touch_attached(&self, touched: &mut Touched) {
        if !self.tenancy.rules.limits_nothing() {
            let attached = self.bindings.values().filter(|binding| binding.is_attached());
            touched.keys.extend(attached.map(|binding| binding.key.clone()));
        }
    }

    /// Objects and bindings of a namespace.
    fn touch_namespace(&self, name: &str, touched: &mut Touched) {
        let from = BindingKey::of(Some(name), "");
        let here = |key: &&BindingKey| key.namespace() == Some(name);
        let templates = self.by.templates_by_binding.range(from.clone()..).map(|(key, _)| key);
        touched.keys.extend(templates.take_while(here).cloned());
        let bindings = self.bindings.range(from..).map(|(key, _)| key);
        touched.keys.extend(bindings.take_while(here).cloned());
    }
}
